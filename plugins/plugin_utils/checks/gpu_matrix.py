# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPU, driver, modules, CUDA, kernel and gVisor of every host go together, or the plan is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import matrix, nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix.matrix import Together
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

DRIVER = "nvidia_driver_version"
VARIABLES = {
    "driver": DRIVER,
    "modules": "nvidia_driver_modules",
    "model": "nvidia_driver_model",
    "cuda": "nvidia_driver_cuda",
    "kernel": "nvidia_driver_kernel",
    "packages": "nvidia_driver_packages",
    "gvisor": "gvisor_version",
}


def check_together(draft: Draft) -> None:
    """Each combination is judged once; every finding stands at the line that it names, with what would do."""
    supported = nvproxy.known_releases()
    tested = nvproxy.tested_triples(
        each
        for each in draft.site_value("gvisor_gpu_tested") or ()
        if isinstance(each, Mapping) and all(each.get(field) for field in nvproxy.Triple._fields)
    )
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", DRIVER):
        wanted = together(host)
        found = list(matrix.findings(wanted, supported, tested)) if wanted else []
        if wanted is None or not found:
            continue
        if any(field == "model" for field, _ in found):
            _unknown_model(draft, host, wanted.model, once)
            continue
        remedy = _remedy(wanted, matrix.good(wanted, supported, tested))
        for field, message in found:
            variable = VARIABLES[field]
            place = draft.place(host, variable if variable in host.settings else DRIVER)
            once.add(place, variable, f"{message} ({host.name})", remedy, what=message)


def _unknown_model(draft: Draft, host: HostDraft, model: str, once: Once) -> None:
    """Of a GPU that nobody knows nothing else can be said."""
    variable = VARIABLES["model"]
    message = f"{model} is no GPU that is known ({host.name})"
    once.add(draft.place(host, variable), variable, message, matrix.instead(model), what=model)


def together(host: HostDraft) -> Together | None:
    """Return what is judged of a host; None where it says nothing of its driver, or what is none."""
    driver = str(host.values.get(DRIVER) or "")
    modules = host.values.get("nvidia_driver_modules")
    if not nvproxy.is_driver(driver) or modules not in ("open", "proprietary"):
        return None
    packages = host.values.get("nvidia_driver_packages")
    texts = {
        field: str(host.values.get(variable) or "")
        for field, variable in VARIABLES.items()
        if field not in ("packages", "gvisor")
    }
    # Sandboxes with GPUs are judged by checks/runtime_gpu.py, which asks the program itself where it can;
    # texts that are no versions, and packages of other branches, by checks/gpu_driver.py.
    named = {
        str(name): str(version)
        for name, version in (packages.items() if isinstance(packages, Mapping) else ())
        if not re.search(r"\s", str(version)) and matrix.branch_of(str(name)) in ("", driver.split(".")[0])
    }
    if not re.fullmatch(r"[0-9]+\.[0-9]+", texts["cuda"]):
        texts["cuda"] = ""
    return Together(**texts, packages=named)


def _remedy(wanted: Together, good: Together | None) -> str:
    if good is None:
        return "nothing that is known goes with all of this; see plugins/plugin_utils/gpu_matrix/matrix.yml"
    changes = [
        f'{VARIABLES[field]}: "{getattr(good, field)}"'
        for field in ("driver", "modules")
        if getattr(good, field) != getattr(wanted, field)
    ]
    packages = good.packages.items()
    moved = [f'{name}: "{version}"' for name, version in packages if wanted.packages[name] != version]
    if moved:
        changes.append(f"{VARIABLES['packages']}: {{{', '.join(moved)}}}")
    return f"the nearest that goes together: {', '.join(changes)}"


CHECKS = (check_together,)
