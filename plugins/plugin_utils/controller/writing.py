# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes one object of a controller as it is wanted, whatever a killed run has left of it."""

from __future__ import annotations

import json
import os
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import (
    Api,
    ControllerError,
    Refused,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.nodes import NodeWriter
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.reading import Reader
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.shapes import BY_KIND, RIGHTS, Shape

Content = dict[str, t.Any]
SYNC_S, PAUSE_S = 600.0, 2.0
"""For how long a project may be read for the first time, and how often it is asked about."""
_GOING_ON = ("new", "pending", "waiting", "running")


class Writer:
    """Writes objects.

    Args:
        api: of the controller.
        reader: of the same; what was written is known to it then.
        organization: that the objects belong to.
        sleep: waits some seconds.
    """

    def __init__(
        self, api: Api, reader: Reader, organization: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._api, self._reader, self._organization, self._sleep = api, reader, organization, sleep
        self._nodes = NodeWriter(api, reader)

    def bring(self, wanted: states.State, say: Callable[[str], None], *, secrets: bool = False) -> None:
        """Make an object as it is wanted.

        Args:
            wanted: its state.
            say: told what is waited for.
            secrets: write its secrets, also where there are some.

        Raises:
            ControllerError: the controller refuses.
        """
        if wanted["object"] == RIGHTS:
            self._grant(wanted)
            return
        shape = BY_KIND[wanted["object"]]
        name = self._organization if shape.within == "name" else wanted["name"]
        there = self._reader.read(shape, name)
        if there is None:
            body = {"name": name, **self._body(shape, wanted, [*wanted], secrets=True)}
            made = self._api.post(f"{shape.path}/", body)
            there = self._reader.read(shape, name) or made
        else:
            found = self._reader.state(shape, wanted, there)
            changed = states.differing(wanted, found)
            body = self._body(shape, wanted, changed, secrets=secrets)
            if body:
                self._api.patch(f"{shape.path}/{there['id']}/", body)
        self._beside(shape, wanted, there)
        if shape.kind == "project":
            self._wait(int(there["id"]), say)

    def _beside(self, shape: Shape, wanted: states.State, there: Mapping[str, t.Any]) -> None:
        number = int(there["id"])
        for field, kind in shape.lists.items():
            if field in wanted:
                self._associate(shape, number, field, kind, wanted[field])
        if "survey" in wanted:
            self._survey(f"{shape.path}/{number}/survey_spec/", states.value_of_lines(wanted["survey"]))
        if "nodes" in wanted:
            self._nodes.bring(number, states.value_of_lines(wanted["nodes"]))

    def _body(self, shape: Shape, wanted: states.State, fields: list[str], *, secrets: bool) -> Content:
        """Return what is sent of an object: the fields that are asked for, numbers in the place of names."""
        body: Content = {}
        held = next((name for name in ("inputs", "notification_configuration") if name in wanted), "")
        for field in (*shape.fields, *shape.texts):
            if field in fields or (field == held and (secrets or states.SECRETS in fields)):
                value = wanted[field]
                parsed = states.value_of_lines(value) if isinstance(value, list) else value
                body[field] = json.dumps(parsed, sort_keys=True) if field in shape.texts else parsed
        for field, kind in shape.references.items():
            if f"{field}_name" in fields:
                body[field] = self._reader.number(kind, wanted[f"{field}_name"])
        if held in body and states.SECRETS in wanted:
            write = secrets or states.SECRETS in fields
            body[held] = {**body[held], **_secrets(wanted, write)}
        return body

    def _associate(self, shape: Shape, number: int, field: str, kind: str, names: list[str]) -> None:
        path = f"{shape.path}/{number}/{field}/"
        found = self._reader.names(shape, number, field)
        if field == "instance_groups" and found != names:
            # They have an order, which is that of their coming.
            leaving, coming = found, names
        else:
            leaving = [name for name in found if name not in names]
            coming = [name for name in names if name not in found]
        for name in leaving:
            self._api.post(path, {"id": self._reader.number(kind, name), "disassociate": True})
        for name in coming:
            self._api.post(path, {"id": self._reader.number(kind, name)})

    def _survey(self, path: str, survey: Content) -> None:
        found = self._api.get(path)
        if survey and found != survey:
            self._api.post(path, survey)
        elif found and not survey:
            self._api.delete(path)

    def _wait(self, project: int, say: Callable[[str], None]) -> None:
        """Wait until a project was read: no template may name a playbook before."""
        asked, until = False, time.monotonic() + SYNC_S
        while True:
            there = self._api.get(f"projects/{project}/")
            status = str(there.get("status", ""))
            if status in ("successful", "ok"):
                return
            if status not in _GOING_ON and not asked:
                asked = True
                self._api.post(f"projects/{project}/update/", {})
            elif status not in _GOING_ON:
                raise ControllerError(
                    f"the project {there['name']} could not be read from git ({status})",
                    "look at its last update in the controller: URL, branch, credential, signature",
                )
            if time.monotonic() > until:
                raise ControllerError(
                    f"the project {there['name']} is still being read after {SYNC_S:.0f} s",
                    "run this again once it is",
                )
            say(f"the project is read from git ({status})")
            self._sleep(PAUSE_S)

    def _grant(self, wanted: states.State) -> None:
        """Give a team what it shall have, and take what it shall not."""
        team = self._reader.number("team", wanted["name"])
        found = dict(self._roles(team))
        for right in wanted["rights"]:
            if right not in found:
                self._api.post(f"teams/{team}/roles/", {"id": self._role(right)})
        for right, number in found.items():
            if right not in wanted["rights"]:
                self._api.post(f"teams/{team}/roles/", {"id": number, "disassociate": True})

    def _roles(self, team: int) -> t.Iterator[tuple[str, int]]:
        for role in self._api.listed(f"teams/{team}/roles/"):
            for right in states.rights_of([role]):
                yield right, int(role["id"])

    def _role(self, right: str) -> int:
        role, _, target = right.partition(": ")
        kind, name = next(
            (kind, target.removeprefix(f"{kind} "))
            for kind in ("job template", "workflow", "organization")
            if target.startswith(f"{kind} ")
        )
        there = self._reader.everything(BY_KIND[kind]).get(name) or self._reader.read(BY_KIND[kind], name)
        roles = ((there or {}).get("summary_fields") or {}).get("object_roles") or {}
        if f"{role}_role" not in roles:
            raise ControllerError(
                f"the controller has no role {role} of {kind} {name}", "run this again; it may be new"
            )
        return int(roles[f"{role}_role"]["id"])

    def remove(self, shape: Shape, name: str) -> None:
        """Remove an object; that it is gone already is well."""
        there = self._reader.read(shape, name)
        if there is None:
            return
        try:
            self._api.delete(f"{shape.path}/{there['id']}/")
        except Refused as error:
            if error.status == 409:
                raise ControllerError(
                    f"{shape.kind} {name} has jobs that are running", "wait for them, and run this again"
                ) from error
            if error.status != 404:
                raise


def _secrets(wanted: states.State, write: bool) -> dict[str, str]:
    """Return the secrets of an object: those of the environment, or that it keeps those that it has."""
    pairs = dict(entry.split("=", 1) for entry in wanted[states.ENVIRONMENT])
    if not write:
        return dict.fromkeys(pairs, states.ENCRYPTED)
    return {key: os.environ[name] for key, name in pairs.items()}
