# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Requests for access, the sealed kubeconfig and the audit log, with a real kube-apiserver."""

from __future__ import annotations

import base64
import concurrent.futures
import datetime
import functools
import json
import socket
import subprocess
import sys
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import _api, audit_watch
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import access_controller as controller
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests, sealed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.login import personal_api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import apply_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.programs import program
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from cryptography.x509.oid import ExtendedKeyUsageOID

from ironspan.cli import main as command

from .loopback_cluster import Control, find_programs, running
from .test_cluster_api import user_api

pytestmark = pytest.mark.lab
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/team/pods"
VARIABLES: Object = {
    "access_enabled": True,
    "access_roles": [
        {"role": "pod-reader", "approvals": 2, "longest_hours": 4, "cluster_wide": False},
        {"role": "node-reader", "approvals": 1, "longest_hours": 8, "cluster_wide": True},
    ],
    "access_requester_groups": ["researchers", "leads"],
    "access_approver_groups": ["leads"],
    "access_break_glass": True,
}
POLICY: Object = {"control_plane_audit_level": "Metadata"}


def objects() -> list[Object]:
    """Return what the role declares for the cluster."""
    text = Templates(ROLES_FOLDER).get("access/objects.yml.j2").render(VARIABLES)
    return list(yaml.safe_load(text))


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """An API server with the role's objects and the audit policy of control planes."""
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(names=("etcd", "kube-apiserver", "kube-controller-manager"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    policy = folder / "audit-policy.yaml"
    template = Templates(ROLES_FOLDER).get("control_plane/templates/audit-policy.yaml.j2")
    policy.write_text(template.render(POLICY))
    (folder / "audit").mkdir()
    with running(Control(programs, store, folder)) as started:
        started.start_etcd("etcd-1")
        log = f"--audit-log-path={folder}/audit/audit.log"
        started.start_api(log, f"--audit-policy-file={policy}", "--audit-log-maxage=1")
        started.bind_administrators()
        api = started.api()
        started.wait(lambda: bool(api.get("/api/v1/namespaces/kube-system")))
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        api.apply("/api/v1/namespaces/team", space)
        made = [*objects(), role("pod-reader", "pods"), role("node-reader", "nodes")]
        started.wait(lambda: not apply_objects(api, made))
        started.wait(lambda: in_force(started))
        yield started


def role(name: str, resource: str) -> Object:
    """Return a role that lists one kind of objects."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}],
    }


def in_force(control: Control) -> bool:
    """Tell whether the kind is served and both policies are heard of."""
    api = control.api()
    api.get(requests.PATH)
    asked = forged_request("somebody else")
    answers = [
        refusal(lambda: api.request("POST", requests.PATH, asked, query={"dryRun": "All"})),
        refusal(lambda: api.request("POST", f"{RBAC}/clusterrolebindings", FORGED, query={"dryRun": "All"})),
    ]
    return all("ValidatingAdmissionPolicy" in answer for answer in answers)


def refusal(call: Callable[[], object]) -> str:
    """Return why the API server refuses; empty when it does not."""
    try:
        call()
    except ApiError as error:
        return str(error)
    return ""


class People(t.NamedTuple):
    """Clients of people: two researchers, three leads, an administrator, and the controller."""

    ada: Api
    max: Api
    bob: Api
    eve: Api
    admin: Api
    controller: Api


@pytest.fixture(scope="module")
def people(control: Control) -> People:
    return People(
        user_api(control, "ada", ["researchers"]),
        user_api(control, "max", ["researchers"]),
        user_api(control, "bob", ["leads"]),
        user_api(control, "eve", ["leads"]),
        control.api(),
        user_api(control, controller.USER, []),
    )


@pytest.fixture(scope="module")
def settings(control: Control) -> Iterator[controller.Settings]:
    """What the controller reads; it finds the name of the API server's certificate."""
    pair = control.issue("controller", certificates.Names(controller.USER), ExtendedKeyUsageOID.CLIENT_AUTH)
    original = socket.getaddrinfo

    def resolved(host: t.Any, *rest: t.Any, **more: t.Any) -> t.Any:
        return original(control.address if host == "api.test.internal" else host, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", resolved)
        yield controller.Settings(
            server=f"https://{control.endpoint}",
            ca=str(control.folder / "api" / "ca.crt"),
            certificate=str(pair[0]),
            key=str(pair[1]),
            roles={entry["role"]: entry["approvals"] for entry in VARIABLES["access_roles"]},
            alive=str(control.folder / "alive"),
        )


def run_pass(settings: controller.Settings, hours: float = 0) -> None:
    """Let the controller do what is due, now or in some hours."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    assert controller.one_pass(_api.Cluster(settings), settings, now) == 0


def ask(api: Api, role: str = "pod-reader", seconds: int = 3600, namespace: str = "team") -> str:
    """Ask for a role and return the request's name."""
    made = requests.ask(api, requests.Asked(role, "ticket 4711", seconds, namespace))
    return str(made["metadata"]["name"])


def approve(api: Api, name: str) -> None:
    """Approve a request as it is now."""
    requests.approve(api, requests.found(api, name))


def binding(name: str, namespace: str = "team") -> str:
    """Return the path of a request's binding."""
    return f"{RBAC}/namespaces/{namespace}/rolebindings/ironspan-access-{name}"


def state(people: People, name: str) -> str:
    """Return a request's state."""
    return next(row.state for row in requests.listed(people.admin) if row.name == name)


def granted(people: People, settings: controller.Settings, **asked: t.Any) -> str:
    """Go the whole way to a grant for ada."""
    name = ask(people.ada, **asked)
    approve(people.bob, name)
    approve(people.eve, name)
    run_pass(settings)
    assert state(people, name) == "Granted"
    return name


# -- the way of a request --------------------------------------------------------------------------


def test_from_the_request_to_its_end(control: Control, people: People, settings: controller.Settings) -> None:
    assert "forbidden" in refusal(lambda: people.ada.get(PODS))
    name = ask(people.ada)
    approve(people.bob, name)
    run_pass(settings)
    assert state(people, name) == "Waiting", "two must approve"
    approve(people.eve, name)
    run_pass(settings)
    assert state(people, name) == "Granted"
    control.wait(lambda: not refusal(lambda: people.ada.get(PODS)))
    marks = people.admin.get(binding(name))["metadata"]["annotations"]
    assert marks["access.ironspan.io/approved-by"] == "bob, eve"
    assert marks["access.ironspan.io/requested-by"] == "ada"
    run_pass(settings, hours=0.9)
    assert people.admin.find(binding(name))
    run_pass(settings, hours=1.01)
    assert people.admin.find(binding(name)) is None
    assert state(people, name) == "Expired"
    control.wait(lambda: "forbidden" in refusal(lambda: people.ada.get(PODS)))
    run_pass(settings, hours=31 * 24)
    assert name not in {row.name for row in requests.listed(people.admin)}


def test_what_ended_while_nobody_looked_goes_at_the_start(
    people: People, settings: controller.Settings
) -> None:
    name = granted(people, settings)
    past = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    request = people.admin.get(f"{requests.PATH}/{name}")
    request["status"]["expiresAt"] = past
    people.controller.put(f"{requests.PATH}/{name}/status", request)
    file = Path(settings.alive).with_name("settings.json")
    file.write_text(json.dumps(settings._asdict()))
    assert controller.main([str(file), "--once"]) == 0
    assert people.admin.find(binding(name)) is None
    assert Path(settings.alive).exists()


def test_for_the_whole_cluster(control: Control, people: People, settings: controller.Settings) -> None:
    name = ask(people.ada, role="node-reader", namespace="")
    approve(people.bob, name)
    run_pass(settings)
    control.wait(lambda: not refusal(lambda: people.ada.get("/api/v1/nodes")))
    run_pass(settings, hours=1.01)
    assert people.admin.find(f"{RBAC}/clusterrolebindings/ironspan-access-{name}") is None


@pytest.mark.parametrize("who", ["ada", "bob", "admin"])
def test_a_request_that_is_deleted_takes_its_grant_along(
    people: People, settings: controller.Settings, who: str
) -> None:
    name = granted(people, settings)
    assert people.admin.get(binding(name))["metadata"]["ownerReferences"][0]["name"] == name
    requests.revoke(getattr(people, who), name)
    run_pass(settings)
    assert people.admin.find(binding(name)) is None


def test_a_binding_that_is_deleted_does_not_come_back(people: People, settings: controller.Settings) -> None:
    name = granted(people, settings)
    assert people.admin.delete(binding(name))
    run_pass(settings)
    assert people.admin.find(binding(name)) is None
    run_pass(settings, hours=0.1)
    assert state(people, name) == "Revoked"
    assert people.admin.find(binding(name)) is None


def test_a_grant_that_was_claimed_and_not_bound_is_bound_by_whoever_looks_next(
    people: People, settings: controller.Settings
) -> None:
    name = ask(people.ada)
    approve(people.bob, name)
    approve(people.eve, name)
    now = datetime.datetime.now(datetime.UTC)
    (claim,) = controller.decide([people.admin.get(f"{requests.PATH}/{name}")], [], settings, now)
    assert claim.then is not None, "the binding, which a controller that is killed here does not make"
    _api.Cluster(settings).ask(claim.method, claim.path, claim.body)
    run_pass(settings, hours=0.1)
    assert state(people, name) == "Granted"
    assert people.admin.find(binding(name))
    run_pass(settings, hours=0.1)
    assert people.admin.delete(binding(name))
    run_pass(settings, hours=0.1)
    assert people.admin.find(binding(name)) is None, "what somebody takes away stays away"
    run_pass(settings, hours=0.2)
    assert state(people, name) == "Revoked"


def test_a_namespace_that_goes_is_no_obstacle(people: People, settings: controller.Settings) -> None:
    name = ask(people.ada, namespace="nowhere")
    approve(people.bob, name)
    approve(people.eve, name)
    now = datetime.datetime.now(datetime.UTC)
    assert controller.one_pass(_api.Cluster(settings), settings, now) == 1
    run_pass(settings, hours=0.1)
    assert state(people, name) == "Revoked"


def test_controllers_need_no_leader(people: People, settings: controller.Settings) -> None:
    names = [ask(people.ada) for _ in range(3)]
    for name in names:
        approve(people.bob, name)
        approve(people.eve, name)
    now = datetime.datetime.now(datetime.UTC)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        clusters = [_api.Cluster(settings) for _ in range(3)]
        failures = list(pool.map(lambda cluster: controller.one_pass(cluster, settings, now), clusters))
    assert failures == [0, 0, 0]
    assert {state(people, name) for name in names} == {"Granted"}
    assert all(people.admin.find(binding(name)) for name in names)
    run_pass(settings, hours=2)


# -- who may not -----------------------------------------------------------------------------------


def forged_request(user: str, **changes: t.Any) -> Object:
    """Return a request as somebody may write it without the program."""
    return {
        "apiVersion": "access.ironspan.io/v1",
        "kind": "AccessRequest",
        "metadata": {"name": changes.pop("name", "forged")},
        "spec": {
            "user": user,
            "role": "pod-reader",
            "namespace": "team",
            "reason": "ticket 1",
            "seconds": 60,
            **changes,
        },
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (forged_request("ada"), ""),
        (forged_request("max"), "people ask for themselves"),
        (forged_request("ada", role="cluster-admin"), "this role cannot be asked for"),
        (forged_request("ada", seconds=4 * 3600), ""),
        (forged_request("ada", seconds=4 * 3600 + 1), "cannot be asked for so long"),
        (forged_request("ada", seconds=1), "should be greater than or equal to 60"),
        (forged_request("ada", reason="x"), "spec.reason"),
        (forged_request("ada", name="a" * 41), "the name of a request"),
        (forged_request("ada", name="a.b"), "the name of a request"),
        (forged_request("ada", more="x"), "unknown field"),
    ],
)
def test_what_can_be_asked_for(people: People, body: Object, reason: str) -> None:
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = refusal(lambda: people.ada.request("POST", requests.PATH, body, query=query))
    assert reason in answer
    assert bool(answer) is bool(reason)


def test_a_role_for_namespaces_is_not_for_the_whole_cluster(people: People) -> None:
    assert "in a namespace only" in refusal(lambda: ask(people.ada, namespace=""))


def test_strangers_do_not_ask(control: Control) -> None:
    assert "forbidden" in refusal(lambda: ask(user_api(control, "stranger", ["others"])))


Change = Callable[[Object], None]


def approvals(*names: str) -> Change:
    return lambda item: item.update(status={"approvals": list(names)})


def status(**fields: t.Any) -> Change:
    return lambda item: item.update(status=fields)


@pytest.mark.parametrize(
    ("who", "change", "reason"),
    [
        ("eve", approvals("bob", "eve"), ""),
        ("eve", approvals("bob", "max"), "adds their own name"),
        ("eve", approvals("bob", "eve", "max"), "adds their own name"),
        ("eve", approvals("eve"), "adds their own name"),
        ("eve", approvals("eve", "max"), "adds their own name"),
        ("eve", approvals(), "adds their own name"),
        ("bob", approvals("bob"), "adds their own name"),
        ("bob", approvals("bob", "bob"), "uplicate"),
        ("eve", status(approvals=["bob", "eve"], state="Granted"), "adds their own name"),
        ("eve", status(approvals=["bob", "eve"], expiresAt="2030-01-01T00:00:00Z"), "adds their own name"),
        ("max", approvals("bob", "max"), "forbidden"),
        ("ada", approvals("bob", "ada"), "forbidden"),
        ("admin", approvals("bob", "kubernetes-admin"), "adds their own name"),
        ("admin", approvals("bob", "ironspan:controller"), "only members of the groups of approvers"),
        ("controller", approvals("bob", "eve"), "written by those who approve"),
        ("controller", status(approvals=["bob"], state="Refused"), ""),
    ],
)
def test_approving(people: People, shared: str, who: str, change: Change, reason: str) -> None:
    item = people.admin.get(f"{requests.PATH}/{shared}")
    change(item)
    path, query = f"{requests.PATH}/{shared}/status", {"dryRun": "All"}
    answer = refusal(lambda: getattr(people, who).request("PUT", path, item, query=query))
    assert reason in answer
    assert bool(answer) is bool(reason)


@pytest.fixture(scope="module")
def shared(people: People) -> str:
    """A request of ada's that bob approved."""
    name = ask(people.ada)
    approve(people.bob, name)
    return name


def test_approving_as_kubectl_does_it(people: People) -> None:
    path = f"{requests.PATH}/{ask(people.ada)}/status"
    assert people.bob.get(path)
    assert people.bob.merge(path, {"status": {"approvals": ["bob"]}})["status"]["approvals"] == ["bob"]


def test_nobody_approves_their_own(people: People) -> None:
    name = ask(people.eve)
    assert "nobody approves their own request" in refusal(lambda: approve(people.eve, name))


def test_another_request_of_the_same_name_is_not_approved(people: People) -> None:
    name = ask(people.ada)
    seen = requests.found(people.bob, name)
    requests.revoke(people.ada, name)
    people.ada.request("POST", requests.PATH, forged_request("ada", name=name, seconds=4 * 3600))
    with pytest.raises(ClusterError, match="is another one by now"):
        requests.approve(people.bob, seen)


def test_a_request_does_not_change(people: People, shared: str) -> None:
    item = people.admin.get(f"{requests.PATH}/{shared}")
    item["spec"]["role"] = "node-reader"
    assert "stays as it was made" in refusal(lambda: people.admin.put(f"{requests.PATH}/{shared}", item))
    for api in (people.ada, people.bob, people.controller):
        assert "forbidden" in refusal(functools.partial(api.put, f"{requests.PATH}/{shared}", item))


def test_others_do_not_end_it(people: People, shared: str) -> None:
    assert "ended by who made it" in refusal(lambda: people.max.delete(f"{requests.PATH}/{shared}"))


# -- bindings --------------------------------------------------------------------------------------

FORGED: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "ironspan-access-forged"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "node-reader"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "max"}],
}


def forged(**metadata: t.Any) -> Object:
    return {**FORGED, "metadata": {"name": "plain", **metadata}}


ALL_MARKS = {
    f"access.ironspan.io/{name}": "max"
    for name in ("requested-by", "approved-by", "reason", "expires", "request-uid")
}
WHOLE: Object = {
    "name": "ironspan-access-r",
    "labels": {"access.ironspan.io/request": "r"},
    "annotations": ALL_MARKS,
    "ownerReferences": [{**controller._KIND, "name": "r", "uid": "u"}],
}


@pytest.mark.parametrize(
    ("who", "body", "reason"),
    [
        ("admin", forged(), ""),
        ("admin", FORGED, "only the controller makes"),
        ("admin", forged(labels={"access.ironspan.io/request": "r"}), "only the controller makes"),
        ("admin", forged(annotations={"access.ironspan.io/approved-by": "eve"}), "only the controller makes"),
        ("admin", forged(**WHOLE), "only the controller makes"),
        ("controller", forged(**WHOLE), ""),
        ("controller", forged(), "and no others"),
        ("controller", forged(**{**WHOLE, "name": "ironspan-access-s"}), "and no others"),
        ("controller", forged(**{**WHOLE, "annotations": {}}), "names who asked"),
        ("controller", forged(**{**WHOLE, "ownerReferences": []}), "names who asked"),
        ("controller", {**forged(**WHOLE), "subjects": []}, "names who asked"),
        (
            "controller",
            {**forged(**WHOLE), "roleRef": {**FORGED["roleRef"], "name": "cluster-admin"}},
            "attempting to grant RBAC permissions",
        ),
    ],
)
def test_who_makes_bindings(people: People, who: str, body: Object, reason: str) -> None:
    path, query = f"{RBAC}/clusterrolebindings", {"dryRun": "All"}
    answer = refusal(lambda: getattr(people, who).request("POST", path, body, query=query))
    assert reason in answer
    assert bool(answer) is bool(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"access.ironspan.io/expires": "2030-01-01T00:00:00Z"}}},
        {"metadata": {"labels": {"access.ironspan.io/request": None}}},
        {"metadata": {"ownerReferences": None}},
        {"subjects": []},
    ],
)
def test_nobody_changes_a_binding_of_a_request(
    people: People, settings: controller.Settings, kept: str, change: Object
) -> None:
    path = binding(kept)
    assert "only the controller makes" in refusal(lambda: people.admin.merge(path, change))
    assert "forbidden" in refusal(lambda: people.controller.merge(path, change))


@pytest.fixture(scope="module")
def kept(people: People, settings: controller.Settings) -> str:
    """A grant that stays."""
    return granted(people, settings, seconds=4 * 3600)


def test_the_controller_removes_no_other_binding(people: People) -> None:
    path = f"{RBAC}/clusterrolebindings/kubeadm:cluster-admins"
    assert "and no others" in refusal(lambda: people.controller.delete(path))
    assert "forbidden" in refusal(lambda: people.controller.get("/api/v1/secrets"))


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def kubeconfig(control: Control, people: People, tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the options of the command for a person."""

    def options(name: str) -> list[str]:
        folder = control.folder / "api"
        user = {"client-certificate": f"{folder}/{name}.crt", "client-key": f"{folder}/{name}.key"}
        config = control.store.admin_kubeconfig(control.endpoint, 1, control.address)
        config["users"][0]["user"] = user
        (tmp_path / name).write_text(yaml.safe_dump(config))
        return ["--kubeconfig", str(tmp_path / name), "--json"]

    return options


def test_the_command_goes_the_whole_way(
    people: People,
    settings: controller.Settings,
    kubeconfig: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*words: str) -> tuple[int, list[Object]]:
        code = command.main(["access", *words])
        lines = capsys.readouterr().out.splitlines()
        return code, [json.loads(line) for line in lines if line.startswith("{")]

    asked = ["pod-reader", "-n", "team", "--for", "30m", "--reason", "ticket 12"]
    code, events = run("request", *asked, *kubeconfig("ada"))
    assert code == 0
    name = str(events[-1]["name"])
    assert run("approve", name, "--yes", *kubeconfig("ada"))[0] == 1
    assert run("approve", name, "--yes", *kubeconfig("bob"))[0] == 0
    assert run("approve", name, "--yes", *kubeconfig("bob"))[0] == 1
    assert run("approve", name, "--yes", *kubeconfig("eve"))[0] == 0
    run_pass(settings)
    _, events = run("list", *kubeconfig("max"))
    row = next(item for item in events if item.get("name") == name)
    assert (row["state"], row["approved_by"], row["reason"]) == ("Granted", ["bob", "eve"], "ticket 12")
    assert run("revoke", name, *kubeconfig("ada"))[0] == 0
    assert run("revoke", name, *kubeconfig("ada"))[0] == 1
    assert run("request", "pod-reader", "--for", "soon", "--reason", "ticket 12", *kubeconfig("ada"))[0] == 2
    run_pass(settings)


def test_a_token_is_a_credential_too(control: Control, people: People, tmp_path: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    people.admin.apply("/api/v1/namespaces/team/serviceaccounts/robot", account)
    token = token_of(people.admin, "robot")
    config = control.store.admin_kubeconfig(control.endpoint, 1, control.address)
    program = tmp_path / "login"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    program.write_text(f"#!/bin/sh\necho '{json.dumps({**credential, 'status': {'token': token}})}'\n")
    program.chmod(0o755)
    (tmp_path / "token").write_text(token + "\n")
    plugin = {"apiVersion": credential["apiVersion"], "command": str(program), "args": None, "env": None}
    for user in ({"token": token}, {"tokenFile": "token"}, {"exec": plugin}):
        config["users"][0]["user"] = user
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        assert requests.whoami(personal_api(str(tmp_path / "config"))) == "system:serviceaccount:team:robot"


def token_of(api: Api, account: str) -> str:
    """Return a fresh token of a service account."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    path = f"/api/v1/namespaces/team/serviceaccounts/{account}/token"
    return str(json.loads(api.request("POST", path, body))["status"]["token"])


# -- the audit log ---------------------------------------------------------------------------------


def events(control: Control, user: str = "") -> list[Object]:
    """Return the events of the audit log, of one user."""
    text = (control.folder / "audit" / "audit.log").read_text()
    # A line that is being written is one later.
    found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [item for item in found if not user or item["user"]["username"] == user]


def test_every_step_is_in_the_audit_log(
    control: Control, people: People, settings: controller.Settings
) -> None:
    name = granted(people, settings)
    run_pass(settings, hours=1.01)
    refused = ask(people.eve)
    assert refusal(lambda: approve(people.eve, refused))

    def steps() -> set[tuple[t.Any, ...]]:
        """Who did what with which answer, and what it held."""
        found = set()
        for item in events(control):
            target, body = item.get("objectRef", {}), item.get("requestObject", {})
            if item["verb"] in ("get", "list", "watch"):
                continue
            of_request = target.get("name") or body.get("metadata", {}).get("name", "")
            held = body.get("spec", {}).get("reason") or body.get("status", {}).get("state")
            held = held or ",".join(body.get("status", {}).get("approvals", ()))
            held = held or body.get("metadata", {}).get("annotations", {}).get(
                "access.ironspan.io/approved-by"
            )
            found.add(
                (item["user"]["username"], item["verb"], of_request, item["responseStatus"]["code"], held)
            )
        return found

    def seen(step: tuple[t.Any, ...]) -> bool:
        return step in steps()

    bound = f"ironspan-access-{name}"
    user = controller.USER
    for expected in (
        ("ada", "create", name, 201, "ticket 4711"),
        ("bob", "update", name, 200, "ticket 4711"),
        ("eve", "update", name, 200, "ticket 4711"),
        (user, "update", name, 200, "ticket 4711"),
        (user, "create", bound, 201, "bob, eve"),
        (user, "delete", bound, 200, None),
        ("eve", "update", refused, 422, "ticket 4711"),
    ):
        control.wait(functools.partial(seen, expected))
    approval = next(
        item
        for item in events(control, "eve")
        if item["verb"] == "update" and item["objectRef"].get("name") == name
    )
    assert approval["requestObject"]["status"]["approvals"] == ["bob", "eve"]
    assert approval["responseObject"]["status"]["approvals"] == ["bob", "eve"]


SPACE = "/api/v1/namespaces/team"
SECRET = "hidden-horse-0123456789"
"""Stands in every body that must not be logged."""


def secret(kind: str = "Secret") -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "s"}, **_data(kind)}


def _data(kind: str) -> Object:
    return {"stringData" if kind == "Secret" else "data": {"password": SECRET}}


TOKEN_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": SECRET}}
TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "a"},
    "rules": [],
}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "a", "namespace": "team"},
    "involvedObject": {"namespace": "team"},
}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}
LEVELS = [
    ("POST", f"{SPACE}/secrets", secret(), "Metadata"),
    ("GET", f"{SPACE}/secrets/s", None, "Metadata"),
    ("GET", "/api/v1/secrets", None, "Metadata"),
    ("PUT", f"{SPACE}/secrets/s", secret(), "Metadata"),
    ("DELETE", f"{SPACE}/secrets/s", None, "Metadata"),
    ("DELETE", f"{SPACE}/secrets", None, "Metadata"),
    ("POST", f"{SPACE}/configmaps", secret("ConfigMap"), "Metadata"),
    ("GET", f"{SPACE}/configmaps/s", None, "Metadata"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", TOKEN_REVIEW, "Metadata"),
    ("POST", f"{SPACE}/serviceaccounts/robot/token", TOKEN_REQUEST, "Metadata"),
    ("POST", f"{RBAC}/namespaces/team/roles", ROLE, "RequestResponse"),
    ("GET", f"{RBAC}/namespaces/team/roles/a", None, "Metadata"),
    ("DELETE", f"{RBAC}/namespaces/team/roles/a", None, "RequestResponse"),
    ("POST", f"{RBAC}/clusterrolebindings?dryRun=All", forged(), "RequestResponse"),
    (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/none",
        None,
        "RequestResponse",
    ),
    (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/none",
        None,
        "RequestResponse",
    ),
    ("DELETE", f"{requests.PATH}/none", None, "RequestResponse"),
    ("GET", f"{requests.PATH}/none", None, "Metadata"),
    ("DELETE", "/apis/certificates.k8s.io/v1/certificatesigningrequests/none", None, "RequestResponse"),
    ("POST", f"{SPACE}/pods/none/exec?command=id", None, "RequestResponse"),
    ("GET", f"{SPACE}/pods/none/exec?command=id", None, "RequestResponse"),
    ("POST", f"{SPACE}/pods/none/attach", None, "RequestResponse"),
    ("GET", f"{SPACE}/pods/none/portforward", None, "RequestResponse"),
    ("GET", f"{SPACE}/pods/none/proxy/", None, "Metadata"),
    ("GET", "/api/v1/nodes/none/proxy/", None, "Metadata"),
    ("GET", f"{SPACE}/pods/none/log", None, "Metadata"),
    ("POST", f"{SPACE}/services", SERVICE, "Metadata"),
    ("GET", f"{SPACE}/services", None, "Metadata"),
    ("POST", "/apis/coordination.k8s.io/v1/namespaces/team/leases", LEASE, None),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/team/leases/a", None, None),
    ("POST", f"{SPACE}/events", EVENT, None),
    ("GET", f"{SPACE}/events", None, None),
    ("GET", "/readyz", None, None),
    ("GET", "/version", None, None),
    ("GET", "/openapi/v2", None, None),
    ("GET", "/metrics", None, "Metadata"),
]


def test_levels_and_no_secret(control: Control, people: People) -> None:
    """One request after the other, each by its own identity in the log: its path with a number."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    people.admin.apply(f"{SPACE}/serviceaccounts/robot", account)
    for number, (method, path, body, _) in enumerate(LEVELS):
        separator = "&" if "?" in path else "?"
        with_number = f"{path}{separator}number={number}"
        refusal(functools.partial(people.admin.request, method, with_number, body))
    token = token_of(people.admin, "robot")
    api = user_api(control, "system:node:rack-1", ["system:nodes"])
    refusal(lambda: api.get("/api/v1/nodes/rack-1"))
    refusal(lambda: api.request("DELETE", "/api/v1/nodes/rack-2"))
    last = f"number={len(LEVELS)}"
    people.admin.get(f"{SPACE}/services?{last}")
    log = control.folder / "audit" / "audit.log"
    control.wait(lambda: any(last in item["requestURI"] for item in events(control)))
    seen: dict[int, str] = {}
    for item in events(control):
        _, found, number = item["requestURI"].rpartition("number=")
        if found:
            seen[int(number.partition("&")[0])] = item["level"]
    levels = {f"{m} {path}": level for m, path, _, level in LEVELS}
    assert {f"{m} {path}": seen.get(number) for number, (m, path, _, _) in enumerate(LEVELS)} == levels
    by_node = [(item["verb"], item["level"]) for item in events(control, "system:node:rack-1")]
    assert by_node == [("delete", "Metadata")]
    text = log.read_text()
    for hidden in (SECRET, base64.b64encode(SECRET.encode()).decode(), token, token.rpartition(".")[2]):
        assert hidden not in text
    assert "managedFields" not in text


# -- emergencies -----------------------------------------------------------------------------------

WORDS = {"ada": "correct horse battery staple", "bob": "another four random words"}


def test_the_sealed_kubeconfig_opens_the_cluster_raises_the_alarm_and_is_taken_away(
    control: Control, people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    log = control.folder / "audit" / "audit.log"
    watch = audit_watch.Watch(str(log), str(state))
    list(watch.one_pass())
    watch.save()
    assert people.admin.get(SPACE)
    assert audit_watch.main([str(log), str(state), "--once"]) == 0
    assert "controller" not in capsys.readouterr().out
    now = datetime.datetime.now(datetime.UTC)
    made = sealed.make(control.store, control.endpoint, control.address, WORDS, 1, now, 16)
    api = Api.from_kubeconfig(sealed.unseal(made.text, WORDS), tmp_path, 5)
    assert api.get("/api/v1/namespaces/kube-system")
    said = ""

    def told() -> bool:
        nonlocal said
        assert audit_watch.main([str(log), str(state), "--once"]) == 0
        said += capsys.readouterr().out
        return f"<1>a credential for emergencies was used: {made.user}" in said

    control.wait(told)
    assert "get /api/v1/namespaces/kube-system 200 allow" in said
    metrics = (state / "ironspan-access.prom").read_text()
    last = metrics.partition("\nironspan_break_glass_last_use_timestamp_seconds ")[2].split()[0]
    assert abs(float(last) - now.timestamp()) < 600
    path = f"{RBAC}/clusterrolebindings/ironspan:break-glass"
    before = people.admin.get(path)
    assert people.admin.delete(path)
    control.wait(lambda: "forbidden" in refusal(lambda: api.get("/api/v1/namespaces/kube-system")))
    stated = {key: before[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    people.admin.apply(path, {**stated, "metadata": {"name": "ironspan:break-glass"}})


def test_the_programs_run_with_the_standard_library_alone(tmp_path: Path) -> None:
    missing = {"server": "https://127.0.0.1:1", "ca": "/", "certificate": "/", "key": "/", "roles": {}}
    (tmp_path / "settings").write_text(json.dumps(missing))
    for name, arguments in (
        ("access_controller", [str(tmp_path / "settings")]),
        ("audit_watch", ["/nowhere/audit.log", str(tmp_path)]),
    ):
        (tmp_path / f"{name}.py").write_text(program(name))
        done = subprocess.run(
            [sys.executable, "-IS", str(tmp_path / f"{name}.py"), *arguments, "--once"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1, done.stderr
        assert "cannot be read" in done.stdout


def test_an_unknown_request_is_named(people: People) -> None:
    with pytest.raises(ClusterError, match="There is no request nothing"):
        approve(people.bob, "nothing")


def test_deleted_requests_take_their_grants_along_without_the_controller(
    control: Control, people: People, settings: controller.Settings
) -> None:
    """The cluster's garbage collector follows the owner of a binding."""
    here, everywhere = granted(people, settings), ask(people.ada, role="node-reader", namespace="")
    approve(people.bob, everywhere)
    run_pass(settings)
    paths = [binding(here), f"{RBAC}/clusterrolebindings/ironspan-access-{everywhere}"]
    assert all(people.admin.find(path) for path in paths)
    control.start_controllers("garbage-collector-controller")
    people.admin.delete(requests.PATH)
    control.wait(lambda: not any(people.admin.find(path) for path in paths))
