# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of trials and rollbacks, and both in real runs on hosts that are private roots."""

from __future__ import annotations

import json
import subprocess
import types
import typing as t
from pathlib import Path

import pytest
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    Request,
    exchange,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import rollback
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import build, host_entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from tests.support.converge_action import notes_of
from tests.support.small_plays import APPLY, COMPARE, TWO, VALIDATE, play
from tests.support.stand_ins import SYSTEMCTL
from tests.unit.plan import samples
from tests.unit.plan.test_playbooks import write_inventory
from tests.unit.render.support import ROLES

RELEASE = {"digest": "d", "time": 10}


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), (90, 90), ("90", 90), ("90s", 90), (" 1h ", 3600), ("24h", 86400)]
)
def test_times(text: t.Any, seconds: int) -> None:
    assert back.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "29s", "25h", "5 m", "-60", "m", "1e3", "5d", True, "\u0665m"])
def test_no_times(text: t.Any) -> None:
    with pytest.raises(ExchangeError, match="no time for a trial"):
        back.seconds_of(text)


def test_a_run_has_one_trial(tmp_path: Path) -> None:
    one, other = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    assert back.trial_of({}, one) == {}
    assert back.trial_of({"ironspan_try": "5m"}, one) == back.trial_of({"ironspan_try": 300}, one)
    assert (
        back.trial_of({"ironspan_try": "5m"}, one)["id"] != back.trial_of({"ironspan_try": "5m"}, other)["id"]
    )


ARTIFACTS = [
    ("etcd/binaries", "/etcd/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz", "/etcd/v3.6.14/x.tgz", False),
    ("node/kubelet", "/release/v1.37.1/kubelet", "/release/v1.36.4/kubelet", False),
    ("node/kubelet", "/release/v1.36.5/kubelet", "/release/v1.36.4/kubelet", True),
    ("node/kubelet", "/release/v1.36.4/kubelet", "/release/v1.37.1/kubelet", True),
    ("containerd/binaries", "/containerd/v2.4.0/c.tgz", "/containerd/v2.3.4/c.tgz", True),
    ("gvisor/runsc", "/release/20260817.0/runsc", "/release/20260601.0/runsc", True),
]


@pytest.mark.parametrize(("resource", "now", "then", "well"), ARTIFACTS)
def test_versions_that_do_not_go_back(resource: str, now: str, then: str, well: bool) -> None:
    facts = {"removed_layers": [], "replaced_artifacts": [{"resource": resource, "from": now, "to": then}]}
    assert (back.verdicts(facts) == []) is well


@pytest.mark.parametrize(
    ("layers", "well"), [(["gvisor"], True), (["etcd"], False), (["gvisor", "node"], False)]
)
def test_members_stay_members(layers: list[str], well: bool) -> None:
    assert (back.verdicts({"removed_layers": layers, "replaced_artifacts": []}) == []) is well


def composed(release: dict[str, t.Any]) -> dict[str, t.Any]:
    document = {"layers": [], "resources": [], "rollback": {"undoes": release}}
    facts = {"undoes": release, "left": [], "removed_layers": [], "replaced_artifacts": []}
    return {"document": document, "rollback": facts}


def test_what_stays_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda self, text: said.append(text))
    folder = RunFolder(tmp_path)
    folder.put([("a", "{}", notes_of("{}"))])
    result = composed(RELEASE)
    result["rollback"]["left"] = [{"resource": "base/p", "why": "packages stay"}]
    result["pending"] = [{"resource": "etcd/server", "needs": "certificate:etcd/server"}]
    back.lay_out(result, "a", "", folder)
    (warning,) = said
    assert "warnings" not in result
    assert "base/p: packages stay; etcd/server: needs certificate:etcd/server" in warning


def test_a_plan_says_what_stays() -> None:
    left = [{"resource": "base/p", "why": "packages stay"}]
    answer = {**samples.ANSWER, "rollback": {"left": left}}
    entry = host_entry({"resources": samples.RESOURCES}, answer, "")
    plan = build(samples.site(), {"w1": entry}, samples.CLUSTER, samples.NOW)
    assert "w1 does not go back in: base/p (packages stay)." in plan.content["warnings"]
    assert "left" not in plan.hosts["w1"]


@pytest.mark.parametrize("to", ["", "abc"])
def test_of_several_hosts_those_of_the_last_change_go_back(tmp_path: Path, to: str) -> None:
    folder = RunFolder(tmp_path)
    releases = {
        "a": {"digest": "new", "time": 20},
        "b": {"digest": "old", "time": 10},
        # A run that was cut off is the same change, later.
        "c": {"digest": "new", "time": 15},
    }
    folder.put((host, "{}", notes_of("{}")) for host in releases)
    for host, release in releases.items():
        text = back.lay_out(composed(release), host, to, folder)
        assert folder.read(host)[1]["composed"]
        assert json.loads((tmp_path / "documents" / f"{host}.json").read_text()) == json.loads(text)
    alone = {
        host: bool(back.left_alone(composed(release)["document"], host, folder))
        for host, release in releases.items()
    }
    assert alone == {"a": False, "b": not to, "c": False}
    entries = {host: composed(release) for host, release in releases.items()}
    assert sorted(back.of_the_last_release(entries, to)) == (["a", "b", "c"] if to else ["a", "c"])


def test_nothing_is_signed_for_a_document_that_the_host_composed() -> None:
    answers: list[dict[str, t.Any]] = [{"changed": True, "csrs": {"etcd/server": "request"}, "pending": []}]
    asked = []

    def execute(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        asked.append(arguments)
        return answers.pop(0)

    def sign(*_: t.Any) -> str:
        raise AssertionError("nothing is signed")

    document = json.dumps({"layers": ["etcd"], "resources": []})
    more = {"release": RELEASE, "trial": {}, "to": ""}
    request = Request(document, "apply", "", layers=["etcd"], more=more, composed=True)
    assert exchange(request, execute, sign, lambda *_: [])["changed"]
    assert asked[0]["layers"] == ["etcd"] and asked[0]["release"] == RELEASE
    assert not {"trial", "to"} & asked[0].keys()


def context(value: t.Any) -> Context:
    host = types.SimpleNamespace
    hosts = {
        "a": host(name="a", groups=("nodes",)),
        "b": host(name="b", groups=("nodes", "gpu")),
        "c": host(name="c", groups=("etcd",)),
    }
    site = types.SimpleNamespace(name="small", hosts=hosts)
    session = t.cast("t.Any", types.SimpleNamespace(site=site))
    return Context(session, {"ironspan_hosts": value}, "rollback")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a", "a"),
        ("nodes", "ab"),
        ("gpu,c", "bc"),
        (["c", "nodes"], "cab"),
        ("a,nodes", "ab"),
        ("all", "abc"),
    ],
)
def test_the_steps_of_a_rollback(value: t.Any, names: str) -> None:
    assert [step.target for step in rollback.steps(context(value))] == list(names)


@pytest.mark.parametrize(("value", "words"), [("", "no host"), (None, "no host"), ("ndoes", "ndoes")])
def test_hosts_that_are_not_there(value: t.Any, words: str) -> None:
    with pytest.raises(OperationError, match=words):
        rollback.steps(context(value))


CONFIRM = """\
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        mode: "{{{{ 'confirm' if inventory_hostname == 'a1' else 'revert' }}}}"
        root: "{{{{ user_root }}}}"
"""
BACK = (VALIDATE.format(purpose="apply") + COMPARE + COMPARE).replace("mode: assess", "mode: rollback", 1)
BACK = BACK.replace("        mode: assess\n", "")


ONE_LAYER = BACK.replace(
    "mode: rollback", "mode: rollback\n        layers: [base]\n        unlike: base/motd/content", 1
)


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    done = play(folder, text.format(roles=ROLES), *TWO, *options, XDG_STATE_HOME=str(folder / "state"))
    assert done.returncode == 0, done.stdout
    return done


def motd(folder: Path, host: str = "w2") -> str:
    return (folder / f"roots/{host}/etc/ironspan-test/motd").read_text()


def test_two_changes_and_back_in_real_runs(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    first = inventory.read_text()
    run(tmp_path, APPLY)
    before = motd(tmp_path)
    inventory.write_text(first.replace("user_root:", "base_motd: Goodbye\n    user_root:"))
    run(tmp_path, APPLY)
    assert motd(tmp_path) != before
    changed = motd(tmp_path, "a1")
    # A later change of one host is not the last change of the other.
    run(tmp_path, APPLY, "-e", "base_motd=Again", "--limit", "localhost,w2")
    done = run(tmp_path, BACK)
    assert "Its last change is older" in " ".join(done.stdout.split() + done.stderr.split())
    assert motd(tmp_path).startswith("Goodbye")
    assert motd(tmp_path, "a1") == changed


def test_one_layer_goes_back_to_what_is_unlike_the_inventory(tmp_path: Path) -> None:
    """As a GPU driver does: what is applied after the comparison is that layer of the earlier document."""
    write_inventory(tmp_path)
    run(tmp_path, APPLY)
    before = motd(tmp_path)
    run(tmp_path, APPLY, "-e", "base_motd=Goodbye")
    for _ in range(2):
        done = run(tmp_path, ONE_LAYER, "-e", "base_motd=Goodbye", "--limit", "localhost,w2")
        assert motd(tmp_path) == before
    assert "changed=0" in done.stdout
    assert motd(tmp_path, "a1").startswith("Goodbye")
    refused = play(tmp_path, ONE_LAYER.format(roles=ROLES).replace("motd/content", "no/content"), *TWO)
    assert refused.returncode == 2 and "the inventory declares no base/no for this host" in refused.stdout


def test_a_trial_in_real_runs(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    run(tmp_path, APPLY)
    before = motd(tmp_path)
    for host in ("a1", "w2"):
        stand_in = tmp_path / f"roots/{host}/usr/local/ironspan-test-bin/systemctl"
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text(SYSTEMCTL)
        stand_in.chmod(0o755)
        (tmp_path / f"roots/{host}/etc/systemd/system").mkdir(parents=True, exist_ok=True)
    inventory.write_text(inventory.read_text().replace("user_root:", "base_motd: Goodbye\n    user_root:"))
    run(tmp_path, APPLY, "-e", "ironspan_try=5m")
    assert motd(tmp_path).startswith("Goodbye")
    second = play(tmp_path, APPLY.format(roles=ROLES), *TWO, "-e", "base_motd=Other")
    assert second.returncode == 2 and "on trial" in second.stdout
    run(tmp_path, CONFIRM)
    assert motd(tmp_path) == before
    assert motd(tmp_path, "a1").startswith("Goodbye")
