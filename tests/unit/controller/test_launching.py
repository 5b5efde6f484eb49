# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The loaded configuration in use: surveys, who may launch and approve, workflows whose jobs really run."""

from __future__ import annotations

import json
import pathlib
import re
import time
import typing as t
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api, Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.controller_object import (
    ControllerObjects,
)

from ironspan.artifacts import jobs_image
from tests.support.controller.launching import DONE
from tests.support.controller.server import Controller
from tests.support.controller_site import SECRETS, configuration, controller, project
from tests.support.playbooks import ROOT

PATIENCE_S = 120
TEAMS = ("operators", "approvers", "auditors", "break-glass")
CHANGE = "ironspan change workflow"


class Site(t.NamedTuple):
    """A controller with everything loaded, and an account in each team."""

    controller: Controller
    tokens: dict[str, str]
    reports: pathlib.Path

    def api(self, name: str) -> Api:
        return Api(self.controller.url, self.tokens[name])

    def number(self, path: str, name: str) -> int:
        objects = self.controller.store.objects[path].values()
        return next(int(one["id"]) for one in objects if one["name"] == name)

    def launch(self, user: str, path: str, name: str, **answers: t.Any) -> dict[str, t.Any]:
        target = f"{path}/{self.number(path, name)}/launch/"
        return self.api(user).post(target, {"extra_vars": answers} if answers else {})


def reporting(folder: pathlib.Path) -> dict[str, str]:
    """Return the variables that docs/reports.md tells to set for all jobs, with folders that are here."""
    text = (ROOT / "docs" / "reports.md").read_text()
    (found,) = re.findall(r'\{"ANSIBLE_CALLBACKS_ENABLED".*?\}', text, re.DOTALL)
    variables: dict[str, str] = json.loads(found)
    variables["ANSIBLE_CALLBACK_PLUGINS"] = variables["ANSIBLE_CALLBACK_PLUGINS"].replace(
        f"/{jobs_image.PROJECT}", str(ROOT)
    )
    assert pathlib.Path(variables["ANSIBLE_CALLBACK_PLUGINS"]).is_dir()
    return {**variables, "IRONSPAN_REPORT_FOLDER": str(folder)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url = project(tmp_path_factory.mktemp("project"))
    reports = tmp_path_factory.mktemp("reports")
    made = controller(**reporting(reports))
    with made.serving(), pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, f"secret of {name}")
        reader = made.user("reader", is_system_auditor=True)
        patch.setenv("IRONSPAN_AWX_READER_TOKEN", reader)
        wanted = states.wanted_states(configuration(awx_project_url=url))
        next(state for title, state in wanted.items() if title == "credential ironspan controller reader")[
            "inputs"
        ] = states.lines_of({"host": made.url})
        kind = ControllerObjects(Api(made.url, made.token(1)), "ironspan", "ironspan")
        assert bring(kind, dict(wanted), Consent(), lambda text: None).problems == []
        tokens = {team: made.user(f"one of {team}") for team in TEAMS}
        for team in TEAMS:
            made.join(f"one of {team}", f"ironspan {team}")
        tokens["both"] = made.user("both")
        for team in ("operators", "approvers"):
            made.join("both", f"ironspan {team}")
        yield Site(made, tokens, reports)


def waited(said: Callable[[], t.Any]) -> t.Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := said()):
        assert time.monotonic() < until, "it does not come to an end"
        time.sleep(0.05)
    return found


def ended(site: Site, path: str, number: int) -> dict[str, t.Any]:
    """Wait for the end of a job and return it."""
    job = site.controller.store.objects[path][number]
    waited(lambda: job["finished"])
    assert job["status"] in DONE
    return job


def approval(site: Site, workflow: int) -> dict[str, t.Any]:
    """Wait for the approval of a workflow and return it."""
    approvals = site.controller.store.objects["workflow_approvals"]
    return t.cast(
        "dict[str, t.Any]",
        waited(
            lambda: next((one for one in list(approvals.values()) if one["workflow_job"] == workflow), None)
        ),
    )


def test_nobody_launches_and_approves(site: Site) -> None:
    """Walks all teams and all templates: what may each do, as the controller sees it."""
    store, access = site.controller.store, site.controller.access
    may: dict[str, set[tuple[str, str]]] = {}
    for team in TEAMS:
        user = next(one for one in store.objects["users"].values() if one["username"] == f"one of {team}")
        may[team] = {
            (role, there["name"])
            for path in ("job_templates", "workflow_job_templates")
            for there in store.objects[path].values()
            for role in ("execute_role", "approval_role", "admin_role", "read_role")
            if access.has(user, path, there, role)
        }
        roles = {role for role, _ in may[team]}
        assert not {"execute_role", "approval_role"} <= roles, team
        assert "admin_role" not in roles, team
    everything = {
        one["name"]
        for path in ("job_templates", "workflow_job_templates")
        for one in store.objects[path].values()
    }
    assert {name for role, name in may["auditors"] if role == "read_role"} == everything
    assert ("execute_role", "ironspan node remove") not in may["operators"]
    assert ("execute_role", "ironspan node remove") in may["break-glass"]
    assert ("execute_role", "ironspan node remove workflow") in may["operators"]


@pytest.mark.parametrize(
    ("user", "path", "name"),
    [
        ("approvers", "job_templates", "ironspan doctor"),
        ("approvers", "workflow_job_templates", CHANGE),
        ("auditors", "job_templates", "ironspan doctor"),
        ("operators", "job_templates", "ironspan site"),
        ("operators", "job_templates", "ironspan change members"),
        ("break-glass", "workflow_job_templates", CHANGE),
    ],
)
def test_who_may_not_launch_is_refused(site: Site, user: str, path: str, name: str) -> None:
    with pytest.raises(Refused) as raised:
        site.launch(user, path, name)
    # Who may not even read it does not learn that it is there.
    assert raised.value.status == 403


@pytest.mark.parametrize(
    ("name", "answers", "says"),
    [
        ("ironspan node remove workflow", {}, "'ironspan_hosts' value missing"),
        (
            "ironspan bmc power workflow",
            {"ironspan_power": "up", "ironspan_servers": "a"},
            "expected to be one of",
        ),
        ("ironspan upgrade workflow", {"ironspan_snapshots_kept": 0}, "is too small (must be at least 1)"),
        ("ironspan upgrade workflow", {"ironspan_snapshots_kept": "3"}, "expected to be an integer"),
        ("ironspan change workflow", {"ironspan_allow_destructive": "yes"}, "expected to be one of"),
        ("ironspan rack workflow", {"ironspan_servers": ""}, "'ironspan_servers' value missing"),
    ],
)
def test_a_wrong_answer_is_refused_at_the_launch(
    site: Site, name: str, answers: dict[str, t.Any], says: str
) -> None:
    with pytest.raises(Refused) as raised:
        site.launch("operators", "workflow_job_templates", name, **answers)
    assert raised.value.status == 400
    assert says in str(raised.value)


def test_what_is_not_asked_is_passed_over(site: Site) -> None:
    job = site.launch(
        "operators", "job_templates", "ironspan site (check)", ironspan_allow_destructive="true", evil=1
    )
    assert job["ignored_fields"] == {"extra_vars": {"ironspan_allow_destructive": "true", "evil": 1}}
    done = ended(site, "jobs", job["job"])
    assert done["status"] == "successful"
    assert "consent=none" in done["stdout"]
    # Each job leaves its report, as the manual says.
    (told,) = re.findall(r"report: (\S+\.html)", done["stdout"])
    page = pathlib.Path(told)
    assert page.parent == site.reports
    assert "Stand-in of site" in page.read_text()
    record = json.loads(page.with_suffix(".json").read_text())
    assert (record["playbook"], record["state"], record["check"]) == ("site", "done", True)


def jobs_of(site: Site, workflow: int) -> list[tuple[str, str]]:
    jobs = list(site.controller.store.objects["jobs"].values())
    return [(one["name"], one["status"]) for one in jobs if one.get("workflow_job") == workflow]


def test_a_change_goes_from_plan_to_proof(site: Site) -> None:
    launched = site.launch("operators", "workflow_job_templates", CHANGE, ironspan_allow_destructive="true")
    number = launched["workflow_job"]
    waiting = approval(site, number)
    assert jobs_of(site, number) == [("ironspan change (plan)", "successful")]
    path = f"workflow_approvals/{waiting['id']}/approve/"
    for user in ("operators", "auditors", "break-glass"):
        with pytest.raises(Refused) as raised:
            site.api(user).post(path, {})
        assert raised.value.status == 403
    site.api("approvers").post(path, {})
    with pytest.raises(Refused, match="already been approved or denied"):
        site.api("approvers").post(path, {})
    assert ended(site, "workflow_jobs", number)["status"] == "successful"
    assert jobs_of(site, number) == [
        ("ironspan change (plan)", "successful"),
        ("ironspan approval guard", "successful"),
        ("ironspan change members", "successful"),
        ("ironspan change workers", "successful"),
        ("ironspan verify", "successful"),
    ]
    # The consent of the launch reaches jobs that do not ask for it.
    jobs = site.controller.store.objects["jobs"].values()
    (members,) = [one for one in jobs if one.get("workflow_job") == number and "members" in one["name"]]
    assert "consent=true" in members["stdout"]


def test_whoever_launched_and_approved_is_stopped_by_the_guard(site: Site) -> None:
    number = site.launch("both", "workflow_job_templates", CHANGE)["workflow_job"]
    # The controller itself lets it pass.
    site.api("both").post(f"workflow_approvals/{approval(site, number)['id']}/approve/", {})
    assert ended(site, "workflow_jobs", number)["status"] == "failed"
    assert jobs_of(site, number) == [
        ("ironspan change (plan)", "successful"),
        ("ironspan approval guard", "failed"),
    ]
    jobs = site.controller.store.objects["jobs"].values()
    (guard,) = [one for one in jobs if one.get("workflow_job") == number and "guard" in one["name"]]
    assert "both launched this workflow and gave the approval" in " ".join(guard["stdout"].split())


@pytest.mark.long
def test_what_is_denied_is_not_done(site: Site) -> None:
    number = site.launch("operators", "workflow_job_templates", CHANGE)["workflow_job"]
    site.api("approvers").post(f"workflow_approvals/{approval(site, number)['id']}/deny/", {})
    assert ended(site, "workflow_jobs", number)["status"] == "failed"
    assert jobs_of(site, number) == [("ironspan change (plan)", "successful")]


@pytest.mark.long
def test_a_workflow_that_stops_says_what_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(site.controller.launcher._environment, "BREAKS", "site")
    number = site.launch("operators", "workflow_job_templates", CHANGE)["workflow_job"]
    site.api("approvers").post(f"workflow_approvals/{approval(site, number)['id']}/approve/", {})
    ended(site, "workflow_jobs", number)
    assert jobs_of(site, number)[2:] == [
        ("ironspan change members", "failed"),
        ("ironspan what is left", "successful"),
    ]
