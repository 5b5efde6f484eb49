# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Following a deployment, with the SDK's own poller."""

from __future__ import annotations

import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from azure.core.exceptions import HttpResponseError
from azure.core.polling import LROPoller, PollingMethod

WANTED = Wanted("ironspan-test", "westeurope", {}, {}, stack=True, delete=False, deny={})


class FailsLater(PollingMethod[None]):
    """A deployment that fails while somebody waits for it."""

    def initialize(self, client: t.Any, initial_response: t.Any, deserialization_callback: t.Any) -> None:
        """Nothing to begin with."""

    def run(self) -> None:
        """Go on for a moment, and fail as Azure does."""
        time.sleep(0.05)
        raise HttpResponseError("(PrincipalNotFound) the principal is not there yet")

    def status(self) -> str:
        """Return how it goes."""
        return "Running"

    def finished(self) -> bool:
        """It never comes to an end well."""
        return False

    def resource(self) -> None:
        """Nothing comes of it."""


class Stacks:
    """Deployment stacks of a subscription that has none."""

    def begin_create_or_update_at_subscription(self, name: str, body: t.Any) -> LROPoller[None]:
        return LROPoller(None, None, lambda _: None, FailsLater())

    def get_at_subscription(self, name: str) -> None:
        return None


class Connection:
    """Hands out clients that all answer alike."""

    url = "https://management.example"
    deployment_stacks = Stacks()

    def client(self, *about: str, **options: t.Any) -> Connection:
        return self


def test_a_deployment_that_fails_while_it_is_waited_for_is_a_refusal() -> None:
    """`LROPoller.wait` raises what ended the operation only if that happens while it waits."""
    deployments = Deployments(t.cast(t.Any, Connection()), "subscription", pauses=())
    with pytest.raises(Refused, match="refused to deploy ironspan-test"):
        deployments.deploy(WANTED, lambda text: None)
