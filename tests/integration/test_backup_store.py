# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""playbooks/backup_store.yml against the lab's resource manager: containers, policies, locks, roles."""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import StoreSetupError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.setup import Outcome, set_up, wanted_of

from ironspan.lab.azure import settings
from tests.support.lab_azure import MANAGEMENT, Credential, LabAzure, azure, running_azure  # noqa: F401
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
    identity = Credential(azure, "operator", MANAGEMENT)
    return lambda subscription: Management(identity, subscription, azure.url("management"), ca=str(azure.ca))


@pytest.fixture
def setting_up(connect: Callable[[str], Management], entry: dict[str, object]) -> SetUp:
    """Sets the container up with some of the entry changed."""

    def run(lock: str = "", *, check: bool = False, **changes: object) -> Outcome:
        return set_up([{**entry, **changes}], connect, lock, check=check)

    return run


def policy_of(azure: LabAzure, container: str) -> dict[str, object] | None:
    found = azure.do("status")["containers"].get(container)
    return found["policy"] if found else None


def test_from_nothing_to_a_locked_policy(setting_up: SetUp, azure: LabAzure, container: str) -> None:
    wanted = f"{settings.ACCOUNT}/{container}"
    planned = setting_up(check=True)
    assert policy_of(azure, container) is None
    assert (
        setting_up().changes
        == planned.changes
        == [
            f"create the container {wanted}, private",
            f"retain what is in {wanted} for 3 days, append blobs may grow",
        ]
    )
    made = policy_of(azure, container)
    assert made
    assert (made["days"], made["append"], made["locked"]) == (3, "append", False)
    assert setting_up().changes == []

    (changed,) = setting_up(retention_days=2).changes
    assert "3 days -> 2 days" in changed
    assert setting_up(retention_days=3).changes

    (locked,) = setting_up(lock=wanted).changes
    assert "for ever" in locked
    assert setting_up(lock=wanted).changes == []
    with pytest.raises(StoreSetupError, match="can never be shortened"):
        setting_up(retention_days=2)
    with pytest.raises(StoreSetupError, match="ironspan_lock"):
        setting_up(retention_days=4)
    (extended,) = setting_up(lock=wanted, retention_days=4).changes
    assert "3 -> 4 days" in extended
    made = policy_of(azure, container)
    assert made
    assert (made["days"], made["append"], made["locked"]) == (4, "append", True)


def test_a_diff_shows_before_and_after(setting_up: SetUp) -> None:
    (diff,) = setting_up(check=True).diff
    assert diff["before"] == ""
    assert json.loads(diff["after"])["policy"] == {
        "retention_days": 3,
        "append_allowed": True,
        "locked": False,
    }
    setting_up()
    (diff,) = setting_up(check=True, retention_days=5).diff
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
    with pytest.raises(StoreSetupError, match=text):
        setting_up(**changes)
    assert policy_of(azure, container) is None


def test_an_account_that_is_not_fit_is_refused(
    setting_up: SetUp, azure: LabAzure, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Management, "account_faults", lambda *arguments: ["the account accepts keys"])
    with pytest.raises(StoreSetupError, match="no backups should go there: the account accepts keys"):
        setting_up()
    assert policy_of(azure, container) is None


def test_what_was_done_before_a_failure_is_told(setting_up: SetUp, azure: LabAzure, container: str) -> None:
    azure.fault("status", service="management", method="PUT", status=409, count=1)
    with pytest.raises(StoreSetupError, match="done before: nothing"):
        setting_up()
    setting_up()
    azure.fault("status", service="management", method="POST", status=409)
    with pytest.raises(StoreSetupError, match=r"done before: retention of labstore/.*: 3 days -> 4 days"):
        setting_up(lock=f"{settings.ACCOUNT}/{container}", retention_days=4)


def test_an_identity_without_rights_is_told(
    azure: LabAzure, entry: dict[str, object], container: str
) -> None:
    identity = Credential(azure, "writer", MANAGEMENT)
    manager = Management(identity, settings.SUBSCRIPTION, azure.url("management"), ca=str(azure.ca))
    with pytest.raises(StoreSetupError, match=r"may not manage labstore/.* Storage Account Contributor"):
        set_up([entry], lambda subscription: manager)


def test_a_resource_manager_that_stumbles_is_asked_again(setting_up: SetUp, azure: LabAzure) -> None:
    azure.fault("status", service="management", status=429, retry_after=0, count=2)
    assert len(setting_up().changes) == 2


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
    assert len(found.wrong) == bool(wrong)
    assert all(wrong in line for line in found.wrong)
    assert not found.not_seen
    assert [one["role"]["Name"] for one in found.roles] == [
        "ironspan backup writer",
        "ironspan backup garbage collector",
        "ironspan backup drill",
        "ironspan backup reader",
    ]


def test_roles_that_may_not_be_read_are_not_seen(
    setting_up: SetUp, azure: LabAzure, entry: dict[str, object]
) -> None:
    prefix = f"{wanted_of(entry).scope}/providers/Microsoft.Authorization"
    azure.fault("status", service="management", status=403, prefix=prefix)
    (said,) = setting_up(check=True, writers=["an-object-id"]).not_seen
    assert "an-object-id" in said


@pytest.fixture
def site(tmp_path: pathlib.Path, azure: LabAzure, entry: dict[str, object]) -> Iterator[pathlib.Path]:
    management = {
        "kind": "managed_identity",
        "client_id": OPERATOR,
        "url": azure.url("management"),
        "ca": str(azure.ca),
    }
    writers = [settings.IDENTITIES["writer"].object_id]
    variables = {
        "etcd_backup_containers": [{**entry, "writers": writers}],
        "etcd_backup_management": management,
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"localhost": {}}, "vars": variables}}))
    with azure.managed_identity():
        yield tmp_path


def test_the_playbook(site: pathlib.Path, azure: LabAzure, container: str) -> None:
    command = (str(ROOT / "playbooks/backup_store.yml"), "-i", str(site / "hosts.yml"))
    checked = run(site, *command, "--check", "--diff")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "changed=1" in checked.stdout
    assert '"append_allowed": true' in checked.stdout
    assert policy_of(azure, container) is None
    made = run(site, *command)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "has to exist: ironspan backup writer" in made.stdout
    assert policy_of(azure, container)
    again = run(site, *command)
    assert "changed=0" in again.stdout, again.stdout + again.stderr
    refused = run(site, *command, "-e", "ironspan_lock=labstore/other")
    assert refused.returncode == 2
    assert "nothing was changed" in refused.stdout
