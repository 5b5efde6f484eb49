# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What control planes and the cluster get for access that ends by itself."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import _settings
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import access_controller as controller
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs

from tests.unit.roles.conftest import ROOT, Rendered

Render = Callable[..., Rendered]
ENABLED = {
    "access_enabled": True,
    "access_roles": [
        {"role": "node-operator", "approvals": 1, "cluster_wide": True},
        {"role": 'debug\'s "own"', "longest_hours": 2},
    ],
    "access_requester_groups": ["entra:people"],
    "access_approver_groups": ["entra:leads"],
}


def names(objects: list[dict[str, t.Any]], kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in objects if item["kind"] == kind]


def test_nothing_without_the_switch(render: Render) -> None:
    rendered = render()
    assert rendered.renderer.objects("access") == []
    assert not [name for name in rendered.resources("az-1") if name.startswith("access/")]
    taken = rendered.after("az-1", render(variables=ENABLED))
    kinds = {resource["kind"] for name, resource in taken.items() if name.startswith("access/")}
    assert kinds == {"systemd_unit", "absent"}
    assert not [name for name in rendered.resources("rack-1") if name.startswith("access/")]


def test_programs_are_whole_and_settings_are_what_the_program_reads(render: Render) -> None:
    rendered = render(variables=ENABLED)
    for id, program in (("controller", "access_controller"), ("audit_watch", "audit_watch")):
        assert rendered.content("az-1", f"access/{id}") == programs.program(program)
    problems: list[str] = []
    written = json.loads(rendered.content("az-1", "access/settings"))
    settings = _settings.take(written, controller.settings_of, problems)
    assert not problems
    assert settings.roles == {"node-operator": 1, 'debug\'s "own"': 2}
    assert settings.server == f"https://{rendered.site.hosts['az-1'].address}:6443"
    resources = rendered.resources("az-1")
    assert resources["access/key"]["csr"]["common_name"] == controller.USER
    assert resources["access/certificate"]["profile"] == "access-controller"
    assert (settings.certificate, settings.key) == (
        resources["access/certificate"]["path"],
        resources["access/key"]["key_path"],
    )
    for unit in ("ironspan-access", "ironspan-audit-watch"):
        text = rendered.content("az-1", f"access/{unit}-unit")
        assert "ExecStart=/usr/bin/python3 -IS /usr/local/lib/ironspan-access/" in text
        assert "ReadWritePaths=/var/lib/ironspan-access\n" in text
        assert "\nProtectSystem=strict\n" in text


def test_what_the_switch_takes_away_is_what_it_brought(render: Render) -> None:
    brought = {
        resource.get("path") or resource.get("key_path")
        for name, resource in render(variables=ENABLED).resources("az-1").items()
        if name.startswith("access/") and resource["kind"] != "systemd_unit"
    }
    gone = {
        resource["path"]
        for name, resource in render().after("az-1", render(variables=ENABLED)).items()
        if name.startswith("access/") and resource["kind"] == "absent"
    }
    assert gone == brought


def test_objects(render: Render) -> None:
    objects = render(variables=ENABLED).renderer.objects("access")
    assert names(objects, "CustomResourceDefinition") == ["accessrequests.access.ironspan.io"]
    assert names(objects, "ValidatingAdmissionPolicy") == [
        "ironspan-access-requests",
        "ironspan-access-bindings",
    ]
    assert names(objects, "ClusterRoleBinding") == [
        "ironspan:access-controller",
        "ironspan:access-requester",
        "ironspan:access-approver",
    ]
    (role,) = [item for item in objects if item["metadata"]["name"] == controller.USER and "rules" in item]
    bind = [rule for rule in role["rules"] if rule["verbs"] == ["bind"]]
    assert bind[0]["resourceNames"] == ["node-operator", 'debug\'s "own"']
    variables = {
        item["name"]: item["expression"]
        for item in next(item for item in objects if "variables" in item.get("spec", {}))["spec"]["variables"]
    }
    assert variables["longest"] == '{"debug\'s \\"own\\"": 7200, "node-operator": 28800}'
    assert variables["clusterWide"] == '{"debug\'s \\"own\\"": false, "node-operator": true}'
    assert '["entra:leads"]' in variables["isApprover"]


def test_emergencies_are_a_switch_of_their_own(render: Render) -> None:
    objects = render(variables={**ENABLED, "access_break_glass": True}).renderer.objects("access")
    (binding,) = [item for item in objects if item["metadata"]["name"] == "ironspan:break-glass"]
    assert binding["roleRef"]["name"] == "cluster-admin"
    assert [subject["name"] for subject in binding["subjects"]] == ["ironspan:break-glass"]


ROLE = {"role": "view"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"access_roles": []}, "nothing can be asked for"),
        ({"access_approver_groups": []}, "nobody can approve"),
        ({"access_requester_groups": []}, "nobody can ask"),
        ({"access_roles": [{**ROLE, "approvals": 0}]}, "0 is outside 1 to 16"),
        ({"access_roles": [{**ROLE, "approvals": 17}]}, "outside 1 to 16"),
        ({"access_roles": [{**ROLE, "longest_hours": 0}]}, "0 is outside 1 to 168"),
        ({"access_roles": [{**ROLE, "longest_hours": 169}]}, "169 is outside 1 to 168"),
        ({"access_roles": [ROLE, ROLE]}, "is there twice"),
        ({"access_roles": [{"role": ""}]}, "is empty"),
        ({"access_requester_groups": ["system:authenticated"]}, "is no group of people"),
        ({"access_approver_groups": ["system:masters"]}, "is no group of people"),
        ({"access_wait_hours": 0}, "at least 1"),
    ],
)
def test_what_is_refused_before_any_host_is_contacted(variables: dict[str, t.Any], message: str) -> None:
    site, problems = load_site(
        [ROOT / "inventories" / "lab"], extra_vars={**ENABLED, **variables}, environment={}
    )
    assert site is None
    assert message in "\n".join(str(problem) for problem in problems if "access_" in str(problem))
