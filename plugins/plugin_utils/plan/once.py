# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan that forces drains works once.

Who approved it accepted the loss of pods that were there then. Which nodes such a plan has drained is noted
in the cluster, because the next run may come from another controller. A node that was in service again since,
or is another one under its name, is not drained by the same plan. A run that was cut short goes on: the nodes
that it drained are cordoned still.
"""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import ANNOTATION, is_cordoned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

NAME = "ironspan-forced-drains"
"""The ConfigMap in kube-system: digest of a plan -> until when it may be applied, which nodes it drained."""
PATH = f"/api/v1/namespaces/kube-system/configmaps/{NAME}"
DRAINS = ("drain", "delete-pods")
_LEFT_WHEN_DONE = frozenset({"reset"})
"""Steps that a host has which is no node, however often it was reset."""
_KEPT_S = 86_400
"""For how long after its end a plan is remembered: the clock of a controller may be wrong."""
_AGAIN = "make a new plan, and let it be approved: it shows which pods would be lost now"


class Use:
    """How far a plan has been used.

    Args:
        api: the cluster.
        head: of the plan, as the run has it (``digest``, ``expires``, ``steps``).

    Raises:
        OperationError: the note about this plan cannot be read.
    """

    def __init__(self, api: Api, head: Mapping[str, t.Any]) -> None:
        self._api, self._head = api, head
        self._drained = self._noted()
        self._nodes = _nodes(api) if self._drained else {}
        self._marks = {name: _mark(node) for name, node in self._nodes.items()}

    def insist_on_the_same_nodes(self) -> None:
        """Refuse the plan when a node that it drained is another one now.

        Raises:
            OperationError: so it is, and no replacement of its machine is going on.
        """
        going_on = replacements.noted(self._api) if self._drained else {}
        others = [
            name
            for name, mark in sorted(self._drained.items())
            if name in self._nodes
            and mark.split()[0] != self._nodes[name]["metadata"]["uid"]
            and not replacements.is_new(going_on, self._nodes[name])
        ]
        if others:
            raise OperationError(
                f"the plan is used up: it has drained {', '.join(others)}, and another Node has the name now",
                _AGAIN,
            )

    def insist_that_something_is_left(self, steps: Sequence[Step]) -> None:
        """Refuse the plan when it would drain a node again, or has nothing left to do.

        Args:
            steps: what would be done now.

        Raises:
            OperationError: the plan was carried out, as a whole or for some of its nodes.
        """
        again = [
            step.target
            for step in steps
            if step.action in DRAINS
            and step.target in self._drained
            and self._drained[step.target] != self._marks.get(step.target)
        ]
        if again:
            raise OperationError(
                f"the plan is used up: it has drained {', '.join(again)}, and pods may have come there since",
                _AGAIN,
            )
        planned = {str(step["target"]) for step in self._head["steps"] if step["action"] in DRAINS}
        if planned and planned <= self._drained.keys() and {step.action for step in steps} <= _LEFT_WHEN_DONE:
            raise OperationError(
                f"the plan is used up: it has drained {', '.join(sorted(planned))} and was carried out",
                "if there is more to do, make a new plan",
            )

    def note(self, names: Collection[str]) -> None:
        """Note nodes that a drain of this plan has emptied and left cordoned."""
        nodes = _nodes(self._api)
        marks = {name: _mark(nodes[name]) for name in names if name in nodes}
        if not marks:
            return
        entry = {"expires": self._head["expires"], "nodes": {**self._drained, **marks}}
        data = {**_unexpired(self._data()), self._head["digest"]: json.dumps(entry, sort_keys=True)}
        self._api.apply(
            PATH,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": "kube-system"},
                "data": data,
            },
        )
        self._drained = entry["nodes"]

    def _data(self) -> dict[str, str]:
        return dict((self._api.find(PATH) or {}).get("data") or {})

    def _noted(self) -> dict[str, str]:
        text = self._data().get(self._head["digest"])
        entry = {"nodes": {}} if text is None else _read(text)
        if entry is None:
            raise OperationError(
                f"whether the plan was used cannot be told: somebody changed its entry in the ConfigMap "
                f"kube-system/{NAME}",
                _AGAIN,
            )
        return dict(entry["nodes"])


def _nodes(api: Api) -> dict[str, Object]:
    return {str(node["metadata"]["name"]): node for node in api.get("/api/v1/nodes")["items"]}


def _mark(node: Object) -> str:
    """Return what is another text once a drained node was in service again, or is another Node."""
    metadata = node["metadata"]
    since = (metadata.get("annotations") or {}).get(ANNOTATION) or "by-others"
    return f"{metadata['uid']} {since if is_cordoned(node) else 'in-service'}"


def _read(text: str) -> dict[str, t.Any] | None:
    """Return one plan's note, None when somebody made something else of it."""
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    if not (isinstance(entry, dict) and isinstance(entry.get("nodes"), dict)):
        return None
    whole = isinstance(entry.get("expires"), int) and all(
        isinstance(mark, str) and mark for mark in entry["nodes"].values()
    )
    return entry if whole else None


def _unexpired(data: Mapping[str, str]) -> dict[str, str]:
    now = time.time()
    return {
        digest: text
        for digest, text in data.items()
        if (entry := _read(text)) is not None and now < entry["expires"] + _KEPT_S
    }
