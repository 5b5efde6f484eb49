# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Objects of a controller of jobs (AWX, Ascender, AAP): templates, workflows, teams and so on.

What begins with the site's prefix and is not declared any more is removed, with consent. What else is in the
organization is named and left alone.
"""

from __future__ import annotations

import os
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import rendered, states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import (
    Api,
    ControllerError,
    token_of_environment,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.reading import Reader
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import (
    VARIABLES as SETTINGS,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import settings_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.shapes import BY_KIND, RIGHTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.writing import Writer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Effect, Found, State, Step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

HOST, CA_FILE, WRITE = "awx_host", "awx_ca_file", "ironspan_write_secrets"
VARIABLES = ("site", HOST, CA_FILE, *SETTINGS)
_CREATE, _CHANGE, _REMOVE, _SECRETS = "create", "change", "remove", "secrets"
_SHOWN = 8
_SECONDS = 2


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return all objects of the site's configuration.

    Raises:
        ControllerError: the inventory does not say where the playbooks are.
    """
    variables = _whole(variables)
    if not variables["awx_project_url"]:
        raise ControllerError(
            "the inventory does not say where the controller finds the playbooks",
            "write awx_project_url, the URL of the git repository",
        )
    settings = settings_of(variables, len(variables["site"].group("nodes")))
    made = states.wanted_states(rendered.rendered(settings, str(variables[HOST])))
    if value_of(arguments, WRITE):
        for state in made.values():
            if states.SECRETS in state:
                state["written"] = True
    return dict(made)


def opened(variables: Mapping[str, t.Any]) -> ControllerObjects:
    """Return the kind.

    Raises:
        ControllerError: neither its URL nor a token is known.
    """
    variables = _whole(variables)
    host = str(variables[HOST])
    if not host:
        raise ControllerError("the inventory does not say where the controller is", "write awx_host, its URL")
    api = Api(host, token_of_environment(), _ca_file(variables))
    return ControllerObjects(api, str(variables["awx_organization"]), str(variables["awx_prefix"]))


class ControllerObjects:
    """The kind.

    Args:
        api: of the controller.
        organization: whose objects are looked at.
        prefix: what the names of ours begin with.
    """

    name = "controller_object"
    consent = ""
    at_once = 1
    most_failures = 1

    def __init__(self, api: Api, organization: str, prefix: str) -> None:
        self._reader = Reader(api, organization)
        self._writer = Writer(api, self._reader, organization)
        self._prefix = prefix

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Look at every object that is wanted, and at what else the organization has.

        Raises:
            ControllerError: the controller does not answer, or a secret that will be needed is missing.
        """
        asked = {title: dict(state) for title, state in wanted.items() if state is not None}
        there = self._reader.states(asked)
        _insist_on_secrets(asked, there)
        found = {title: Found(state) for title, state in there.items()}
        others = []
        for shape, name in self._reader.more(wanted):
            title = f"{shape.kind} {name}"
            if name.startswith(f"{self._prefix} "):
                found[title] = Found({"object": shape.kind, "name": name})
            elif shape.within:
                others.append(title)
        for title in wanted.keys() - asked.keys():
            found.setdefault(title, Found(None))
        self._tell(found, wanted, others)
        return found

    @staticmethod
    def _tell(found: dict[str, Found], wanted: Mapping[str, State | None], others: list[str]) -> None:
        """Put what is left alone into the notes of the organization."""
        title = next((title for title in wanted if title.startswith("organization ")), "")
        if others and title in found:
            more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            note = f"not in the configuration, left alone: {', '.join(sorted(others)[:_SHOWN])}{more}"
            found[title] = Found(found[title].state, notes=(note,))

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps of one object."""
        if wanted is None:
            takes = [Step(_REMOVE, f"remove {name}", frozenset({"deletes"}), seconds=_SECONDS)]
            return takes if found else []
        if found is None:
            return [Step(_CREATE, f"create {name}", seconds=_SECONDS)]
        made = []
        if changed := _differing(wanted, found):
            lost = wanted["object"] == RIGHTS and {*found["rights"]} - {*wanted["rights"]}
            effects: frozenset[Effect] = frozenset({"takes_access"} if lost else ())
            made.append(Step(_CHANGE, f"change {name}: {', '.join(changed)}", effects, seconds=_SECONDS))
        if wanted.get("written"):
            made.append(Step(_SECRETS, f"write the secrets of {name}", seconds=_SECONDS))
        return made

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the object as it will be."""
        if wanted is None:
            return None
        return {key: value for key, value in wanted.items() if key not in (states.ENVIRONMENT, "written")}

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take one step. Raises ControllerError."""
        if wanted is None and found is not None:
            self._writer.remove(BY_KIND[str(found["object"])], str(found["name"]))
        elif wanted is not None:
            self._writer.bring(dict(wanted), say, secrets=step.verb == _SECRETS)

    def lane(self, name: str, wanted: State | None) -> str:
        """Return the same for all: what comes first is what the others refer to."""
        return ""


def _whole(variables: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables with the role's defaults, which a task does not have; all hosts have the same."""
    host = next(iter(variables["site"].hosts.values()))
    return {name: host.variables[name] for name in VARIABLES if name in host.variables} | dict(variables)


def _ca_file(variables: Mapping[str, t.Any]) -> str:
    file = str(variables.get(CA_FILE) or "")
    return str(Path(file).expanduser()) if file else ""


def _differing(wanted: State, found: State) -> list[str]:
    return [field for field in states.differing(wanted, found) if field != "written"]


def _insist_on_secrets(wanted: Mapping[str, State], there: Mapping[str, State]) -> None:
    """Refuse the whole before anything is made, where a secret would be missing in the middle."""
    if missing := sorted({*_missing(wanted, there)}):
        raise ControllerError(
            f"not set in the environment: {', '.join(missing)}", "set them to the secrets, and run this again"
        )


def _missing(wanted: Mapping[str, State], there: Mapping[str, State]) -> Iterator[str]:
    for title, state in wanted.items():
        found = there.get(title, {})
        needed = states.SECRETS in state and (
            state[states.SECRETS] != found.get(states.SECRETS) or state.get("written")
        )
        for entry in state.get(states.ENVIRONMENT, ()) if needed else ():
            name = entry.partition("=")[2]
            if not os.environ.get(name):
                yield f"{name} (for {title})"
