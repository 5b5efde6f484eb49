# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""People from Entra ID at a real kube-apiserver: which tokens it takes, and what each named role may do."""

from __future__ import annotations

import dataclasses
import json
import ssl
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import policy_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import Binding, Identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.review import review
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import named_roles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.used import read_usage
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    ObjectChange,
    Paths,
    apply_objects,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates

from ironspan.lab.azure import people, settings
from ironspan.lab.azure.people import Person
from tests.support import entra

from .loopback_cluster import Control, find_programs, running
from .test_cluster_api import user_api


class Enforced(t.NamedTuple):
    """What was done."""

    changes: list[ObjectChange]
    removed: list[str]


def enforce(api: Api, declared: Sequence[Object], *, check: bool = False) -> Enforced:
    """Apply what is declared, and delete what the layer made before."""
    gone = owned.undeclared(owned.found(api), "identity", declared)
    changes = apply_objects(api, declared, dry_run=check)
    return Enforced(changes, [one.title for one in gone] if check else owned.remove(api, gone))


pytestmark = pytest.mark.lab
TEMPLATE = "control_plane/templates/authentication.yaml.j2"
AUDIT = "control_plane/templates/audit-policy.yaml.j2"
ROLES = Path(__file__).resolve().parents[2] / "roles"
ANNA = Person("anna", roles=("Researchers",))
BINDINGS = (
    Binding("Researchers", "researcher", ("research",)),
    Binding("Pipelines", "job-runner", ("research",)),
    Binding("Operators", "node-operator"),
    Binding("Auditors", "security-auditor"),
)


def configuration(identity: Identity | None) -> str:
    """Return the file that a control plane gets."""
    declared = type("Declared", (), {"identity": identity})
    site = type("Site", (), {"declared": declared})
    return Templates(ROLES).get(TEMPLATE).render(site=site)


class Cluster(t.NamedTuple):
    """An API server that trusts an issuer."""

    control: Control
    issuer: entra.Entra
    file: Path
    pool: urllib3.PoolManager

    def send(self, token: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """Send a request with a token, or with none; returns status and answer."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        answer = self.pool.request(
            "POST" if body else "GET",
            f"https://{self.control.address}:{self.control.api_port}{path}",
            body=json.dumps(body) if body else None,
            headers=headers,
            timeout=20,
            retries=False,
        )
        try:
            return answer.status, dict(json.loads(answer.data))
        except ValueError:
            return answer.status, {}

    def who(self, token: str) -> Object | None:
        """Return who the API server takes the bearer of a token for, None for nobody."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status, answer = self.send(token, "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        assert status in (201, 401)
        return dict(answer["status"]["userInfo"]) if status == 201 else None

    def can(self, token: str, what: str, namespace: str) -> bool:
        """Tell whether the bearer of a token may do something: VERB RESOURCE[/SUB][.GROUP] or VERB /PATH."""
        verb, _, resource = what.partition(" ")
        attributes: Object = {"nonResourceAttributes": {"verb": verb, "path": resource}}
        if not resource.startswith("/"):
            plural, _, group = resource.partition(".")
            plural, _, sub = plural.partition("/")
            asked = {"verb": verb, "resource": plural, "subresource": sub, "group": group}
            attributes = {"resourceAttributes": {**asked, "namespace": namespace}}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": attributes,
        }
        status, answer = self.send(token, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    def log(self) -> str:
        """Return what the API server has written so far."""
        return (self.control.folder / "api.log").read_text()

    def configure(self, text: str) -> None:
        """Replace the file as converge does: whole or not at all."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.file)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(names=("etcd", "kube-apiserver"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    (folder / "ironspan").mkdir()
    file = folder / "ironspan" / "authentication.yaml"
    with entra.running(folder / "entra") as issuer, running(Control(programs, store, folder)) as control:
        identity = dataclasses.replace(issuer.identity(), bindings=BINDINGS)
        file.write_text(configuration(identity))
        control.anonymous_flags = ()
        control.start_etcd("etcd-1")
        audit = folder / "audit-policy.yaml"
        audit.write_text(Templates(ROLES).get(AUDIT).render(control_plane_audit_level="Metadata"))
        control.start_api(
            f"--authentication-config={file}",
            f"--audit-policy-file={audit}",
            f"--audit-log-path={folder}/audit.log",
        )
        control.bind_administrators()
        context = ssl.create_default_context(cadata=store.ca("kubernetes").certificate_pem)
        name = "api.test.internal"
        pool = urllib3.PoolManager(ssl_context=context, server_hostname=name, assert_hostname=name)
        made = Cluster(control, issuer, file, pool)
        api = control.api()
        control.wait(lambda: bool(api.get("/api/v1/namespaces/kube-system")))
        for space in ("research", "other"):
            body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            api.apply(f"/api/v1/namespaces/{space}", body)
        enforce(api, identity.objects())
        yield made


@pytest.fixture(autouse=True)
def _trusting(cluster: Cluster) -> None:
    """Wait until people are let in: an API server asks an issuer for its keys in the background."""
    cluster.control.wait(lambda: cluster.who(cluster.issuer.token(ANNA)) is not None)


# -- tokens ----------------------------------------------------------------------------------------


def test_a_person_is_known_by_object_id_and_app_roles(cluster: Cluster) -> None:
    found = cluster.who(cluster.issuer.token(Person("anna", roles=("Researchers", "Auditors"))))
    assert found
    assert found["username"] == f"entra:{ANNA.object_id}"
    assert found["groups"] == ["entra:Researchers", "entra:Auditors", "system:authenticated"]
    assert found["extra"]["ironspan.io/preferred-username"] == ["anna@lab.internal"]


def test_nobody_gets_a_group_of_kubernetes(cluster: Cluster) -> None:
    token = cluster.issuer.token(Person("eve", roles=("system:masters", "kubeadm:cluster-admins")))
    found = cluster.who(token)
    assert found and found["groups"][:2] == ["entra:system:masters", "entra:kubeadm:cluster-admins"]
    assert not cluster.can(token, "list secrets", "kube-system")


def test_somebody_without_app_roles_is_nobody_in_particular(cluster: Cluster) -> None:
    groups = tuple(settings.identifier(f"group-{number}") for number in range(3))
    found = cluster.who(cluster.issuer.token(Person("bert", groups=groups)))
    assert found and found["groups"] == ["system:authenticated"]


def test_too_many_groups_do_not_matter_to_app_roles(cluster: Cluster) -> None:
    groups = tuple(settings.identifier(f"group-{number}") for number in range(people.MOST_GROUPS + 1))
    found = cluster.who(cluster.issuer.token(Person("carl", ("Researchers",), groups)))
    assert found and found["groups"] == ["entra:Researchers", "system:authenticated"]


REFUSED: Mapping[str, str] = {
    "wrong_tenant": "the token is of another tenant",
    "no_tenant": "the token is of another tenant",
    "no_object_id": "the token names nobody: it has no object ID (oid)",
    "wrong_audience": "oidc: expected audience",
    "wrong_issuer": "",
    "expired": "token is expired",
    "not_yet": "before the nbf (not before) time",
    "unknown_key": "failed to verify signature",
    "altered": "failed to verify signature",
    "no_algorithm": "id token signed with unsupported algorithm",
    "shared_secret": "id token signed with unsupported algorithm",
}
"""Fault -> what the API server writes into its log; a foreign issuer is no concern of its authenticator."""


@pytest.mark.parametrize("fault", sorted(people.FAULTS))
def test_a_faulty_token_is_refused(cluster: Cluster, fault: str) -> None:
    before = len(cluster.log())
    assert cluster.who(cluster.issuer.token(ANNA, fault)) is None
    cluster.control.wait(lambda: REFUSED[fault] in cluster.log()[before:])
    assert cluster.who(cluster.issuer.token(ANNA))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 200),
        ("/readyz", 200),
        ("/healthz", 200),
        ("/version", 401),
        ("/api", 401),
        ("/api/v1/namespaces/kube-public/configmaps/cluster-info", 401),
        ("/openid/v1/jwks", 401),
    ],
)
def test_without_a_token_only_the_health_paths_answer(cluster: Cluster, path: str, status: int) -> None:
    assert cluster.send("", path)[0] == status


def test_keys_are_rotated_and_withdrawn(cluster: Cluster) -> None:
    world = cluster.issuer.world
    # A token that was taken is taken for ten seconds more without being looked at.
    first, second = cluster.issuer.token(ANNA), cluster.issuer.token(ANNA)
    world.rotate()
    assert cluster.who(cluster.issuer.token(ANNA))
    assert cluster.who(first)
    world.rotate(withdraw=True)
    after = cluster.issuer.token(ANNA)
    # An API server asks for the keys again when it sees one that it does not know.
    assert cluster.who(after)
    assert cluster.who(second) is None


# -- roles -----------------------------------------------------------------------------------------

OTHERS = (
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "escalate clusterroles.rbac.authorization.k8s.io",
    "bind clusterroles.rbac.authorization.k8s.io",
    "impersonate users",
    "get secrets",
    "list secrets",
    "create serviceaccounts/token",
    "get nodes/proxy",
    "create pods/exec",
    "create pods",
    "delete nodes",
    "approve signers.certificates.k8s.io",
    "* *",
)
"""What no role but break-glass may do, in a namespace or in the whole cluster."""
MAY: Mapping[str, Sequence[str]] = {
    "Researchers": (
        "create jobs.batch",
        "delete jobs.batch",
        "list pods",
        "get pods/log",
        "update configmaps",
        "create persistentvolumeclaims",
        "list workloads.kueue.x-k8s.io",
    ),
    "Pipelines": ("create jobs.batch", "delete jobs.batch", "watch pods", "get pods/log"),
    "Operators": (
        "patch nodes",
        "list nodes",
        "create pods/eviction",
        "list pods",
        "get daemonsets.apps",
        "list leases.coordination.k8s.io",
    ),
    "Auditors": (
        "list clusterrolebindings.rbac.authorization.k8s.io",
        "list rolebindings.rbac.authorization.k8s.io",
        "get validatingadmissionpolicies.admissionregistration.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
        "list pods",
        "list networkpolicies.networking.k8s.io",
    ),
}
MAY_NOT: Mapping[str, Sequence[str]] = {
    "Researchers": ("update jobs.batch", "list nodes", "patch resourcequotas", "get namespaces"),
    "Pipelines": ("get configmaps", "create persistentvolumeclaims", "deletecollection jobs.batch"),
    "Operators": ("create nodes", "delete pods", "get configmaps", "get pods/log", "update nodes/status"),
    "Auditors": ("get pods/log", "get configmaps", "patch nodes", "create jobs.batch", "get /metrics"),
}


@pytest.mark.parametrize("group", sorted(MAY))
def test_what_a_role_may_do(cluster: Cluster, group: str) -> None:
    token = cluster.issuer.token(Person(group, roles=(group,)))
    cluster.control.wait(lambda: cluster.can(token, MAY[group][0], "research"))
    asked = (*MAY[group], *MAY_NOT[group], *OTHERS)
    answers = {what: cluster.can(token, what, "research") for what in asked}
    assert answers == {what: what in MAY[group] for what in asked}
    everywhere = group in ("Operators", "Auditors")
    assert {what: cluster.can(token, what, "other") for what in MAY[group]} == dict.fromkeys(
        MAY[group], everywhere
    )


def test_every_role_for_people_is_tried(cluster: Cluster) -> None:
    assert {binding.role for binding in BINDINGS} == set(named_roles()) - {"break-glass"}


def test_break_glass_repairs_anything_but_gives_no_more_than_it_has(cluster: Cluster) -> None:
    api = cluster.control.api()
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "entra:Emergency"}
    binding: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "emergency"},
        "roleRef": {**group, "kind": "ClusterRole", "name": "ironspan-break-glass"},
        "subjects": [group],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    api.apply(f"{path}/emergency", binding)
    token = cluster.issuer.token(Person("dora", roles=("Emergency",)))
    cluster.control.wait(lambda: cluster.can(token, "delete nodes", ""))
    for what in ("get secrets", "create pods/exec", "deletecollection pods", "get /metrics"):
        assert cluster.can(token, what, "kube-system")
    for what in (*OTHERS[1:4], "* *"):
        assert not cluster.can(token, what, "")
    body = {
        **binding,
        "metadata": {"name": "more"},
        "roleRef": {**group, "kind": "ClusterRole", "name": "cluster-admin"},
    }
    status, answer = cluster.send(token, path, body)
    assert status == 403 and "attempting to grant RBAC permissions not currently held" in answer["message"]
    assert api.delete(f"{path}/emergency")


def test_bindings_that_are_no_longer_declared_go(cluster: Cluster) -> None:
    api = cluster.control.api()
    identity = dataclasses.replace(cluster.issuer.identity(), bindings=BINDINGS)
    more = dataclasses.replace(identity, bindings=(*BINDINGS, Binding("Guests", "job-runner", ("other",))))
    token = cluster.issuer.token(Person("gast", roles=("Guests",)))
    assert enforce(api, more.objects()).removed == []
    cluster.control.wait(lambda: cluster.can(token, "create jobs.batch", "other"))
    assert enforce(api, identity.objects(), check=True).removed == [
        "RoleBinding other/ironspan-job-runner:Guests"
    ]
    assert cluster.can(token, "create jobs.batch", "other")
    done = enforce(api, identity.objects())
    assert (done.removed, done.changes) == (["RoleBinding other/ironspan-job-runner:Guests"], [])
    cluster.control.wait(lambda: not cluster.can(token, "create jobs.batch", "other"))
    assert enforce(api, identity.objects()) == ([], [])


# -- the review ------------------------------------------------------------------------------------


def test_a_review_tells_used_from_unused(cluster: Cluster) -> None:
    api, log = cluster.control.api(), cluster.control.folder / "audit.log"
    enforce(api, dataclasses.replace(cluster.issuer.identity(), bindings=BINDINGS).objects())
    used, unused = ("ironspan-researcher:Researchers", "ironspan-security-auditor:Auditors")
    token = cluster.issuer.token(ANNA)
    cluster.control.wait(lambda: cluster.send(token, "/api/v1/namespaces/research/pods")[0] == 200)
    key = ("RoleBinding", "research", used)
    cluster.control.wait(lambda: key in read_usage([log]).bindings)
    usage = read_usage([log])
    assert usage.bindings[key].count >= 1
    assert usage.bindings["ClusterRoleBinding", "", "kubeadm:cluster-admins"].last <= usage.until
    made = review(api, usage)
    bindings = {entry["binding"]: entry for entry in made.as_json()["bindings"]}
    assert bindings[f"RoleBinding research/{used}"]["requests"] >= 1
    assert bindings[f"ClusterRoleBinding {unused}"]["requests"] == 0
    found = {(finding.kind, finding.binding): finding for finding in made.findings}
    assert ("unused", f"ClusterRoleBinding {unused}") in found
    assert ("unused", f"RoleBinding research/{used}") not in found
    assert found["wildcard", "ClusterRoleBinding kubeadm:cluster-admins"].expected == "the site's controller"
    assert not made.guarded
    text = made.as_text()
    assert "Group entra:Researchers\n  namespace research: ClusterRole ironspan-researcher, " in text
    assert "    batch/jobs: get list watch create delete\n" in text


def test_a_review_tells_who_can(cluster: Cluster) -> None:
    api = cluster.control.api()
    who = {str(subject) for subject, _ in review(api, can=("create", "jobs.batch"), namespace="research").can}
    assert {"Group entra:Researchers", "Group entra:Pipelines", "Group kubeadm:cluster-admins"} <= who
    assert "Group entra:Operators" not in who
    elsewhere = review(api, can=("create", "jobs.batch"), namespace="other").as_text()
    assert elsewhere.startswith("who can create jobs.batch in other:\n")
    assert "entra:" not in elsewhere.partition("\n\n")[0].split("wildcards:")[0]


# -- grants ----------------------------------------------------------------------------------------

RBAC = "rbac.authorization.k8s.io"
POLICY = """\
version: 1
rules:
  grants: {scope: everywhere, roles: [cluster-admin, admin]}
grant_exceptions:
  - {kind: ClusterRole, name: cilium-operator, owner: platform team, reason: its chart wants wildcards}
"""
ORDINARY: Object = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def role(kind: str, name: str = "probe", **rule: t.Any) -> Object:
    return {"kind": kind, "metadata": {"name": name}, "rules": [{**ORDINARY, **rule}]}


def binding(kind: str, to: str, subject: str = "User somebody", of: str = "ClusterRole") -> Object:
    whom, _, name = subject.partition(" ")
    return {
        "kind": kind,
        "metadata": {"name": "probe"},
        "roleRef": {"apiGroup": RBAC, "kind": of, "name": to},
        "subjects": [{"apiGroup": RBAC, "kind": whom, "name": name}],
    }


GRANTS: Sequence[tuple[Object, str]] = (
    (role("ClusterRole"), ""),
    (role("Role"), ""),
    (role("ClusterRole", verbs=["*"]), "a wildcard (*)"),
    (role("Role", verbs=["*"]), "a wildcard (*)"),
    (role("ClusterRole", resources=["*"]), "a wildcard (*)"),
    (role("ClusterRole", resources=["*/scale"]), "a wildcard (*)"),
    (role("ClusterRole", apiGroups=["*"]), "a wildcard (*)"),
    (role("ClusterRole", name="cilium-operator", verbs=["*"]), ""),
    (role("Role", name="cilium-operator", verbs=["*"]), "a wildcard (*)"),
    ({**role("ClusterRole"), "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}, "a wildcard (*)"),
    ({**role("ClusterRole"), "rules": [{"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}]}, ""),
    ({**role("ClusterRole"), "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["*"]}]}, "a wildcard (*)"),
    ({**role("ClusterRole"), "rules": [ORDINARY, {**ORDINARY, "verbs": ["get", "*"]}]}, "a wildcard (*)"),
    ({**role("ClusterRole"), "rules": []}, ""),
    ({"kind": "ClusterRole", "metadata": {"name": "probe"}}, ""),
    (
        role("ClusterRole", apiGroups=[RBAC], resources=["clusterroles"], verbs=["escalate"]),
        "the verbs escalate",
    ),
    (role("ClusterRole", apiGroups=[RBAC], resources=["clusterroles"], verbs=["bind"]), "the verbs escalate"),
    (role("Role", apiGroups=[RBAC], resources=["roles"], verbs=["bind"]), "the verbs escalate"),
    (role("ClusterRole", resources=["users"], verbs=["impersonate"]), "the verbs escalate"),
    (role("ClusterRole", resources=["users"], verbs=["impersonate:user-info"]), "the verbs escalate"),
    (
        {
            "kind": "ClusterRole",
            "metadata": {"name": "probe"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        },
        "roles that are gathered from others",
    ),
    (binding("ClusterRoleBinding", "view"), ""),
    (binding("RoleBinding", "edit"), ""),
    (binding("ClusterRoleBinding", "cluster-admin"), "the roles cluster-admin, admin"),
    (binding("RoleBinding", "cluster-admin"), "the roles cluster-admin, admin"),
    (binding("RoleBinding", "admin"), "the roles cluster-admin, admin"),
    (binding("RoleBinding", "admin", of="Role"), ""),
    (binding("ClusterRoleBinding", "view", "Group system:authenticated"), "rights for everybody"),
    (binding("RoleBinding", "view", "Group system:unauthenticated"), "rights for everybody"),
    (binding("RoleBinding", "view", "Group system:serviceaccounts"), "rights for everybody"),
    (binding("ClusterRoleBinding", "view", "User system:anonymous"), "rights for everybody"),
    (binding("RoleBinding", "view", "Group system:serviceaccounts:research"), ""),
    ({**binding("RoleBinding", "view"), "subjects": []}, ""),
)


def shown(case: t.Any) -> str:
    return case["kind"] if isinstance(case, dict) else str(case)


class TestGrants:
    """What somebody who may do everything may give to others, with the rule in force."""

    @pytest.fixture(scope="class")
    @classmethod
    def writer(cls, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
        file = tmp_path_factory.mktemp("policy") / "admission.yml"
        file.write_text(POLICY)
        policy = read_policy(file)
        nowhere = {name: dataclasses.replace(rule, scope="nowhere") for name, rule in policy.rules.items()}
        only = dataclasses.replace(policy, rules={**nowhere, "grants": policy.rules["grants"]})
        objects = policy_objects(only)
        api = cluster.control.api()
        everything = binding("ClusterRoleBinding", "cluster-admin", "Group writers")
        everything |= {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "writers"}}
        apply_objects(api, [everything, *objects])
        made = user_api(cluster.control, "writer", ["writers"])
        refused = role("ClusterRole", verbs=["*"])
        cluster.control.wait(lambda: "a wildcard" in cls.attempt(made, refused))
        yield made
        for item in (*objects, everything):
            api.delete(Paths(api).of(item))

    @staticmethod
    def attempt(api: Api, body: Object, namespace: str = "research") -> str:
        """Send a role or a binding as a dry run; returns the refusal, empty when it is taken."""
        where = "" if body["kind"].startswith("Cluster") else f"/namespaces/{namespace}"
        path = f"/apis/{RBAC}/v1{where}/{body['kind'].lower()}s"
        try:
            api.request("POST", path, {"apiVersion": f"{RBAC}/v1", **body}, query={"dryRun": "All"})
        except ApiError as error:
            return str(error)
        return ""

    @pytest.mark.parametrize(("body", "says"), GRANTS, ids=shown)
    def test_what_may_be_given(self, writer: Api, body: Object, says: str) -> None:
        refusal = self.attempt(writer, body)
        assert bool(refusal) == bool(says), refusal
        assert says in refusal and ("(rule grants)" in refusal) == bool(says)

    def test_also_in_namespaces_that_are_exempt_from_the_rules_of_pods(self, writer: Api) -> None:
        assert "a wildcard" in self.attempt(writer, role("Role", verbs=["*"]), "kube-system")

    @pytest.mark.parametrize(("body", "says"), [case for case in GRANTS if case[1]], ids=shown)
    def test_keepers_may_give_it(self, cluster: Cluster, writer: Api, body: Object, says: str) -> None:
        assert not self.attempt(cluster.control.api(), body)

    def test_what_was_there_can_be_labelled_but_not_widened(self, cluster: Cluster, writer: Api) -> None:
        path = f"/apis/{RBAC}/v1/clusterroles/old"
        wide = {"apiVersion": f"{RBAC}/v1", **role("ClusterRole", "old", verbs=["*"])}
        cluster.control.api().apply(path, wide)
        writer.merge(path, {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ApiError, match="a wildcard"):
            writer.merge(path, {"rules": [{**ORDINARY, "verbs": ["*"], "resources": ["secrets"]}]})
        writer.merge(path, {"rules": [ORDINARY]})
        assert writer.delete(path)

    def test_roles_of_kubernetes_are_still_gathered(self, cluster: Cluster, writer: Api) -> None:
        api, name = cluster.control.api(), "clusterrole-aggregation-controller"
        accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        api.apply(f"{accounts}/{name}", account)
        rights = binding("ClusterRoleBinding", "cluster-admin")
        rights["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}]
        rights |= {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "gatherer"}}
        apply_objects(api, [rights])
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = json.loads(api.request("POST", f"{accounts}/{name}/token", asked))
        path = f"/apis/{RBAC}/v1/clusterroles?dryRun=All"
        body = {"apiVersion": f"{RBAC}/v1", **role("ClusterRole", verbs=["*"])}
        cluster.control.wait(lambda: cluster.send(made["status"]["token"], path, body)[0] == 201)
        assert api.delete(Paths(api).of(rights))

    def test_a_review_knows_that_it_is_in_force(self, cluster: Cluster, writer: Api) -> None:
        made = review(cluster.control.api())
        assert made.guarded
        assert [f.kind for f in made.unexpected if f.binding == "ClusterRoleBinding writers"] == ["wildcard"]


# -- the file is read again ------------------------------------------------------------------------


def reloads(cluster: Cluster, status: str) -> float:
    """Return how often the API server has read its file again, with success or failure."""
    name = "apiserver_authentication_config_controller_automatic_reloads_total"
    lines = cluster.control.api().text("/metrics").splitlines()
    found = [line for line in lines if line.startswith(name) and f'status="{status}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_the_file_is_read_again_without_a_restart(cluster: Cluster) -> None:
    control, issuer = cluster.control, cluster.issuer
    process = control.processes["api"]
    identity = dataclasses.replace(issuer.identity(), bindings=BINDINGS)
    groups = tuple(settings.identifier(f"group-{number}") for number in range(people.MOST_GROUPS + 1))
    few, many = Person("anna", groups=groups[:2]), Person("anna", groups=groups)

    def groups_of(person: Person) -> list[str] | None:
        found = cluster.who(issuer.token(person))
        return list(found["groups"]) if found else None

    try:
        cluster.configure(configuration(dataclasses.replace(identity, groups_claim="groups")))
        control.wait(lambda: f"entra:{groups[0]}" in (groups_of(few) or ()))
        before = len(cluster.log())
        assert groups_of(many) is None
        control.wait(lambda: "there are too many of them: use app roles" in cluster.log()[before:])
        # A file that cannot be used leaves the one before in force.
        failures = reloads(cluster, "failure")
        cluster.configure("kind: Nonsense\n")
        control.wait(lambda: reloads(cluster, "failure") > failures)
        assert groups_of(few)
        cluster.configure(configuration(None))
        control.wait(lambda: groups_of(few) is None)
        assert cluster.send("", "/livez")[0] == 200
        assert cluster.send("", "/version")[0] == 401
    finally:
        cluster.configure(configuration(identity))
    assert control.processes["api"] is process and process.poll() is None
