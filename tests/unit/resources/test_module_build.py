# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``module_build``, with stand-ins for modinfo, dkms and mokutil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.module_build import (
    KIND,
    SECURE_BOOT,
    parse_modinfo,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

KERNEL = "6.12.43-amd64"
MODINFO = f'[ "$1 $2 $3" = "-k {KERNEL} nvidia" ] && cat "$IRONSPAN_ROOT/modinfo" 2>/dev/null'
BUILD = (
    'printf "version: 550.1\\nlicense: NVIDIA\\nsigner: DKMS module signing key\\n" >"$IRONSPAN_ROOT/modinfo"'
)
SIGNER = "Canonical Ltd. Kernel Module Signing"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.program("modinfo", MODINFO)
    host.program("dkms", BUILD)
    host.program("mokutil", 'cat "$IRONSPAN_ROOT/mok"')
    Path(host.path(f"/lib/modules/{KERNEL}/build")).mkdir(parents=True)
    return host


def spec(**values: Any) -> dict[str, Any]:
    wanted = {"module": "nvidia", "version": "550.1", "kernel": KERNEL, "signers": ["Canonical*"]}
    return filled(KIND, id="gpu/modules", **{**wanted, **values})


def has(host: FakeHost, version: str = "550.1", licence: str = "NVIDIA", signer: str = "") -> None:
    signed = f"signer:         {signer}\n" if signer else ""
    host.put("/modinfo", f"version:        {version}\nlicense:        {licence}\n{signed}")


def secure(host: FakeHost, last: str = "\x01") -> None:
    host.put(SECURE_BOOT, f"\x06\x00\x00\x00{last}")


def test_a_module_of_that_version_is_enough(host: FakeHost) -> None:
    has(host)
    assert KIND.compare(spec(licence="NVIDIA"), host) is None


@pytest.mark.parametrize(
    ("found", "action"),
    [({}, "create"), ({"version": "535.2"}, "update"), ({"licence": "Dual MIT/GPL"}, "update")],
)
def test_another_one_is_built(host: FakeHost, found: dict[str, str], action: str) -> None:
    if found:
        has(host, **found)
    change = converge(KIND, spec(dkms="nvidia-current", licence="NVIDIA"), host)
    assert change is not None and change.action == action
    (build,) = host.calls("dkms")
    assert build[1:] == ["install", "--force", "-k", KERNEL, "-m", "nvidia-current", "-v", "550.1"]


def test_without_dkms_a_package_must_have_brought_it(host: FakeHost) -> None:
    has(host, "535.2")
    change = KIND.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"shall have the module nvidia 550.1, and has nvidia 535.2"):
        KIND.apply(spec(), change, host)
    assert host.calls("dkms") == []


def test_a_failed_build_shows_the_compiler_s_error(host: FakeHost) -> None:
    host.program("dkms", "echo Bad return status >&2; exit 10")
    host.put(
        "/var/lib/dkms/nvidia/550.1/build/make.log", "CC nv.o\nnv.c:7: error: no member\nmake: Error 2\n"
    )
    change = KIND.compare(spec(dkms="nvidia"), host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"does not build for kernel .*: nv.c:7: error: no member"):
        KIND.apply(spec(dkms="nvidia"), change, host)


def test_headers_that_are_missing_are_named(host: FakeHost) -> None:
    wanted = spec(dkms="nvidia", kernel="6.1.0")
    change = KIND.compare(wanted, host)
    assert change is not None
    with pytest.raises(ResourceError, match="headers are not there") as caught:
        KIND.apply(wanted, change, host)
    assert "linux-headers-6.1.0" in caught.value.remedy


@pytest.mark.parametrize(
    ("boot", "signer", "message"),
    [
        ("\x01", SIGNER, ""),
        ("\x01", "", "is not signed"),
        ("\x01", "Somebody", "is signed by 'Somebody'"),
        ("\x00", "", ""),
        ("", "", ""),
    ],
)
def test_secure_boot_insists_on_a_signer(host: FakeHost, boot: str, signer: str, message: str) -> None:
    has(host, signer=signer)
    secure(host, boot)
    if not message:
        assert KIND.compare(spec(), host) is None
        return
    with pytest.raises(ResourceError, match=message):
        KIND.compare(spec(), host)


@pytest.mark.parametrize(("answer", "accepted"), [("is already enrolled", True), ("is not enrolled", False)])
def test_what_dkms_signs_with_must_be_known_to_the_firmware(
    host: FakeHost, answer: str, accepted: bool
) -> None:
    secure(host)
    host.put("/mok", f"/var/lib/dkms/mok.pub {answer}\n")
    wanted = spec(dkms="nvidia", signers=["DKMS module signing key"])
    change = KIND.compare(wanted, host)
    assert change is not None
    if accepted:
        KIND.apply(wanted, change, host)
        assert KIND.compare(wanted, host) is None
        return
    with pytest.raises(ResourceError, match="does not know the key") as caught:
        KIND.apply(wanted, change, host)
    assert "mokutil --import" in caught.value.remedy


@pytest.mark.parametrize("name", ["module", "version", "kernel"])
@pytest.mark.parametrize("value", ["", "two words"])
def test_mistakes(name: str, value: str) -> None:
    (mistake,) = KIND.check(spec(**{name: value}))
    assert name in mistake


@given(st.text())
def test_modinfo_never_fails(text: str) -> None:
    for value in parse_modinfo(text).values():
        assert value == value.strip()
