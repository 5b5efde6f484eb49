# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An estate of the smallest sizes in a real subscription, for tests that somebody asks for and pays for.

It has a name of its own, a tag that says when it may go, and a budget. ``python -m tests.support.live_azure``
lists what runs that were cut off have left, and deletes it with ``--delete``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import os
import secrets
import sys
import time
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection, connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import ask_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.azure_estate import declared
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support import estate_round
from tests.unit.doctor.samples import site_with

SUBSCRIPTION, REGION = "IRONSPAN_LIVE_AZURE", "IRONSPAN_LIVE_AZURE_REGION"
"""Environment: the subscription's id, without which nothing runs; the region, ``westeurope`` by default."""
BUDGET, EMAIL = "IRONSPAN_LIVE_AZURE_BUDGET", "IRONSPAN_LIVE_AZURE_EMAIL"
"""Environment: the budget, 20 of the subscription's currency by default, and who is told at half of it."""
PREFIX = "live-"
DELETE_AFTER = "ironspan-delete-after"
HOURS = 3
_GONE_S = 600
"""Seconds in which Azure's lists have forgotten what was deleted."""
_BUDGETS_API = "2023-11-01"
_BUDGETS = "providers/Microsoft.Consumption/budgets"
SIZE = "Standard_D2s_v5"
MACHINES: list[dict[str, t.Any]] = [
    {"name": "etcd", "count": 1, "size": SIZE, "os_disk_gib": 30},
    {"name": "control-plane", "groups": ["control_plane"], "count": 1, "size": SIZE, "os_disk_gib": 30},
]


@dataclasses.dataclass(frozen=True)
class Live:
    """One estate in a real subscription.

    Args:
        connection: as whoever is signed in to the Azure CLI.
        subscription: its id.
        site: name of the site, and of everything in Azure.
        data: variables of the site.
        every_s: seconds between two looks at what goes on.
    """

    connection: Connection
    subscription: str
    site: str
    data: dict[str, t.Any]
    every_s: float = 5.0

    @property
    def stack(self) -> str:
        """Name of the deployment stack."""
        return f"ironspan-{self.site}"

    def run(self, *, check: bool = False, allowed: bool = False, **more: t.Any) -> Outcome:
        """Bring the estate to what the data want, with more or other data."""
        kind = AzureEstate(self._deployments)
        wanted = declared({**self.data, **more}, {})
        return bring(kind, wanted, Consent(allowed), lambda text: print(f"  {text}", flush=True), check=check)

    def _deployments(self, subscription: str) -> Deployments:
        return Deployments(self.connection, subscription, every_s=self.every_s)

    def goes_the_whole_way(self) -> None:
        """Assert what holds from its first plan to a change and back, and what the doctor says of it."""
        estate_round.goes_round(self.run, self.there, MACHINES)
        asked = ask_estate(site_with(self.data), self._deployments)
        assert asked["state"]["changes"] == []
        assert asked["fault"] == ""

    @contextlib.contextmanager
    def standing(self) -> Iterator[Live]:
        """Give it a budget; whatever comes of it is deleted."""
        print(
            f"\n{self.stack} in {self.subscription}: if this run is cut off, delete it (docs/azure-live.md)"
        )
        self.limit()
        try:
            yield self
        finally:
            self.delete()
            until = time.monotonic() + _GONE_S
            while (there := self.there()) and time.monotonic() < until:
                time.sleep(3 * self.every_s)
            assert there == set()

    def there(self) -> set[str]:
        """Return the ids of its resources."""
        return estate_round.tagged(self.connection, self.subscription, self.site)

    def delete(self) -> None:
        """Delete all of it, the budget too."""
        estate_round.delete(self.connection, self.subscription, self.stack)
        self._budget("DELETE", {})

    def limit(self) -> None:
        """Have Azure watch what it costs. A budget tells somebody; it stops nothing."""
        today = datetime.datetime.now(datetime.UTC).date()
        body: dict[str, t.Any] = {
            "properties": {
                "category": "Cost",
                "amount": float(os.environ.get(BUDGET) or 20),
                "timeGrain": "Monthly",
                "timePeriod": {
                    "startDate": f"{today.replace(day=1)}T00:00:00Z",
                    "endDate": f"{today + datetime.timedelta(days=62)}T00:00:00Z",
                },
                "filter": {"tags": {"name": SITE, "operator": "In", "values": [self.site]}},
            }
        }
        if email := os.environ.get(EMAIL):
            body["properties"]["notifications"] = {
                "half": {
                    "enabled": True,
                    "operator": "GreaterThan",
                    "threshold": 50,
                    "contactEmails": [email],
                }
            }
        self._budget("PUT", body)

    def _budget(self, method: str, body: dict[str, t.Any]) -> None:
        from azure.core.rest import HttpRequest

        rest = Rest(self.connection, self.subscription)
        url = f"{self.connection.url}/subscriptions/{self.subscription}/{_BUDGETS}/{self.stack}"
        request = HttpRequest(method, url, params={"api-version": _BUDGETS_API}, json=body)
        answer = rest.client.send_request(request)
        if answer.status_code not in (200, 201, 204, 404):
            raise RuntimeError(f"Azure refused the budget {self.stack}: {answer.text()[:300]}")


def connected() -> Connection:
    """Return how Azure is spoken to: as whoever ran ``az login``."""
    return connection({"kind": "azure_cli"})


def made(every_s: float = 5.0) -> Live:
    """Return an estate that nothing is made of yet.

    Args:
        every_s: seconds between two looks at what goes on.
    """
    subscription, region = os.environ[SUBSCRIPTION], os.environ.get(REGION) or "westeurope"
    found = connected()
    rest = Rest(found, subscription)
    version = api_version("Microsoft.Resources")
    about = rest.get(f"/subscriptions/{subscription}", version, "to show the subscription")
    if about is None:
        raise RemoteError(f"there is no subscription {subscription}", f"correct {SUBSCRIPTION}, or az login")
    site = f"{PREFIX}{secrets.token_hex(3)}"
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=HOURS)
    data = {
        "site_name": site,
        "site_api_endpoint": f"api.{site}.internal:6443",
        "site_api_address": "10.20.0.10",
        "azure_subscription": subscription,
        "azure_tenant": about["tenantId"],
        "azure_region": region,
        "azure_address_space": "10.20.0.0/20",
        "azure_rack_networks": ["10.30.0.0/16"],
        "azure_administrator_networks": ["10.31.0.0/24"],
        "azure_authorized_keys": [_public_key()],
        "azure_image": {"version": _newest(rest, region)},
        "azure_machines": MACHINES,
        "azure_tags": {DELETE_AFTER: f"{ends:%Y-%m-%dT%H.%MZ}"},
        # The feature has to be registered in a subscription, and a vault keeps its name for 90 days.
        "azure_encryption_at_host": False,
        "azure_vault": {"keys": []},
        "azure_backup": {"container": "etcd", "redundancy": "LRS"},
    }
    return Live(found, subscription, site, data, every_s)


def _public_key() -> str:
    """Return a public key of which nobody has the private one: nobody logs in."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    form = serialization.PublicFormat.OpenSSH
    return f"{key.public_bytes(serialization.Encoding.OpenSSH, form).decode()} nobody"


def _newest(rest: Rest, region: str) -> str:
    """Return the newest version of the image that an estate has by default."""
    place = f"/subscriptions/{rest.subscription}/providers/Microsoft.Compute/locations/{region}"
    path = f"{place}/publishers/Canonical/artifacttypes/vmimage/offers/ubuntu-24_04-lts/skus/server/versions"
    query = {"$orderby": "name desc", "$top": "1"}
    found = rest.get(path, "2024-07-01", "to list the versions of the image", **query)
    return str(found[0]["name"])


def left(found: Connection, subscription: str) -> list[str]:
    """Return the names of stacks that runs have left."""
    client = found.client("azure.mgmt.resource.deploymentstacks", "DeploymentStacksClient", subscription)
    names = [str(one.name) for one in client.deployment_stacks.list_at_subscription()]
    return [name for name in names if name.startswith(f"ironspan-{PREFIX}")]


def main(arguments: list[str] | None = None) -> int:
    """List, or delete, what is left; return the exit code: 1 when something is left."""
    parser = argparse.ArgumentParser(description="Estates that live tests left in a subscription.")
    parser.add_argument("--delete", action="store_true", help="delete them, with everything in them")
    options = parser.parse_args(arguments)
    subscription = os.environ.get(SUBSCRIPTION)
    if not subscription:
        sys.stderr.write(f"write the subscription's id into {SUBSCRIPTION}\n")
        return 2
    found = connected()
    names = left(found, subscription)
    for name in names:
        sys.stdout.write(f"{name}\n")
        if options.delete:
            Live(found, subscription, name.removeprefix("ironspan-"), {}).delete()
    return int(bool(names) and not options.delete)


if __name__ == "__main__":
    sys.exit(main())
