# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The deployment: its shape, and what each resource must be like."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import resource_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template

from .conftest import SMALL, SUBSCRIPTION, inner, made, of_kind


def texts(value: t.Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a template with its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from texts(one, f"{path}/{key}")
    elif isinstance(value, list):
        for one in value:
            yield from texts(one, path)
    elif isinstance(value, str):
        yield path, value


def test_a_site_without_a_subscription_has_none() -> None:
    assert declared({**SMALL, "azure_subscription": ""}) is None


def test_the_template_is_the_same_each_time() -> None:
    assert json.dumps(template(made())) == json.dumps(template(made()))


def test_only_ids_of_identities_are_expressions() -> None:
    found = [(path, text) for path, text in texts(template(made())) if text.startswith("[")]
    pattern = re.compile(r"\[reference\('/subscriptions/[^']+', '2024-11-30'\)\.(principalId|clientId)\]")
    assert [path for path, text in found if not pattern.fullmatch(text)] == []
    assert all("/properties/" in path for path, _text in found)


def test_what_is_waited_for_is_in_the_same_template() -> None:
    for outer in template(made())["resources"]:
        resources = outer["properties"].get("template", {}).get("resources", [])
        scope = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{outer.get('resourceGroup')}"
        ids = [resource_id(one.get("scope", scope), one["type"], one["name"]) for one in resources]
        assert len(set(ids)) == len(ids)
        for index, one in enumerate(resources):
            # In order, too: nobody has to sort.
            assert set(one.get("dependsOn", ())) <= set(ids[:index]), one["name"]


def test_etcd_has_a_disk_that_outlives_its_machine() -> None:
    resources = inner(made(), "machines")
    machines, disks = of_kind(resources, "virtualMachines"), of_kind(resources, "disks")
    assert set(disks) == {f"ironspan-example-etcd-etcd-{number}" for number in (1, 2, 3)}
    for name in ("etcd-1", "etcd-2", "etcd-3"):
        (data,) = machines[name]["properties"]["storageProfile"]["dataDisks"]
        assert data["createOption"] == "Attach"
        assert data["deleteOption"] == "Detach"
        assert data["caching"] == "None"
        assert data["managedDisk"]["id"].endswith(f"/disks/ironspan-example-etcd-{name}")
        assert machines[name]["zones"] == disks[f"ironspan-example-etcd-{name}"]["zones"]
    assert machines["control-plane-1"]["properties"]["storageProfile"]["dataDisks"] == []
    assert [machines[f"etcd-{number}"]["zones"] for number in (1, 2, 3)] == [["1"], ["2"], ["3"]]


def test_the_load_balancer_has_members_by_their_interfaces_only() -> None:
    (balancer,) = of_kind(inner(made(), "network"), "loadBalancers").values()
    assert balancer["properties"]["backendAddressPools"] == [{"name": "api"}]
    interfaces = of_kind(inner(made(), "machines"), "networkInterfaces")
    members = {
        name
        for name, one in interfaces.items()
        if "loadBalancerBackendAddressPools" in one["properties"]["ipConfigurations"][0]["properties"]
    }
    assert members == {f"ironspan-example-nic-control-plane-{number}" for number in (1, 2, 3)}


def test_no_host_has_a_public_address() -> None:
    assert "publicIP" not in json.dumps(template(made()))


def test_adding_to_a_set_moves_no_address() -> None:
    before = {machine.name: machine.address for machine in made().machines}
    sets = [{**SMALL["azure_machines"][0], "count": 5}, SMALL["azure_machines"][1]]
    after = {machine.name: machine.address for machine in made(azure_machines=sets).machines}
    assert after.items() >= before.items()
    assert before["etcd-1"] == "10.20.0.16"
    assert before["control-plane-3"] == "10.20.0.34"
