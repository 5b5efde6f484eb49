# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands to the emulated Azure, carried out: one JSON object a line over a Unix socket, one line back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ironspan.lab.azure import people
from ironspan.lab.azure.arm.control import ArmControl
from ironspan.lab.azure.arm.service import Arm
from ironspan.lab.azure.faults import Fault, FaultError
from ironspan.lab.azure.policy import Container, PolicyError
from ironspan.lab.azure.world import World

#: Longest request: a federation's keys fit in easily.
_LIMIT = 1 << 20
_FAULT_FIELDS = {f.name for f in fields(Fault)} - {"id", "hits", "hidden", "healed", "chance"}


class Control:
    """Carries out commands on a world."""

    def __init__(self, world: World, about: dict[str, Any], arm: Arm | None = None) -> None:
        self._world = world
        self._arm = ArmControl(arm) if arm is not None else None
        self._about = about
        self._commands: dict[str, Callable[..., dict[str, Any]]] = {
            "status": self._status,
            "fault": self._fault,
            "heal": self._heal,
            "policy": self._policy,
            "clock": self._clock,
            "requests": self._requests,
            "federate": self._federate,
            "lifetime": self._lifetime,
            "token": self._token,
            "person": self._person,
            "rotate": self._rotate,
            **(self._arm.commands if self._arm is not None else {}),
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks; {"error": ...} when it makes no sense."""
        arguments = dict(request)
        command = self._commands.get(arguments.pop("do", ""))
        if command is None:
            return {"error": f"write one of {', '.join(self._commands)} as `do`"}
        try:
            return command(**arguments)
        except (FaultError, PolicyError, TypeError, ValueError, KeyError) as error:
            return {"error": str(error)}

    def _status(self) -> dict[str, Any]:
        world = self._world
        return {
            **self._about,
            "faults": [fault.shown() for fault in world.faults.active],
            "containers": {name: one.as_dict() for name, one in world.containers.items()},
            "versioning": world.versioning,
            "clock_offset_s": world.clock_offset_s,
            "requests": len(world.requests),
        }

    def _fault(self, **settings: Any) -> dict[str, Any]:
        unknown = set(settings) - _FAULT_FIELDS
        if unknown:
            raise FaultError(f"{', '.join(sorted(unknown))}: a fault has {', '.join(sorted(_FAULT_FIELDS))}")
        return self._world.faults.add(Fault(**settings)).shown()

    def _heal(self, id: int | None = None) -> dict[str, Any]:  # the fault's field is called so
        named = self._arm.heal() if self._arm is not None and id is None else 0
        return {"healed": self._world.faults.heal(id) + named}

    def _policy(self, container: str = "", **changes: Any) -> dict[str, Any]:
        """Set policies past the resource manager's rules: tests have to unlock what operators cannot."""
        if "versioning" in changes:
            self._world.versioning = bool(changes.pop("versioning"))
        one = self._world.containers.setdefault(container, Container()) if container else None
        if one is not None:
            if changes.pop("remove", False):
                one.policy = None
            if "days" in changes:
                one.policy = None
                one.put(changes.pop("days"), changes.pop("append", "none"), None)
            if changes.pop("lock", False):
                one.lock("*")
            if "holds" in changes:
                one.holds = [str(tag) for tag in changes.pop("holds")]
        if changes:
            raise ValueError(f"{', '.join(changes)}: not understood, or a container is missing")
        self._world.save()
        return one.as_dict() if one is not None else {"versioning": self._world.versioning}

    def _clock(self, offset_s: float) -> dict[str, Any]:
        self._world.clock_offset_s = float(offset_s)
        self._world.save()
        return {"clock_offset_s": self._world.clock_offset_s}

    def _requests(self, clear: bool = False) -> dict[str, Any]:
        found = list(self._world.requests)
        if clear:
            self._world.requests.clear()
        return {"requests": found}

    def _federate(
        self, client_id: str, issuer: str, subject: str, keys: list[dict[str, str]]
    ) -> dict[str, Any]:
        federation = {"client_id": client_id, "issuer": issuer, "subject": subject, "keys": keys}
        if federation not in self._world.federations:
            self._world.federations.append(federation)
            self._world.save()
        return {"federations": len(self._world.federations)}

    def _lifetime(self, seconds: float) -> dict[str, Any]:
        self._world.token_lifetime_s = float(seconds)
        return {"seconds": self._world.token_lifetime_s}

    def _token(
        self, identity: str, audience: str, lifetime_s: float | None = None, tenant: str = ""
    ) -> dict[str, Any]:
        from ironspan.lab.azure.settings import IDENTITIES, Principal

        # One of the lab's own, or one of those that the estate has made.
        found: Principal | None = IDENTITIES.get(identity)
        if found is None and self._arm is not None:
            found = self._arm.identity(identity)
        if found is None:
            raise ValueError(f"there is no identity {identity!r}")
        return {"token": self._world.issue(found, audience, lifetime_s, tenant)}

    def _person(
        self,
        name: str,
        roles: Sequence[str] = (),
        groups: Sequence[str] = (),
        issuer: str = "",
        fault: str = "",
    ) -> dict[str, Any]:
        person = people.Person(name, tuple(roles), tuple(groups))
        return {"token": people.token(self._world, person, issuer or people.issuer(), fault)}

    def _rotate(self, withdraw: bool = False) -> dict[str, Any]:
        self._world.rotate(withdraw)
        return {"keys": len(self._world.keys())}

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: a line in, a line out."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            line = await reader.readline()
            try:
                request = json.loads(line)
                reply = self.answer(request) if isinstance(request, dict) else {"error": "not an object"}
            except ValueError as error:
                reply = {"error": f"not a request: {error}"}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()


async def listen(control: Control, path: Path) -> asyncio.Server:
    """Serve commands on the socket `path`, which only its owner may open."""
    path.unlink(missing_ok=True)
    previous = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(control.converse, str(path), limit=_LIMIT)
    finally:
        os.umask(previous)
