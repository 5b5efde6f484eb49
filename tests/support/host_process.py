# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Ansible sends to a host, run here as a host does: a process that reads a program from its input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload

MODULE = Path(payload.__file__).parent.parent / "modules" / "engine.py"
PLACE = "<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"


def wire(arguments: dict[str, t.Any]) -> str:
    """Return the program as Ansible sends it with these arguments of the module."""
    text = MODULE.read_text()
    assert text.count(PLACE) == 1
    return text.replace(PLACE, json.dumps(arguments))


class HostProcess:
    """A host that executes what it is sent.

    Args:
        root: its root folder.
        python: the interpreter.
        before: words of the command line before the interpreter.
    """

    def __init__(self, root: Path, python: str = sys.executable, before: Sequence[str] = ()) -> None:
        self.root = root
        self.command = [*before, python, "-"]
        self.sent: list[dict[str, t.Any]] = []
        self.check = False

    def execute(
        self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        """Stand in for ``_execute_module`` of an action."""
        assert module_name == payload.MODULE
        self.sent.append(module_args)
        text = wire({**module_args, "_ansible_check_mode": self.check, "_ansible_no_log": True})
        done = subprocess.run(
            self.command,
            input=text,
            text=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"]},
            cwd=self.root,
            check=False,
        )
        assert done.stderr == "", done.stderr
        answer: dict[str, t.Any] = json.loads(done.stdout)
        return answer

    def converge(self, document: dict[str, t.Any], **parameters: t.Any) -> dict[str, t.Any]:
        """Converge the host as the action does; ``sent`` has what that took."""
        self.sent.clear()
        given = {"document": json.dumps(document), "root": str(self.root), **parameters}
        variables = {"inventory_hostname": "rack-7"}
        return payload.execute(self.execute, "converge", given, variables, keep=not self.check)
