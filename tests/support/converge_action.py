# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The action converge without Ansible around it: a host that answers what a test says."""

from __future__ import annotations

import json
import types
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.action.converge import ActionModule
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import HostNotes, RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import named_in_text

ORDINARY: dict[str, t.Any] = {
    "changed": False,
    "changes": [],
    "pending": [],
    "csrs": {},
    "facts": {},
    "digest": "d" * 64,
    "fingerprint": "f" * 64,
}
"""What every answer of the module has."""
Answer = Callable[[dict[str, t.Any]], t.Any]


def notes_of(text: str, **changes: t.Any) -> HostNotes:
    """Return what the controller notes beside a document of the inventory."""
    notes = HostNotes(
        mirror="http://m",
        pki_store="",
        pki_key_file="",
        max_clock_skew_s=None,
        pythons=[],
        approvals=0,
        release={"digest": "d" * 64, "time": 10},
        secrets=named_in_text(text),
        composed=False,
    )
    return t.cast(HostNotes, {**notes, **changes})


class Controller:
    """Runs the action for one host after the other in one folder of a run.

    Args:
        folder: the folder of the run.
        documents: by host.
        notes: what is noted of every host beside the ordinary.
    """

    def __init__(self, folder: Path, documents: Mapping[str, Mapping[str, t.Any]], **notes: t.Any) -> None:
        self.folder = RunFolder(folder)
        texts = {host: json.dumps(document) for host, document in documents.items()}
        self.folder.put((host, text, notes_of(text, **notes)) for host, text in texts.items())
        self.groups: dict[str, list[str]] = {}
        self.sent: list[dict[str, t.Any]] = []

    def run(
        self,
        host: str,
        answer: Answer,
        monkeypatch: t.Any,
        check: bool = False,
        raw: bool = False,
        **arguments: t.Any,
    ) -> dict[str, t.Any]:
        """Run the action for a host that answers so, and return the result.

        Args:
            host: its name.
            answer: called with the module's arguments.
            monkeypatch: of the test.
            check: in check mode.
            raw: the answer is all; otherwise it is what differs from an ordinary one.
            arguments: of the task.
        """
        module = "ansible_collections.ironspan.hybrid.plugins.action.converge"
        monkeypatch.setattr(f"{module}.RunFolder", lambda: self.folder)
        monkeypatch.setattr(
            f"{module}.payload.execute",
            lambda run, program, parameters, variables, *_: run(program, parameters, variables),
        )
        monkeypatch.setattr(f"{module}.site_lock.take_for_run", lambda *a, **k: None)
        task: t.Any = types.SimpleNamespace(
            args=arguments, check_mode=check, diff=False, async_val=0, action="converge"
        )
        shell = types.SimpleNamespace(tmpdir="/tmp")
        connection: t.Any = types.SimpleNamespace(_shell=shell)
        nothing: t.Any = None
        action = ActionModule(task, connection, nothing, nothing, nothing)

        def execute(name: str, module_args: dict[str, t.Any], task_vars: t.Any) -> t.Any:
            self.sent.append(module_args)
            return answer(module_args) if raw else {**ORDINARY, **answer(module_args)}

        joined = self.groups.setdefault(host, [])
        monkeypatch.setattr(action, "_execute_module", execute)
        monkeypatch.setattr(action, "add_group", lambda name, **_: joined.append(name))
        return action.run(task_vars={"inventory_hostname": host, "groups": {}})
