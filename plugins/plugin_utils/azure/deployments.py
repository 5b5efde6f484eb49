# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Deploys one template to a subscription, as a deployment stack or plainly, and asks what that would change.

Azure's resource manager does the ordering and what is done side by side. A deployment that is begun goes on
without the controller: whoever comes next follows it.
"""

from __future__ import annotations

import contextlib
import time
import typing as t
import uuid
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import progress, templates, whatif
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import (
    UNPROVEN,
    Refused,
    Said,
    asked,
    leaves,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection, sdk
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import (
    Json,
    Standing,
    Wanted,
    plain_body,
    stack_body,
    standing_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

Say = Callable[[str], None]
_LIMIT_S = 90 * 60
"""A VPN gateway takes 30 to 45 minutes; twice that."""
_REGISTERED_S = 15 * 60
_PAUSES = (2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 240.0)
"""Seconds between attempts. Role assignments take up to ten minutes to be seen everywhere."""
_KEPT = "PT2H"
"""How long Azure keeps the result of a what-if that nobody deletes; up to three hours it does so itself."""


class Deployments:
    """Deployments of one subscription.

    Args:
        connection: how the resource manager is spoken to.
        subscription: its id.
        every_s: seconds between two looks at what goes on, where Azure does not say when to look again.
        pauses: seconds to wait before the second, third, ... attempt at what may succeed a little later.
        limit_s: seconds after which a deployment is not followed any more.
    """

    def __init__(
        self,
        connection: Connection,
        subscription: str,
        every_s: float = 5.0,
        pauses: t.Sequence[float] = _PAUSES,
        limit_s: float = _LIMIT_S,
    ) -> None:
        self.subscription = subscription
        self._every_s, self._pauses, self._limit_s = every_s, tuple(pauses), limit_s
        options = {"polling_interval": every_s}
        package = "azure.mgmt.resource"
        self._plain = connection.client(
            f"{package}.deployments", "DeploymentsMgmtClient", subscription, **options
        )
        self._stacks = connection.client(
            f"{package}.deploymentstacks", "DeploymentStacksClient", subscription, **options
        )
        self.rest = Rest(connection, subscription)

    # ---- what is there

    def standing(self, wanted: Wanted) -> Standing | None:
        """Return how a deployment stands, None when it was never made. Raises Refused."""
        what = f"to show the deployment {wanted.name}"
        if wanted.stack:
            stacks = self._stacks.deployment_stacks
            found = asked(what, lambda: stacks.get_at_subscription(wanted.name))
        else:
            found = asked(what, lambda: self._plain.deployments.get_at_subscription_scope(wanted.name))
        return None if found is None else standing_of(found.as_dict(), wanted)

    # ---- what would become of it

    def foreseen(self, wanted: Wanted) -> whatif.Foreseen:
        """Return what deploying would change. Raises Refused."""
        what = f"to foresee what deploying {wanted.name} changes"
        if not wanted.stack:
            properties = {"mode": "Incremental", "template": wanted.template}
            body: Json = {
                "location": wanted.region,
                "properties": {**properties, "whatIfSettings": {"resultFormat": "FullResourcePayloads"}},
            }
            begin = self._plain.deployments.begin_what_if_at_subscription_scope
            answer = asked(what, lambda: begin(wanted.name, body).result()).as_dict()
            if error := answer.get("error"):
                raise Refused(what, leaves(error))
            return whatif.of_deployment(answer)
        results = self._stacks.deployment_stacks_what_if_results_at_subscription
        name = f"{wanted.name[:48]}-{uuid.uuid4().hex[:12]}"
        stack = f"/subscriptions/{self.subscription}/providers/Microsoft.Resources/deploymentStacks"
        body = {
            **stack_body(wanted),
            "properties": {
                **stack_body(wanted)["properties"],
                "deploymentStackResourceId": f"{stack}/{wanted.name}",
                "retentionInterval": _KEPT,
            },
        }
        answer = asked(what, lambda: results.begin_create_or_update(name, body).result()).as_dict()
        if whatif.of_stack(answer).changes:
            # Which resources is known so far; this asks which of their properties.
            answer = asked(what, lambda: results.begin_what_if(name).result()).as_dict()
        asked(what, lambda: results.delete(name))
        if error := (answer.get("properties") or {}).get("error"):
            raise Refused(what, leaves(error))
        return whatif.of_stack(answer)

    def validated(self, wanted: Wanted) -> list[Said]:
        """Return what Azure finds wrong with a template before it deploys anything.

        Raises:
            RemoteError: it could not be asked.
        """
        what = f"to validate {wanted.name}"
        try:
            if wanted.stack:
                begin = self._stacks.deployment_stacks.begin_validate_stack_at_subscription
                answer = asked(what, lambda: begin(wanted.name, stack_body(wanted)).result())
            else:
                begin = self._plain.deployments.begin_validate_at_subscription_scope
                answer = asked(what, lambda: begin(wanted.name, plain_body(wanted)).result())
        except Refused as refused:
            return list(refused.said)
        return leaves((answer.as_dict() if answer else {}).get("error"))

    # ---- doing it

    def deploy(self, wanted: Wanted, say: Say) -> None:
        """Deploy, and wait until it is done; what may succeed a little later is tried again.

        Args:
            wanted: what.
            say: told how far it is.

        Raises:
            RemoteError: it did not come about.
        """
        for pause in (*self._pauses, None):
            try:
                return self._deploy_once(wanted, say)
            except Refused as refused:
                late = refused.status != 403 and refused.codes and refused.codes <= UNPROVEN
                if pause is None or not (refused.transient or late):
                    raise
                say(f"{refused.said[0].code}: once more in {pause:.0f} s")
            self._follow_the_running(wanted, say)
            time.sleep(pause)
        return None

    def follow(self, wanted: Wanted, say: Say) -> Standing | None:
        """Wait until nothing goes on, and return how the deployment stands then.

        Raises:
            RemoteError: it takes too long, or Azure does not say.
        """
        begun = time.monotonic()
        standing = self.standing(wanted)
        while standing and standing.running:
            self._insist_on_time(wanted, begun)
            say(self._progress(standing, wanted))
            time.sleep(self._every_s)
            standing = self.standing(wanted)
        return standing

    def register(self, namespace: str, say: Say) -> None:
        """Have the subscription use a resource provider, and wait until it does.

        Raises:
            RemoteError: it does not come about.
        """
        providers = self.rest.client.providers
        what = f"to register the resource provider {namespace}"
        found = asked(what, lambda: providers.register(namespace))
        begun = time.monotonic()
        while found is not None and str(found.registration_state).lower() != "registered":
            if time.monotonic() - begun > _REGISTERED_S:
                raise RemoteError(f"{namespace} is still {found.registration_state}", "run it again later")
            say(f"{namespace} is {found.registration_state}")
            time.sleep(self._every_s)
            found = asked(what, lambda: providers.get(namespace))

    def _follow_the_running(self, wanted: Wanted, say: Say) -> None:
        standing = self.standing(wanted)
        if standing and standing.running:
            self.follow(wanted, say)

    def _deploy_once(self, wanted: Wanted, say: Say) -> None:
        what = f"to deploy {wanted.name}"
        if wanted.stack:
            begin = self._stacks.deployment_stacks.begin_create_or_update_at_subscription
            poller = asked(what, lambda: begin(wanted.name, stack_body(wanted)))
        else:
            begin = self._plain.deployments.begin_create_or_update_at_subscription_scope
            poller = asked(what, lambda: begin(wanted.name, plain_body(wanted)))
        begun = time.monotonic()
        while not poller.done():
            # It raises what ended the deployment meanwhile; the result below does so again, and is read.
            with contextlib.suppress(sdk("azure.core.exceptions").AzureError):
                poller.wait(self._every_s)
            self._insist_on_time(wanted, begun)
            if not poller.done():
                say(self._progress(self._seen(wanted), wanted))
        try:
            asked(what, poller.result)
        except Refused as refused:
            standing = self._seen(wanted)
            said = dict.fromkeys((*refused.said, *(standing.said if standing else ())))
            raise Refused(what, leaves([one._asdict() for one in said]), refused.status) from None
        standing = self.standing(wanted)
        if standing is None or standing.state != "succeeded":
            raise Refused(
                what, (standing.said if standing else ()) or [Said("Failed", "it has not succeeded")]
            )

    def _insist_on_time(self, wanted: Wanted, begun: float) -> None:
        if time.monotonic() - begun > self._limit_s:
            raise RemoteError(
                f"{wanted.name} still runs after {self._limit_s / 60:.0f} minutes, and goes on in Azure",
                "run it again: it follows what runs",
            )

    def _seen(self, wanted: Wanted) -> Standing | None:
        """Return how a deployment stands, None also when Azure does not say just now."""
        try:
            return self.standing(wanted)
        except RemoteError:
            return None

    def _progress(self, standing: Standing | None, wanted: Wanted) -> str:
        if standing is None or not standing.deployment:
            return "begun"
        listing = self._plain.deployment_operations
        try:
            top = [one.as_dict() for one in listing.list_at_subscription_scope(standing.deployment)]
            below = [
                one.as_dict()
                for group, name in progress.inner_deployments(top)
                for one in listing.list(group, name)
            ]
        except sdk("azure.core.exceptions").AzureError:
            return standing.state
        return progress.text([*top, *below], sum(1 for _ in templates.resources(wanted.template)))
