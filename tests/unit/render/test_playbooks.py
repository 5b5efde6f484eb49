# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The actions in real runs of ansible-playbook: the real module in private roots, an ssh that only counts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import shown

from tests.support.playbooks import ROOT
from tests.support.small_plays import (
    COMPARE,
    CONVERGE_PENDING,
    SSH,
    TWO,
    VALIDATE,
    files,
    mirror_index,
    play,
    run,
)

from .support import KEY, ROLES, write_inventory

PLAY = VALIDATE.format(purpose="apply") + COMPARE + CONVERGE_PENDING
ALONE = """\
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        layers: [base]
        mode: {mode}
        root: "{{{{ user_root }}}}"
        roles_folder: "{roles}"
        consent: "{{{{ consent | default('') }}}}"
"""


def test_validate_assess_converge_and_again(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    text = PLAY.format(roles=ROLES)

    checked = play(tmp_path, text, *TWO, "--check", "--diff")
    assert checked.returncode == 0, checked.stdout
    assert files(tmp_path) == {} and not (tmp_path / "pki").exists()
    assert "+Welcome to small, w2 of small." in checked.stdout

    first = play(tmp_path, text, *TWO)
    assert first.returncode == 0, first.stdout
    assert sorted(files(tmp_path)) == [
        "roots/a1/etc/etcd/server.crt",
        "roots/a1/etc/etcd/server.key",
        "roots/a1/etc/ironspan-test/motd",
        "roots/w2/etc/ironspan-test/motd",
    ]
    before = files(tmp_path)

    second = play(tmp_path, text, *TWO)
    assert second.returncode == 0, second.stdout
    assert "changed=0" in second.stdout and "changed=1" not in second.stdout
    assert "ok=2" not in second.stdout, "hosts with nothing to do must take no part after the assessment"

    (tmp_path / "roots/w2/etc/ironspan-test/motd").write_text("edited\n")
    third = play(tmp_path, text, *TWO)
    assert third.stdout.count("changed=1") == 1
    assert files(tmp_path) == before

    for consent in ("", "other"):
        refused = play(tmp_path, ALONE.format(roles=ROLES, mode="reset"), *TWO, "-e", f"consent={consent}")
        assert refused.returncode == 2
        assert "run it again with -e ironspan_reset_site=small" in " ".join(refused.stdout.split())
        assert files(tmp_path) == before

    reset = play(tmp_path, ALONE.format(roles=ROLES, mode="reset"), *TWO, "-e", "consent=small")
    assert reset.returncode == 0, reset.stdout
    assert [name for name in files(tmp_path) if "motd" in name] == []
    assert (tmp_path / "roots/w2/var/lib/ironspan").exists(), "only one layer was taken off"


def test_a_role_alone_needs_no_validation_before(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    result = play(tmp_path, ALONE.format(roles=ROLES, mode="apply"), *TWO)
    assert result.returncode == 0, result.stdout
    assert len(files(tmp_path)) == 2


def test_an_unfit_host_is_refused_with_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    inventory.write_text(
        inventory.read_text().replace(
            "w2: {site_address: 10.2.0.2}",
            "w2: {site_address: 10.2.0.2, base_min_memory_mib: 16777216}",
        )
    )
    result = play(tmp_path, PLAY.format(roles=ROLES))
    assert result.returncode == 2
    assert "This host does not fit, nothing was changed on it." in result.stdout
    assert "- memory: found" in result.stdout
    assert sorted({name.split("/")[1] for name in files(tmp_path)}) == ["a1", "w1"]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return a copy of the example inventory."""
    folder = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventories" / "example", folder)
    return folder


def site(folder: Path, inventory: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run site.yml with an ssh that only counts; return the result and how often ssh was called."""
    log, ssh = folder / "ssh.log", folder / "ssh"
    ssh.write_text(SSH.format(log=log))
    ssh.chmod(0o755)
    result = run(
        folder,
        "playbooks/site.yml",
        "-i",
        str(inventory),
        *options,
        ANSIBLE_SSH_EXECUTABLE=str(ssh),
        ANSIBLE_SSH_RETRIES="0",
        ANSIBLE_BECOME="0",
        IRONSPAN_PKI_KEY=KEY,
    )
    return result, len(log.read_text().splitlines()) if log.exists() else 0


def test_bad_input_contacts_no_host(tmp_path: Path, example: Path) -> None:
    variables = example / "group_vars" / "all.yml"
    variables.write_text(
        variables.read_text().replace("site_wan_mtu: 1400", "site_wan_mut: 1400\nsite_lab: often")
    )
    hosts = example / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("haproxy: {}", "gvizor: {}"))
    result, connections = site(tmp_path, example)
    assert result.returncode == 2
    assert connections == 0
    lines = variables.read_text().splitlines()
    misspelt, wrong = lines.index("site_wan_mut: 1400") + 1, lines.index("site_lab: often") + 1
    assert (
        f"{shown(str(variables))}:{misspelt}: site_wan_mut: unknown variable; write site_wan_mtu"
        in result.stdout
    )
    assert f"{shown(str(variables))}:{wrong}: site_lab: must be true or false" in result.stdout
    assert "groups.gvizor: unknown group; write gvisor" in result.stdout
    assert "3 problems in the inventory; no host was contacted." in result.stdout


def test_good_input_does(tmp_path: Path, example: Path) -> None:
    """The counter counts: the same run with a right inventory calls ssh once a host, here for two."""
    index = tmp_path / "index.json"
    index.write_text(mirror_index())
    result, connections = site(
        tmp_path, example, "-e", f"site_artifacts_index={index}", "-e", f"site_pki_store={tmp_path / 'pki'}",
        "--limit", "localhost,az-1,gpu-a-01",
    )  # fmt: skip
    assert "problems in the inventory" not in result.stdout
    assert result.returncode == 4, result.stdout[-2000:]
    assert connections == 2
    assert KEY not in result.stdout


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    """What is decided when a site is made is not decided by somebody who only looks."""
    write_inventory(tmp_path)
    text = VALIDATE.format(purpose="check").format(roles=ROLES)
    checked = play(tmp_path, text, *TWO)
    assert checked.returncode == 0, checked.stdout
    assert not (tmp_path / "pki").exists() and files(tmp_path) == {}
