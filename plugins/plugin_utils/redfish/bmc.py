# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One BMC: who it is, and requests to it. What it answers is data, checked where it is used."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from collections.abc import Collection, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import (
    Deadline,
    Endpoint,
    Trust,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import Broken, plain, told

Document = dict[str, t.Any]
ROOT = "/redfish/v1/"
SECONDS = 120.0
"""For everything that a visit does, where the caller does not say otherwise."""
MOST_MEMBERS = 1000
"""Members of a collection that are read: accounts, chassis, managers, entries of a page."""


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """An account of a BMC. Its password is never shown."""

    username: str
    password: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who answers.

    Args:
        serial: of the chassis, in capitals; "" when it does not say.
        model: what the maker calls the server.
        maker: of the server.
        uuid: of the system.
        power: ``On``, ``Off``, ``PoweringOn`` or ``PoweringOff``; "" when it does not say.
        boot: the device of the next start; "" for the usual one.
        bios: version of the BIOS.
        bmc: version of the BMC's firmware.
        bmc_model: model of the BMC.
    """

    serial: str
    model: str = ""
    maker: str = ""
    uuid: str = ""
    power: str = ""
    boot: str = ""
    bios: str = ""
    bmc: str = ""
    bmc_model: str = ""


class Bmc:
    """A BMC that takes the account.

    Args:
        endpoint: where it is.
        trust: which certificates are taken.
        login: the account.
        seconds: for everything that is done with this object.

    Raises:
        Unreachable: it does not answer.
        Untrusted: its certificate is none that is taken; the account was not sent.
    """

    def __init__(self, endpoint: Endpoint, trust: Trust, login: Login, seconds: float = SECONDS) -> None:
        from sushy import Sushy
        from sushy.auth import BasicAuth

        self.name = endpoint.name
        self.endpoint = endpoint
        self.login = login
        self.deadline = Deadline(seconds, "do all that was asked")
        self._hidden: Collection[str] = {login.password}
        self._connector = connection.connector(endpoint, trust, self.deadline)
        with self._told("say what it has"):
            # Each request has the account with it: a session would be left behind by a run that is killed.
            self._root = Sushy(
                endpoint.url,
                root_prefix=ROOT,
                auth=BasicAuth(login.username, login.password),
                connector=self._connector,
            )
        self._system: t.Any = None

    def __enter__(self) -> Bmc:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._connector.close()

    def extend(self, seconds: float) -> None:
        """Give what is done with this object so many seconds more."""
        self.deadline.extend(seconds)

    @contextlib.contextmanager
    def _told(self, what: str, hidden: Collection[str] = ()) -> Iterator[None]:
        with told(self.name, what, {*self._hidden, *hidden}):
            yield

    # -- requests ----------------------------------------------------------------------------------

    def get(self, path: str, what: str = "say how it is") -> Document:
        """Return a resource.

        Args:
            path: ``@odata.id`` of it.
            what: what is read, a clause for messages.

        Raises:
            BmcError: it is not there, or not readable.
        """
        with self._told(what):
            found = self._connector.get(path).json()
        return self._document(found, path)

    def patch(self, path: str, body: Document, what: str, hidden: Collection[str] = ()) -> None:
        """Change a resource.

        Args:
            path: ``@odata.id`` of it.
            body: the properties that change.
            what: what is done, a clause for messages.
            hidden: secrets of the body; what the BMC repeats of them is not shown.

        Raises:
            BmcError: it did not take it.
        """
        etag = self._etag(path)
        with self._told(what, hidden):
            self._connector.patch(path, data=body, **({"etag": etag} if etag else {}))

    def post(self, path: str, body: Document, what: str) -> Document:
        """Ask for an action, and return the answer, which may be empty.

        Args:
            path: target of the action.
            body: its parameters.
            what: what is done, a clause for messages.

        Raises:
            BmcError: it did not take it.
        """
        with self._told(what):
            response = self._connector.post(path, data=body)
            found = response.json() if response.content else {}
        return self._document(found, path)

    def members(self, path: str, what: str = "say how it is") -> list[Document]:
        """Return the members of a collection, those that can be read at all; at most ``MOST_MEMBERS``."""
        found = self.get(path, what).get("Members")
        members = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
        return [
            entry if len(entry) > 1 else self.get(str(entry["@odata.id"]), what)
            for entry in members[:MOST_MEMBERS]
            if "@odata.id" in entry
        ]

    def _etag(self, path: str) -> str:
        """Return what some BMCs insist on with a change, "" of one that has none."""
        with self._told("say how it is"):
            response = self._connector.get(path)
            return str(response.headers.get("ETag") or response.json().get("@odata.etag") or "")

    def _document(self, found: t.Any, path: str) -> Document:
        if not isinstance(found, dict):
            raise Broken(f"{self.name}: {path} of the BMC is no JSON object")
        return found

    # -- what it has -------------------------------------------------------------------------------

    @property
    def root(self) -> Document:
        """The service root."""
        return self._document(self._root.json, ROOT)

    def system_of_sushy(self) -> t.Any:
        """Return the server as sushy has it, read again."""
        with self._told("name its server"):
            if self._system is None:
                self._system = self._root.get_system()
            else:
                self._system.refresh(force=True)
        return self._system

    def system(self) -> Document:
        """Return the server's resource, read now."""
        return self._document(self.system_of_sushy().json, "Systems")

    def chassis(self, system: Document | None = None) -> list[Document]:
        """Return the resources of the chassis that the server is in; none of a BMC that has none.

        Args:
            system: the server's resource, where it was read just now.
        """
        return self._linked("Chassis", system)

    def managers(self, system: Document | None = None) -> list[Document]:
        """Return the resources of the server's BMCs, usually one; ``system`` as for ``chassis``."""
        return self._linked("ManagedBy", system)

    def _linked(self, kind: str, system: Document | None) -> list[Document]:
        links = (self.system() if system is None else system).get("Links")
        entries = links.get(kind) if isinstance(links, dict) else None
        linked = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        paths = [str(entry.get("@odata.id") or "") for entry in linked]
        return [self.get(path) for path in paths[:MOST_MEMBERS] if path]

    def identity(self) -> Identity:
        """Return who answers.

        Raises:
            BmcError: it cannot be read.
        """
        system = self.system()
        chassis = self.chassis(system)
        manager = next(iter(self.managers(system)), {})
        serials = [system.get("SerialNumber"), *(one.get("SerialNumber") for one in chassis)]
        boot = system.get("Boot") if isinstance(system.get("Boot"), dict) else {}
        overridden = (boot or {}).get("BootSourceOverrideEnabled") in ("Once", "Continuous")
        return Identity(
            serial=plain(next(filter(None, serials), "")).upper(),
            model=_text(system, "Model"),
            maker=_text(system, "Manufacturer"),
            uuid=_text(system, "UUID"),
            power=_text(system, "PowerState"),
            boot=_text(boot or {}, "BootSourceOverrideTarget") if overridden else "",
            bios=_text(system, "BiosVersion"),
            bmc=_text(manager, "FirmwareVersion"),
            bmc_model=_text(manager, "Model"),
        )


def _text(document: Document, key: str) -> str:
    found = document.get(key)
    return plain(found) if isinstance(found, str) else ""
