# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a controller has: objects of one organization, in the form of what is wanted."""

from __future__ import annotations

import concurrent.futures
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api, ControllerError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.shapes import (
    BY_KIND,
    OTHERS,
    RIGHTS,
    SHAPES,
    Shape,
    path_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.states import State

Content = Mapping[str, t.Any]
AT_ONCE = 8
"""How many questions are asked at the same time."""
_EMPTY: Content = {}


class Reader:
    """One look at a controller; what it says of names is kept.

    Args:
        api: of the controller.
        organization: whose objects are looked at.
    """

    def __init__(self, api: Api, organization: str) -> None:
        self.api = api
        self._organization = organization
        self._listed: dict[str, dict[str, Content]] = {}

    def everything(self, shape: Shape) -> dict[str, Content]:
        """Return the objects of a kind in the organization by name, asked for once.

        Raises:
            ControllerError: it does not answer.
        """
        if shape.kind not in self._listed:
            query = {shape.within: self._organization} if shape.within else {"managed": "false"}
            entries = self.api.listed(f"{shape.path}/", order_by="id", **query)
            self._listed[shape.kind] = {str(entry["name"]): entry for entry in entries}
        return self._listed[shape.kind]

    def read(self, shape: Shape, name: str) -> Content | None:
        """Return an object as it is now, None when it is not there; asks again each time."""
        query = {shape.within: self._organization} if shape.within else {}
        if shape.within != "name":
            query["name"] = name
        found = next(self.api.listed(f"{shape.path}/", **query), None)
        if found:
            self._listed.setdefault(shape.kind, {})[name] = found
        return found

    def number(self, kind: str, name: str) -> int:
        """Return the number of an object that another one refers to.

        Raises:
            ControllerError: there is none, or there are several.
        """
        if kind in BY_KIND and name in self._listed.get(kind, ()):
            return int(self._listed[kind][name]["id"])
        query: dict[str, t.Any] = {"name": name}
        if kind in BY_KIND and kind != "credential type" and kind != "credential":
            query[BY_KIND[kind].within] = self._organization
        elif kind == "template":
            query["organization__name"] = self._organization
        found = list(self.api.listed(f"{path_of(kind)}/", **query))
        if kind == "credential":
            ours = [entry for entry in found if self._is_ours(entry)]
            found = ours or found
        if len(found) != 1:
            many = f"there are {len(found)} of that name" if found else "there is none"
            where = "make it" if not found else "rename all but one"
            what = kind if kind not in OTHERS else f"{kind} (of this controller)"
            raise ControllerError(
                f"{what} {name!r}: {many}", f"{where} in the controller, or correct the name"
            )
        return int(found[0]["id"])

    def _is_ours(self, entry: Content) -> bool:
        organization = (entry.get("summary_fields") or {}).get("organization") or {}
        return bool(organization.get("name") == self._organization)

    def states(self, wanted: Mapping[str, State]) -> dict[str, State]:
        """Return those of the wanted objects that are there, each in the form of what is wanted."""
        there: list[tuple[str, Shape, State, Content]] = []
        for title, state in wanted.items():
            if state["object"] == RIGHTS:
                continue
            shape = BY_KIND[state["object"]]
            name = self._organization if shape.within == "name" else state["name"]
            if entry := self.everything(shape).get(name):
                there.append((title, shape, state, entry))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            made = pool.map(lambda one: self.state(*one[1:]), there)
            found = dict(zip((one[0] for one in there), made, strict=True))
        rights = {title: state for title, state in wanted.items() if state["object"] == RIGHTS}
        return {**found, **dict(self._rights(rights))}

    def _rights(self, wanted: Mapping[str, State]) -> Iterator[tuple[str, State]]:
        teams = self.everything(BY_KIND["team"])
        for title, state in wanted.items():
            team = teams.get(state["name"])
            if team:
                yield title, {**state, "rights": self.rights(int(team["id"]))}

    def rights(self, team: int) -> list[str]:
        """Return what a team may."""
        return states.rights_of(self.api.listed(f"teams/{team}/roles/"))

    def state(self, shape: Shape, wanted: State, there: Content) -> State:
        """Return one object in the form of what is wanted of it, with what lies beside it."""
        number = there["id"]
        lists = {field: self.names(shape, number, field, there) for field in shape.lists if field in wanted}
        survey = nodes = None
        if "survey" in wanted and there.get("survey_enabled"):
            survey = self.api.get(f"{shape.path}/{number}/survey_spec/")
        if "nodes" in wanted:
            nodes = self.nodes(number)
        found = states.found_state(shape, wanted, {**there, **lists}, survey, nodes)
        return {**found, "name": wanted["name"]}

    def names(self, shape: Shape, number: int, field: str, there: Content = _EMPTY) -> list[str]:
        """Return the names of the objects that are associated with one."""
        listed = (there.get("summary_fields") or {}).get(field)
        if isinstance(listed, list) and field == "credentials":
            return [str(entry["name"]) for entry in listed]
        if isinstance(listed, dict) and listed.get("count", 99) == len(listed.get("results", ())):
            return [str(entry["name"]) for entry in listed["results"]]
        return [str(entry["name"]) for entry in self.api.listed(f"{shape.path}/{number}/{field}/")]

    def nodes(self, workflow: int) -> list[State]:
        """Return the nodes of a workflow."""
        return states.found_nodes(*self.raw_nodes(workflow))

    def raw_nodes(self, workflow: int) -> tuple[list[Content], dict[int, Content]]:
        """Return the nodes of a workflow as the API has them, and its approval templates by number."""
        nodes: list[Content] = list(
            self.api.listed(f"workflow_job_templates/{workflow}/workflow_nodes/", order_by="id")
        )
        approvals: dict[int, Content] = {}
        for node in nodes:
            summary = (node.get("summary_fields") or {}).get("unified_job_template") or {}
            if summary.get("unified_job_type") == "workflow_approval":
                number = int(node["unified_job_template"])
                approvals[number] = self.api.get(f"workflow_approval_templates/{number}/")
        return nodes, approvals

    def more(self, wanted: Mapping[str, t.Any]) -> Iterator[tuple[Shape, str]]:
        """Yield the objects of the organization that nobody wants, by shape and name."""
        for shape in SHAPES:
            if shape.removed:
                for name in self.everything(shape):
                    if f"{shape.kind} {name}" not in wanted:
                        yield shape, name
