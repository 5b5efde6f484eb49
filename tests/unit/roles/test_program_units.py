# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every unit of a program is shut in the same way, and may do no more than its role says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs

from tests.unit.roles.conftest import ROOT

UNITS = [
    ROOT / "roles" / name
    for name in (
        "access/templates/ironspan-access.service.j2",
        "access/templates/ironspan-audit-watch.service.j2",
        "control_plane/templates/ironspan-kms.service.j2",
        "etcd_backup/templates/ironspan-etcd-backup.service.j2",
        "etcd_backup/templates/ironspan-etcd-backup-drill.service.j2",
        "etcd_backup/templates/ironspan-etcd-backup-gc.service.j2",
        "ironic/templates/ironspan-ironic-care.service.j2",
        "ironic/templates/ironspan-ironic-web.service.j2",
        "ironic/templates/ironspan-ironic.service.j2",
    )
]
OWN = {line.partition("=")[0] for line in programs.sandbox([]).splitlines()}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_the_shared_sandbox_and_loosens_nothing_of_it(unit: Path) -> None:
    text = unit.read_text()
    assert text.count("{{ sandbox(") == 1
    said = set(re.findall(r"^(\w+)=", text, re.MULTILINE))
    # systemd takes the last of two, or the sum of both.
    assert not said & OWN


def test_no_unit_has_a_sandbox_of_its_own() -> None:
    own = [
        path
        for path in (ROOT / "roles").glob("*/templates/*.service.j2")
        if path not in UNITS and "RestrictNamespaces" in path.read_text()
    ]
    assert not own


def test_a_sandbox_says_each_thing_once() -> None:
    text = programs.sandbox(["/a", "/b"], "CAP_X", ["AF_UNIX"], "0022")
    names = [line.partition("=")[0] for line in text.splitlines()]
    assert len(set(names)) == len(names)
    for line in ("ReadWritePaths=/a /b", "CapabilityBoundingSet=CAP_X", "RestrictAddressFamilies=AF_UNIX"):
        assert line in text.splitlines()
    assert {"UMask=0022", "ProtectSystem=strict"} < set(text.splitlines())


def test_what_is_unpacked_and_what_is_started_are_one_program() -> None:
    pre, start = programs.starts("/opt/x/bin/x", "run --fast").splitlines()[1:]
    assert (pre, start) == ("ExecStartPre=+/opt/x/bin/x --unpack", "ExecStart=/opt/x/bin/x run --fast")
