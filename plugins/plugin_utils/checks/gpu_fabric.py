# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The fabric manager is for hosts whose GPUs are joined by switches, and of the driver's version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import fabric, matrix
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

ENABLED, IMEX = "nvidia_fabric_enabled", "nvidia_fabric_imex"
MODEL, DRIVER, PACKAGES = "nvidia_driver_model", "nvidia_driver_version", "nvidia_driver_packages"
_MANAGERS = ("fabricmanager", "fabric-manager", "nvlsm")

Problem = tuple[str, str, str]
"""Variable, what is wrong, what to write instead."""


def check_fabric(draft: Draft) -> None:
    """Each value is judged once, at the line that has it."""
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", ENABLED, IMEX, PACKAGES):
        for variable, message, remedy in _problems(host):
            place = draft.place(host, variable)
            once.add(place, variable, f"{message} ({host.name})", remedy, what=message)


def _problems(host: HostDraft) -> Iterator[Problem]:
    value = host.values.get
    model, enabled = str(value(MODEL) or ""), bool(value(ENABLED))
    # One that nobody knows is named by checks/gpu_matrix.py.
    without_switches = model in matrix.models() and not fabric.switches(model)
    with_switches = f"switches join {', '.join(fabric.models())}"
    packages = value(PACKAGES)
    for name in packages if isinstance(packages, Mapping) else ():
        if without_switches and any(word in str(name) for word in _MANAGERS):
            yield PACKAGES, f"{name} manages switches, and {model} has none", f"leave it out; {with_switches}"
    if value(IMEX) and not enabled:
        yield IMEX, f"does nothing without {ENABLED}", f"write {ENABLED}: true beside it"
    elif value(IMEX) and model in fabric.alone():
        yield IMEX, f"joins GPUs of several hosts, and NVLink of {model} ends at its own", "write false"
    if not enabled:
        return
    if not model:
        yield ENABLED, "which switches the host has is not known", f"write {MODEL} beside it"
    elif without_switches:
        yield (
            ENABLED,
            f"is a fabric manager without NVSwitch: {model} has none",
            f"write false; {with_switches}",
        )
    if not value(DRIVER):
        yield (
            ENABLED,
            "the fabric manager must have the driver's own version, and the driver is somebody else's",
            f"write {DRIVER} beside it",
        )
    elif value("nvidia_driver_distribution") == "debian":
        yield (
            ENABLED,
            "Debian publishes no fabric manager",
            "use Ubuntu's packages, or install it with the image",
        )


CHECKS = (check_fabric,)
