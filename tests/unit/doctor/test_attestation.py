# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of the TPMs of workers, from the records of the PKI store."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.attestation_checks import read_tpms, tpms
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Controller,
    Evidence,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.unit.doctor.samples import NOW, site_with


def record(accepted_by: str = "anna", found: str = "") -> str:
    return Record("ab" * 32, "ecdsa", "00", {0: "cd"}, accepted_by, "2026", "", "2027", found).text()


@pytest.mark.parametrize(
    ("mode", "text", "level", "says"),
    [
        ("require", record(), "", ""),
        ("require", "", NOTICE, "nobody has accepted its TPM"),
        ("require", record(""), NOTICE, "nobody has accepted its TPM"),
        ("require", record(found="PCR 0 (firmware) is 1"), PROBLEM, "asked on 2027: PCR 0 (firmware) is 1"),
        ("record", record("", "PCR 0 (firmware) is 1"), NOTICE, "asked on 2027: PCR 0"),
        ("record", record(""), "", ""),
        ("record", "", "", ""),
        ("require", "{}", PROBLEM, "the record is damaged"),
        ("off", record(found="PCR 0"), "", ""),
    ],
)
def test_what_records_say(mode: str, text: str, level: str, says: str) -> None:
    """Of the worker; the control plane is never asked."""
    site = site_with({"node_attestation": mode})
    known = Controller(tpms={"az-1": text, "rack-1": text})
    found = list(tpms(Evidence(site=site, now=NOW, controller=known)))
    assert [(each.level, each.hosts) for each in found] == [(level, ("rack-1",))] * bool(level)
    assert all(says in each.what and "ironspan server attest rack-1" in each.remedy for each in found)


def test_records_are_read_of_workers_that_are_asked_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    store.ensure_cas()

    def read(mode: str) -> dict[str, str]:
        session: t.Any = types.SimpleNamespace(site=site_with({"node_attestation": mode}), store=store)
        return read_tpms(session)

    assert (read("require"), read("off")) == ({"rack-1": ""}, {})
    store.tpms.keep("rack-1", record())
    assert read("record") == {"rack-1": record()}
    [path] = (tmp_path / "pki").glob("secrets*/tpm-rack-1.sealed")
    path.write_bytes(b"broken")
    assert read("require") == {}
