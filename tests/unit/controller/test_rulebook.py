# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The rulebook in the real ansible-rulebook: it takes alerts with a token and TLS, and launches jobs here."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import rendered

from ironspan.lab.ports import free_port
from tests.support.controller.launching import DONE
from tests.support.controller_site import settings
from tests.support.events import alert, certificate, controller_of_events
from tests.support.playbooks import ROOT
from tools.locked import environment

TOKEN = "token-of-this-test"
OPTIONS = ("--rulebook", "rulebook.yml", "--env-vars", "IRONSPAN_EVENTS_TOKEN")
PATIENCE_S = 120.0


def send(port: int, folder: pathlib.Path, token: str, *alerts: dict[str, object]) -> int:
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/alerts",
        json.dumps({"alerts": alerts}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.long
def test_ansible_rulebook_launches_what_the_table_says_once(tmp_path: pathlib.Path) -> None:
    if not shutil.which("java"):
        pytest.skip("ansible-rulebook needs a Java runtime of 17 or later")
    programs = environment("rulebook", "about a minute")
    certificate(tmp_path)
    port = free_port()
    files = rendered.event_files(settings(), {"etcd": ["azure-1", "azure-2"]}, "HOST", port)
    text = files["events/rulebook.yml"].replace("/etc/ironspan/events", str(tmp_path))
    (tmp_path / "rulebook.yml").write_text(text.replace("port: 2397", f"port: {port}"))
    with controller_of_events(tmp_path) as (controller, token), (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "ansible-rulebook", *OPTIONS],
            cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PATH": f"{programs}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
                "EDA_CONTROLLER_URL": controller.url,
                "EDA_CONTROLLER_TOKEN": token,
                "IRONSPAN_EVENTS_TOKEN": TOKEN,
                "ANSIBLE_HOME": str(ROOT / ".ansible"),
            },
        )  # fmt: skip
        try:
            until = time.monotonic() + PATIENCE_S
            while send(port, tmp_path, TOKEN, alert("Nobody")) != 200:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.5)
            doctor = alert("EtcdNoLeader", instance="azure-1:2381")
            assert send(port, tmp_path, "wrong", doctor) == 401
            resolved = alert("EtcdManyElections", "resolved")
            stranger = alert("EtcdMemberUnhealthy", member="all")
            assert send(port, tmp_path, TOKEN, resolved, stranger, doctor, doctor) == 200
            assert send(port, tmp_path, TOKEN, alert("EtcdMemberUnhealthy", member="azure-2"), doctor) == 200
            jobs, workflows = (controller.store.objects[name] for name in ("jobs", "workflow_jobs"))
            while not workflows or not any(one["status"] in DONE for one in jobs.values()):
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.5)
            time.sleep(3)  # for what should not come
            (workflow,) = workflows.values()
            assert json.loads(workflow["extra_vars"])["ironspan_hosts"] == "azure-2"
            started = sorted(one["name"] for one in jobs.values() if "workflow_job" not in one)
            assert started == ["ironspan doctor"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
