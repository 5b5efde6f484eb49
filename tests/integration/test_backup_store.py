# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""playbooks/backup_store.yml against the lab's resource manager: containers, policies, locks, roles."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.action.remote_things import diff_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import load
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.backup_container import (
    CONTAINERS,
    LOCK,
    BackupContainer,
    declared,
)

from ironspan.cli.plan_text import shown
from ironspan.lab.azure import settings
from tests.support.lab_azure import LabAzure, azure, running_azure  # noqa: F401
from tests.support.playbooks import ROOT
from tests.support.small_plays import run

OPERATOR = settings.IDENTITIES["operator"].client_id
SetUp = Callable[..., Outcome]


@pytest.fixture
def container() -> str:
    return f"c{uuid.uuid4().hex[:12]}"


@pytest.fixture
def entry(container: str) -> dict[str, object]:
    return {
        "subscription": settings.SUBSCRIPTION,
        "resource_group": settings.RESOURCE_GROUP,
        "account": settings.ACCOUNT,
        "container": container,
        "retention_days": 3,
    }


@pytest.fixture
def connect(azure: LabAzure) -> Callable[[str], Management]:
    return lambda subscription: Management(azure.management(), subscription)


@pytest.fixture
def setting_up(connect: Callable[[str], Management], entry: dict[str, object]) -> SetUp:
    """Sets the container up with some of the entry changed."""

    def run(lock: str = "", *, check: bool = False, **changes: object) -> Outcome:
        return set_up({**entry, **changes}, connect, lock, check=check)

    return run


def set_up(
    entry: dict[str, object], connect: Callable[[str], Management], lock: str = "", *, check: bool = False
) -> Outcome:
    """Bring the container to what an entry wants; what fails is raised."""
    wanted = declared({CONTAINERS: [entry]}, {LOCK: lock})
    outcome = bring(BackupContainer(connect), wanted, Consent(named=(lock,)), lambda text: None, check=check)
    if outcome.problems:
        raise RemoteError("; ".join(outcome.problems))
    return outcome


def policy_of(azure: LabAzure, container: str) -> dict[str, object] | None:
    found = azure.do("status")["containers"].get(container)
    return found["policy"] if found else None


def test_from_nothing_to_a_locked_policy(setting_up: SetUp, azure: LabAzure, container: str) -> None:
    wanted = f"{settings.ACCOUNT}/{container}"
    planned = setting_up(check=True)
    assert policy_of(azure, container) is None
    assert (
        setting_up().done
        == planned.done
        == [
            f"create the container {wanted}, private",
            f"retain what is in {wanted} for 3 days, append blobs may grow",
        ]
    )
    made = policy_of(azure, container)
    assert made
    assert (made["days"], made["append"], made["locked"]) == (3, "append", False)
    assert setting_up().done == []

    (changed,) = setting_up(retention_days=2).done
    assert "3 days -> 2 days" in changed
    assert setting_up(retention_days=3).done

    (locked,) = setting_up(lock=wanted).done
    assert "for ever" in locked
    assert setting_up(lock=wanted).done == []
    with pytest.raises(RemoteError, match="can never be shortened"):
        setting_up(retention_days=2)
    with pytest.raises(RemoteError, match="ironspan_lock"):
        setting_up(retention_days=4)
    (extended,) = setting_up(lock=wanted, retention_days=4).done
    assert "3 -> 4 days" in extended
    made = policy_of(azure, container)
    assert made
    assert (made["days"], made["append"], made["locked"]) == (4, "append", True)


def test_a_diff_shows_before_and_after(setting_up: SetUp) -> None:
    (diff,) = map(diff_of, setting_up(check=True).things)
    assert diff["before"] == ""
    assert json.loads(diff["after"])["policy"] == {
        "retention_days": 3,
        "append_allowed": True,
        "locked": False,
    }
    setting_up()
    (diff,) = map(diff_of, setting_up(check=True, retention_days=5).things)
    assert json.loads(diff["before"])["policy"]["retention_days"] == 3


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"account": "nobody"}, "there is no storage account nobody"),
        ({"resource_group": "other"}, "in the resource group other"),
        ({"retention_days": 0}, "write 1 to 146000"),
        ({"lock": "labstore/other"}, "none of this site's containers"),
    ],
)
def test_wrong_entries_change_nothing(
    setting_up: SetUp, azure: LabAzure, container: str, changes: dict[str, object], text: str
) -> None:
    with pytest.raises(RemoteError, match=text):
        setting_up(**changes)
    assert policy_of(azure, container) is None


def test_an_account_that_is_not_fit_is_refused(
    setting_up: SetUp, azure: LabAzure, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Management, "account_faults", lambda *arguments: ["the account accepts keys"])
    with pytest.raises(RemoteError, match="no backups should go there: the account accepts keys"):
        setting_up()
    assert policy_of(azure, container) is None


def test_what_was_done_before_a_failure_is_told(setting_up: SetUp, azure: LabAzure, container: str) -> None:
    azure.fault("status", service="management", method="PUT", status=409, count=1)
    with pytest.raises(RemoteError, match="done before: nothing"):
        setting_up()
    setting_up()
    azure.fault("status", service="management", method="POST", status=409)
    with pytest.raises(RemoteError, match=r"done before: retention of labstore/.*: 3 days -> 4 days"):
        setting_up(lock=f"{settings.ACCOUNT}/{container}", retention_days=4)


def test_an_identity_without_rights_is_told(
    azure: LabAzure, entry: dict[str, object], container: str
) -> None:
    manager = Management(azure.management("writer"), settings.SUBSCRIPTION)
    with pytest.raises(RemoteError, match=r"may not manage labstore/.* Storage Account Contributor"):
        set_up(entry, lambda subscription: manager)


def test_a_resource_manager_that_stumbles_is_asked_again(setting_up: SetUp, azure: LabAzure) -> None:
    azure.fault("status", service="management", status=429, retry_after=0, count=2)
    assert len(setting_up().done) == 2


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ({"writers": "writer", "collectors": "collector", "readers": "reader"}, ""),
        ({"writers": "operator"}, "may also delete"),
        ({"writers": "none"}, "lacks read, write, add"),
        ({"readers": "writer"}, "may also add, write"),
    ],
)
def test_roles_are_read_and_judged(setting_up: SetUp, named: dict[str, str], wrong: str) -> None:
    principals = {key: [settings.IDENTITIES[name].object_id] for key, name in named.items()}
    found = setting_up(check=True, **principals)
    (thing,) = found.things
    assert len(found.wrong) == bool(wrong)
    assert all(wrong in line for line in found.wrong)
    assert not [note for note in thing.found.notes if note.startswith("not seen")]
    assert [one["role"]["Name"] for one in thing.found.more["roles"]] == [
        "ironspan backup writer",
        "ironspan backup garbage collector",
        "ironspan backup drill",
        "ironspan backup reader",
    ]


def test_roles_that_may_not_be_read_are_not_seen(
    setting_up: SetUp, azure: LabAzure, entry: dict[str, object]
) -> None:
    place = "subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Storage"
    account = "storageAccounts/{account}/blobServices/default/containers/{container}"
    prefix = f"/{place}/{account}/providers/Microsoft.Authorization".format(**entry)
    azure.fault("status", service="management", status=403, prefix=prefix)
    (thing,) = setting_up(check=True, writers=["an-object-id"]).things
    (said,) = (note for note in thing.found.notes if note.startswith("not seen"))
    assert "an-object-id" in said


SITE = {
    "site_name": "acme",
    "site_api_endpoint": "api.acme:6443",
    "site_api_address": "10.1.0.9",
    "site_mirror_url": "http://127.0.0.1:1",
    "ansible_connection": "local",
}


@pytest.fixture
def site(tmp_path: pathlib.Path, azure: LabAzure, entry: dict[str, object]) -> Iterator[pathlib.Path]:
    management = {
        "kind": "managed_identity",
        "client_id": OPERATOR,
        "url": azure.url("management"),
        "ca": str(azure.ca),
    }
    writers = [settings.IDENTITIES["writer"].object_id]
    key = tmp_path / "key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    key.chmod(0o600)
    variables = {
        **SITE,
        "site_pki_store": str(tmp_path / "pki"),
        "site_pki_key_file": str(key),
        "etcd_backup_containers": [{**entry, "writers": writers}],
        "etcd_backup_management": management,
    }
    groups = {
        "azure": {"hosts": {"a1": {"site_address": "10.1.0.1"}}},
        "on_prem": {"hosts": {"w1": {"site_address": "10.2.0.1"}}},
        "etcd": {"hosts": {"a1": {}}},
        "control_plane": {"hosts": {"a1": {}}},
        "nodes": {"hosts": {"w1": {}}},
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
    with azure.managed_identity():
        yield tmp_path


def playbook(site: pathlib.Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run(site, str(ROOT / f"playbooks/{name}.yml"), "-i", str(site / "hosts.yml"), *options)


def test_the_playbook(site: pathlib.Path, azure: LabAzure, container: str) -> None:
    checked = playbook(site, "backup_store", "--check", "--diff")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "changed=1" in checked.stdout
    assert '"append_allowed": true' in checked.stdout
    assert policy_of(azure, container) is None
    made = playbook(site, "backup_store")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "has to exist: ironspan backup writer" in made.stdout
    assert policy_of(azure, container)
    again = playbook(site, "backup_store")
    assert "changed=0" in again.stdout, again.stdout + again.stderr
    refused = playbook(site, "backup_store", "-e", "ironspan_lock=labstore/other")
    assert refused.returncode == 2
    assert "none of this site's containers" in refused.stdout


def test_it_is_planned_shown_and_applied_as_planned(
    site: pathlib.Path, azure: LabAzure, container: str, setting_up: SetUp
) -> None:
    """What moved since the plan is left alone; a lock needs consent where the plan is applied."""
    name, file = f"{settings.ACCOUNT}/{container}", site / "x.plan.json"
    lock = ("-e", f"ironspan_lock={name}")
    planning = (*lock, "-e", "ironspan_planned=backup_store", "-e", f"ironspan_plan_file={file}")
    planned = playbook(site, "plan", *planning)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert policy_of(azure, container) is None
    plan = load(file)
    (thing,) = plan.content["remote"]
    assert [step["verb"] for step in thing["steps"]] == ["create", "protect", "lock"]
    assert plan.content["hosts"] == {} and plan.content["summary"]["remote_changes"] == 3
    text = shown(plan)
    assert f"create  backup_container {name}" in text
    assert "! 3. lock the retention" in text and "cannot be undone" in text
    applying = ("backup_store", *lock, "-e", f"ironspan_plan={file}")
    refused = playbook(site, *applying)
    assert refused.returncode == 2 and "these steps need consent" in refused.stdout, refused.stdout
    assert policy_of(azure, container) is None
    setting_up(retention_days=9)
    moved = playbook(site, *applying, "-e", "ironspan_allow_destructive=true")
    assert moved.returncode == 2 and "changed since the plan was made" in moved.stdout
    made = policy_of(azure, container)
    assert made and (made["days"], made["locked"]) == (9, False)

    assert playbook(site, "plan", *planning).returncode == 0
    azure.fault("status", service="management", method="POST", status=409, count=1)
    failed = playbook(site, *applying, "-e", "ironspan_allow_destructive=true")
    assert failed.returncode == 2 and "done before: retention of" in failed.stdout
    finished = playbook(site, *applying, "-e", "ironspan_allow_destructive=true")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    made = policy_of(azure, container)
    assert made and (made["days"], made["locked"]) == (3, True)
