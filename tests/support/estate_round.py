# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What holds for an estate from its first plan to its end, in the emulated Azure and in a live one."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Outcome
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

Run = Callable[..., Outcome]
"""Brings the estate to what the data want: keywords are data, and ``check`` and ``allowed``."""
SPARE = {"name": "spare", "groups": ["nodes"], "count": 1}


def tagged(connection: Connection, subscription: str, site: str) -> set[str]:
    """Return the ids, in lower case, of the resources with a site's tag, as Azure lists them.

    Args:
        connection: how the resource manager is spoken to.
        subscription: its id.
        site: name of the site.
    """
    found = Rest(connection, subscription).listed(
        f"/subscriptions/{subscription}/resources",
        api_version("Microsoft.Resources"),
        "to list the resources of the site",
        **{"$filter": f"tagName eq '{SITE}' and tagValue eq '{site}'"},
    )
    return {str(one["id"]).lower() for one in found}


def delete(connection: Connection, subscription: str, stack: str) -> None:
    """Delete a deployment stack with all that it manages, and wait for it; one that is not there is well."""
    client = connection.client("azure.mgmt.resource.deploymentstacks", "DeploymentStacksClient", subscription)
    client.deployment_stacks.begin_delete_at_subscription(
        stack, unmanage_action_resources="delete", unmanage_action_resource_groups="delete"
    ).result()


def goes_round(run: Run, there: Callable[[], set[str]], machines: list[dict[str, t.Any]]) -> None:
    """Assert what holds from an empty subscription to an estate that changed once.

    Args:
        run: of the estate's kind.
        there: ids of the site's resources, in lower case.
        machines: of the data, without the one that comes and goes.
    """
    planned = run(check=True)
    assert planned.problems == []
    assert planned.done[-1].startswith("deploy ")
    assert there() == set()
    deployed = run()
    assert deployed.problems == []
    assert deployed.done == planned.done
    first = there()
    assert {f"/{one['name']}-1" for one in machines} <= {one[one.rindex("/") :] for one in first}
    again = run()
    assert (again.done, again.problems) == ([], [])
    more = [*machines, SPARE]
    assert run(azure_machines=more).problems == []
    assert [one for one in there() - first if one.endswith("/virtualmachines/spare-1")]
    with pytest.raises(RemoteError, match="need consent"):
        run(azure_unmanaged="delete")
    gone = run(azure_unmanaged="delete", allowed=True)
    assert gone.problems == []
    assert any(step.startswith("delete virtualMachines spare-1") for step in gone.done)
    assert there() == first
    assert run(azure_unmanaged="delete").done == []
