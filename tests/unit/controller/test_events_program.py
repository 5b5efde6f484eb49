# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan-events`` as a process: alerts come over TLS, and the stand-in of a controller runs the jobs."""

from __future__ import annotations

import json
import pathlib
import signal
import ssl
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator

import pytest
import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api

from ironspan.lab.ports import free_ports
from tests.support.controller.launching import DONE
from tests.support.controller.server import Controller
from tests.support.controller_site import settings
from tests.support.events import alert, certificate, controller_of_events
from tests.support.playbooks import ROOT

TOKEN, NEXT_TOKEN = "first-token-of-this-test", "second-token-of-this-test"
PROGRAM = (sys.executable, "-m", "ironspan.events.main", "run")
PATIENCE_S = 180.0


class Program(t.NamedTuple):
    """The program and the controller behind it."""

    controller: Controller
    folder: pathlib.Path
    url: str
    metrics: str
    pool: urllib3.PoolManager

    def send(self, *alerts: dict[str, t.Any], token: str = TOKEN) -> tuple[int, str]:
        body = json.dumps({"version": "4", "alerts": list(alerts)})
        answer = self.pool.request(
            "POST",
            f"{self.url}/alerts",
            body=body,
            headers={"Authorization": f"Bearer {token}"},
            retries=False,
        )
        return answer.status, answer.data.decode().strip()

    def jobs(self, path: str, name: str) -> list[dict[str, t.Any]]:
        return [one for one in list(self.controller.store.objects[path].values()) if one["name"] == name]


def waited(said: t.Callable[[], t.Any]) -> t.Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := said()):
        assert time.monotonic() < until, "it does not come to an end"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("events")
    with controller_of_events(folder) as (made, token):
        (folder / "controller-token").write_text(token)
        (folder / "token").write_text(f"{TOKEN}\n")
        certificate(folder)
        port, metrics = free_ports(2)
        chosen = {
            **events.program_settings(settings(), made.url, "", {"etcd": ["azure-1", "azure-2"]}),
            "listen": {
                "address": "127.0.0.1", "port": port,
                "certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key"),
            },
            "controller": {"host": made.url, "token_file": str(folder / "controller-token")},
            "token_file": str(folder / "token"),
            "state": str(folder / "state.json"),
            "metrics": {"address": "127.0.0.1", "port": metrics},
        }  # fmt: skip
        (folder / "events.json").write_text(json.dumps(chosen))
        pool = urllib3.PoolManager(ca_certs=str(folder / "tls.crt"))
        with Running(folder, pool, f"https://127.0.0.1:{port}"):
            yield Program(made, folder, f"https://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}", pool)


class Running:
    """The process, while the block runs."""

    def __init__(self, folder: pathlib.Path, pool: urllib3.PoolManager, url: str) -> None:
        self._folder, self._pool, self._url = folder, pool, url

    def __enter__(self) -> None:
        self._log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            [*PROGRAM, "--settings", str(self._folder / "events.json")], stderr=self._log, cwd=ROOT
        )
        waited(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            return self._pool.request("GET", f"{self._url}/alerts", retries=False).status == 401
        except urllib3.exceptions.HTTPError:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(300) == 0
        self._log.close()


def test_a_job_is_launched_once_and_really_runs(program: Program) -> None:
    fired = alert("EtcdNoLeader", instance="azure-1:2381")
    assert program.send(alert("EtcdNoLeader", "resolved"), fired) == (
        200,
        "EtcdNoLeader: resolved, EtcdNoLeader: launched",
    )
    assert program.send(fired) == (200, "EtcdNoLeader: cooling")
    (job,) = program.jobs("jobs", "ironspan doctor")
    waited(lambda: job["status"] in DONE)
    assert job["status"] == "successful", job["stdout"]
    assert job["summary_fields"]["created_by"]["username"] == "alerts"


def test_what_cannot_be_undone_waits_for_an_approval_with_one_host(program: Program) -> None:
    assert program.send(alert("EtcdMemberUnhealthy", member="azure-2"))[1] == "EtcdMemberUnhealthy: launched"
    (workflow,) = program.jobs("workflow_jobs", "ironspan member replace workflow")
    answers = json.loads(workflow["extra_vars"])
    assert answers["ironspan_hosts"] == "azure-2"
    assert answers["ironspan_allow_destructive"] == "true"
    approvals = program.controller.store.objects["workflow_approvals"]
    (approval,) = waited(lambda: list(approvals.values()))
    assert approval["status"] == "pending"
    assert program.jobs("jobs", "ironspan member replace (apply plan)") == []
    # It is refused, and then nothing has changed.
    admin = Api(program.controller.url, program.controller.token(1))
    admin.post(f"workflow_approvals/{approval['id']}/deny/", {})
    waited(lambda: workflow["finished"])
    assert program.jobs("jobs", "ironspan member replace (apply plan)") == []


@pytest.mark.parametrize("labels", [{}, {"member": ""}, {"member": "all"}, {"member": "azure-1,azure-2"}])
def test_without_a_host_of_the_inventory_nothing_is_launched(
    program: Program, labels: dict[str, str]
) -> None:
    before = list(program.controller.writes)
    assert program.send(alert("EtcdMemberUnhealthy", **labels)) == (200, "EtcdMemberUnhealthy: no-target")
    assert program.controller.writes == before


def test_only_who_has_a_token_is_heard_and_a_rotation_needs_no_restart(program: Program) -> None:
    before = list(program.controller.writes)
    for token in ("", "wrong", NEXT_TOKEN):
        assert program.send(alert("KmsNotReady"), token=token)[0] == 401
    assert program.controller.writes == before
    (program.folder / "token").write_text(f"{NEXT_TOKEN}\n{TOKEN}\n")
    assert [program.send(token=token)[0] for token in (TOKEN, NEXT_TOKEN)] == [200, 200]
    (program.folder / "token").write_text("\n")
    assert program.send(token="")[0] == 401
    (program.folder / "token").write_text(f"{TOKEN}\n")


def test_without_tls_nobody_is_heard(program: Program) -> None:
    plain = program.url.replace("https", "http")
    with pytest.raises(urllib3.exceptions.HTTPError):
        program.pool.request("POST", f"{plain}/alerts", body=b"{}", retries=False)
    stranger = urllib3.PoolManager(ssl_context=ssl.create_default_context())
    with pytest.raises(urllib3.exceptions.HTTPError):
        stranger.request("GET", f"{program.url}/alerts", retries=False)


def test_a_controller_that_fails_is_asked_again_and_launches_once(program: Program) -> None:
    fired = alert("EtcdManyElections")
    program.controller.failing.append(("GET /api/v2/job_templates/", 500))
    assert program.send(fired) == (503, "nothing was launched for some of it; send it again")
    assert program.jobs("jobs", "ironspan net check") == []
    # The launch itself is refused: that is remembered, and not tried again within the cool-down.
    program.controller.failing.append(("launch/", 500))
    assert program.send(fired) == (200, "EtcdManyElections: launched")
    assert program.send(fired) == (200, "EtcdManyElections: cooling")
    assert json.loads((program.folder / "state.json").read_text())["EtcdManyElections"]["failures"] == 1


def test_a_template_that_the_account_may_not_launch_is_503(program: Program) -> None:
    # It was not loaded here, as when somebody has deleted it.
    assert program.send(alert("BreakGlassUsed"))[0] == 503
    assert "shows no template 'ironspan access review'" in (program.folder / "log").read_text()


def test_the_breaker_and_the_metrics(program: Program) -> None:
    names = [name for name, one in events.REACTIONS.items() if one.operation in ("doctor", "net_check")]
    # They are refused, which counts as launches and spares the jobs.
    program.controller.failing += [("launch/", 500)] * len(names)
    status, text = program.send(*map(alert, names))
    assert status == 200
    launched = json.loads((program.folder / "state.json").read_text())
    assert len(launched) == 6
    assert text.count("breaker") == len(names) - len(set(names) & set(launched))
    told = program.pool.request("GET", f"{program.metrics}/metrics").data.decode()
    assert f'ironspan_events_alerts_total{{outcome="breaker"}} {float(text.count("breaker"))}' in told
    assert "ironspan_events_ready 1.0" in told
    assert TOKEN not in (program.folder / "log").read_text()
