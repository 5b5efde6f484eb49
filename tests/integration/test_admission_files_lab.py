# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Admission policies from the disks of control planes, from the first request on: Kubernetes 1.37.

Needs ``ironspan artifacts build --set upgrade``. Tests go on where the one before has ended, in this order.
"""

from __future__ import annotations

import collections.abc
import contextlib
import json
import threading
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import simulate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import KEEPERS, always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import FOLDER, STATIC
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import WITHOUT_IT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

from tests.integration.conftest import lab_cluster
from tests.integration.test_admission import DEFAULT_DENY, NAMESPACES, attempt, pods
from tests.support import admission_cases as cases
from tests.support.encrypted_site import CONTROL_PLANES, EncryptedSite
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab, pytest.mark.long]
VERSION = "1.37.1"
GROUP = "/apis/admissionregistration.k8s.io/v1"
FILES = f"{FOLDER}/validating/policies.json {FOLDER}/mutating/policies.json"
# The lab's overlayfs cannot map users.
POLICY: Object = {"version": 1, "rules": {"user_namespaces": {"scope": "nowhere"}}}
UNTAGGED = cases.pod("default", {"spec.containers.0.image": "docker.io/library/busybox:latest"})
"""Pod Security has nothing against it."""


class FromFiles(EncryptedSite):
    """The cluster, its policy, and where that is kept."""

    policy = POLICY
    from_files = True

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        file = self.folder / "policy.yml"
        file.write_text(json.dumps(self.policy))
        self.wish = {
            "site_kubernetes_version": VERSION,
            "admission_policy_file": str(file),
            "admission_from_files": self.from_files,
        }
        return super().site(*options)

    def refusal(self, host: str, body: Object = UNTAGGED, break_glass: bool = False) -> str:
        """Return why an API server does not take a pod; empty when it does."""
        api = self.api(host, break_glass)
        return attempt(api, "POST", pods(body["metadata"]["namespace"]), body)[0]

    def digests_of_files(self) -> list[str]:
        """Return what the control planes' files are."""
        return [self.on(host, f"sha256sum {FILES}") for host in CONTROL_PLANES]


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[FromFiles]:
    """Two control planes and a worker that begin with policies from files."""
    with lab_cluster(FromFiles, "admfiles", azure=2, rack=1, azure_services=False) as made:
        assert made.first is not None and made.first.status == 0, made.first
        yield made


def test_a_cluster_begins_with_policies_from_files(site: FromFiles) -> None:
    assert site.ready_nodes() == {*CONTROL_PLANES, "rack-1"}
    for host in CONTROL_PLANES:
        refusal = site.refusal(host)
        assert "(rule latest_tag)" in refusal and STATIC in refusal
    # What looks another object up cannot be in a file.
    names = {
        item["metadata"]["name"]
        for plural in simulate.KINDS
        for item in site.api("az-1").get(f"{GROUP}/{plural}")["items"]
    }
    every = {item["metadata"]["name"] for item in always(KEEPERS, [], [], others=True)}
    assert names == {"ironspan-network-policy", WITHOUT_IT} | every
    site.settled()


def test_a_mutation_from_a_file_and_a_rule_that_is_none(site: FromFiles) -> None:
    api = site.api("az-2")
    space = {"metadata": {"name": "wild", "labels": {"ironspan.io/risk": "high"}}}
    api.apply(f"{NAMESPACES}/wild", {"apiVersion": "v1", "kind": "Namespace", **space})
    body = cases.pod("wild")
    assert "'ironspan-network-policy'" in site.refusal("az-2", body)
    deny = f"/apis/networking.k8s.io/v1/namespaces/wild/networkpolicies/{DEFAULT_DENY['metadata']['name']}"
    api.apply(deny, DEFAULT_DENY)

    def made() -> bool:
        found = attempt(api, "POST", pods("wild"), body)[1]
        return bool(found) and found["spec"]["runtimeClassName"] == "gvisor"

    site.wait(made, 60)


def test_nobody_deletes_them_through_the_api(site: FromFiles) -> None:
    api = site.api("az-1", break_glass=True)
    for plural in simulate.KINDS:
        api.request("DELETE", f"{GROUP}/{plural}")
    for host in CONTROL_PLANES:
        assert "(rule latest_tag)" in site.refusal(host, break_glass=True), "system:masters too"
    played = site.site()
    assert played.status == 0 and set(played.changed) == {"localhost"}, played.output


@contextlib.contextmanager
def never_taken(site: FromFiles) -> collections.abc.Iterator[None]:
    """Ask every API server for the pod all the time; not being answered is no answer."""
    answers: dict[str, list[str]] = {host: [] for host in CONTROL_PLANES}
    end = threading.Event()

    def ask(api: Api, told: list[str]) -> None:
        while not end.wait(0.05):
            with contextlib.suppress(ClusterError):
                told.append(attempt(api, "POST", pods("default"), UNTAGGED)[0])

    threads = [
        threading.Thread(target=ask, args=(site.api(host), told), daemon=True)
        for host, told in answers.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join(60)
    for host, told in answers.items():
        assert "" not in told, f"{host} has taken a pod after {told.index('')} answers"
        assert sum("(rule latest_tag)" in answer for answer in told) > 10, told


def test_they_hold_from_the_first_answer_of_an_api_server_on(site: FromFiles) -> None:
    with never_taken(site):
        for host in CONTROL_PLANES:
            site.restart_api(host)


def test_another_policy_is_read_without_a_restart(site: FromFiles) -> None:
    before = {host: site.started(host) for host in CONTROL_PLANES}
    rules: t.Any = POLICY["rules"]
    site.policy = {**POLICY, "rules": {**rules, "latest_tag": {"scope": "nowhere"}}}
    played = site.site()
    assert played.status == 0 and set(played.changed) == {*CONTROL_PLANES, "localhost"}, played.output
    for host in CONTROL_PLANES:
        site.wait(lambda host=host: not site.refusal(host), 120)  # type: ignore[misc]
    assert {host: site.started(host) for host in CONTROL_PLANES} == before
    site.settled()


def test_what_would_lock_the_system_out_never_gets_to_a_control_plane(site: FromFiles) -> None:
    before = site.digests_of_files()
    narrow = {"namespace": "kube-system", "rules": ["latest_tag"], "owner": "tests", "reason": "too narrow"}
    former, site.policy = site.policy, {**POLICY, "exemptions": [narrow]}
    played = site.site()
    assert played.status != 0
    assert "would lock out pods that the cluster needs" in played.output, played.output
    assert site.digests_of_files() == before
    site.policy = former
    site.settled()


def test_as_objects_again(site: FromFiles) -> None:
    site.policy = POLICY
    assert site.site().status == 0
    for host in CONTROL_PLANES:
        site.wait(lambda host=host: bool(site.refusal(host)), 120)  # type: ignore[misc]
    site.from_files = False
    with never_taken(site):
        played = site.site()
    assert played.status == 0, played.output

    def by_an_object(host: str) -> bool:
        found = site.refusal(host)
        return "(rule latest_tag)" in found and STATIC not in found

    for host in CONTROL_PLANES:
        site.wait(lambda host=host: by_an_object(host), 60)  # type: ignore[misc]
    site.settled()
