# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Admission policies that an API server reads from files, and Pod Security's defaults: Kubernetes 1.37."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import declared, simulate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support import admission_cases as cases
from tests.support import escape_corpus

from .loopback_cluster import Control, find_programs, running
from .test_admission import NAMESPACES, SERVICE, attempt, check, named, pods, set_up
from .test_cluster_api import user_api

pytestmark = pytest.mark.lab
VERSION = "1.37.1"
SECURITY = """\
pod_security:
  exemptions:
    - namespace: monitoring
      owner: platform team
      reason: the node exporter reads the host's files
"""
GROUP = "/apis/admissionregistration.k8s.io/v1"


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Admission:
    """Write what a control plane's disk has, below a folder of the test's."""
    (folder / "admission.yml").write_text(cases.POLICY + SECURITY)
    admission = Admission(read_policy(folder / "admission.yml"), from_files=True)
    monkeypatch.setattr(declared, "FOLDER", str(folder / "admission"))
    for name in ("validating", "mutating"):
        (folder / "admission" / name).mkdir(parents=True)
        (folder / "admission" / name / "policies.json").write_text(json.dumps(admission.manifest(name)))
    (folder / "admission" / "configuration.json").write_text(json.dumps(admission.configuration()))
    return admission


@pytest.fixture(scope="module")
def admission(control: Control) -> Admission:
    return Admission(read_policy(control.folder / "admission.yml"), from_files=True)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """An API server whose policies are files."""
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(VERSION, ("etcd", "kube-apiserver"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with pytest.MonkeyPatch.context() as monkeypatch, running(Control(programs, store, folder)) as started:
        written(folder, monkeypatch)
        configuration = f"--admission-control-config-file={folder}/admission/configuration.json"
        started.start_etcd("etcd-1")
        started.start_api("--allow-privileged=true", configuration)
        started.bind_administrators()
        started.wait(lambda: bool(started.api().get(f"{NAMESPACES}/kube-system")))
        set_up(started.api())
        yield started


@pytest.fixture(scope="module")
def user(control: Control) -> Api:
    return user_api(control, "researcher", ["researchers"])


ALLOWED = [case for case in cases.CASES if not case.rule and case.namespace in ("jobs", "kube-system")]


@pytest.mark.parametrize("case", ALLOWED, ids=named)
def test_what_is_taken(user: Api, case: cases.Case) -> None:
    refusal, made = attempt(user, "POST", pods(case.namespace), cases.pod(case.namespace, case.changes))
    check(refusal, "")
    if case.namespace == "jobs":
        assert made["spec"]["runtimeClassName"] in ("gvisor", "gvisor-gpu")


ESCAPES = [(escape.name, escape.namespace, escape.changes, escape.rule) for escape in escape_corpus.PODS]


@pytest.mark.parametrize(
    ("name", "namespace", "changes", "rule"), [*(each for each in ESCAPES if each[3]), cases.CERTIFICATE]
)
def test_escapes_are_refused(user: Api, name: str, namespace: str, changes: Object, rule: str) -> None:
    """By a policy, or before it by the Pod Security Standard."""
    refusal, _ = attempt(user, "POST", pods(namespace), cases.pod(namespace, changes))
    assert f"(rule {rule})" in refusal or "violates PodSecurity" in refusal, name
    if "PodSecurity" not in refusal:
        assert declared.STATIC in refusal


def test_services(user: Api) -> None:
    body = cases.changed(SERVICE, {"spec": {"type": "ExternalName", "externalName": "example.org"}})
    assert "(rule services)" in attempt(user, "POST", f"{NAMESPACES}/jobs/services", body)[0]


@pytest.mark.parametrize(
    ("space", "taken"), [("team", False), ("jobs", False), ("monitoring", True), ("kube-system", True)]
)
def test_pod_security_is_restricted_unless_exempt(user: Api, space: str, taken: bool) -> None:
    body = cases.pod(space, {"spec.securityContext": {}})
    refusal, _ = attempt(user, "POST", pods(space), body)
    assert not refusal if taken else 'violates PodSecurity "restricted:latest"' in refusal


def test_nobody_deletes_them_through_the_api(control: Control, admission: Admission) -> None:
    """The API has no such objects to delete, and takes none that could stand in their place."""
    api = control.api(break_glass=True)
    for plural in simulate.KINDS:
        assert api.get(f"{GROUP}/{plural}")["items"] == []
        api.request("DELETE", f"{GROUP}/{plural}")
    name = f"ironspan-host-access{declared.STATIC}"
    assert not api.delete(f"{GROUP}/validatingadmissionpolicybindings/{name}")
    item = next(
        item for item in admission.manifest("validating")["items"] if item["metadata"]["name"] == name
    )
    with pytest.raises(ApiError, match="static"):
        api.apply(f"{GROUP}/validatingadmissionpolicies/{name}", item)
    body = cases.pod("monitoring", {cases.CONTEXT: {"privileged": True}})
    assert "(rule privilege)" in attempt(api, "POST", pods("monitoring"), body)[0], "system:masters too"


def test_they_are_tried_before_they_are_files(control: Control, admission: Admission) -> None:
    outcome = simulate.simulate(control.api(), admission.policies())
    assert outcome.system == []
    assert objects.apply_objects(control.api(), admission.objects())
    record = control.api().get(f"{NAMESPACES}/kube-system/configmaps/{declared.RECORD}")
    assert record["data"]["kept"] == "files"


def test_another_file_is_read_without_a_restart(control: Control, user: Api, admission: Admission) -> None:
    body = cases.pod("monitoring", {cases.CONTEXT: {"privileged": True}})
    file = control.folder / "admission" / "validating" / "policies.json"
    before = file.read_text()
    items = [
        item
        for item in admission.manifest("validating")["items"]
        if "-privilege" not in item["metadata"]["name"]
    ]
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    new.rename(file)
    control.wait(lambda: not attempt(user, "POST", pods("monitoring"), body)[0])
    file.write_text("{broken")
    file.write_text(before)
    control.wait(lambda: bool(attempt(user, "POST", pods("monitoring"), body)[0]))
