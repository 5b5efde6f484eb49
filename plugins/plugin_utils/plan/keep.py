# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stays on the controller of an applied plan: the plan, its signatures and a report.

XDG_STATE_HOME/ironspan/plans/SITE/DIGEST/{plan.json, plan.json.sig.d/, report.jsonl}
"""

from __future__ import annotations

import json
import os
import shutil
import time
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import folder_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan

REPORT = "report.jsonl"
ENDS = "IRONSPAN_WRITES_THE_END"
"""Environment variable of a run whose command adds its end to the report of a plan."""


def kept_folder(site: str, digest: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of one applied plan."""
    variables = os.environ if environment is None else environment
    state = Path(variables.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "ironspan" / "plans" / site / digest


def keep(plan: Plan, path: Path, approved_by: list[str], inventory_moved: bool) -> Path:
    """Keep a plan that is about to be applied, with its signatures; return the folder."""
    folder = kept_folder(plan.content["site"]["name"], plan.digest)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "plan.json"
    if not file.exists():
        write_file(file, plan.data, 0o600)
    if folder_of(path).is_dir() and folder_of(path) != folder_of(file):
        shutil.copytree(folder_of(path), folder_of(file), dirs_exist_ok=True)
    # A run of the ironspan command writes an end too: without one it was killed.
    ends = bool(os.environ.get(ENDS))
    report(folder, event="begin", approved_by=approved_by, inventory_moved=inventory_moved, ends=ends)
    return folder


def report(folder: Path, **values: t.Any) -> None:
    """Add a line to the report of a plan; hosts do so at the same time, one write each."""
    line = json.dumps({"time": int(time.time()), **values}, ensure_ascii=True) + "\n"
    descriptor = os.open(folder / REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode("ascii"))
    finally:
        os.close(descriptor)
