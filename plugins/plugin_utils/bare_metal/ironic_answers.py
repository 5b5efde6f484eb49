# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Ironic answers: nodes, refusals, pages, and no answer at all."""

from __future__ import annotations

import contextlib
import json
import typing as t
import urllib.parse
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

LOOK = "look at the cloud in clouds.yaml, the network, and Ironic's service"
"""What to do about an Ironic that does not answer, where nothing is known of it."""


def unanswered(error: Exception, remedy: str = LOOK) -> RemoteError:
    """Return the error of a request without an answer; anything but one of the two libraries is a mistake."""
    if type(error).__module__.partition(".")[0] not in ("openstack", "keystoneauth1"):
        raise error
    return RemoteError(f"Ironic does not answer{explained(str(error).rstrip('.'))}", remedy)


def said_of(answer: t.Any) -> str:
    """Return the words of a refusal; Ironic puts JSON into JSON."""
    try:
        said = answer.json()["error_message"]
        with contextlib.suppress(ValueError):
            said = json.loads(said)
        if isinstance(said, Mapping):
            said = said.get("faultstring") or said.get("description") or said
        return str(said)
    except (ValueError, KeyError, TypeError):
        return str(answer.text)


def is_busy(status: int, said: str) -> bool:
    """Return whether it is worth asking again: no worker is free, or a conductor has the node just now."""
    return status == 503 or (status == 409 and "is locked by host" in said)


def node_of_entry(entry: Mapping[str, t.Any]) -> Node:
    """Return a node as Ironic lists it, with a conductor that is alive: the list does not say."""
    properties = entry.get("properties") or {}
    memory = str(properties.get("memory_mb") or "")
    return Node(
        state=entry.get("provision_state") or "available",
        target=entry.get("target_provision_state"),
        power=entry.get("power_state"),
        maintenance=bool(entry.get("maintenance")),
        maintenance_reason=entry.get("maintenance_reason") or "",
        fault=entry.get("fault") or "",
        last_error=entry.get("last_error") or "",
        reserved_by=entry.get("reservation") or "",
        protected=bool(entry.get("protected")),
        retired=bool(entry.get("retired")),
        done=frozenset(("inspect",) if entry.get("inspection_finished_at") else ()),
        # Where the node says nothing the conductor's setting holds: it cleans, if nobody switched that off.
        automated_clean=entry.get("automated_clean") is not False,
        memory_mib=int(memory) if memory.isdecimal() and memory.isascii() else None,
    )


def path_of(link: str | None) -> str:
    """Return the path and query of a link to the next page, "" when there is none."""
    if not link:
        return ""
    parts = urllib.parse.urlsplit(link)
    return f"/{parts.path.rpartition('/v1/')[2]}?{parts.query}"
