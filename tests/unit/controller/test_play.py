# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command plans, applies and finds nothing to do: playbooks/awx_configure.yml against the stand-in."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.support.controller.server import Controller
from tests.support.controller_site import SECRETS, project
from tests.support.playbooks import BIN, ROOT

SAID = """
awx_host: {url}
awx_project_url: {project}
site_pki_store: {store}
"""


@pytest.mark.long
def test_a_plan_is_applied_and_the_next_run_changes_nothing(tmp_path: pathlib.Path) -> None:
    inventory, plan = tmp_path / "inventory", tmp_path / "awx.plan.json"
    shutil.copytree(ROOT / "inventories" / "example", inventory)
    controller = Controller()
    environment = {**os.environ, **{name: f"secret of {name}" for name in SECRETS}}
    environment["IRONSPAN_PKI_KEY"] = base64.b64encode(b"x" * 32).decode()
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    environment["IRONSPAN_AWX_TOKEN"] = controller.token(1)

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(BIN / "ironspan"), *words, "-i", str(inventory)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    with controller.serving() as url:
        file = inventory / "group_vars" / "all.yml"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("site_pki_store")]
        said = SAID.format(url=url, project=project(tmp_path / "project"), store=tmp_path / "pki")
        file.write_text("\n".join(lines) + said)
        output = run("plan", "awx_configure", "-o", str(plan))
        assert controller.writes == []
        assert "secret of" not in output + plan.read_text()
        output = run("apply", str(plan))
        writes = len(controller.writes)
        assert writes > 1000
        output += run("awx", "configure")
        assert len(controller.writes) == writes
        assert "secret of" not in output
