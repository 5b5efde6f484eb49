# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Inventories as AWX gives them to a job and to the slices of one."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

from tests.support.playbooks import BIN, ROOT

SLICED = {"awx_job_template_name": "apply", "awx_workflow_job_name": "apply", "awx_job_id": 12}
"""What AWX adds to the variables of a slice, as far as it tells."""
SCRIPT = "#!/usr/bin/env python3\nprint({text!r})\n"


def slice_of(inventory: pathlib.Path, number: int, count: int, script: pathlib.Path) -> list[str]:
    """Write the inventory script of one slice: every count-th host by name, all groups with their variables.

    Args:
        inventory: the whole inventory.
        number: of the slice, from 1.
        count: how many slices there are.
        script: file to write.

    Returns:
        The slice's hosts.
    """
    done = subprocess.run(
        [str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    content: dict[str, t.Any] = json.loads(done.stdout)
    hostvars = content["_meta"]["hostvars"]
    hosts = sorted(hostvars)[number - 1 :: count]
    content["_meta"]["hostvars"] = {name: hostvars[name] for name in hosts}
    for group in content.values():
        if "hosts" in group:
            group["hosts"] = [name for name in group["hosts"] if name in hosts]
    script.write_text(SCRIPT.format(text=json.dumps(content)))
    script.chmod(0o755)
    return hosts
