# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kernel_module``, on files that stand for the kernel's and a stand-in for modprobe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kernel_module import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

from .fake_host import FakeHost, converge, filled

FILE = "/etc/modules-load.d/ironspan-base-overlay.conf"
SPEC = filled(KIND, id="base/overlay", name="overlay")
LOADED = "overlay 151552 0 - Live 0x0\nbr_netfilter 32768 0 - Live 0x0\n"
BUILTIN = f"/lib/modules/{os.uname().release}/modules.builtin"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.program("modprobe", '[ "$1" = -r ] || echo "$1 16384 0 - Live 0x0" >>"$IRONSPAN_ROOT/proc/modules"')
    return host


@pytest.mark.parametrize(
    ("files", "name", "differing"),
    [
        ({}, "overlay", {"loaded", "file"}),
        ({"/proc/modules": LOADED}, "overlay", {"file"}),
        ({"/proc/modules": LOADED, FILE: "overlay\n"}, "overlay", set()),
        ({"/proc/modules": LOADED, FILE: "other\n"}, "overlay", {"file"}),
        ({"/proc/modules": LOADED, FILE: "br-netfilter\n"}, "br-netfilter", set()),
        ({"/proc/modules": "overlayfs 1 0 - Live 0x0\n"}, "overlay", {"loaded", "file"}),
        ({"/sys/module/overlay/parameters/x": ""}, "overlay", set()),
        ({BUILTIN: "kernel/fs/overlayfs/overlay.ko\n"}, "overlay", set()),
        ({BUILTIN: "kernel/net/bridge/br-netfilter.ko.xz\n"}, "br_netfilter", set()),
        ({"/proc/filesystems": "nodev\ttmpfs\nnodev\toverlay\n"}, "overlay", set()),
        ({"/proc/sys/net/bridge/bridge-nf-call-iptables": "1"}, "br_netfilter", set()),
    ],
)
def test_compare(host: FakeHost, files: dict[str, str], name: str, differing: set[str]) -> None:
    for path, text in files.items():
        host.put(path, text)
    change = KIND.compare({**SPEC, "name": name}, host)
    assert set(change.after if change else ()) == differing


def test_loads_keeps_and_unloads_again(host: FakeHost) -> None:
    change = converge(KIND, SPEC, host)
    assert change is not None
    assert host.text(FILE) == "overlay\n"
    assert host.calls() == [["modprobe", "overlay"]]
    assert host.backups == [FILE]
    KIND.undo(SPEC, change, host)
    assert host.calls()[-1] == ["modprobe", "-r", "overlay"]


def test_a_loaded_module_is_not_unloaded_by_undo(host: FakeHost) -> None:
    host.put("/proc/modules", LOADED)
    change = converge(KIND, SPEC, host)
    assert change is not None
    KIND.undo(SPEC, change, host)
    assert host.calls() == []


def test_a_module_that_does_not_load_is_not_kept(host: FakeHost) -> None:
    host.program("modprobe", "echo 'modprobe: FATAL: Module overlay not found.' >&2; exit 1")
    change = KIND.compare(SPEC, host)
    assert change is not None
    with pytest.raises(ResourceError, match="not found") as caught:
        KIND.apply(SPEC, change, host)
    assert caught.value.remedy
    assert not Path(host.path(FILE)).exists()
