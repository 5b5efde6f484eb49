# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What identity makes of control planes and of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import Identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned

from .conftest import Rendered

Render = Callable[..., Rendered]
TENANT = "11111111-2222-3333-4444-555555555555"
CLIENT = "99999999-8888-7777-6666-555555555555"
VARIABLES = {
    "identity_tenant_id": TENANT,
    "identity_audiences": [CLIENT],
    "identity_bindings": [
        {"group": "Researchers", "role": "researcher", "namespaces": ["research", "physics"]},
        {"group": "Operators", "role": "node-operator"},
    ],
}
ANONYMOUS = {"enabled": True, "conditions": [{"path": f"/{name}z"} for name in ("live", "ready", "health")]}


def test_without_a_tenant_nothing_changes(render: Render) -> None:
    rendered = render()
    assert rendered.renderer.objects("identity") == []
    assert yaml.safe_load(rendered.content("az-1", "control_plane/authentication")) == {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": ANONYMOUS,
    }


def test_a_tenant_is_in_the_authentication_file_and_nowhere_else(render: Render) -> None:
    before, after = render().resources("az-1"), render(variables=VARIABLES).resources("az-1")
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # Not the manifest of the API server, which would restart it: it reads the file again by itself.
    assert changed == {"control_plane/authentication"}
    content = yaml.safe_load(after["control_plane/authentication"]["content"])
    assert content["anonymous"] == ANONYMOUS
    (authenticator,) = content["jwt"]
    assert authenticator["issuer"] == {
        "url": f"https://login.microsoftonline.com/{TENANT}/v2.0",
        "audiences": [CLIENT],
        "audienceMatchPolicy": "MatchAny",
    }


def test_objects(render: Render) -> None:
    rendered = render(variables=VARIABLES)
    objects = rendered.renderer.objects("identity")
    identity = rendered.site.part(Identity)
    assert identity
    assert objects == owned.labelled(identity.objects(), rendered.site.name, "identity")
    names = [
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects
    ]
    assert names[-3:] == [
        ("RoleBinding", "research", "ironspan-researcher:Researchers"),
        ("RoleBinding", "physics", "ironspan-researcher:Researchers"),
        ("ClusterRoleBinding", "", "ironspan-node-operator:Operators"),
    ]
    assert [kind for kind, _, _ in names[:-3]] == ["ClusterRole"] * 5
