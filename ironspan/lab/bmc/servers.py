# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where a BMC of the lab gets its server from: the emulator of sushy-tools, or a server in memory."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import typing as t

from ironspan.lab.bmc.resources import ROOT, Document, collection, error

ANSWERS_WITHIN_S = 300.0
"""Of the emulator, which fetches an image before it says that it was inserted."""


class Answer(t.NamedTuple):
    """An answer of a BMC; its body is JSON, ``location`` is where to ask how it goes on."""

    status: int
    body: Document | None = None
    location: str = ""


class Server(t.Protocol):
    """A server's part of Redfish."""

    identity: str
    """``Id`` of its system."""

    def ask(self, method: str, path: str, body: Document | None) -> Answer:
        """Return the answer to a request about systems, chassis or managers."""


class Emulated:
    """One server of sushy-tools' emulator.

    Args:
        identity: UUID of its system.
        address: where the emulator listens.
        port: of it.
        certificate: file with the certificate that it shows.
    """

    def __init__(self, identity: str, address: str, port: int, certificate: str) -> None:
        self.identity = identity
        self._address, self._port = address, port
        self._context = ssl.create_default_context(cafile=certificate)
        self._context.check_hostname = False  # it shows exactly this certificate

    def ask(self, method: str, path: str, body: Document | None) -> Answer:
        """Hand a request on."""
        link = http.client.HTTPSConnection(
            self._address, self._port, timeout=ANSWERS_WITHIN_S, context=self._context
        )
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "Connection": "close"}
            link.request(method, path, content, headers)
            response = link.getresponse()
            text = response.read()
            if response.status in (301, 308):
                return Answer(404, error("ResourceMissingAtURI", f"{path} is not there."))
            return Answer(response.status, json.loads(text) if text else None)
        finally:
            link.close()


class InMemory:
    """A server that is nothing but its power, switched after a moment.

    Args:
        identity: ``Id`` of its system.
        power: ``On`` or ``Off``.
        delay_s: how long switching takes.
    """

    def __init__(self, identity: str = "1", power: str = "Off", delay_s: float = 0.0) -> None:
        self.identity = identity
        self.delay_s = delay_s
        self.resets: list[str] = []
        self._power, self._then, self._at = power, "", 0.0

    @property
    def power(self) -> str:
        """``On`` or ``Off``."""
        if self._then and time.monotonic() >= self._at:
            self._power, self._then = self._then, ""
        return self._power

    def ask(self, method: str, path: str, body: Document | None) -> Answer:
        """Answer a request."""
        system = f"{ROOT}/Systems/{self.identity}"
        if method == "POST" and path == f"{system}/Actions/ComputerSystem.Reset":
            return self._reset(str((body or {}).get("ResetType")))
        if method != "GET":
            return Answer(405, error("OperationNotAllowed", "It is not allowed."))
        found = self._documents().get(path.rstrip("/"))
        return (
            Answer(200, found)
            if found
            else Answer(404, error("ResourceMissingAtURI", f"{path} is not there."))
        )

    def _reset(self, kind: str) -> Answer:
        after = {"On": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}.get(kind)
        if after is None:
            return Answer(400, error("ActionParameterNotSupported", f"{kind} is not supported."))
        self.resets.append(kind)
        self._then, self._at = after, time.monotonic() + self.delay_s
        return Answer(204)

    def _documents(self) -> dict[str, Document]:
        system, chassis, manager = (
            f"{ROOT}/{kind}/{self.identity}" for kind in ("Systems", "Chassis", "Managers")
        )
        links = {"Chassis": [{"@odata.id": chassis}], "ManagedBy": [{"@odata.id": manager}]}
        reset = {
            "target": f"{system}/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
        }
        return {
            ROOT: {
                "@odata.id": f"{ROOT}/",
                "Id": "RootService",
                "Name": "Root Service",
                "RedfishVersion": "1.20.0",
                **{kind: {"@odata.id": f"{ROOT}/{kind}"} for kind in ("Systems", "Chassis", "Managers")},
            },
            **{
                f"{ROOT}/{kind}": collection(f"{ROOT}/{kind}", name, [f"{ROOT}/{kind}/{self.identity}"])
                for kind, name in (
                    ("Systems", "ComputerSystem"),
                    ("Chassis", "Chassis"),
                    ("Managers", "Manager"),
                )
            },
            system: {
                "@odata.id": system,
                "Id": self.identity,
                "Name": "System",
                "Manufacturer": "ironspan lab",
                "PowerState": self.power,
                "Links": links,
                "Actions": {"#ComputerSystem.Reset": reset},
            },
            chassis: {
                "@odata.id": chassis,
                "Id": self.identity,
                "Name": "Chassis",
                "ChassisType": "RackMount",
            },
            manager: {"@odata.id": manager, "Id": self.identity, "Name": "Manager"},
        }
