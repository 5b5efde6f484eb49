# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A deployment as it shall be, as it stands, and as Azure's resource manager is told of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Said, leaves
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import DIGEST

Json = Mapping[str, t.Any]
OVER = frozenset({"succeeded", "failed", "canceled"})
"""States, in lower case, in which nothing goes on."""


def digest_of(template: Json) -> str:
    """Return the SHA-256 of a template, the same for the same content in any order of keys."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A deployment as it shall be.

    Args:
        name: of the stack or the deployment.
        region: where Azure keeps what it knows of it.
        template: what is deployed.
        tags: of the deployment.
        stack: a deployment stack; False for a plain deployment.
        delete: whether Azure deletes what has left the template; else it stays and is no longer managed.
        deny: ``denySettings`` of a stack.
    """

    name: str
    region: str
    template: Json
    tags: Mapping[str, str]
    stack: bool
    delete: bool
    deny: Json


class Standing(t.NamedTuple):
    """A deployment as it stands.

    Args:
        identity: its id, and when it was made.
        state: in lower case.
        modified: when it was changed last.
        digest: of its template, as its tag says.
        deployment: name of the deployment whose operations show how far it is, "" when there is none yet.
        said: what went wrong, where it failed.
    """

    identity: str
    state: str
    modified: str
    digest: str = ""
    deployment: str = ""
    said: tuple[Said, ...] = ()

    @property
    def running(self) -> bool:
        """Whether something goes on."""
        return self.state not in OVER


def stack_body(wanted: Wanted) -> dict[str, t.Any]:
    """Return a deployment stack as Azure takes it."""
    left = "delete" if wanted.delete else "detach"
    return {
        "location": wanted.region,
        "tags": dict(wanted.tags),
        "properties": {
            "template": wanted.template,
            "actionOnUnmanage": {"resources": left, "resourceGroups": left, "managementGroups": "detach"},
            "denySettings": dict(wanted.deny),
        },
    }


def plain_body(wanted: Wanted) -> dict[str, t.Any]:
    """Return a plain deployment as Azure takes it."""
    return {
        "location": wanted.region,
        "tags": dict(wanted.tags),
        "properties": {"mode": "Incremental", "template": wanted.template},
    }


def standing_of(found: Json, wanted: Wanted) -> Standing:
    """Return how a deployment stands, from what Azure says of it."""
    properties = found.get("properties") or {}
    system = found.get("systemData") or {}
    deployment = wanted.name
    if wanted.stack:
        deployment = str(properties.get("deploymentId") or "").rpartition("/")[2]
    identity = str(found.get("id") or wanted.name).lower()
    created = str(system.get("createdAt") or "")
    return Standing(
        f"{identity} {created}".strip(),
        str(properties.get("provisioningState") or "").lower(),
        str(system.get("lastModifiedAt") or properties.get("timestamp") or ""),
        str((found.get("tags") or {}).get(DIGEST) or ""),
        deployment,
        tuple(leaves(properties.get("error"))),
    )
