# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents follow the CIS benchmark, where a site asks for it, and hold what sshd and containerd read."""

from __future__ import annotations

import ast
import collections
import json
import os
import re
import shlex
import subprocess
import tomllib
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support import benchmark
from tests.unit.roles.conftest import ROOT, Rendered

Render = Callable[..., Rendered]
BENCHMARK = {"site_cis_benchmark": True}
KEY = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
RULES = [{"images": ["ghcr.io/acme/*"], "keys": [KEY]}]
SSHD = "/usr/sbin/sshd"
ASKED_FOR = {"1.2.29", "1.2.30", "4.1.1", "4.2.12", "4.2.13", "4.2.14"}
"""Checks that only hold with site_cis_benchmark."""


@pytest.mark.parametrize("check", benchmark.CHECKS, ids=lambda check: check.name)
def test_benchmark(render: Render, check: benchmark.Check) -> None:
    found = benchmark.found(check, render(variables=BENCHMARK).resources("az-1"))
    assert check.expected(found), f"{check.name}: {found}"


@pytest.mark.parametrize("check", benchmark.CHECKS, ids=lambda check: check.name)
def test_what_can_break_something_needs_the_switch(render: Render, check: benchmark.Check) -> None:
    found = benchmark.found(check, render(variables={"site_cis_benchmark": False}).resources("az-1"))
    assert check.expected(found) == (check.number not in ASKED_FOR), f"{check.name}: {found}"


def test_a_site_has_the_last_word(render: Render) -> None:
    variables = {
        **BENCHMARK,
        "control_plane_api_server_args": {"service-account-extend-token-expiration": "true"},
        "node_kubelet_settings": {"seccompDefault": False},
    }
    resources = render(variables=variables).resources("az-1")
    for check in benchmark.CHECKS:
        if check.number in ("1.2.30", "4.2.14"):
            assert not check.expected(benchmark.found(check, resources))


def test_what_is_not_followed_is_no_check_that_holds() -> None:
    for number in {check.number for check in benchmark.CHECKS} & set(benchmark.DEVIATIONS):
        assert benchmark.DEVIATIONS[number].reason.startswith("Followed: "), number


def test_the_manual_has_every_deviation_with_its_reason() -> None:
    manual = (ROOT / "docs" / "hardening.md").read_text()
    rows = re.findall(r"^\| ([0-9.]+) \| ([^|]+) \| ([^|]+) \|$", manual, re.MULTILINE)
    assert sorted(rows) == sorted(
        (number, it.verdict, it.reason) for number, it in benchmark.DEVIATIONS.items()
    )
    counts = collections.Counter(it.verdict for it in benchmark.DEVIATIONS.values())
    assert f"{counts['FAIL']} FAIL and {counts['WARN']} WARN" in manual


def sshd_config(render: Render, **variables: t.Any) -> str:
    """Return what a host's sshd is told."""
    return render(variables={"base_sshd": "hardened", **variables}).content("rack-1", "base/sshd-settings")


def test_sshd_is_left_alone_by_default(render: Render) -> None:
    assert not [name for name in render().resources("rack-1") if "sshd" in name]


def test_sshd_reads_its_settings_only_after_they_were_checked(render: Render) -> None:
    resources = render(variables={"base_sshd": "hardened"}).resources("rack-1")
    check, service = resources["base/sshd-check"], resources["base/sshd"]
    assert check["restart_on"] == ["base/sshd-settings", "base/sshd-check-unit"]
    assert service["requires"] == ["base/sshd-check"]
    assert service["reload_on"] == ["base/sshd-settings"]
    unit = resources["base/sshd-check-unit"]["content"]
    assert "ExecStart=/usr/sbin/sshd -t\n" in unit


def test_sshd_is_told_to_forget_what_is_removed(render: Render) -> None:
    resources = render().after("rack-1", render(variables={"base_sshd": "hardened"}))
    assert resources["base/sshd-settings-removed"]["kind"] == "absent"
    told = resources["base/sshd-told"]
    assert (told["name"], told["reload_on"]) == ("ssh.service", ["base/sshd-settings-removed"])


def test_the_controller_still_agrees_with_sshd_on_a_key_exchange(render: Render) -> None:
    line = next(it for it in sshd_config(render).splitlines() if it.startswith("KexAlgorithms "))
    offered = re.search(r"-o KexAlgorithms=(\S+)", (ROOT / "ansible.cfg").read_text())
    assert offered
    assert set(offered[1].split(",")) <= set(line.split()[1].split(","))


@pytest.mark.skipif(not os.access(SSHD, os.X_OK), reason="needs sshd")
def test_sshd_takes_its_settings_and_a_site_has_the_last_word(render: Render, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where no sshd has been started since the last boot
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = tmp_path / "sshd_config"
    text = sshd_config(render, base_sshd_settings={"LoginGraceTime": 33, "AllowGroups": "operators"})
    config.write_text(f"{text}HostKey {key}\nPasswordAuthentication yes\n")
    user = ["-C", "user=root,host=localhost,addr=127.0.0.1"]
    done = subprocess.run([SSHD, "-T", "-f", config, *user], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for line in (
        "passwordauthentication no",
        "permitrootlogin without-password",
        "pubkeyauthentication yes",
        "logingracetime 33",
        "allowgroups operators",
    ):
        assert line in said


def test_kernel_settings_are_written_like_the_others(render: Render) -> None:
    variables = {"base_security_sysctls": [{"name": "kernel.dmesg_restrict", "value": "1"}]}
    resource = render(variables=variables).resources("rack-1")["base/sysctl-kernel.dmesg_restrict"]
    assert (resource["kind"], resource["value"]) == ("sysctl", "1")
    assert render().site.hosts["rack-1"].variables["base_security_sysctls"] == []


@pytest.mark.parametrize("mode", ["warn", "enforce"])
def test_containerd_asks_who_signed(render: Render, mode: str) -> None:
    rendered = render(
        variables={
            "containerd_image_policy_mode": mode,
            "containerd_image_policy": RULES,
            "containerd_max_concurrent_downloads": 7,
        }
    )
    settings = rendered.resources("rack-1")["containerd/image-settings"]
    # After whatever others have put there: what containerd reads last counts.
    assert Path(settings["path"]).parent == Path("/etc/containerd/conf.d")
    assert Path(settings["path"]).name > "zz"
    plugins = tomllib.loads(settings["content"])["plugins"]
    # Other values make containerd pull without asking anybody (internal/cri/config/config.go).
    assert plugins["io.containerd.cri.v1.images"] == {
        "max_concurrent_downloads": 3,
        "disable_snapshot_annotations": True,
    }
    assert plugins["io.containerd.transfer.v1.local"] == {"max_concurrent_downloads": 7}
    resources = rendered.resources("rack-1")
    folder = plugins["io.containerd.image-verifier.v1.bindir"]["bin_dir"]
    # Whatever lies in the folder is run, so a half-written program must not: it is a link.
    inside = [it for it in resources.values() if str(Path(it.get("path", "/")).parent) == folder]
    assert [(it["kind"], it["target"]) for it in inside] == [("symlink", "../verify-image")]
    program = resources["containerd/image-verifier-program"]
    assert program["path"] == os.path.normpath(f"{folder}/../verify-image")
    assert program["content"] == (ROOT / "plugins/module_utils/_programs/verify_image.py").read_text()
    policy = json.loads(rendered.content("rack-1", "containerd/image-policy"))
    assert policy["mode"] == mode
    assert policy["registries"]["ghcr.io"] == "http://10.98.1.1:8080/v2/ghcr.io"
    assert policy["rules"] == [{**RULES[0], "signed_as": []}]
    assert resources["containerd/image-policy"]["path"] in program["content"]
    assert settings["requires"] == ["containerd/image-verifier"]
    assert {"containerd/image-settings", "containerd/image-start"} < set(
        resources["containerd/service"]["restart_on"]
    )


DUMPS = [
    ("use_local_image_pull = false\n  max_concurrent_downloads = 4\n", 0),
    ("  [plugins.'io.containerd.cri.v1.images'.registry]\n", 0),
    ("    use_local_image_pull = true\n", 1),
    ("  discard_unpacked_layers = true\n", 1),
    ("  image_pull_with_sync_fs = true\n", 1),
    ("  [plugins.'io.containerd.cri.v1.images'.registry.configs.'a.example.com'.auth]\n", 1),
]


@pytest.mark.parametrize(("dump", "status"), DUMPS)
def test_containerd_does_not_start_with_what_asks_nobody(
    render: Render, tmp_path: Path, dump: str, status: int
) -> None:
    variables = {"containerd_image_policy_mode": "enforce", "containerd_image_policy": RULES}
    unit = render(variables=variables).content("rack-1", "containerd/image-start")
    program = tmp_path / "containerd"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{dump}END\n")
    program.chmod(0o755)
    (command,) = re.findall("^ExecStartPre=(.*)$", unit, re.MULTILINE)
    done = subprocess.run(
        shlex.split(command.replace("/usr/local/bin/containerd", str(program))),
        capture_output=True,
        check=False,
    )
    assert done.returncode == status


def test_without_a_policy_nothing_of_it_is_left(render: Render) -> None:
    on = render(variables={"containerd_image_policy_mode": "enforce", "containerd_image_policy": RULES})
    resources = render(variables={"containerd_image_policy": RULES}).after("rack-1", on)
    assert {
        it["kind"] for name, it in resources.items() if "image-" in name and it["kind"] != "container_image"
    } == {"absent"}


def test_the_program_is_of_the_oldest_python_that_a_host_may_have() -> None:
    source = (ROOT / "plugins/module_utils/_programs/verify_image.py").read_text()
    ast.parse(source, feature_version=(3, 9))
    # Else `tuple[...]` and `X | Y` in annotations would be looked up.
    assert "from __future__ import annotations" in source
