# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether what is about to be done in the cluster is what the plan lists.

A plan has the objects to apply, and the list of what they change, which is what people read and sign. Neither
is taken for the other: the API is asked once more what would change, and each change must be on the list.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import CLUSTER_OBJECT

Content = dict[str, t.Any]
Delta = tuple[str, ...]
REMOVED = "nothing declares it any more\n"
"""What stands before a removal in the list, which has no text after it."""
OBJECT, NODE = "object", "node"


class Change(t.Protocol):
    """What a dry run says of one object."""

    @property
    def name(self) -> str:
        """Kind and name."""

    @property
    def after(self) -> Content:
        """The object as it would be."""


class NodeChange(t.Protocol):
    """What a dry run says of one node: labels and taints that differ."""

    @property
    def node(self) -> str:
        """Its name."""

    @property
    def before(self) -> Content:
        """Labels and taints now."""

    @property
    def after(self) -> Content:
        """Labels and taints as they would be."""


class Gone(t.Protocol):
    """An object that a layer made and does not declare any more."""

    @property
    def layer(self) -> str:
        """The layer."""

    @property
    def title(self) -> str:
        """Kind, namespace and name."""

    @property
    def uid(self) -> str:
        """What no other object ever has."""

    @property
    def loss(self) -> str:
        """What goes with it: ``data``, ``access`` or nothing."""


def entry(kind: str, name: str, before: Content, after: Content) -> Content:
    """Return a line of the list.

    Args:
        kind: ``object`` or ``node``.
        name: of what changes.
        before: empty for what is new.
        after: what it will be.
    """
    return {
        "kind": kind,
        "name": name,
        "before": yaml.safe_dump(before) if before else "",
        "after": yaml.safe_dump(after),
    }


def removal(gone: Gone) -> Content:
    """Return a line of the list for an object that goes away: which one, why, and what goes with it."""
    why = f"its layer {gone.layer} does not declare it any more"
    line = {"kind": OBJECT, "name": gone.title, "before": REMOVED, "after": ""}
    return {**line, "uid": gone.uid, "why": why, "loss": gone.loss}


def node_name(node: str) -> str:
    """Return the name that a node has in the list."""
    return f"Node {node}"


def insist_on_objects(
    planned: Mapping[str, t.Any],
    changes: Sequence[Change],
    declared: Iterable[tuple[str, Content]] = (),
    removed: Sequence[Gone] = (),
) -> None:
    """Refuse to apply objects whose changes the plan does not list.

    Args:
        planned: what the plan has of the cluster, and ``free``: the kinds that need no approval, when it has
            too few.
        changes: what a dry run says would change now.
        declared: name and content of the objects to apply. One that was listed whole, because it was not
            there yet or could not be compared, is applied as it was listed.
        removed: objects that would be deleted; each must be the very one that is listed.

    Raises:
        PlanError: some are not listed, or listed with another outcome.
    """
    lists = {line["name"]: line["after"] for line in planned.get("changes") or () if line["kind"] == OBJECT}
    whole = {name: yaml.safe_dump(content) for name, content in declared}
    wrong = [
        change.name
        for change in changes
        if change.name not in lists
        or lists[change.name] not in (yaml.safe_dump(change.after), whole.get(change.name))
    ]
    gone = {line["name"]: line.get("uid") for line in planned.get("changes") or () if line["after"] == ""}
    wrong += [f"{one.title} (deleted)" for one in removed if gone.get(one.title) != one.uid]
    _insist(planned, wrong, bool(changes or removed))


def insist_on_consent(removed: Sequence[Gone], allowed: bool) -> None:
    """Refuse to delete what data or somebody's access goes with, unless that was consented to.

    Raises:
        PlanError: it was not.
    """
    refused = [f"{one.title} ({one.loss} is lost)" for one in removed if one.loss and not allowed]
    if refused:
        raise PlanError(
            f"nothing declares these any more, and deleting them needs consent: {', '.join(refused)}",
            f"declare them, or {CONSENT}",
        )


def insist_on_nodes(planned: Mapping[str, t.Any], changes: Sequence[NodeChange]) -> None:
    """Refuse to give nodes labels and taints, or to take them away, unless the plan lists it.

    Labels and taints of others come and go by themselves, so the differences are compared.

    Args:
        planned: as ``insist_on_objects``.
        changes: what a dry run says would change now.

    Raises:
        PlanError: some are not listed.
    """
    lists: dict[str, set[Delta]] = {}
    for line in planned.get("changes") or ():
        if line["kind"] == NODE:
            lists[line["name"]] = set(_deltas(_read(line["before"]), _read(line["after"])))
    wrong = [
        node_name(change.node)
        for change in changes
        if set(_deltas(change.before, change.after)) - lists.get(node_name(change.node), set())
    ]
    _insist(planned, wrong, bool(changes))


def _insist(planned: Mapping[str, t.Any], wrong: Sequence[str], something: bool) -> None:
    if wrong:
        raise PlanError(
            f"the plan does not list this change in the cluster: {', '.join(wrong)}. Either it was changed "
            "after the plan was made, or the plan does not say all that it does",
            "make a new plan",
        )
    free = planned.get("free")
    if something and free is not None and CLUSTER_OBJECT not in free:
        raise PlanError(
            "the plan was not approved, and objects of the cluster differ",
            "make a new plan, and let it be approved",
        )


def _read(text: str) -> Content:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def _deltas(before: Content, after: Content) -> Iterator[Delta]:
    """Yield what is added and what is taken away, one tuple each."""
    old, new = _labels(before), _labels(after)
    yield from (("label", name, value) for name, value in new.items() if old.get(name) != value)
    yield from (("no label", name) for name in sorted(old.keys() - new.keys()))
    was, will = _taints(before), _taints(after)
    yield from (("taint", *taint) for taint in sorted(will - was))
    kept = {(key, effect) for key, effect, _ in will}
    yield from (("no taint", key, effect) for key, effect, _ in sorted(was) if (key, effect) not in kept)


def _labels(content: Content) -> dict[str, str]:
    found = content.get("labels")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _taints(content: Content) -> set[tuple[str, str, str]]:
    found = content.get("taints")
    return {
        (str(taint.get("key")), str(taint.get("effect")), str(taint.get("value") or ""))
        for taint in (found if isinstance(found, list) else ())
        if isinstance(taint, dict)
    }
