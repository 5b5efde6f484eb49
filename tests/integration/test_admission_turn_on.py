# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Policies that are turned on for the first time, off and on again, with two API servers of one cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import KEEPERS, always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.enforce import enforce
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import WITHOUT_IT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.pod_security import refused_by
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import PodSecurity, Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import (
    built_in_policy,
    read_policy,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.surroundings import ENFORCE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support import admission_cases as cases

from .loopback_cluster import Control, find_programs, running
from .test_admission import CLASSES, DEFAULT_DENY, DENY, NAMESPACES, NARROW, RISK, attempt, pods

pytestmark = pytest.mark.lab
ALWAYS = always(KEEPERS, [], [], others=True)
REFRESHED = 3
"""Seconds after which an API server has noticed that policies went: it looks every second."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """Two API servers that have never had a policy, and a pod of the system."""
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(names=("etcd", "kube-apiserver"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, folder)) as started:
        started.start_etcd("etcd-1")
        started.start_api("--allow-privileged=true")
        started.bind_administrators()
        started.start_second_api("--allow-privileged=true")
        started.wait(lambda: bool(started.api().get(f"{NAMESPACES}/kube-system")))
        api = started.api()
        _account(api, "kube-system")
        for name in CLASSES:
            path = f"/apis/node.k8s.io/v1/runtimeclasses/{name}"
            runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
            api.apply(path, {**runtime, "metadata": {"name": name}})
        system = {cases.CONTEXT: {"capabilities": {"add": ["NET_ADMIN"]}}, "metadata.name": "dns"}
        api.request("POST", pods("kube-system"), cases.pod("kube-system", system))
        yield started


@pytest.fixture(scope="module")
def servers(control: Control) -> list[Api]:
    return [control.api(), control.api(port=control.second_api_port)]


def written(folder: Path, text: str) -> Policy:
    (folder / "admission.yml").write_text(text)
    return read_policy(folder / "admission.yml")


def turn_on(api: Api, policy: Policy) -> None:
    admission = Admission(policy, from_files=False)
    enforce(api, [*ALWAYS, *admission.objects()], admission.policies())


def _account(api: Api, space: str) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.apply(f"{NAMESPACES}/{space}/serviceaccounts/default", account)


def high_risk_pods_start(control: Control, servers: list[Api]) -> None:
    """Make a namespace and its network policy, and wait until every API server takes a pod there."""
    name = f"jobs-{next(_numbers)}"
    space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RISK}}
    servers[0].apply(f"{NAMESPACES}/{name}", space)
    _account(servers[0], name)

    def refusal(api: Api) -> str:
        return attempt(api, "POST", pods(name), cases.pod(name))[0]

    for api in servers:
        # In force, and what refuses says what to do.
        control.wait(lambda api=api: f"binding '{WITHOUT_IT}'" in refusal(api))  # type: ignore[misc]
    servers[0].apply(f"/apis/networking.k8s.io/v1/namespaces/{name}/{DENY}", DEFAULT_DENY)
    for api in servers:
        control.wait(lambda api=api: not refusal(api))  # type: ignore[misc]
        made = attempt(api, "POST", pods(name), cases.pod(name))[1]
        assert made["spec"]["runtimeClassName"] == "gvisor"


def test_pods_that_pod_security_would_refuse_are_named_before(control: Control, servers: list[Api]) -> None:
    """By the API server itself, in namespaces that have no level of their own and are not exempt."""
    api, security = servers[0], built_in_policy().pod_security
    for name, labels in (("plain", {}), ("own", {ENFORCE: "privileged"})):
        space: Object = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }
        api.apply(f"{NAMESPACES}/{name}", space)
        _account(api, name)
        spec: dict[str, Object] = {"bold": {"spec.securityContext": {}}, "good": {}}
        for pod, changes in spec.items():
            body = cases.pod(name, {**changes, "metadata.name": pod})
            api.request("POST", pods(name), body)
    (told,) = refused_by(api, security)
    assert told.startswith("plain/bold: ") and "runAsNonRoot != true" in told
    labels = api.get(f"{NAMESPACES}/plain")["metadata"]["labels"]
    assert ENFORCE not in labels, "it was a dry run"
    assert refused_by(api, PodSecurity("baseline", security.exemptions)) == []


def test_a_trial_that_ends_leaves_api_servers_as_they_were(
    control: Control, servers: list[Api], tmp_path: Path
) -> None:
    """A policy that would lock out is tried and refused, and the one after it comes into force everywhere."""
    with pytest.raises(ClusterError, match="would lock out pods that the cluster needs"):
        turn_on(servers[0], written(tmp_path, NARROW))
    time.sleep(REFRESHED)
    turn_on(servers[0], written(tmp_path, cases.POLICY))
    high_risk_pods_start(control, servers)


def test_off_and_on_again(control: Control, servers: list[Api], tmp_path: Path) -> None:
    policy = written(tmp_path, cases.POLICY)
    assert enforce(servers[0], ALWAYS, []).removed
    time.sleep(REFRESHED)
    turn_on(servers[0], policy)
    high_risk_pods_start(control, servers)


def test_a_binding_that_somebody_took_away_comes_back(
    control: Control, servers: list[Api], tmp_path: Path
) -> None:
    """As docs/admission.md says how to turn a policy off at once."""
    group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    assert servers[1].delete(f"{group}/{WITHOUT_IT}")
    time.sleep(REFRESHED)
    turn_on(servers[0], written(tmp_path, cases.POLICY))
    high_risk_pods_start(control, servers)
