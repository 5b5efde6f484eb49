# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The webhook of the git service: it starts what reads, and its key is made again by one command."""

from __future__ import annotations

import base64
import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.controller_object import (
    ControllerObjects,
)

from ironspan.cli.main import main
from tests.support.controller.server import Controller
from tests.support.controller_site import SECRETS, configuration, project, small
from tests.support.playbooks import ROOT

GITHUB: dict[str, t.Any] = {"awx_webhook_service": "github"}


def test_a_push_starts_what_reads_and_nothing_else() -> None:
    made = configuration(600, **GITHUB)
    hooked = [entry for entry in made["controller_templates"] if entry["webhook_service"]]
    assert [(entry["name"], entry["job_type"]) for entry in hooked] == [("ironspan site (check)", "check")]
    assert not any(entry.get("webhook_service") for entry in made["controller_workflows"])
    assert not any(entry["webhook_service"] for entry in configuration()["controller_templates"])


def test_the_key_is_made_again_into_a_file_of_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller()
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret of {name}")
    monkeypatch.setenv("IRONSPAN_PKI_KEY", base64.b64encode(bytes(32)).decode())
    monkeypatch.setenv("IRONSPAN_AWX_TOKEN", controller.token(1))
    inventory = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventories" / "example", inventory)
    with controller.serving() as url:
        everyone = inventory / "group_vars" / "all.yml"
        before = everyone.read_text()
        said = f"awx_host: {url}\nawx_project_url: https://git.example.com/site.git\n"
        everyone.write_text(before + said)
        command = ["awx", "webhook-key", "-i", str(inventory), "-o"]
        first, second = tmp_path / "first", tmp_path / "second"
        assert main([*command, str(first)]) == 2
        assert "the site has no webhook" in capsys.readouterr().err
        everyone.write_text(f"{before}{said}awx_webhook_service: github\n")
        assert main([*command, str(first)]) == 1
        assert "no template 'ironspan site (check)'" in capsys.readouterr().err
        assert not first.exists()
        made = small(configuration(600, awx_project_url=project(tmp_path / "project"), **GITHUB))
        wanted = dict(states.wanted_states(made))
        for done in (True, False):
            kind = ControllerObjects(Api(url, controller.token(1)), "ironspan", "ironspan")
            outcome = bring(kind, wanted, Consent(), lambda text: None)
            assert (outcome.problems, bool(outcome.done)) == ([], done)
        for file in (first, second):
            assert main([*command, str(file)]) == 0
            assert file.stat().st_mode & 0o777 == 0o600
        shown = capsys.readouterr()
        assert f"{url}/api/v2/job_templates/" in shown.out and "/github/" in shown.out
        keys = [file.read_text().strip() for file in (first, second)]
        assert len(keys[0]) == 50 and keys[0] != keys[1]
        assert not any(key in shown.out + shown.err for key in keys)
        assert main([*command, str(second)]) == 2
        assert second.read_text().strip() == keys[1]
