# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""docs/backup-format.md is enough to read a backup: its program reads what the agent's code writes."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from ironspan.backup import crypto, segment
from ironspan.backup.catalogue import catalogue
from ironspan.backup.file_store import FileStore
from ironspan.backup.frame import Header
from ironspan.backup.manifest import Epoch, Manifest, Restored, Verdict
from ironspan.backup.names import Names
from ironspan.backup.records import Coalesced, Event, LeaseGone, LeaseGrant, Progress, Revision
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.takeover import take_over
from tests.support.backup_log import CLUSTER, NAMES, add_epoch, add_log, add_snapshot, file_keys, revision
from tests.support.backup_proof import proof_settings
from tests.support.hostile_writer import HostileWriter

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "backup-format.md").read_text()


@pytest.mark.parametrize("size", [0, 7, 2 * crypto.PART_BYTES, 2 * crypto.PART_BYTES + 3])
def test_the_documents_program_reads_a_backup(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(segment, "PLAIN_MAX", 2000)
    keys = file_keys(tmp_path / "keys", [1])
    store = FileStore(tmp_path / "store")
    database = os.urandom(size)
    add_epoch(store)
    add_snapshot(store, keys, 5, data=b"old")
    add_snapshot(store, keys, 12, data=database)
    add_log(store, keys, [[revision(n) for n in range(6, 11)], [revision(11), revision(12)]], after=5)
    file_keys(tmp_path / "keys", [2])
    large = Revision(14, 1, tuple(Event(True, b"/k%d" % n, b"v" * 90, 14, 1, -7) for n in range(40)))
    lost = add_log(store, keys, [[LeaseGrant(-7, 60), revision(13)], [large]], sealed=False)
    SegmentWriter.begin(store, keys, NAMES, 1, take_over(store, NAMES, 1, "b"))
    add_log(
        store,
        keys,
        [[Coalesced(15, 2, b"/l"), LeaseGone(-7), Revision(16, 3, (Event(False, b"/k0"),)), Progress(16, 4)]],
    )
    path = tmp_path / "store" / lost
    assert path.is_file()
    forger = HostileWriter(store, NAMES, CLUSTER, random.Random(7))
    for _ in range(30):
        forger.manifest()
        forger.segment()
        forger.replay()
    assert forger.made
    (tmp_path / "trusted.json").write_text(json.dumps(proof_settings(tmp_path / "signing")["trusted"]))
    program = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(program) == 1
    done = subprocess.run(
        [sys.executable, "-c", program[0], "store/lab", "keys", "trusted.json", "restored.db"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tmp_path / "restored.db").read_bytes() == database
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[0] == {"lease": -7, "seconds": 60}
    assert [record.get("revision") for record in records if "more" not in record or not record["more"]] == [
        None, 13, 14, 15, None, 16, None,
    ]  # fmt: skip
    parts = [record["events"] for record in records if record.get("revision") == 14]
    assert len(parts) > 1
    keys_seen = [event["key"] for events in parts for event in events]
    assert keys_seen == [f"/k{n}" for n in range(40)]
    assert records[-1] == {"complete": 16, "time_ms": 4}
    assert records[-2]["events"] == [{"put": False, "key": "/k0", "value": "", "lease": 0}]
    assert not set(catalogue(store, NAMES).damaged) - forger.made.keys()


@pytest.mark.parametrize("kind", [Epoch, Manifest, Restored, Verdict, Header])
def test_every_field_is_in_the_document(kind: type[Epoch]) -> None:
    fields = [field.name for field in dataclasses.fields(kind)]
    assert not [name for name in fields if f"`{name}`" not in DOCUMENT]


def test_every_name_is_in_the_document() -> None:
    names = Names("lab")
    for name in (
        names.writer, names.drill, names.epoch(0), names.snapshot_data(0, "REVISION-UNIX"),
        names.snapshot_manifest(0, "REVISION-UNIX"), names.verdict(0, "REVISION-UNIX", 0), names.recovery(0),
    ):  # fmt: skip
        shown = name.removeprefix("lab/").replace("000000", "EEEEEE")
        shown = re.sub(r"(?<=/)0(?=\.)", "UNIX", shown)
        assert f"`{shown}`" in DOCUMENT, shown
