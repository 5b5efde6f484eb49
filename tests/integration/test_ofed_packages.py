# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""OFED's packages, changed by the real engine, apt and dpkg, from a source of packages beside them.

The packages are none of NVIDIA's, which cannot be reached here: they have the names and versions, and a
module that says what modinfo has to say. Nothing is loaded.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest

from ironspan.lab import base_image
from tests.support.debian_packages import build, entry, module
from tests.support.debian_tree import DebianTree

pytestmark = [pytest.mark.lab, pytest.mark.long]

KERNEL = "6.8.0-60-generic"
OLD, NEW = ("3.1.0-091000", "25.07-0.9.7"), ("3.2.1-044000", "25.10-1.7.1")


def packages(release: tuple[str, str]) -> dict[str, str]:
    doca, modules = release
    dkms = f"{modules.split('-')[0]}.OFED.{modules.replace('-', '.')}.1"
    return {"doca-ofed": doca, "mlnx-ofed-kernel-dkms": dkms}


def document(release: tuple[str, str]) -> dict[str, t.Any]:
    """Return a document like the role's, without the GPU driver."""
    resources = [
        {"kind": "package_set", "id": "gpu/ofed", "packages": packages(release), "hold": True},
        {
            "kind": "module_build", "id": "gpu/ofed-modules", "module": "mlx5_core", "version": release[1],
            "kernel": KERNEL, "requires": ["gpu/ofed"],
        },
        {"kind": "reboot_request", "id": "gpu/reboot", "reason": "OFED", "restart_on": ["gpu/ofed"]},
    ]  # fmt: skip
    return {"schema": 1, "site": "s", "host": "h", "layers": ["gpu"], "resources": resources}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianTree]:
    """Return a tree that knows the source of both releases."""
    folder, debs = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("debs")
    base_image.ensure("packages", folder, lambda *what: None)
    tree = DebianTree(folder)
    for release in (OLD, NEW):
        wanted = packages(release)
        dkms = wanted["mlnx-ofed-kernel-dkms"]
        path = f"usr/lib/modules/{KERNEL}/updates/dkms/mlx5_core.ko"
        made = module(debs, release[1], "Dual BSD/GPL")
        # As DKMS does when it has built.
        build(debs, "mlnx-ofed-kernel-dkms", dkms, files={path: made}, after=f"depmod {KERNEL}")
        build(debs, "doca-ofed", wanted["doca-ofed"], needs=f"mlnx-ofed-kernel-dkms (= {dkms})")
    source = folder / "up/srv/ofed"
    source.mkdir(parents=True)
    files = sorted(debs.glob("*.deb"))
    for file in files:
        (source / file.name).write_bytes(file.read_bytes())
    tree.put("srv/ofed/Packages", "\n".join(map(entry, files)))
    tree.put("etc/apt/sources.list", "deb [trusted=yes] copy:/srv/ofed ./\n")
    tree.run("apt-get", "update", "-q")
    yield tree


def converged(tree: DebianTree, release: tuple[str, str]) -> list[str]:
    result = tree.engine(document=document(release))
    assert not result.get("failed"), result["msg"]
    assert tree.engine(document=document(release))["changes"] == []
    return [change["resource"] for change in result["changes"]]


def states(tree: DebianTree) -> dict[str, tuple[str, str]]:
    found = tree.states()
    return {name: found[name] for name in packages(NEW)}


def test_it_is_installed_in_exact_versions_and_held(tree: DebianTree) -> None:
    checked = tree.engine(document=document(OLD), mode="check")
    assert checked["changes"][0]["resource"] == "gpu/ofed"
    assert not set(packages(OLD)) & set(tree.states())
    assert converged(tree, OLD)[0] == "gpu/ofed"
    for name, version in packages(OLD).items():
        assert states(tree)[name] == ("hold ok installed", version)
    assert "Inst" not in tree.run("apt-get", "--simulate", "dist-upgrade")


def test_a_new_release_and_the_way_back(tree: DebianTree) -> None:
    converged(tree, NEW)
    assert {name: version for name, (_, version) in states(tree).items()} == packages(NEW)
    # The way back needs no source.
    tree.put("etc/apt/sources.list", "")
    tree.run("rm", "-rf", "/srv/ofed", "/run/ironspan")
    former = tree.engine(mode="rollback")
    assert not former.get("failed"), former["msg"]
    back = tree.engine(document=former["document"])
    assert not back.get("failed"), back["msg"]
    assert {name: version for name, (_, version) in states(tree).items()} == packages(OLD)


def test_modules_that_are_not_those_of_the_packages_are_an_error(tree: DebianTree) -> None:
    wanted = document(OLD)
    wanted["resources"][1]["version"] = NEW[1]
    result = tree.engine(document=wanted)
    assert result["failed"] and "mlx5_core 25.07-0.9.7" in result["msg"], result["msg"]
