# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind of a site's estate in Azure: compared by what-if, deployed as one template."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import (
    effects,
    estate_steps,
    preflight,
    templates,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import (
    Standing,
    Wanted,
    digest_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import DIGEST, SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import Change, Foreseen
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Found,
    RemoteError,
    State,
    Step,
)

Connect = Callable[[str], Deployments]
_NEW = "its resource provider is not registered yet"


class AzureEstate:
    """The kind.

    Args:
        connect: returns the deployments of a subscription.
    """

    name = "azure_estate"
    consent = ""
    at_once = 1
    most_failures = 0

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._opened: dict[str, Deployments] = {}
        self._deployed: set[str] = set()

    def _api(self, wanted: State) -> Deployments:
        subscription = str(wanted["subscription"])
        if subscription not in self._opened:
            self._opened[subscription] = self._connect(subscription)
        return self._opened[subscription]

    # ---- compare

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Ask how each estate stands and what deploying it would change.

        Raises:
            RemoteError: Azure cannot be asked, or a template is not the one of its digest.
        """
        return {name: self._found(state) for name, state in wanted.items() if state is not None}

    def _found(self, state: State) -> Found:
        if digest_of(state["template"]) != state["digest"]:
            raise RemoteError("the template is not the one that its digest names", "make a new plan")
        api, unmanaged = self._api(state), state["unmanaged"] == "delete"
        if wrong := preflight.subscription_problems(api.rest, str(state["tenant"])):
            return Found(None, fault="; ".join(wrong))
        wanted = wanted_of(state, delete=unmanaged)
        standing = api.standing(wanted)
        identity = standing.identity if standing else ""
        if standing and standing.running:
            return _of_running(standing, state, identity)
        problems: list[str] = []
        try:
            foreseen = api.foreseen(wanted)
        except Refused as refused:
            foreseen = Foreseen()
            problems += [one.text() for one in refused.said if one.code.lower() != preflight.UNREGISTERED]
            if not problems:
                # Azure foresees nothing of what it is not used for yet: all of it is new to it.
                ids = templates.by_id(wanted.template, f"/subscriptions/{api.rest.subscription}")
                foreseen = Foreseen(tuple(Change(one, "unsupported", reason=_NEW) for one in ids))
        changes = [one for one in foreseen.changes if one.type.lower() != "microsoft.resources/deployments"]
        found: dict[str, t.Any] = {
            "exists": standing is not None,
            "state": standing.state if standing else "",
            "modified": standing.modified if standing else "",
            "digest": standing.digest if standing else "",
            "changes": [one.as_dict() for one in changes],
        }
        notes = [*estate_steps.notes(foreseen, changes, standing), *map(str, state["facts"])]
        problems += effects.impossible(changes, state["template"])
        unfinished = standing is None or standing.state != "succeeded"
        if unfinished or problems or any(one.kind in ("create", "modify", "delete") for one in changes):
            created = [one.id for one in changes if one.kind == "create"]
            if standing is None and problems:
                created = list(templates.by_id(wanted.template, f"/subscriptions/{api.rest.subscription}"))
            deletes = any(one.kind == "delete" for one in changes)
            looked = preflight.examined(api, wanted, created, state["needs"], deletes)
            problems += looked.problems
            notes += looked.notes
            found["unregistered"] = list(looked.unregistered)
        if not wanted.stack:
            notes += [
                f"left the data, and stays in Azure: {one}"
                for one in preflight.left_behind(api.rest, wanted, str(state["site"]))
            ]
        if problems:
            said = "; ".join(dict.fromkeys(problems))
            return Found(found, identity, f"nothing is deployed: {said}", tuple(notes))
        return Found(found, identity, "", tuple(notes))

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Return what deploying does, named, and the deployment itself."""
        if wanted is None or found is None:
            return []
        return estate_steps.steps(str(wanted["deployment"]), str(wanted["digest"]), found)

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the estate without a difference; when it will have been changed nobody knows yet."""
        if wanted is None:
            return found
        return {"exists": True, "state": "succeeded", "digest": wanted["digest"], "changes": []}

    # ---- do

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Register a provider, or deploy; what else the steps name, the deployment does in one go.

        Raises:
            RemoteError: it did not come about, or something moved since it was compared.
        """
        if wanted is None or found is None or name in self._deployed:
            return
        api = self._api(wanted)
        if step.verb.startswith(f"{estate_steps.REGISTER} "):
            api.register(step.verb.removeprefix(f"{estate_steps.REGISTER} "), say)
            return
        deletes = {str(one["id"]).lower() for one in found.get("changes", ()) if one["change"] == "delete"}
        chosen = wanted_of(wanted, delete=bool(deletes))
        standing = api.standing(chosen)
        if standing and standing.running:
            if standing.digest != wanted["digest"]:
                raise RemoteError(f"somebody else deploys {chosen.name} just now", "run it again later")
            standing = api.follow(chosen, say)
            foreseen = api.foreseen(wanted_of(wanted, delete=wanted["unmanaged"] == "delete"))
            _insist_on_named(foreseen.changes, deletes)
            if not foreseen.changes and standing and standing.state == "succeeded":
                self._deployed.add(name)
                return
        elif (standing.modified if standing else "") != found["modified"]:
            raise RemoteError(
                f"{chosen.name} was deployed by somebody else since it was compared", "run it again"
            )
        api.deploy(chosen, say)
        self._deployed.add(name)

    def lane(self, name: str, wanted: State | None) -> str:
        """Return the subscription: one deployment at a time."""
        return str(wanted["subscription"]) if wanted else name


def wanted_of(state: State, *, delete: bool) -> Wanted:
    """Return the deployment of a wanted state.

    Args:
        state: as ``declared`` makes it.
        delete: whether what left the template is deleted.
    """
    return Wanted(
        str(state["deployment"]),
        str(state["region"]),
        state["template"],
        {SITE: str(state["site"]), DIGEST: str(state["digest"])},
        state["how"] == "stack",
        delete,
        state["deny"],
    )


def _insist_on_named(changes: Iterable[Change], named: set[str]) -> None:
    more = [
        estate_steps.called(one) for one in changes if one.kind == "delete" and one.id.lower() not in named
    ]
    if more:
        raise RemoteError(
            f"deploying would delete what no plan names by now: {', '.join(more)}", "make a new plan"
        )


def _of_running(standing: Standing, state: State, identity: str) -> Found:
    if standing.digest != state["digest"]:
        since = f" since {standing.modified}" if standing.modified else ""
        return Found(
            {"running": True, "digest": standing.digest},
            identity,
            f"another template is being deployed (state {standing.state}{since}); run it again afterwards",
        )
    return Found({"running": True, "digest": standing.digest, "changes": []}, identity)
