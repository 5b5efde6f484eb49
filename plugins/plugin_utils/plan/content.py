# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The plan file: one line of canonical JSON that carries its own digest.

{"digest": SHA-256 of the canonical JSON of "plan", "plan": {...}}

Canonical means sorted keys, no white space, ASCII only, so the same plan has one spelling only and any other
byte is refused. Signatures are over the bytes of the file. Documents share most of their resources, so each
resource is written once, below its own digest.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import canonical_json
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import EFFECTS

SCHEMA = 3
SUFFIX = ".plan.json"
Content = dict[str, t.Any]

_SHAPE: dict[str, type] = {
    "schema": int,
    "site": dict,
    "created": int,
    "expires": int,
    "inventory": str,
    "policy": dict,
    "operation": str,
    "arguments": dict,
    "bound": dict,
    "steps": list,
    "resources": dict,
    "hosts": dict,
    "cluster": dict,
    "remote": list,
    "summary": dict,
    "warnings": list,
    "left_out": list,
}
_HOST_SHAPE: dict[str, type] = {
    "document": dict,
    "digest": str,
    "fingerprint": str,
    "mirror": str,
    "changes": list,
    "pending": list,
    "interrupts": list,
    "starts": list,
    "seconds": int,
}
_STEP_SHAPE: dict[str, type] = {
    "action": str,
    "target": str,
    "what": str,
    "arithmetic": str,
    "disruption": str,
    "seconds": int,
    "destructive": bool,
}
_SUMMARY_SHAPE: dict[str, type] = {
    "hosts": int,
    "hosts_changing": int,
    "changes": int,
    "pending": int,
    "steps": int,
    "cluster_changes": int,
    "remote_changes": int,
    "interrupts": int,
    "reboots": int,
    "seconds": int,
    "seconds_source": str,
}
_THING_SHAPE: dict[str, type] = {
    "kind": str,
    "name": str,
    "identity": str,
    "fault": str,
    "notes": list,
    "steps": list,
}
_THING_STATES = ("wanted", "found", "after")
_THING_STEP_SHAPE: dict[str, type] = {
    "verb": str,
    "what": str,
    "effects": list,
    "costs": str,
    "disruption": str,
    "seconds": int,
}
_TEXT_SHAPE: dict[str, type] = {"before": str, "after": str}
_LATEST = 253_402_300_799
"""The end of the year 9999: the last second that can be written as a date."""
_POLICY_SHAPE: dict[str, type] = {"approvals": int, "unapproved_kinds": list}
_CHANGE_SHAPE: dict[str, type] = {
    "resource": str,
    "kind": str,
    "action": str,
    "before": dict,
    "after": dict,
    "reason": str,
}
_PENDING_SHAPE: dict[str, type] = {"resource": str, "kind": str, "needs": str}
_OBJECT_SHAPE: dict[str, type] = {"kind": str, "name": str, "before": str, "after": str}
_DELETION_SHAPE: dict[str, type] = {"uid": str, "why": str, "loss": str}
_CLUSTER_SHAPE: dict[str, type] = {"state": str, "objects": dict, "nodes": dict, "changes": list}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A plan that was made or read.

    Args:
        content: what it says.
        digest: its identity, SHA-256 in hexadecimal.
        data: the bytes of its file.
    """

    content: Content
    digest: str
    data: bytes = dataclasses.field(repr=False)

    @property
    def hosts(self) -> Mapping[str, Content]:
        """Return what it says of each host."""
        return t.cast("Mapping[str, Content]", self.content["hosts"])

    def document_text(self, host: str) -> str:
        """Return a host's document as JSON, its resources put back."""
        document = self.hosts[host]["document"]
        pool = self.content["resources"]
        return json.dumps({**document, "resources": [pool[name] for name in document["resources"]]})


def when(seconds: int) -> str:
    """Return a time as people write it, in UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def digest_of(value: t.Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def pooled(document: Mapping[str, t.Any], pool: dict[str, t.Any]) -> Content:
    """Return a document with digests in the place of its resources, which go into the pool."""
    names = []
    for resource in document["resources"]:
        name = digest_of(resource)
        pool[name] = resource
        names.append(name)
    return {**document, "resources": names}


def seal(content: Content) -> Plan:
    """Return the plan with this content."""
    # Through JSON and back, so that a plan just made equals the plan that will be read.
    content = json.loads(canonical_json(content))
    digest = digest_of(content)
    return Plan(content, digest, _spelled(content, digest))


def _spelled(content: Content, digest: str) -> bytes:
    return canonical_json({"digest": digest, "plan": content}).encode("ascii") + b"\n"


def parse(data: bytes) -> Plan:
    """Read a plan file's bytes.

    Raises:
        PlanError: they are not exactly what was written, or of another version.
    """
    remedy = "take the file as 'ironspan plan' wrote it, or make a new plan"
    try:
        raw = json.loads(data)
        content, digest = raw["plan"], raw["digest"]
        genuine = digest == digest_of(content) and data == _spelled(content, digest)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PlanError("this is not a plan file", remedy) from None
    if not genuine:
        raise PlanError("the plan file was altered after it was made", remedy)
    version = content.get("schema") if isinstance(content, dict) else None
    if version != SCHEMA:
        raise PlanError(
            f"the plan has format {version!r}, this version reads {SCHEMA}",
            "make the plan with the version that applies it",
        )
    wrong = _misshapen(content)
    if wrong:
        raise PlanError(f"the plan is not complete: {wrong}", remedy)
    return Plan(content, digest, data)


def load(path: Path) -> Plan:
    """Read a plan file.

    Raises:
        PlanError: it is not there, or not what was written.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}", "give the path of a plan file") from None
    try:
        return parse(data)
    except PlanError as error:
        raise PlanError(f"{path}: {error.message}", error.remedy) from None


def _misshapen(content: Content) -> str:
    """Return what is missing or of another type: a plan that nobody signed may be anyone's."""
    parts: tuple[tuple[str, t.Any, Mapping[str, type]], ...] = (
        ("plan", content, _SHAPE),
        ("cluster", content.get("cluster"), _CLUSTER_SHAPE),
        ("policy", content.get("policy"), _POLICY_SHAPE),
        ("summary", content.get("summary"), _SUMMARY_SHAPE),
    )
    for where, value, shape in parts:
        wrong = _difference(value, shape)
        if wrong:
            return f"{where}.{wrong}"
    if content["policy"]["approvals"] < 0:
        return "policy.approvals"
    if not all(0 <= content[name] <= _LATEST for name in ("created", "expires")):
        return "plan.expires"
    if not all(isinstance(content["site"].get(name), str) for name in ("name", "uid")):
        return "plan.site"
    if wrong := _list_difference("steps", content["steps"], _STEP_SHAPE):
        return wrong
    if wrong := _list_difference("cluster.changes", content["cluster"]["changes"], _OBJECT_SHAPE):
        return wrong
    for number, line in enumerate(content["cluster"]["changes"]):
        gone = not line["after"] and line["kind"] == "object"
        if wrong := _difference(line, _DELETION_SHAPE) if gone else "":
            return f"cluster.changes.{number}.{wrong}"
    if wrong := _things_difference(content["remote"]):
        return wrong
    for name, host in content["hosts"].items():
        wrong = (
            _difference(host, _HOST_SHAPE)
            or _document_difference(name, host["document"], content)
            or _list_difference("changes", host["changes"], _CHANGE_SHAPE)
            or next(
                (
                    "changes.text"
                    for change in host["changes"]
                    if "text" in change and _difference(change["text"], _TEXT_SHAPE)
                ),
                "",
            )
            or _list_difference("pending", host["pending"], _PENDING_SHAPE)
        )
        if wrong:
            return f"hosts.{name}.{wrong}"
    return ""


def _list_difference(where: str, entries: list[t.Any], shape: Mapping[str, type]) -> str:
    for number, entry in enumerate(entries):
        wrong = _difference(entry, shape)
        if wrong:
            return f"{where}.{number}.{wrong}"
    return ""


def _things_difference(things: list[t.Any]) -> str:
    if wrong := _list_difference("remote", things, _THING_SHAPE):
        return wrong
    for number, thing in enumerate(things):
        for name in _THING_STATES:
            if not isinstance(thing.get(name, ""), dict | None):
                return f"remote.{number}.{name}"
        if wrong := _list_difference(f"remote.{number}.steps", thing["steps"], _THING_STEP_SHAPE):
            return wrong
        for step in thing["steps"]:
            if step.keys() != _THING_STEP_SHAPE.keys() or not EFFECTS.keys() >= set(
                map(str, step["effects"])
            ):
                return f"remote.{number}.steps"
    return ""


def _document_difference(name: str, document: Content, content: Content) -> str:
    names = document.get("resources")
    if not isinstance(names, list) or not all(isinstance(key, str) for key in names):
        return "document.resources"
    if any(key not in content["resources"] for key in names):
        return "document.resources"
    if document.get("host") != name or document.get("site") != content["site"]["name"] or "/" in name:
        return "document.host"
    return ""


def _difference(value: t.Any, shape: Mapping[str, type]) -> str:
    if not isinstance(value, dict):
        return "(not a mapping)"
    return next((name for name, kind in shape.items() if type(value.get(name)) is not kind), "")
