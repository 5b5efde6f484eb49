# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runtime classes as typed values, flags of runsc, and which drivers go with which gVisor."""

from __future__ import annotations

import hashlib
import json
import platform
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.versions import locked
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import runtime
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected
from hypothesis import given, settings
from hypothesis import strategies as st

RELEASE = "20260817.0"
Read = t.Callable[..., object]

RIGHT: list[tuple[Read, tuple[t.Any, ...]]] = [
    (runtime.class_name, ("gvisor",)),
    (runtime.class_name, ("gvisor-gpu2",)),
    (runtime.cpu_quantity, ("50m",)),
    (runtime.cpu_quantity, ("2",)),
    (runtime.annotation, ("dev.gvisor.spec.mount.data.type", "gvisor")),
    (runtime.annotation, ("dev.gvisor.spec.mount.*", "nvproxy")),
    (runtime.annotation, ("io.katacontainers.config.runtime.*", "kata")),
    (runtime.flag, ("overlay2", "root:memory,size=2g", RELEASE)),
    (runtime.flag, ("overlay2", "all:dir=/var/tmp", RELEASE)),
    (runtime.flag, ("debug", True, RELEASE)),
    (runtime.flag, ("debug", "false", RELEASE)),
    (runtime.flag, ("num-network-channels", 4, RELEASE)),
    (runtime.flag, ("control-rpc-stop-timeout", "1m30s", RELEASE)),
    (runtime.flag, ("in-sandbox-cgroup", "v2", RELEASE)),
]


@pytest.mark.parametrize(("read", "arguments"), RIGHT)
def test_right(read: Read, arguments: tuple[t.Any, ...]) -> None:
    read(*arguments)


WRONG: list[tuple[Read, tuple[t.Any, ...], str]] = [
    (runtime.class_name, ("gVisor",), "lower-case"),
    (runtime.class_name, ("runc",), "containerd has already"),
    (runtime.class_name, ("-a",), "lower-case"),
    (runtime.cpu_quantity, ("0.5",), "no amount of CPU"),
    (runtime.memory_bytes, ("64M",), "no amount of memory"),
    (runtime.memory_bytes, ("64",), "no amount of memory"),
    (runtime.memory_bytes, ("1Mi",), "no overhead of a sandbox"),
    (runtime.memory_bytes, ("5Gi",), "no overhead of a sandbox"),
    (runtime.annotation, ("*", "gvisor"), "no name of an annotation"),
    (runtime.annotation, ("dev.gvisor.*", "gvisor"), "set flags of runsc"),
    (runtime.annotation, ("dev.gvisor.flag.*", "gvisor"), "set flags of runsc"),
    (runtime.annotation, ("dev.gvisor.flag.network", "nvproxy"), "set flags of runsc"),
    (runtime.annotation, ("dev.gvisor.internal.nvproxy", "gvisor"), "set flags of runsc"),
    (runtime.annotation, ("dev.gvisor.spec.cgroup-parent", "gvisor"), "set flags of runsc"),
    (runtime.annotation, ("dev.gvisor.spec.m*", "gvisor"), "set flags of runsc"),
    (runtime.annotation, ("io.katacontainers.config.hypervisor.path", "kata"), "virtual machine"),
    (runtime.annotation, ("dev.gvisor.spec.mount.*", "kata"), "means nothing to Kata"),
    (runtime.flag, ("network", "host", RELEASE), "leave their sandbox's network"),
    (runtime.flag, ("allow-flag-override", True, RELEASE), "set any flag by an annotation"),
    (runtime.flag, ("host-uds", "open", RELEASE), "services of the host"),
    (runtime.flag, ("nvproxy-allow-unsupported-driver", True, RELEASE), "gate of driver versions"),
    (runtime.flag, ("platform", "kvm", RELEASE), "gvisor_platform says so"),
    (runtime.flag, ("platfrom", "kvm", RELEASE), "no flag platfrom"),
    (runtime.flag, ("debug", "maybe", RELEASE), "debug is 'maybe'"),
    (runtime.flag, ("overlay2", "root:tape", RELEASE), "overlay2 is"),
    (runtime.flag, ("overlay2", ["none"], RELEASE), "overlay2 is"),
    (runtime.flag, ("num-network-channels", "four", RELEASE), "num-network-channels"),
    (runtime.flag, ("debug-log", "/a\nb", RELEASE), "debug-log"),
    (runtime.flag, ("in-sandbox-cgroup", "v2", "20260701.0"), "has no flag in-sandbox-cgroup yet"),
]


@pytest.mark.parametrize(("read", "arguments", "says"), WRONG)
def test_wrong(read: Read, arguments: tuple[t.Any, ...], says: str) -> None:
    with pytest.raises(Rejected) as caught:
        read(*arguments)
    assert says in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(("text", "size"), [("64Mi", 64 << 20), ("1Gi", 1 << 30), ("30000Ki", 30_000 << 10)])
def test_memory(text: str, size: int) -> None:
    assert runtime.memory_bytes(text) == size


@settings(max_examples=30)
@given(st.text(max_size=40), st.sampled_from(["gvisor", "nvproxy"]))
def test_no_annotation_that_is_accepted_reaches_a_flag(text: str, kind: str) -> None:
    try:
        runtime.annotation(text, kind)
    except Rejected:
        return
    head = text.rstrip("*")
    assert not "dev.gvisor.flag.".startswith(head) and not head.startswith("dev.gvisor.flag.")


def test_flags_are_in_one_list_only() -> None:
    lists = yaml.safe_load(runtime.FLAGS_FILE.read_text())
    assert not set(lists["known"]) & set(lists["refused"])
    assert set(lists["since"]) <= set(lists["known"]) | set(lists["refused"])


ENTRIES: list[dict[str, t.Any]] = [
    {"name": "gvisor"},
    {"name": "gvisor-gpu", "kind": "nvproxy", "driver_capabilities": ["compute"]},
    {"name": "fast", "group": "user_bare", "overhead_memory": "32Mi"},
]


def test_classes_and_the_hosts_that_serve_them() -> None:
    classes = runtime.classes_of(ENTRIES)
    runtimes = runtime.Runtimes(classes, classes)
    assert [each.handler for each in classes] == ["runsc", "gvisor-gpu", "fast"]
    assert [each.flags_path.rpartition("/")[2] for each in classes] == [
        "runsc.toml",
        "runsc-gvisor-gpu.toml",
        "runsc-fast.toml",
    ]
    assert [each.overhead_memory for each in classes] == ["", "", "32Mi"]
    assert [each.driver_capabilities for each in classes] == [(), ("compute",), ()]
    assert [each.name for each in runtimes.of(("nodes", "gvisor"))] == ["gvisor"]
    assert [each.name for each in runtimes.of(("gvisor", "user_bare"))] == ["gvisor", "fast"]
    assert runtimes.of(("user_bare",)) == [], "without gVisor a host serves no class of it"
    assert [each.name for each in runtimes.of(("gvisor", "gvisor_gpu"), "nvproxy")] == ["gvisor-gpu"]


SUPPORTED = {"1": ("580.65.06", "580.105.08", "590.48.01"), "2": ("580.105.08", "610.57.04"), "3": ()}
TESTED = frozenset({nvproxy.Triple("999.1", "9", "B200")})


@pytest.mark.parametrize(
    ("triple", "says", "remedy"),
    [
        (("580.105.08", "1", "H100"), "", ""),
        (("610.57.04", "2", "H200"), "", ""),
        (("999.1", "9", "B200"), "", ""),
        (("580.100.01", "1", "H100"), "does not know the driver", 'the driver "580.105.08"'),
        (("610.57.04", "1", "H100"), "does not know", '"590.48.01" or gvisor_version: "2"'),
        (("580.105.08", "3", "H100"), "does not know", 'write gvisor_version: "2"'),
        (("500.1", "3", "H100"), "does not know", "write a release"),
        (("580.105.08", "8", "H100"), "nothing is known", "ironspan artifacts build runsc/8"),
        (("580.105.08", "1", "B200"), "GPU B200", "gvisor_gpu_tested"),
        (("580.105.08", "1", "H20"), "GPU H20", "write H200"),
        (("latest", "1", "H100"), "no version of the driver", "580"),
    ],
)
def test_gate(triple: tuple[str, str, str], says: str, remedy: str) -> None:
    if not says:
        nvproxy.check(nvproxy.Triple(*triple), SUPPORTED, TESTED)
        return
    with pytest.raises(Rejected) as caught:
        nvproxy.check(nvproxy.Triple(*triple), SUPPORTED, TESTED)
    assert says in caught.value.message
    assert remedy in caught.value.remedy


_DRIVERS = st.builds("{}.{}.{:02d}".format, st.integers(500, 620), st.integers(0, 260), st.integers(0, 99))


@settings(max_examples=30)
@given(_DRIVERS, st.sets(_DRIVERS, max_size=6), st.sets(_DRIVERS, max_size=6))
def test_what_is_named_instead_is_accepted(driver: str, one: set[str], other: set[str]) -> None:
    supported = {"1": tuple(sorted(one - {driver})), "2": tuple(sorted(other))}
    with pytest.raises(Rejected) as caught:
        nvproxy.check(nvproxy.Triple(driver, "1", "H100"), supported, frozenset())
    remedy = caught.value.remedy
    if 'gvisor_version: "2"' in remedy:
        nvproxy.check(nvproxy.Triple(driver, "2", "H100"), supported, frozenset())
    if "the driver" in remedy:
        named = remedy.split('the driver "')[1].split('"')[0]
        nvproxy.check(nvproxy.Triple(named, "1", "H100"), supported, frozenset())
    else:
        assert supported["1"] == ()


def test_the_data_are_whole() -> None:
    releases = nvproxy.known_releases()
    for name, drivers in releases.items():
        assert drivers == tuple(sorted(drivers, key=nvproxy.order)), name
        assert nvproxy.read_answer("\n".join(drivers)) == drivers
    assert {f"runsc/{name}" for name in releases} == {
        name for name in locked()[0] if name.startswith("runsc/")
    }
    assert "H200" in nvproxy.models()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the mirror's programs are for x86_64")
def test_the_programs_answer_counts_only_if_its_digest_is_right(tmp_path: Path) -> None:
    program = tmp_path / "x/runsc"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n[ \"$*\" = 'nvproxy list-supported-drivers' ] && echo warning && echo 570.1.02\n"
    )
    program.chmod(0o755)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    index = tmp_path / "index.json"

    def answer(sha256: str) -> tuple[str, ...]:
        files = {"runsc/7/amd64": {"path": "/x/runsc", "sha256": sha256, "size": 1}}
        index.write_text(json.dumps({"schema": 1, "artifacts": files, "images": {}}))
        return nvproxy.ask_mirror(index, "7")

    assert answer(digest) == ("570.1.02",)
    assert answer("0" * 64) == ()
    assert nvproxy.ask_mirror(index, "8") == ()
    assert nvproxy.ask_mirror(tmp_path / "none.json", "7") == ()
    assert nvproxy.ask(tmp_path / "none") == ()
