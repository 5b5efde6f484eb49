# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Admission policies in a real kube-apiserver: what they take, what they refuse, and that they stay."""

from __future__ import annotations

import json
import types
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import always, simulate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.enforce import enforce
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import LABEL, policy_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Allowed, Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Namespace, Proxied
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

from tests.support import admission_cases as cases
from tests.support import escape_corpus
from tests.support.escape_corpus import Escape

from .loopback_cluster import Control, find_programs, running
from .test_cluster_api import user_api

pytestmark = pytest.mark.lab
SPACES: Mapping[str, Mapping[str, str]] = {
    "team": {},
    "jobs": {"ironspan.io/risk": "high"},
    "monitoring": {},
}
NAMESPACES = "/api/v1/namespaces"
BALANCER = "system:serviceaccount:metallb-system:controller"
DENY = "networkpolicies/ironspan-default-deny"
DEFAULT_DENY: Object = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "ironspan-default-deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
# What the rule `services` is to refuse alone: of several that refuse, the API server names any.
ALWAYS = always.always(always.KEEPERS, ["192.0.2.0/28", "2001:db8:1::/64"], [BALANCER], others=True)
CLASSES = ("gvisor", "gvisor-gpu", "kata-gpu", "runc")


def set_up(api: Api) -> None:
    """Make namespaces with their accounts, which controllers would make, and runtime classes."""
    for name, labels in SPACES.items():
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        api.apply(f"/api/v1/namespaces/{name}", space)
    for name in (*SPACES, "kube-system"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        api.apply(f"/api/v1/namespaces/{name}/serviceaccounts/default", account)
    for name in CLASSES:
        body = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": name,
            "overhead": {"podFixed": {"memory": "64Mi"}},
            "scheduling": {"nodeSelector": {"example.com/class": name}},
        }
        api.apply(f"/apis/node.k8s.io/v1/runtimeclasses/{name}", body)
    api.apply(f"{NAMESPACES.replace('/api/', '/apis/networking.k8s.io/')}/jobs/{DENY}", DEFAULT_DENY)
    rights = "/apis/rbac.authorization.k8s.io/v1"
    researchers = _binding("Cluster", "cluster-admin", "researchers")
    api.apply(f"{rights}/clusterrolebindings/researchers", researchers)
    # What the role edit has of its own: the controller that puts it together does not run here.
    editors = _binding("", "system:aggregate-to-edit", "editors")
    api.apply(f"{rights}/namespaces/jobs/rolebindings/editors", editors)


def _binding(kind: str, role: str, group: str) -> Object:
    authorization = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{authorization}/v1",
        "kind": f"{kind}RoleBinding",
        "metadata": {"name": group},
        "roleRef": {"apiGroup": authorization, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": authorization, "kind": "Group", "name": group}],
    }


def attempt(api: Api, method: str, path: str, body: Object | None) -> tuple[str, Object]:
    """Send something as a dry run; returns the refusal, empty when it is taken, and what it would become."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        answer = api.request(method, path, body, kind, {} if method == "GET" else {"dryRun": "All"})
    except ApiError as error:
        return str(error), {}
    return "", dict(json.loads(answer))


def pods(namespace: str) -> str:
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def check(refusal: str, rule: str) -> None:
    """Insist on who refuses."""
    if not rule:
        assert not refusal
    else:
        assert f"(rule {rule})" in refusal
        assert f"'ironspan-{rule.replace('_', '-')}" in refusal


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    file = tmp_path_factory.mktemp("policy") / "admission.yml"
    file.write_text(cases.POLICY)
    return read_policy(file)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, policy: Policy) -> Iterator[Control]:
    """An API server whose policies are objects."""
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(names=("etcd", "kube-apiserver"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, folder)) as started:
        started.start_etcd("etcd-1")
        started.start_api("--allow-privileged=true")
        started.bind_administrators()
        started.wait(lambda: bool(started.api().get("/api/v1/namespaces/kube-system")))
        set_up(started.api())
        objects.apply_objects(started.api(), [*ALWAYS, *policy_objects(policy)])
        wait_until_in_force(started)
        yield started


def wait_until_in_force(control: Control) -> None:
    """Wait until the last of the policies of each kind is heard of."""
    api = control.api()
    service = {
        **SERVICE,
        "metadata": {"name": "probe"},
        "spec": {"ports": [{"port": 80}], "type": "NodePort"},
    }

    def in_force() -> bool:
        refusal, _ = attempt(api, "POST", "/api/v1/namespaces/jobs/services", service)
        _, made = attempt(api, "POST", pods("team"), cases.pod("team"))
        high_risk, _ = attempt(api, "POST", pods("jobs"), cases.pod("jobs"))
        of_its_own = bool(made) and made["spec"].get("hostUsers") is False
        return "(rule services)" in refusal and of_its_own and not high_risk

    control.wait(in_force)


@pytest.fixture(scope="module")
def user(control: Control) -> Api:
    """Somebody who may do everything that RBAC can allow."""
    return user_api(control, "researcher", ["researchers"])


@pytest.fixture(scope="module")
def editor(control: Control) -> Api:
    """Somebody with the role edit in the namespace of the jobs."""
    return user_api(control, "editor", ["editors"])


SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "probe"},
    "spec": {"ports": [{"port": 80}]},
}


def named(case: t.Any) -> str:
    return f"{case.namespace}: {case.name}" if isinstance(case, cases.Case) else ""


def test_there_are_enough_cases() -> None:
    assert len(cases.CASES) >= 80
    assert len([*escape_corpus.PODS, *escape_corpus.DEBUG, *escape_corpus.REQUESTS]) >= 30
    table = [case[:2] for case in cases.CASES]
    assert len(set(table)) == len(table)


@pytest.mark.parametrize("case", cases.CASES, ids=named)
def test_pods(user: Api, case: cases.Case) -> None:
    refusal, _ = attempt(user, "POST", pods(case.namespace), cases.pod(case.namespace, case.changes))
    check(refusal, case.rule)


@pytest.mark.parametrize("case", cases.SERVICES, ids=named)
def test_services(user: Api, case: cases.Case) -> None:
    body = cases.changed(SERVICE, case.changes)
    refusal, _ = attempt(user, "POST", f"/api/v1/namespaces/{case.namespace}/services", body)
    check(refusal, case.rule)


def test_addresses_of_others_are_not_for_services(user: Api, control: Control) -> None:
    """Neither in an ordinary namespace nor as what a load balancer would write; what is there may stay."""
    path = f"{NAMESPACES}/team/services"
    listed = {"spec.externalIPs": ["192.0.2.7", "2001:db8:1::5"]}
    check(attempt(user, "POST", path, cases.changed(SERVICE, listed))[0], "")
    one = {"spec.externalIPs": ["192.0.2.7", "10.98.1.1"]}
    check(attempt(user, "POST", path, cases.changed(SERVICE, one))[0], "service_addresses")
    check(attempt(control.api(), "POST", path, cases.changed(SERVICE, one))[0], "")
    balanced = {"metadata.name": "balanced", "spec.type": "LoadBalancer"}
    for address, rule in (("", ""), ("192.0.2.8", ""), ("10.98.1.1", RULE), ("no address", RULE)):
        body = cases.changed(SERVICE, {**balanced, "spec.loadBalancerIP": address})
        check(attempt(user, "POST", path, body)[0], rule)
    control.api().request("POST", path, cases.changed(SERVICE, {**balanced, **one}))
    mine = {"metadata": {"labels": {"a": "b"}}, "spec": {"externalIPs": ["10.98.1.1"]}}
    check(attempt(user, "PATCH", f"{path}/balanced", mine)[0], "")
    check(attempt(user, "PATCH", f"{path}/balanced", {"spec": {"externalIPs": ["10.98.1.2"]}})[0], RULE)
    given = {"status": {"loadBalancer": {"ingress": [{"ip": "10.98.1.1"}]}}}
    status = f"{path}/balanced/status"
    check(attempt(user, "PATCH", status, given)[0], RULE)
    for name, groups in ((BALANCER, ["researchers"]), ("x", ["researchers", IN_KUBE_SYSTEM])):
        check(attempt(user_api(control, name, groups), "PATCH", status, given)[0], "")
    control.api().request("PATCH", status, given, "application/merge-patch+json")
    condition = {"type": "Seen", "status": "True", "reason": "a", "message": "", "lastTransitionTime": NOW}
    check(attempt(user, "PATCH", status, {"status": {"conditions": [condition]}})[0], "")
    user.delete(f"{path}/balanced")


RULE, NOW = "service_addresses", "2026-11-24T00:00:00Z"
IN_KUBE_SYSTEM = "system:serviceaccounts:kube-system"


@pytest.fixture(scope="module")
def debugged(user: Api) -> Object:
    body = cases.changed(cases.pod("jobs"), {"metadata.name": "debugged"})
    return dict(json.loads(user.request("POST", pods("jobs"), body)))


@pytest.mark.parametrize("escape", escape_corpus.PODS, ids=str)
def test_escapes_of_pods(user: Api, escape: Escape) -> None:
    body = cases.pod(escape.namespace, escape.changes)
    stopped(escape, *attempt(user, "POST", pods(escape.namespace), body))


@pytest.mark.parametrize("escape", escape_corpus.DEBUG, ids=str)
def test_escapes_of_ephemeral_containers(user: Api, debugged: Object, escape: Escape) -> None:
    container = {"name": "debug", "image": cases.GOOD, **escape.container}
    body = cases.changed(debugged, {"spec.ephemeralContainers": [container]})
    stopped(escape, *attempt(user, "PUT", f"{pods('jobs')}/debugged/ephemeralcontainers", body))


def test_a_debug_container_that_obeys_the_rules_is_taken(user: Api, debugged: Object) -> None:
    body = cases.changed(debugged, {"spec.ephemeralContainers": [{"name": "debug", "image": cases.GOOD}]})
    check(attempt(user, "PUT", f"{pods('jobs')}/debugged/ephemeralcontainers", body)[0], "")


@pytest.mark.parametrize("escape", escape_corpus.REQUESTS, ids=str)
def test_escapes_by_other_requests(user: Api, editor: Api, debugged: Object, escape: Escape) -> None:
    api = user if escape.who == "researcher" else editor
    method, path = escape.request.replace("{pod}", "debugged").split(" ")
    body = json.loads(json.dumps(escape.body).replace("{pod}", "debugged"))
    stopped(escape, *attempt(api, method, path, body))


def stopped(escape: Escape, refusal: str, made: Object) -> None:
    """Insist on what stops an attempt."""
    if escape.becomes:
        assert not refusal
        for path, value in escape.becomes.items():
            found: t.Any = made
            for step in path.split("."):
                found = found[int(step) if step.isdigit() else step]
            assert found == value
    elif escape.rule:
        check(refusal, escape.rule)
    else:
        assert escape.refusal in refusal


def test_a_namespace_has_no_pods_before_it_denies(user: Api, control: Control) -> None:
    """From the moment it exists: pods wait for the network policy, and for one that closes everything."""
    api, space = control.api(), f"{NAMESPACES}/young"
    policy = f"/apis/networking.k8s.io/v1/namespaces/young/{DENY}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "young", "labels": RISK}}
    api.apply(space, body)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.apply(f"{space}/serviceaccounts/default", account)

    def refusal() -> str:
        return attempt(user, "POST", pods("young"), cases.pod("young"))[0]

    control.wait(lambda: "'ironspan-network-policy'" in refusal() and "no params found" in refusal())
    api.apply(policy, cases.changed(DEFAULT_DENY, {"spec.egress": [{}]}))
    control.wait(lambda: "(rule network_policy)" in refusal())
    api.delete(policy)
    # Who has a namespace closes it without a keeper.
    user.request("POST", policy.rpartition("/")[0], DEFAULT_DENY)
    control.wait(lambda: not refusal())


def test_the_policies_of_the_site_are_what_pods_wait_for(user: Api, control: Control) -> None:
    """Those that ``site.yml`` applies: the server takes them, pods come, and only keepers change them."""
    api, groups = control.api(), {"control_plane": "10.98.0.11", "egress_proxy": "10.98.0.40"}
    open_to = Allowed("a", ("203.0.113.0/24",), "tcp", ("443", "8000-8100"), 0, "a", "b")
    site = types.SimpleNamespace(
        cni="flannel",
        egress=Egress((open_to,), proxied=(Proxied("a.example.com", ("443",), 0, "a", "b"),),
                      namespaces=(Namespace("closed", within=True, api=True),)),
        group=lambda name: [types.SimpleNamespace(address=groups[name])],
    )  # fmt: skip
    text = Templates(ROLES_FOLDER).get("egress/objects.yml.j2").render(
        site=site, control_plane_port=6443, egress_proxy_port=3128, egress_enabled=True,
        egress_policy_image="", dns_node_cache_address="169.254.20.10",
    )  # fmt: skip
    declared = yaml.safe_load(text)
    assert len(objects.apply_objects(api, declared)) == 3
    assert objects.apply_objects(api, declared) == [], "the server keeps them as they are declared"
    api.merge(f"{NAMESPACES}/closed", {"metadata": {"labels": RISK}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.apply(f"{NAMESPACES}/closed/serviceaccounts/default", account)

    def made() -> bool:
        refusal, pod = attempt(user, "POST", pods("closed"), cases.pod("closed"))
        return not refusal and pod["spec"].get("runtimeClassName") == "gvisor"

    control.wait(made)
    path = "/apis/networking.k8s.io/v1/namespaces/closed/networkpolicies/ironspan-allowed"
    check(attempt(user, "PATCH", path, {"spec": {"egress": [{}]}})[0], "network_policies")
    check(attempt(user, "DELETE", path, None)[0], "network_policies")
    check(attempt(api, "DELETE", path, None)[0], "")


def test_tokens_are_for_the_api(control: Control, editor: Api) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{NAMESPACES}/jobs/serviceaccounts/default/token"
    for audience in ("vault", "https://kubernetes.default.svc.cluster.local"):
        check(attempt(editor, "POST", path, cases.changed(body, {"spec.audiences": [audience]}))[0], "")
    # Who names none asks for the API's own, which here is another than kubeadm's.
    check(attempt(editor, "POST", path, body)[0], "token_requests")


def test_a_running_pod_gets_no_other_image(user: Api, debugged: Object) -> None:
    body = cases.changed(debugged, {"spec.containers.0.image": "evil.example.org/a:1"})
    refusal = attempt(user, "PUT", f"{pods('jobs')}/debugged", body)[0]
    assert "(rule registries)" in refusal or "(rule digests)" in refusal


def test_a_running_pod_gets_no_annotation_for_its_sandbox(user: Api, debugged: Object) -> None:
    body = cases.changed(debugged, {"metadata.annotations": {"dev.gvisor.flag.network": "host"}})
    check(attempt(user, "PUT", f"{pods('jobs')}/debugged", body)[0], "sandbox_annotations")


def test_a_high_risk_pod_gets_its_sandbox_and_what_belongs_to_it(user: Api) -> None:
    _, made = attempt(user, "POST", pods("jobs"), cases.pod("jobs"))
    spec = made["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    # Admission runs once more for what the class says: the overhead, and where it may run.
    assert spec["overhead"] == {"memory": "64Mi"}
    assert spec["nodeSelector"] == {"example.com/class": "gvisor"}
    assert "hostUsers" not in spec


@pytest.mark.parametrize(
    ("changes", "users"),
    [
        ({}, False),
        (cases.GPU | cases.QUEUED, None),
        (cases.NO_GPU, False),
        ({"spec.runtimeClassName": "gvisor"}, None),
    ],
)
def test_an_ordinary_pod_gets_users_of_its_own(user: Api, changes: Object, users: bool | None) -> None:
    _, made = attempt(user, "POST", pods("team"), cases.pod("team", changes))
    assert made["spec"].get("hostUsers") is users


def test_a_pod_from_before_the_rules_can_be_finished(control: Control, user: Api) -> None:
    """Its finalizer goes, whatever the pod is; its specification does not change any more."""
    name = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/ironspan-host-access"
    api, path = control.api(), f"{pods('team')}/old"
    binding = api.get(name)
    changes = {"spec.hostPID": True, "metadata.name": "old", "metadata.finalizers": ["example.com/wait"]}
    old = cases.pod("team", changes)
    api.delete(name)
    control.wait(lambda: not attempt(user, "POST", pods("team"), old)[0])
    api.request("POST", pods("team"), old)
    api.apply(name, objects.stated(binding))
    control.wait(
        lambda: bool(attempt(user, "POST", pods("team"), cases.pod("team", {"spec.hostPID": True}))[0])
    )
    user.merge(path, {"metadata": {"finalizers": None}})
    image = user.get(path)
    image["spec"]["containers"][0]["image"] = cases.TAGGED
    check(attempt(user, "PUT", path, image)[0], "host_access")
    user.delete(path, {"gracePeriodSeconds": 0})


def test_only_nodes_write_mirror_pods(control: Control) -> None:
    node = user_api(control, "system:node:rack-1", ["system:nodes"])
    mirror = {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}, "spec.nodeName": "rack-1"}
    refusal, _ = attempt(node, "POST", pods("team"), cases.pod("team", mirror))
    assert "(rule mirror_pods)" not in refusal


RISK = {"ironspan.io/risk": "high"}
ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.mark.parametrize(
    ("name", "labels", "refused"),
    [
        ("new", {}, ""),
        ("new", RISK, ""),
        ("new", {ENFORCE: "restricted"}, ""),
        ("new", {ENFORCE: "baseline"}, "a Pod Security level below restricted"),
        ("new", {ENFORCE: "privileged"}, "a Pod Security level below restricted"),
        ("kube-flannel", {}, "exempt from rules"),
    ],
)
def test_new_namespaces(user: Api, control: Control, name: str, labels: Object, refused: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    refusal, _ = attempt(user, "POST", NAMESPACES, body)
    assert (refused in refusal and "(rule namespaces)" in refusal) if refused else not refusal
    assert not attempt(control.api(), "POST", NAMESPACES, body)[0], "the site's administrators may"


def test_a_level_that_a_keeper_set_stays_and_goes_up_only(user: Api, control: Control) -> None:
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "old", "labels": {ENFORCE: "baseline"}},
    }
    control.api().apply(f"{NAMESPACES}/old", space)
    for value, rule in (("baseline", ""), ("restricted", ""), ("privileged", "namespaces")):
        body = user.get(f"{NAMESPACES}/old")
        body["metadata"]["labels"] |= {ENFORCE: value, "another": "label"}
        check(attempt(user, "PUT", f"{NAMESPACES}/old", body)[0], rule)


def test_a_service_from_before_the_label_is_let_go(user: Api, control: Control) -> None:
    labels = f"{NAMESPACES}/later"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}
    control.api().apply(labels, space)
    body = cases.changed(SERVICE, {"spec.type": "NodePort", "metadata.finalizers": ["example.com/wait"]})
    user.request("POST", f"{labels}/services", body)
    control.api().merge(labels, {"metadata": {"labels": RISK}})
    control.wait(lambda: "(rule services)" in attempt(user, "POST", f"{labels}/services", body)[0])
    user.merge(f"{labels}/services/probe", {"metadata": {"finalizers": None}})
    made = user.get(f"{labels}/services/probe")
    check(
        attempt(
            user, "PUT", f"{labels}/services/probe", cases.changed(made, {"spec.externalIPs": ["192.0.2.1"]})
        )[0],
        "services",
    )


@pytest.mark.parametrize("value", [None, "low", ""])
def test_the_high_risk_label_stays(user: Api, control: Control, value: str | None) -> None:
    body = user.get(f"{NAMESPACES}/jobs")
    body["metadata"]["labels"]["ironspan.io/risk"] = value
    if value is None:
        del body["metadata"]["labels"]["ironspan.io/risk"]
    check(attempt(user, "PUT", f"{NAMESPACES}/jobs", body)[0], "namespaces")
    check(attempt(control.api(), "PUT", f"{NAMESPACES}/jobs", body)[0], "")


def test_what_makes_pods_is_warned(user: Api) -> None:
    template = cases.pod("jobs", {"spec.hostPID": True, "metadata.labels": {"app": "a"}})
    del template["metadata"]["name"], template["metadata"]["namespace"]
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": {**template}}
    job = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    for group, kind, content in (
        ("apps", "Deployment", spec),
        ("apps", "DaemonSet", spec),
        ("apps", "StatefulSet", {**spec, "serviceName": "a"}),
        ("batch", "Job", job),
        ("batch", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": job}}),
    ):
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "a"}, "spec": content}
        url = f"{user.server}/apis/{group}/v1/namespaces/jobs/{kind.lower()}s?dryRun=All"
        answer = user._pool.request("POST", url, json=body)
        assert answer.status == 201, answer.data
        assert "(rule host_access)" in answer.headers.get("Warning", ""), kind


# -- before a policy is in force -------------------------------------------------------------------


def written(folder: Path, text: str) -> Policy:
    (folder / "admission.yml").write_text(text)
    return read_policy(folder / "admission.yml")


NARROW = """\
version: 1
exemptions:
  - namespace: kube-system
    rules: [user_namespaces]
    owner: platform team
    reason: somebody thought that this is enough
"""


@pytest.fixture
def coredns(control: Control) -> Iterator[Object]:
    """A pod of the cluster's DNS as kubeadm makes it, and one that breaks no rule."""
    api = control.api()
    spec = {
        f"{cases.CONTEXT}": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["NET_ADMIN"]}},
        "spec.dnsPolicy": "Default",
        "spec.priorityClassName": "system-cluster-critical",
        "metadata.name": "coredns-1",
        "metadata.labels": {"k8s-app": "kube-dns"},
        "metadata.ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
        ],
    }
    made = dict(json.loads(api.request("POST", pods("kube-system"), cases.pod("kube-system", spec))))
    yield made
    api.delete(f"{pods('kube-system')}/coredns-1", {"gracePeriodSeconds": 0})


def leftovers(api: Api) -> list[tuple[str, str, str]]:
    return simulate.found(api, simulate.COMPONENT)


def test_a_policy_that_locks_dns_out_is_refused(control: Control, coredns: Object, tmp_path: Path) -> None:
    api = control.api()
    outcome = simulate.simulate(api, policy_objects(written(tmp_path, NARROW)))
    assert [refused.pod for refused in outcome.system] == ["kube-system/coredns-1"]
    assert "(rule privilege)" in outcome.system[0].reason
    assert outcome.others == []
    assert leftovers(api) == []
    with pytest.raises(
        ClusterError, match=r"would lock out pods .*\n  kube-system/coredns-1: of capabilities"
    ):
        simulate.insist_on_no_lock_out(outcome)


def test_a_policy_that_takes_the_system_passes(control: Control, coredns: Object, policy: Policy) -> None:
    outcome = simulate.simulate(control.api(), policy_objects(policy))
    assert (outcome.system, outcome.left_out) == ([], 0)
    assert outcome.tried >= 1
    simulate.insist_on_no_lock_out(outcome)


def test_pods_of_others_are_told(control: Control, user: Api, debugged: Object, tmp_path: Path) -> None:
    text = "version: 1\nrules: {registries: {scope: everywhere, allowed: [elsewhere.example.org]}}\n"
    outcome = simulate.simulate(control.api(), policy_objects(written(tmp_path, text)))
    assert [refused.pod for refused in outcome.others] == ["jobs/debugged"]
    assert outcome.system == []


def test_trying_judges_nobody_else(control: Control, user: Api, coredns: Object, tmp_path: Path) -> None:
    """While copies are in force, a pod that they refuse is made."""
    seen = []

    def meanwhile() -> None:
        pod = cases.pod("kube-system", {"metadata.name": "other", "spec.hostPID": True})
        seen.append(attempt(user, "POST", pods("kube-system"), pod)[0])

    with simulate._copies_in_force(control.api(), policy_objects(written(tmp_path, NARROW))) as nonce:
        meanwhile()
        marked = {"metadata.name": "other", "spec.hostPID": True, "metadata.labels": {simulate._NONCE: nonce}}
        seen.append(attempt(user, "POST", pods("kube-system"), cases.pod("kube-system", marked))[0])
    assert seen[0] == ""
    assert "(rule host_access)" in seen[1]


def test_leftovers_of_a_killed_run_go(control: Control, policy: Policy) -> None:
    api = control.api()
    for item in simulate._sentinels("0123"):
        api.apply(objects.Paths(api).of(item), item)
    assert len(leftovers(api)) == 4
    simulate.simulate(api, policy_objects(policy))
    assert leftovers(api) == []


def test_expressions_are_compiled_before_anything_is_made(control: Control, policy: Policy) -> None:
    api = control.api()
    items = policy_objects(policy)
    simulate.check_expressions(api, items)
    broken = cases.changed(items[-2], {"spec.validations.0.expression": "object.spec.("})
    broken["metadata"]["name"] = "ironspan-broken"
    with pytest.raises(ClusterError, match=r"ironspan-broken: .*Syntax error"):
        simulate.check_expressions(api, [*items, broken])
    assert "ironspan-broken" not in {name for _, name, _ in simulate.found(api, LABEL)}


def test_the_policies_are_as_declared_after_a_second_time(control: Control, policy: Policy) -> None:
    assert objects.apply_objects(control.api(), policy_objects(policy)) == []


def test_enforcing_is_all_or_nothing_and_ends_with_the_file(
    control: Control, coredns: Object, policy: Policy, tmp_path: Path
) -> None:
    """The last of the tests with policies in force: it takes them away."""
    api = control.api()
    first = Admission(policy, from_files=False)
    assert [change.name for change in enforce(api, first.objects(), first.policies()).changes] == [
        "ConfigMap kube-system/ironspan-admission"
    ]
    assert enforce(api, first.objects(), first.policies()) == ([], [], [])
    narrow = Admission(written(tmp_path, NARROW), from_files=False)
    with pytest.raises(ClusterError, match="would lock out pods that the cluster needs"):
        enforce(api, narrow.objects(), narrow.policies())
    assert enforce(api, first.objects(), first.policies()) == ([], [], []), "nothing was changed"
    fewer = Admission(written(tmp_path, "version: 1\nrules: {digests: {scope: nowhere}}\n"), from_files=False)
    planned = enforce(api, fewer.objects(), fewer.policies(), check=True)
    gone = [name for name in planned.removed if "digests" in name]
    assert len(gone) == 3
    assert len(simulate.found(api, LABEL)) == len(first.policies()), "a check changes nothing"
    done = enforce(api, fewer.objects(), fewer.policies())
    assert set(done.removed) == set(planned.removed)
    assert enforce(api, [], []).removed
    assert simulate.found(api, LABEL) == []
    assert enforce(api, [], []) == ([], [], [])
