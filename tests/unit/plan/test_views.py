# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans as text, JSON and a page; and the commands on a plan file."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import Approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, seal
from hypothesis import given
from hypothesis import strategies as st

from ironspan.cli import plan_view
from ironspan.cli.apply import is_plan
from ironspan.cli.main import main
from ironspan.cli.plan_page import page
from ironspan.cli.plan_text import shown
from tests.support.pages import read
from tests.unit.plan import samples

MADE = samples.plan()
HOSTILE = "<script>alert(1)</script>\"'&<b onclick=x>"


def hostile(value: str) -> Plan:
    """Return a plan in which everything that a host or an inventory may choose is a text of theirs."""
    change = {
        "resource": value,
        "kind": value,
        "action": value,
        "reason": value,
        "before": {value: value},
        "after": {value: [value]},
    }
    diff = {"before_header": f"({value})", "after_header": f"({value})", "before": value, "after": value * 2}
    answer = {
        "digest": value,
        "fingerprint": value,
        "changes": [change, {**change, "kind": "systemd_unit", "action": "restart"}],
        "pending": [{"resource": value, "needs": f"{value}:{value}"}],
        "diff": [diff],
    }
    cluster = {
        "state": value,
        "changes": [{"kind": value, "name": value, "before": value, "after": value * 2}],
    }
    made = samples.plan(answer, cluster=cluster, left_out=[value])
    raw = json.loads(json.dumps(made.content))
    raw["hosts"][value] = raw["hosts"].pop("w1")
    raw["site"] = {"name": value, "uid": value}
    raw["summary"]["seconds_source"] = value
    return seal(raw)


def test_the_page_shows_everything_and_loads_nothing() -> None:
    text = page(MADE, Approvals(["ada@x"], ["void.sig: because"]))
    reader = read(text)
    for words in (
        "Plan for small", MADE.digest, samples.UID, "1 of 2", "kubelet.service", "base/motd", "- old",
        "+ new", "mode: 0600", "mode: 0644", "needs the certificate node/join", "Unchanged: w2",
        "Approved by ada@x", "Does not count: void.sig: because", "not measured on this site", "84 s",
    ):  # fmt: skip
        assert words in reader.text, words
    assert "url(" not in text and "@import" not in text and "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_hostile_names_stay_text() -> None:
    reader = read(page(hostile(HOSTILE), Approvals([HOSTILE], [HOSTILE])))
    assert "script" not in reader.tags and "b" not in reader.tags
    assert not any(name.startswith("on") for name, _ in reader.attributes)
    assert reader.text.count("<script>alert(1)</script>") > 15


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_no_text_changes_the_shape_of_the_page(value: str) -> None:
    plain = read(page(hostile("plain"), Approvals(["plain"], ["plain"])))
    reader = read(page(hostile(value), Approvals([value], [value])))
    assert reader.tags == plain.tags
    assert {name for name, _ in reader.attributes} == {name for name, _ in plain.attributes}


def test_many_hosts_start_closed() -> None:
    raw = json.loads(json.dumps(MADE.content))
    raw["hosts"] |= {f"h{number}": raw["hosts"]["w1"] for number in range(20)}
    assert '<details class="card" open>' not in page(seal(raw))
    assert '<details class="card" open>' in page(MADE)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({}, "Nothing changes."),
        ({"state": "no API answers", "objects": {"flannel": [{}, {}]}}, "2 objects are applied"),
    ],
)
def test_a_cluster_without_changes(cluster: dict[str, t.Any], words: str) -> None:
    assert words in page(samples.plan(cluster=cluster))


def test_text() -> None:
    text = shown(MADE, Approvals([], ["x.sig: no"]))
    for line in (
        f"Plan {MADE.digest}", "approved by nobody", "does not count: x.sig: no", "w1: 3 changes, about 64 s",
        "  restarts kubelet.service", "  update  base/motd (content differs)", "          - old",
        "          + new", "unchanged: w2", "! kubelet.service restarts on 1 hosts",
    ):  # fmt: skip
        assert any(found.startswith(line) for found in text.splitlines()), line
    assert "\x1b" not in text
    assert "\x1b[" in shown(MADE, colour=True)


def test_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in shown(hostile("a\x1b]0;x\x07\x9b31m[red]b"))
    assert "[red]b" in shown(hostile("a[red]b"))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_durations(seconds: int, text: str) -> None:
    assert plan_view.duration(seconds) == text


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))), st.lists(st.text("ab")))
def test_a_difference_has_all_that_was_and_will_be(before: list[str], after: list[str]) -> None:
    lines = plan_view.difference("\n".join(before), "\n".join(after))
    for sign, there, other in (("-", before, after), ("+", after, before)):
        assert {line.text for line in lines if line.sign == sign} >= (set(there) - set(other) - {""})


def test_show_and_approve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = samples.written(tmp_path)
    key = tmp_path / "ada"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"ada@x {key.with_suffix('.pub').read_text()}")
    assert main(["approve", str(path), "--key", str(key)]) == 0
    assert "approved the plan" in capsys.readouterr().out
    assert main(["show", str(path), "--allowed-signers", str(signers)]) == 0
    assert "approved by ada@x" in capsys.readouterr().out
    for options in (["--format", "json"], ["--json"]):
        assert main(["show", str(path), *options]) == 0
        assert json.loads(capsys.readouterr().out) == {"digest": MADE.digest, "plan": MADE.content}
    assert main(["show", str(path), "--format", "html", "-o", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").read_text() == page(MADE)


@pytest.mark.parametrize(
    "options",
    [["show", "{}"], ["approve", "{}"], ["show", "none"], ["approve", "{good}", "--key", "/none"],
     ["show", "{good}", "--allowed-signers", "/none"]],
)  # fmt: skip
def test_bad_input_ends_with_2(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.plan.json"
    bad.write_bytes(MADE.data.replace(b"small", b"smell", 1))
    good = samples.written(tmp_path)
    assert main([option.format(bad, good=good) for option in options]) == 2
    assert "ironspan: " in capsys.readouterr().err


def test_what_apply_takes_for_a_plan(tmp_path: Path) -> None:
    (tmp_path / "renamed.json").touch()
    (tmp_path / "site.yml").touch()
    assert is_plan("gone.plan.json")
    assert is_plan(str(tmp_path / "renamed.json"))
    assert not is_plan("site") and not is_plan(str(tmp_path / "site.yml")) and not is_plan("x.json")
