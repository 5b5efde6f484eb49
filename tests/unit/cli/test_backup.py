# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan backup``: what it asks of the hosts, and what it makes of their answers."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

from ironspan.backup import gc
from ironspan.backup.agent.listing import contents
from ironspan.backup.main import build_parser as program_parser
from ironspan.backup.manifest import Verdict
from ironspan.backup.rebuild.verify import Read
from ironspan.backup.settings import Retention
from ironspan.cli import backup_text, playbook
from ironspan.cli.main import build_parser
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run
from tests.support.backup_log import (
    NAMES,
    START_MS,
    PlainKeys,
    add_epoch,
    add_log,
    add_snapshot,
    add_verdict,
    revision,
)
from tests.support.memory_store import MemoryStore

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
START = START_MS // 1000
KEYS = PlainKeys()


class FakeRun:
    """Stands for a run of a playbook."""

    answers: t.ClassVar[dict[str, t.Any]] = {}
    code = Exit.OK
    started: t.ClassVar[list[tuple[str, list[str]]]] = []

    def __init__(self, path: pathlib.Path, arguments: list[str], *rest: object) -> None:
        self.started.append((path.name, arguments))
        self.run = Run()
        for host, answer in self.answers.items():
            self.run.answers[host] = {"answer": answer}
        self.output: list[str] = []
        self.log = pathlib.Path("log")
        self.page = "page"

    def execute(self, project: pathlib.Path) -> Exit:
        """End as told."""
        return self.code


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> type[FakeRun]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(playbook, "PlaybookRun", FakeRun)
    for name, value in (("answers", {}), ("code", Exit.OK), ("started", [])):
        monkeypatch.setattr(FakeRun, name, value)
    return FakeRun


def ran(*words: str) -> int:
    arguments = build_parser().parse_args(["backup", *words])
    return int(arguments.func(arguments))


def asked(fake: type[FakeRun]) -> tuple[str, dict[str, t.Any]]:
    """Return the playbook that was started and its variables."""
    name, arguments = fake.started[-1]
    return name, json.loads(arguments[arguments.index("-e") + 1])


def filled() -> MemoryStore:
    store = MemoryStore(clock=lambda: float(START + 7000))
    add_epoch(store)
    for at, unix in ((10, START), (20, START + 3600), (30, START + 7000)):
        add_snapshot(store, KEYS, at, unix=unix, data=b"x" * at * 1000)
    add_log(store, KEYS, [[revision(n) for n in range(11, 34)]], after=10)
    add_verdict(store, f"{10:020d}-{START}", True, unix=START + 60)
    return store


def listed(store: MemoryStore) -> dict[str, t.Any]:
    """Return what a host answers; through JSON, as it comes over SSH."""
    found: dict[str, t.Any] = json.loads(json.dumps({"site": "lab", "stores": [contents(store, NAMES)]}))
    return found


def test_the_list_is_a_table_that_a_person_reads() -> None:
    text = backup_text.listing(listed(filled())["stores"], START + 7200)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["1.", "memory"]
    rows = [words for words in lines if words and words[0].startswith("0000")]
    assert [row[0] for row in rows] == [
        f"{30:020d}-{START + 7000}", f"{20:020d}-{START + 3600}", f"{10:020d}-{START}",
    ]  # fmt: skip
    assert rows[0][1:] == ["2027-01-15", "09:56:40Z", "30", "29", "KiB", "33", "not", "yet", "3", "min"]
    assert rows[2][1:] == [
        "2027-01-15", "08:00:00Z", "10", "10", "KiB", "2027-01-15", "08:01:00Z", "2", "h",
    ]  # fmt: skip
    assert "log to revision 33, written 3 min ago; 1 segments" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_the_list_says_what_is_wrong() -> None:
    store = filled()
    add_verdict(store, f"{10:020d}-{START}", False, unix=START + 90)
    manifest = NAMES.snapshot_manifest(1, f"{20:020d}-{START + 3600}")
    store.things[manifest].data[9] ^= 1
    stores = listed(store)["stores"]
    text = backup_text.listing(stores, START + 7200)
    assert f"DAMAGED {manifest}" in text
    assert "FAILED 2027-01-15 08:01:30Z" in text
    assert f"{10:020d}-{START}: bad" in text
    assert "NO snapshot is proven" in text
    assert not backup_text.sound(stores)
    empty = listed(MemoryStore())["stores"]
    assert "no snapshot" in backup_text.listing(empty, START)
    assert not backup_text.sound(empty)


def test_no_revision_is_cut() -> None:
    """A revision grows for years, and is what a restore is asked for."""
    stores = listed(filled())["stores"]
    great = 2**63 - 1
    for snapshot in stores[0]["snapshots"]:
        snapshot["revision"] = great
    stores[0]["log"]["last_revision"] = great
    text = backup_text.listing(stores, START + 7200)
    # Three snapshots, the log of the newest one, and the line about the log.
    assert text.count(str(great)) == 3 + 2
    assert "…" not in text


def test_list_asks_every_member_and_one_answer_is_enough(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers = {"az-3": listed(filled()), "az-1": None}
    fake.code = Exit.HOSTS
    assert ran("list") == Exit.OK
    assert asked(fake) == ("backup_list.yml", {})
    assert "log to revision 33" in capsys.readouterr().out


def test_list_for_machines(fake: type[FakeRun], capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers = {"az-1": listed(filled())}
    assert ran("list", "--json", "--host", "az-1") == Exit.OK
    assert asked(fake)[1] == {"ironspan_hosts": "az-1"}
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (found,) = [event for event in events if event["event"] == "backups"]
    assert [one["revision"] for one in found["stores"][0]["snapshots"]] == [10, 20, 30]


def test_list_without_an_answer_ends_as_the_run_did(fake: type[FakeRun]) -> None:
    fake.code = Exit.HOSTS
    assert ran("list") == Exit.HOSTS
    fake.answers, fake.code = {"az-1": {"error": {"message": "no"}}}, Exit.FAILED
    assert ran("list") == Exit.FAILED


def test_verify_names_what_is_not_whole(fake: type[FakeRun], capsys: pytest.CaptureFixture[str]) -> None:
    read = [Read("00-1", 1, 33), Read("lab/x", 0, 0, "its digest does not fit")]
    fake.answers = {"az-1": [dataclasses.asdict(one) for one in read]}
    fake.code = Exit.FAILED
    assert ran("verify", "00-1", "--store", "2") == Exit.FAILED
    assert asked(fake) == ("backup_verify.yml", {"ironspan_arguments": ["00-1", "--store=2"]})
    out = capsys.readouterr().out
    assert "00-1: whole to revision 33" in out
    assert "lab/x: its digest does not fit" in out


@pytest.mark.parametrize("verified", [True, False])
def test_drill_says_what_it_found(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], verified: bool
) -> None:
    findings = () if verified else ("3 objects fewer",)
    verdict = Verdict(1, "00-1", verified, 33, START, 4.25, "az-2", findings)
    fake.answers = {"az-2": json.loads(json.dumps(dataclasses.asdict(verdict)))}
    fake.code = Exit.OK if verified else Exit.FAILED
    assert ran("drill", "--host", "az-2", "--apiserver", "/opt/a") == fake.code
    assert asked(fake) == (
        "backup_drill.yml",
        {"ironspan_arguments": ["--apiserver=/opt/a"], "ironspan_hosts": "az-2"},
    )
    out = capsys.readouterr().out
    expected = "00-1: verified, restored to revision 33 on az-2 in 4.2 s" if verified else "3 objects fewer"
    assert expected in out


def test_gc_shows_what_went(fake: type[FakeRun], capsys: pytest.CaptureFixture[str]) -> None:
    shown = gc.collect(filled(), NAMES, Retention(1, 1, 1, 1), only_show=True)
    fake.answers = {"az-3": {"stores": [{"text": shown.text}]}}
    assert ran("gc", "--check", "--identity", "one") == Exit.OK
    assert asked(fake) == ("backup_gc.yml", {"ironspan_arguments": ["--dry-run", "--identity=one"]})
    assert "--check" not in fake.started[-1][1]
    assert "2 snapshots stay, 2 objects would go" in capsys.readouterr().out


def test_accept_hands_the_consent_on(fake: type[FakeRun], capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers = {"az-1": {"accepted": True, "epoch": 2, "text": "epoch 2 belongs to cluster aa"}}
    assert ran("accept") == Exit.OK
    assert asked(fake) == ("backup_accept.yml", {})
    ran("accept", "--allow-destructive", "--host", "az-1")
    assert asked(fake)[1] == {"ironspan_allow_destructive": True, "ironspan_hosts": "az-1"}
    assert "az-1: epoch 2 belongs to cluster aa" in capsys.readouterr().out


def test_restore_hands_the_point_and_the_consent_on(fake: type[FakeRun]) -> None:
    assert ran("restore") == Exit.OK
    assert asked(fake) == ("etcd_restore.yml", {})
    assert value_of({}, "ironspan_point") == "latest"
    ran(
        "restore", "revision:12", "--host", "az-2", "--source", "backup", "--force", "--allow-destructive",
        "--check",
    )  # fmt: skip
    assert "--check" in fake.started[-1][1]
    assert asked(fake)[1] == {
        "ironspan_point": "revision:12",
        "ironspan_hosts": "az-2",
        "ironspan_source": "backup",
        "ironspan_force_restore": True,
        "ironspan_allow_destructive": True,
    }


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("list", []),
        ("verify", ["00-1", "--store=2"]),
        ("drill", ["00-1", "--store=2", "--apiserver=/opt/a"]),
        ("gc", ["--dry-run", "--identity=one"]),
        ("accept", []),
    ],
)
def test_the_program_knows_what_the_playbooks_ask(verb: str, words: list[str]) -> None:
    plays = yaml.safe_load((PLAYBOOKS / f"backup_{verb}.yml").read_text())
    tasks = [task for play in plays for task in play.get("tasks", ())]
    (asking,) = [task for task in tasks if "ironspan.hybrid.etcd_backup" in task]
    assert asking["ironspan.hybrid.etcd_backup"]["verb"] == verb
    parsed = program_parser().parse_args([verb, *words, "--json"])
    assert isinstance(parsed, argparse.Namespace)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_ages(seconds: float, text: str) -> None:
    assert backup_text.age(seconds) == text
