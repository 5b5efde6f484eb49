# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the emulated resource manager remembers, in one file beside the rest of the emulated Azure."""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids, kinds

#: How many operations that ended can still be asked for.
_ENDED = 200
#: What is kept as it is.
_KEPT = ("deployments", "stacks", "what_ifs", "deleted_vaults", "budgets", "offset_s")


@dataclass
class Resource:
    """One resource.

    Attributes:
        document: What a GET answers.
        written: What was last sent for it; the rest of the document is Azure's own.
        created: When, Unix seconds.
        visible_at: When lists begin to show it.
        operation: Id of the operation that runs on it.
        stack: Key of the deployment stack that manages it.
        power: Of a virtual machine: running, stopped, deallocated.
    """

    document: dict[str, Any]
    written: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0
    visible_at: float = 0.0
    operation: str = ""
    stack: str = ""
    power: str = ""

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.document["id"])

    @property
    def key(self) -> str:
        """Its id without case."""
        return self.id.lower()

    @property
    def type(self) -> str:
        """Its type."""
        return str(self.document["type"])

    @property
    def properties(self) -> dict[str, Any]:
        """Its properties."""
        found: dict[str, Any] = self.document.setdefault("properties", {})
        return found


@dataclass
class Operation:
    """Something that takes its time.

    Attributes:
        id: What its address names.
        kind: put, delete, action, deployment, stack, stack_delete, answer.
        target: Id of what it works on.
        due: When its next step is, Unix seconds.
        status: Running, Succeeded, Failed, Canceled.
        error: What went wrong.
        result: What its Location answers in the end.
        data: What it needs to go on after a restart.
    """

    id: str
    kind: str
    target: str
    due: float
    started: float
    status: str = "Running"
    error: dict[str, Any] | None = None
    result: Any = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Settings:
    """What tests and people may set.

    Attributes:
        pace: Factor of the time that operations take; 0 is at once.
        retry_after_s: What answers ask callers to wait before they ask again.
        list_delay_s: How long lists lack a new resource.
        role_delay_s: How long a new identity or role assignment is not seen.
        limits: Name of a usage -> its limit, in place of the usual one.
        restricted: Sizes that are not to be had: SIZE or SIZE/ZONE.
        taken: Global names that somebody else has.
        features: Features of the subscription that are not registered.
        role_ends: Object id of a principal -> when its role assignments end, Unix seconds.
    """

    pace: float = 0.0
    retry_after_s: float = 0.0
    list_delay_s: float = 0.0
    role_delay_s: float = 0.0
    limits: dict[str, int] = field(default_factory=dict)
    restricted: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    role_ends: dict[str, float] = field(default_factory=dict)


class State:
    """Resources, operations, deployments and stacks."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "arm.json"
        self.settings = Settings()
        self.resources: dict[str, Resource] = {}
        self.operations: dict[str, Operation] = {}
        #: Key of a deployment -> {"document", "operations"}.
        self.deployments: dict[str, dict[str, Any]] = {}
        #: Key of a stack -> {"document", "baseline": what its resources were after its last deployment}.
        self.stacks: dict[str, dict[str, Any]] = {}
        self.what_ifs: dict[str, dict[str, Any]] = {}
        self.registered: set[str] = set(kinds.PROVIDERS)
        #: Name of a deleted vault -> its document.
        self.deleted_vaults: dict[str, dict[str, Any]] = {}
        #: Name of a budget -> its document.
        self.budgets: dict[str, dict[str, Any]] = {}
        #: Seconds that tests moved the clock ahead.
        self.offset_s = 0.0
        self._load()

    def now(self) -> float:
        """The time of operations, Unix seconds."""
        return time.time() + self.offset_s

    def stamp(self) -> str:
        """The time as documents have it."""
        return written_time(self.now())

    def _load(self) -> None:
        try:
            document = json.loads(self._file.read_text())
        except FileNotFoundError:
            return
        self.settings = Settings(**document["settings"])
        self.resources = {key: Resource(**one) for key, one in document["resources"].items()}
        self.operations = {key: Operation(**one) for key, one in document["operations"].items()}
        self.registered = set(document["registered"])
        for name in _KEPT:
            setattr(self, name, document.get(name, getattr(self, name)))

    def save(self) -> None:
        """Keep everything: who starts the emulator again finds operations where they were."""
        document = {
            "settings": asdict(self.settings),
            "resources": {key: asdict(one) for key, one in self.resources.items()},
            "operations": {key: asdict(one) for key, one in self.operations.items()},
            "registered": sorted(self.registered),
            **{name: getattr(self, name) for name in _KEPT},
        }
        files.write_atomic(self._file, json.dumps(document) + "\n", 0o600)

    def clear(self) -> None:
        """Begin with an empty subscription."""
        self._file.unlink(missing_ok=True)
        fresh = State(self._file.parent)
        self.__dict__.update(fresh.__dict__)

    def find(self, id: str) -> Resource | None:
        """Return a resource by id."""
        return self.resources.get(id.rstrip("/").lower())

    def of_type(self, type: str) -> Iterator[Resource]:
        """Yield the resources of a type."""
        wanted = type.lower()
        return (one for one in list(self.resources.values()) if one.type.lower() == wanted)

    def inside(self, scope: str) -> list[Resource]:
        """Return what is in a scope or below a resource."""
        return [one for key, one in self.resources.items() if ids.below(key, scope)]

    def part(self, id: str) -> dict[str, Any] | None:
        """Return what an id names: a resource's document, or a part within one, such as a subnet."""
        if ids.same(id, settings.account_id()):
            return {"id": id}  # the account of backups, which is there without anybody's deployment
        found = self.find(id)
        if found is not None:
            return found.document
        parsed = ids.parse(id)
        above = self.part(parsed.parent.text) if parsed is not None and parsed.parent is not None else None
        if parsed is None or above is None:
            return None
        for name, items in above.get("properties", {}).items():
            if name.lower() == parsed.types[-1].lower() and isinstance(items, list):
                for item in items:
                    if isinstance(item, dict) and str(item.get("name")).lower() == parsed.name.lower():
                        return item
        return None

    def begin(self, kind: str, target: str, seconds: float, **data: Any) -> Operation:
        """Start an operation that takes `seconds` at pace 1."""
        now = self.now()
        due = now + seconds * self.settings.pace
        ended = [key for key, one in self.operations.items() if one.status != "Running"]
        for key in ended[:-_ENDED]:
            del self.operations[key]
        operation = Operation(str(uuid.uuid4()), kind, target, due, now, data=data)
        self.operations[operation.id] = operation
        return operation


def written_time(seconds: float) -> str:
    """Unix seconds as documents have them."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def subscription_scope() -> str:
    """The scope of the one subscription."""
    return f"/subscriptions/{settings.SUBSCRIPTION}"
