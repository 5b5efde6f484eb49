# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An estate compared and deployed, with a resource manager that says what a test wants it to."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import effects, estate_steps, templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Said
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import (
    Standing,
    Wanted,
    digest_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import Change, Foreseen, Property
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import (
    Consent,
    Outcome,
    bring,
    bring_as_planned,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate

SUBSCRIPTION, TENANT = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-00000000000a"
SCOPE = f"/subscriptions/{SUBSCRIPTION}"
GROUP = f"{SCOPE}/resourceGroups/lab-machines"


def machine(name: str) -> str:
    return f"{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"


def disk(name: str) -> str:
    return f"{GROUP}/providers/Microsoft.Compute/disks/{name}"


def vm(name: str, groups: str) -> dict[str, t.Any]:
    tags = {"ironspan-site": "lab", "ironspan-groups": groups}
    return {"type": "Microsoft.Compute/virtualMachines", "name": name, "tags": tags, "properties": {}}


TEMPLATE: dict[str, t.Any] = {
    "resources": [
        {"type": "Microsoft.Resources/resourceGroups", "name": "lab-machines"},
        {
            "type": "Microsoft.Resources/deployments",
            "name": "ironspan-lab-machines",
            "resourceGroup": "lab-machines",
            "properties": {
                "template": {
                    "resources": [
                        vm("etcd-1", "etcd"),
                        vm("etcd-2", "etcd"),
                        {"type": "Microsoft.KeyVault/vaults", "name": "lab-vault"},
                        {
                            "type": "Microsoft.Network/privateDnsZones/A",
                            "name": "api.lab/@",
                            "properties": {},
                        },
                        {
                            "type": "Microsoft.Authorization/roleAssignments",
                            "name": "g",
                            "scope": machine("etcd-1"),
                        },
                    ]
                }
            },
        },
    ]
}


def wanted(**more: t.Any) -> dict[str, t.Any]:
    made = {
        "site": "lab",
        "subscription": SUBSCRIPTION,
        "tenant": TENANT,
        "region": "westeurope",
        "deployment": "ironspan-lab",
        "how": "stack",
        "unmanaged": "delete",
        "deny": {"mode": "none"},
        "facts": ["2 machines"],
        "needs": {machine("etcd-1").lower(): {"Microsoft.Compute/cores": 4}},
        "template": TEMPLATE,
        **more,
    }
    return {**made, "digest": digest_of(made["template"])}


class Rest:
    """What the subscription answers to plain questions."""

    def __init__(self, answers: Mapping[str, t.Any]) -> None:
        self.subscription = SUBSCRIPTION
        self.answers: dict[str, t.Any] = {
            SCOPE: {"tenantId": TENANT, "state": "Enabled"},
            f"{SCOPE}/providers": [
                {"namespace": name, "registrationState": "Registered"}
                for name in ("Microsoft.Compute", "Microsoft.KeyVault", "Microsoft.Network")
            ],
            f"{SCOPE}/providers/Microsoft.Authorization/permissions": [{"actions": ["*"], "notActions": []}],
            **answers,
        }
        self.asked: list[str] = []

    def get(self, path: str, version: str, what: str, **query: str) -> t.Any:
        self.asked.append(path)
        return self.answers.get(path)

    def listed(self, path: str, version: str, what: str, **query: str) -> list[t.Any]:
        return self.get(path, version, what) or []

    def post(self, path: str, version: str, what: str, body: Mapping[str, t.Any]) -> t.Any:
        self.asked.append(path)
        return self.answers.get(f"{path} {body['name']}")


class Fake:
    """Deployments of a subscription, as ``azure.deployments.Deployments`` offers them."""

    def __init__(self, *changes: Change, stands: Standing | None = None, **answers: t.Any) -> None:
        self.changes, self.stands = list(changes), stands
        self.rest = Rest(answers.pop("answers", {}))
        self.said: list[Said] = answers.pop("said", [])
        self.followed: list[Change] = []
        self.deployed: list[Wanted] = []
        self.registered: list[str] = []
        self.asked: list[Wanted] = []

    def standing(self, chosen: Wanted) -> Standing | None:
        return self.stands

    def foreseen(self, chosen: Wanted) -> Foreseen:
        self.asked.append(chosen)
        return Foreseen(tuple(self.changes))

    def validated(self, chosen: Wanted) -> list[Said]:
        return self.said

    def register(self, namespace: str, say: Callable[[str], None]) -> None:
        self.registered.append(namespace)

    def follow(self, chosen: Wanted, say: Callable[[str], None]) -> Standing | None:
        self.changes = self.followed
        assert self.stands is not None
        self.stands = self.stands._replace(state="succeeded")
        return self.stands

    def deploy(self, chosen: Wanted, say: Callable[[str], None]) -> None:
        self.deployed.append(chosen)
        self.changes = []
        self.stands = stands(digest=chosen.tags["ironspan-digest"], modified="later")


def stands(state: str = "succeeded", digest: str = "", modified: str = "then") -> Standing:
    return Standing("stack made", state, modified, digest or digest_of(TEMPLATE))


def run(fake: Fake, *, allowed: bool = False, check: bool = False, **more: t.Any) -> Outcome:
    kind = AzureEstate(lambda subscription: t.cast("t.Any", fake))
    said = {"ironspan-lab": wanted(**more)}
    return bring(kind, said, Consent(allowed), lambda text: None, check=check)


CREATED = (Change(GROUP, "create"), Change(machine("etcd-1"), "create"), Change(disk("etcd-1"), "create"))
RESIZED = Change(
    machine("etcd-1"), "modify", (Property("properties.hardwareProfile.vmSize", "modify", "a", "b"),)
)


def test_from_nothing_to_an_estate_and_then_no_change() -> None:
    fake = Fake(*CREATED)
    planned = run(fake, check=True)
    assert not planned.problems
    assert not fake.deployed
    assert planned.done == [
        "deploy ironspan-lab: create 3 resources (1 disks, 1 resourceGroups, 1 virtualMachines)"
    ]
    assert planned.things[0].steps[0].costs == "1 disks, 1 virtualMachines"
    assert run(fake).done == planned.done
    assert [one.tags["ironspan-digest"] for one in fake.deployed] == [digest_of(TEMPLATE)]
    fake.rest.asked.clear()
    again = run(fake)
    assert (again.done, again.problems, len(fake.deployed)) == ([], [], 1)
    assert fake.rest.asked == [SCOPE]


def test_nothing_is_deleted_without_consent_and_then_what_is_named() -> None:
    gone = Change(disk("etcd-9"), "delete")
    fake = Fake(gone, stands=stands())
    with pytest.raises(RemoteError, match=r"need consent: delete disks etcd-9 in lab-machines"):
        run(fake)
    assert not fake.deployed
    planned = run(fake, check=True).things[0].steps
    assert [sorted(step.effects) for step in planned] == [["deletes", "wipes"], []]
    assert run(fake, allowed=True).done[0] == "delete disks etcd-9 in lab-machines"
    assert [one.delete for one in fake.deployed] == [True]


def test_without_a_deletion_azure_is_told_to_delete_nothing() -> None:
    fake = Fake(CREATED[1], stands=stands())
    run(fake)
    assert [one.delete for one in fake.asked] == [True]
    assert [one.delete for one in fake.deployed] == [False]


def test_what_restarts_is_named_and_several_of_a_majority_are_refused() -> None:
    (step, _) = run(Fake(RESIZED, stands=stands()), check=True).things[0].steps
    assert step.what.startswith("restart virtualMachines etcd-1 in lab-machines: ")
    assert '"a" -> "b"' in step.what
    both = run(Fake(RESIZED, RESIZED._replace(id=machine("etcd-2")), stands=stands()))
    assert "etcd-1, etcd-2 of etcd would be down at the same time" in both.problems[0]
    assert not both.done


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (machine("etcd-1"), "properties.storageProfile.imageReference.version"),
        (machine("etcd-1"), "zones[0]"),
        (machine("etcd-1"), "properties.osProfile.linuxConfiguration.ssh.publicKeys[0].keyData"),
        (disk("etcd-1"), "sku.name"),
    ],
)
def test_what_cannot_be_changed_in_place_is_refused(resource: str, path: str) -> None:
    fake = Fake(Change(resource, "modify", (Property(path, "modify", 1, 2),)), stands=stands())
    outcome = run(fake)
    assert "cannot be changed in place" in outcome.problems[0]
    assert not fake.deployed


def planned_by(fake: Fake, **more: t.Any) -> list[dict[str, t.Any]]:
    return [thing.as_dict() for thing in run(fake, check=True, **more).things]


def apply(fake: Fake, plan: list[dict[str, t.Any]], *, allowed: bool = False, begun: bool = False) -> Outcome:
    class Marks(Begun):
        def has(self, thing: t.Any) -> bool:
            return begun

    kind = AzureEstate(lambda subscription: t.cast("t.Any", fake))
    return bring_as_planned(kind, plan, allowed, Marks(None), lambda text: None)


def test_a_plan_deploys_its_own_template_and_no_other() -> None:
    plan = planned_by(Fake(*CREATED))
    fake = Fake(*CREATED)
    assert apply(fake, plan).done
    assert fake.deployed[0].template == TEMPLATE
    plan[0]["wanted"]["template"] = {"resources": []}
    with pytest.raises(RemoteError, match="not the one that its digest names"):
        apply(Fake(*CREATED), plan)


@pytest.mark.parametrize(
    "moved",
    [
        Fake(*CREATED, Change(machine("etcd-2"), "create")),
        Fake(*CREATED[:2]),
        Fake(*CREATED, stands=stands()),
        Fake(*CREATED, RESIZED),
    ],
)
def test_a_plan_is_refused_when_the_live_state_moved(moved: Fake) -> None:
    outcome = apply(moved, planned_by(Fake(*CREATED)))
    assert "make a new plan" in outcome.problems[0]
    assert not moved.deployed


def test_a_stack_that_was_deployed_since_is_refused() -> None:
    plan = planned_by(Fake(CREATED[1], stands=stands()))
    moved = Fake(CREATED[1], stands=stands(modified="later"))
    assert "make a new plan" in apply(moved, plan).problems[0]
    assert not moved.deployed


def test_a_killed_run_is_gone_on_with_by_the_same_plan() -> None:
    plan = planned_by(Fake(*CREATED))
    half = Fake(*CREATED[2:], stands=stands("failed"))
    assert "make a new plan" in apply(half, plan).problems[0]
    assert apply(half, plan, begun=True).done
    assert len(half.deployed) == 1


def test_a_deletion_that_the_plan_does_not_name_is_refused_after_a_kill_too() -> None:
    plan = planned_by(Fake(*CREATED, Change(disk("old"), "delete"), stands=stands()))
    other = Fake(Change(disk("other"), "delete"), stands=stands("failed"))
    outcome = apply(other, plan, allowed=True, begun=True)
    assert "make a new plan" in outcome.problems[0]
    assert not other.deployed


def test_what_runs_is_followed_and_deployed_again_only_where_something_is_left() -> None:
    fake = Fake(*CREATED, stands=stands("deploying"))
    assert run(fake).done == ["follow ironspan-lab, which is being deployed, until all of it is there"]
    assert not fake.deployed
    fake = Fake(*CREATED, stands=stands("deploying"))
    fake.followed = list(CREATED[2:])
    assert run(fake).done
    assert len(fake.deployed) == 1


def test_after_following_nothing_is_deleted_that_was_not_named() -> None:
    fake = Fake(*CREATED, stands=stands("deploying"))
    fake.followed = [Change(disk("old"), "delete")]
    outcome = run(fake, allowed=True)
    assert "would delete what no plan names by now: disks old" in outcome.problems[0]
    assert not fake.deployed


def test_another_deployment_that_runs_is_left_alone() -> None:
    fake = Fake(*CREATED, stands=stands("deploying", digest="f" * 64))
    assert "another template is being deployed" in run(fake).problems[0]
    assert not fake.deployed


def test_a_deployment_that_failed_without_a_difference_is_brought_to_an_end() -> None:
    fake = Fake(stands=stands("failed"))
    assert run(fake).done == ["deploy ironspan-lab: bring it to an end"]


def test_what_azure_foresees_nothing_of_is_deployed_once_a_template() -> None:
    unsure = Change(machine("etcd-1"), "unsupported", reason="reference()")
    assert run(Fake(unsure, stands=stands())).done == []
    assert run(Fake(unsure, stands=stands(digest="0" * 64))).done


def test_what_left_the_data_is_said_when_it_stays() -> None:
    fake = Fake(Change(disk("old"), "detach"), stands=stands())
    assert run(fake, unmanaged="detach").done[0] == (
        "stop managing disks old in lab-machines: it left the data, and stays in Azure"
    )
    tagged = {f"{SCOPE}/resources": [{"id": disk("old")}, {"id": machine("etcd-1")}]}
    plain = run(Fake(stands=stands(), answers=tagged), how="plain")
    assert [note for note in plain.things[0].found.notes if "left the data" in note] == [
        f"left the data, and stays in Azure: {disk('old')}"
    ]


VAULT = Change(f"{GROUP}/providers/Microsoft.KeyVault/vaults/lab-vault", "create")
USAGES = f"{SCOPE}/providers/Microsoft.Compute/locations/westeurope/usages"


def test_all_problems_are_named_before_anything_is_made() -> None:
    usage = {"name": {"value": "cores", "localizedValue": "Total cores"}, "currentValue": 98, "limit": 100}
    deleted = f"{SCOPE}/providers/Microsoft.KeyVault/locations/westeurope/deletedVaults/lab-vault"
    fake = Fake(
        *CREATED,
        VAULT,
        said=[Said("InvalidTemplate", "line 3")],
        answers={
            f"{SCOPE}/providers/Microsoft.Authorization/permissions": [
                {"actions": ["*"], "notActions": ["Microsoft.Authorization/*/write"]}
            ],
            USAGES: [usage],
            deleted: {"properties": {"scheduledPurgeDate": "2027-01-01"}},
        },
    )
    (problem,) = run(fake).problems
    for part in (
        "InvalidTemplate: line 3",
        "may not Microsoft.Authorization/roleAssignments/write in",
        "Total cores in westeurope: 98 used + 4 wanted = 102 of 100",
        "a vault lab-vault was deleted and keeps its name until 2027-01-01",
    ):
        assert part in problem
    assert not fake.deployed


def test_a_name_that_somebody_has_is_a_problem() -> None:
    path = f"{SCOPE}/providers/Microsoft.KeyVault/checkNameAvailability lab-vault"
    fake = Fake(VAULT, answers={path: {"nameAvailable": False, "message": "in use"}})
    assert "the name lab-vault cannot be had: in use" in run(fake).problems[0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"tenantId": "other"}, "is of the tenant other, and azure_tenant says"),
        ({"tenantId": TENANT, "state": "Disabled"}, "the subscription is Disabled"),
        (None, "there is no subscription"),
    ],
)
def test_another_subscription_than_that_of_the_data_is_left_alone(answer: t.Any, text: str) -> None:
    fake = Fake(*CREATED, answers={SCOPE: answer})
    assert text in run(fake).problems[0]
    assert not fake.asked


def test_providers_that_the_subscription_does_not_use_are_registered_first() -> None:
    fake = Fake(*CREATED, answers={f"{SCOPE}/providers": []})
    done = run(fake).done
    assert done[0] == "register the resource provider Microsoft.Compute in the subscription"
    assert fake.registered == ["Microsoft.Compute", "Microsoft.KeyVault", "Microsoft.Network"]
    assert len(fake.deployed) == 1


def test_ids_of_a_template() -> None:
    assert list(templates.by_id(TEMPLATE, SCOPE)) == [
        one.lower()
        for one in (
            GROUP,
            machine("etcd-1"),
            machine("etcd-2"),
            f"{GROUP}/providers/Microsoft.KeyVault/vaults/lab-vault",
            f"{GROUP}/providers/Microsoft.Network/privateDnsZones/api.lab/A/@",
            f"{machine('etcd-1')}/providers/Microsoft.Authorization/roleAssignments/g",
        )
    ]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (disk("a"), ["deletes", "wipes"]),
        (GROUP, ["deletes", "wipes"]),
        (f"{GROUP}/providers/Microsoft.Network/loadBalancers/l", ["deletes"]),
        (f"{GROUP}/providers/Microsoft.Authorization/roleAssignments/l", ["deletes", "takes_access"]),
        (f"{GROUP}/providers/Microsoft.Network/privateEndpoints/l", ["deletes", "takes_access"]),
    ],
)
def test_effects_of_deletions(resource: str, expected: list[str]) -> None:
    assert sorted(effects.of_deletion(Change(resource, "delete"))) == expected


def test_notes_tell_every_property() -> None:
    hidden = Foreseen((RESIZED,), {"read-only": 2}, 0, ("Nested: skipped",))
    said = estate_steps.notes(hidden, [RESIZED], stands()._replace(said=(Said("Code", "why"),)))
    assert said == [
        'changes virtualMachines etcd-1 in lab-machines: properties.hardwareProfile.vmSize: "a" -> "b"',
        "2 differences hidden as noise of what-if: 2 by read-only (docs/azure-apply.md)",
        "Azure says: Nested: skipped",
        "the last deployment: Code: why",
    ]
