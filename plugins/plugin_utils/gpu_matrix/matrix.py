# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether what a host with GPUs shall have goes together, and the nearest that does."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix.nvproxy import Supported, Triple
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

_OF_A_BRANCH = re.compile(
    r"(?:lib|linux-modules-|linux-objects-|xserver-xorg-video-)?nvidia-(?:[a-z0-9]+-)*?([0-9]{3})(?:-.*)?"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Together:
    """What one host shall have; empty texts are not judged.

    Args:
        driver: its version.
        modules: ``open`` or ``proprietary``.
        model: the GPU.
        cuda: newest CUDA whose programs shall run, such as ``12.8``.
        kernel: release of the kernel.
        gvisor: release of gVisor, where sandboxes get GPUs.
        packages: further packages, name to version.
    """

    driver: str
    modules: str = "open"
    model: str = ""
    cuda: str = ""
    kernel: str = ""
    gvisor: str = ""
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def branch(self) -> int:
        """The driver's branch."""
        return int(self.driver.split(".")[0])


class Finding(t.NamedTuple):
    """What does not go together: which of the fields is named, and why."""

    field: str
    message: str


def models() -> tuple[str, ...]:
    """Return the GPUs that are known."""
    return tuple(nvproxy.data()["models"])


def instead(model: str) -> str:
    """Return what to write in the place of a GPU that nobody knows, such as NVML's whole name of one."""
    words = re.split(r"[\s_-]+", model.upper())
    near = next((word for word in words if word in models()), None) or nearest(model, models())
    return f"write {near}" if near else f"known are {', '.join(models())}"


def findings(wanted: Together, supported: Supported, tested: frozenset[Triple]) -> Iterator[Finding]:
    """Yield everything that does not go together.

    Args:
        wanted: what a host shall have.
        supported: drivers of each release of gVisor.
        tested: what has been seen working in sandboxes.
    """
    data = nvproxy.data()
    if wanted.model:
        generation = data["models"].get(wanted.model)
        if generation is None:
            yield Finding("model", f"{wanted.model} is no GPU that is known; {instead(wanted.model)}")
        else:
            yield from _generation(wanted, str(generation), data["generations"][generation])
    if wanted.modules == "open" and wanted.branch < data["open_modules_since"]:
        yield Finding("modules", f"branch {wanted.branch} has no open modules")
    if wanted.cuda:
        first = data["cuda"].get(int(wanted.cuda.split(".")[0]))
        compat = f"cuda-compat-{wanted.cuda.replace('.', '-')}"
        if first is None:
            yield Finding("cuda", f"nothing is known of CUDA {wanted.cuda}")
        elif wanted.branch < first and compat not in wanted.packages:
            yield Finding(
                "driver",
                f"programs of CUDA {wanted.cuda} need a driver of branch {first}, or the package {compat}",
            )
    newest = data["kernels"].get(wanted.driver)
    if newest and wanted.kernel and _numbers(wanted.kernel) > _numbers(newest):
        yield Finding("kernel", f"modules of the driver {wanted.driver} compile for kernels up to {newest}")
    for name, version in wanted.packages.items():
        if any(word in name for word in data["lock_step"]) and not _is_of(version, wanted.driver):
            yield Finding(
                "packages", f"{name} {version or 'of any version'} is not of the driver {wanted.driver}"
            )
    if wanted.gvisor:
        triple = Triple(wanted.driver, wanted.gvisor, wanted.model)
        if triple not in tested and wanted.driver not in supported.get(wanted.gvisor, ()):
            yield Finding("driver", f"gVisor {wanted.gvisor} does not know the driver {wanted.driver}")


def _generation(wanted: Together, name: str, generation: Mapping[str, t.Any]) -> Iterator[Finding]:
    last = generation.get("last")
    if wanted.modules not in generation["modules"]:
        yield Finding(
            "modules", f"{wanted.model} ({name}) takes {' or '.join(generation['modules'])} modules only"
        )
    if wanted.branch < generation["first"]:
        yield Finding(
            "driver", f"{wanted.model} ({name}) needs a driver of branch {generation['first']} or later"
        )
    if last and wanted.branch > last:
        yield Finding("driver", f"drivers for {wanted.model} ({name}) end with branch {last}")


def branch_of(package: str) -> str:
    """Return the branch of the driver that a package is of by its name; empty where it names none."""
    found = _OF_A_BRANCH.fullmatch(package)
    return found[1] if found else ""


def _is_of(version: str, driver: str) -> bool:
    """Tell whether a version of a package, or a pattern of one, can only be of this driver."""
    bare = version.partition(":")[2] or version
    return bare.startswith((f"{driver}-", f"{driver}*")) or bare == driver


def _numbers(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def good(wanted: Together, supported: Supported, tested: frozenset[Triple]) -> Together | None:
    """Return the nearest that goes together: with the fewest changes, then the nearest driver.

    Kernel, model and CUDA stay: they are what the host has, and what it is for.

    Args:
        wanted: what does not go together.
        supported: as ``findings``.
        tested: as ``findings``.
    """
    drivers = {wanted.driver, *itertools.chain.from_iterable(supported.values()), *nvproxy.data()["kernels"]}
    releases = [wanted.gvisor, *(supported if wanted.gvisor else ())]
    kinds = ("open", "proprietary") if wanted.modules else ("",)
    found: list[tuple[tuple[object, ...], Together]] = []
    for driver, release, modules in itertools.product(sorted(drivers), dict.fromkeys(releases), kinds):
        packages = _moved(wanted.packages, driver)
        other = dataclasses.replace(wanted, driver=driver, gvisor=release, modules=modules, packages=packages)
        if any(findings(other, supported, tested)):
            continue
        changes = sum(
            getattr(other, name) != getattr(wanted, name) for name in ("driver", "gvisor", "modules")
        )
        changes += packages != wanted.packages and driver == wanted.driver
        far = nvproxy.distance(nvproxy.order(driver), nvproxy.order(wanted.driver))
        found.append(((changes, far, nvproxy.order(driver), release), other))
    return min(found, key=lambda each: each[0])[1] if found else None


def _moved(packages: Mapping[str, str], driver: str) -> dict[str, str]:
    """Return packages in the versions of a driver, where they must have the driver's version."""
    words = nvproxy.data()["lock_step"]
    other = {name for name in packages if any(word in name for word in words)}
    other = {name for name in other if not _is_of(packages[name], driver)}
    return {name: f"{driver}-*" if name in other else version for name, version in packages.items()}


def upgrade_order(
    before: tuple[str, str], after: tuple[str, str], supported: Supported
) -> tuple[tuple[str, str], ...]:
    """Return in which order driver and gVisor change, so that sandboxes with GPUs start at each step.

    Args:
        before: driver and release of gVisor that run.
        after: those wanted.
        supported: drivers of each release.

    Returns:
        The pairs after each step; the last one is ``after``. Where it does not matter, gVisor goes first,
        because it needs no reboot.

    Raises:
        Rejected: there is no way, or one of the ends does not work.
    """
    for driver, release in (before, after):
        if driver not in supported.get(release, ()):
            raise Rejected(
                f"gVisor {release} does not know the driver {driver}",
                nvproxy.nearest_good(Triple(driver, release, ""), supported)
                if release in supported
                else f"write one of {', '.join(sorted(supported))}",
            )
    drivers = sorted({*itertools.chain.from_iterable(supported.values())}, key=nvproxy.order)
    ways: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {before: ()}
    waiting = [before]
    while waiting and after not in ways:
        at = waiting.pop(0)
        steps = [(at[0], release) for release in _first(after[1], supported)]
        steps += [(driver, at[1]) for driver in _first(after[0], drivers)]
        for step in steps:
            if step not in ways and step[0] in supported[step[1]]:
                ways[step] = (*ways[at], step)
                waiting.append(step)
    if after not in ways:
        raise Rejected(
            f"there is no way from driver {before[0]} with gVisor {before[1]} to {after[0]} with {after[1]} "
            "on which sandboxes with GPUs start",
            "drain these hosts and take them out of gvisor_gpu meanwhile",
        )
    return ways[after]


def _first(name: str, names: Iterable[str]) -> list[str]:
    """Return names with one of them first: the way to it is tried before any other."""
    return [name, *(each for each in names if each != name)]
