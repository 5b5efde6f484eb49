# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an admission policy makes of control planes and of the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import is_always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import WITHOUT_IT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.part import of_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned

from tests.support import admission_cases as cases

from .conftest import Rendered

Render = Callable[..., Rendered]
FOLDER = "/etc/kubernetes/ironspan/admission"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    (tmp_path / "admission.yml").write_text(cases.POLICY)
    return str(tmp_path / "admission.yml")


def api_server(rendered: Rendered, host: str) -> tuple[dict[str, str], list[str]]:
    """Return flags and names of environment variables of a host's API server."""
    config = rendered.resources(host)["control_plane/member"]["config"]
    cluster = next(
        part for part in yaml.safe_load_all(config) if part and part["kind"] == "ClusterConfiguration"
    )
    server = cluster["apiServer"]
    return {arg["name"]: arg["value"] for arg in server["extraArgs"]}, [
        e["name"] for e in server["extraEnvs"]
    ]


def test_without_a_policy_nothing_changes(render: Render) -> None:
    rendered = render()
    # But for what every cluster has. API servers of others would follow parameters that they may not list.
    objects = rendered.renderer.objects("admission")
    assert {item["metadata"]["name"] for item in objects} == {"ironspan-service-addresses"}
    assert all(map(is_always, objects))
    assert not [item for item in objects if "paramKind" in item["spec"] or "paramRef" in item["spec"]]
    assert not [name for name in rendered.resources("az-1") if "admission" in name]
    flags, environment = api_server(rendered, "az-1")
    assert "admission-control-config-file" not in flags
    assert "IRONSPAN_ADMISSION" not in environment


def test_what_keeps_network_policies_known_comes_first_and_stays(render: Render, policy: str) -> None:
    objects = render(variables={"admission_policy_file": policy}).renderer.objects("admission")
    keeper = [item for item in objects if item["metadata"]["name"] == "ironspan-keeps-network-policies-known"]
    assert objects[:2] == keeper
    assert all(map(is_always, keeper))
    # Nothing deletes what is shared: with it the last policy would go, and what API servers know.
    assert {item["metadata"]["labels"][owned.LAYER] for item in keeper} == {owned.SHARED}


def test_objects(render: Render, policy: str) -> None:
    rendered = render(variables={"admission_policy_file": policy})
    objects = [item for item in rendered.renderer.objects("admission") if not is_always(item)]
    assert [item["kind"] for item in objects[:2]] == ["ConfigMap", "MutatingAdmissionPolicy"]
    admission = of_file(rendered.site)
    assert admission
    assert objects == owned.labelled(admission.objects(), rendered.site.name, "admission")
    resources = rendered.resources("az-1")
    assert f"{FOLDER}/validating/policies.json" not in [r.get("path") for r in resources.values()]
    assert api_server(rendered, "az-1")[0]["admission-control-config-file"] == f"{FOLDER}/configuration.json"
    assert not [name for name in rendered.resources("rack-1") if "admission" in name]


def test_files(render: Render, policy: str) -> None:
    variables = {
        "admission_policy_file": policy,
        "admission_from_files": True,
        "site_kubernetes_version": "1.37.1",
    }
    rendered = render(variables=variables)
    # What looks other objects up cannot be in a file.
    objects = [item for item in rendered.renderer.objects("admission") if not is_always(item)]
    names = [item["metadata"]["name"] for item in objects]
    assert names == ["ironspan-admission", "ironspan-network-policy", WITHOUT_IT]
    resources = rendered.resources("az-1")
    for name in ("validating", "mutating"):
        resource = resources[f"control_plane/admission-{name}"]
        assert resource["path"] == f"{FOLDER}/{name}/policies.json"
        admission = of_file(rendered.site)
        assert admission
        assert json.loads(resource["content"]) == admission.manifest(name)
        assert f"control_plane/admission-{name}" in resources["control_plane/member"]["requires"]
    configuration = json.loads(resources["control_plane/admission-configuration"]["content"])
    assert [plugin["name"] for plugin in configuration["plugins"]] == [
        "PodSecurity",
        "ValidatingAdmissionPolicy",
        "MutatingAdmissionPolicy",
    ]
    assert "IRONSPAN_ADMISSION" in api_server(rendered, "az-1")[1]
