# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A BMC of the lab: speaks TLS, asks for an account, answers for its server, and fails on purpose."""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
import threading
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509

from ironspan.lab.bmc import resources
from ironspan.lab.bmc.faults import Faults
from ironspan.lab.bmc.listener import Listener, handler_of
from ironspan.lab.bmc.resources import ACCOUNTS, CERTIFICATES, ROOT, Document, State, error
from ironspan.lab.bmc.servers import Answer, Server
from ironspan.lab.bmc.updates import SERVICE, Updates


class Front:
    """One BMC.

    Args:
        folder: for its key and certificate.
        state: what it remembers.
        server: its server.
        address: where it listens.
        port: of HTTPS; 0 for any that is free.
        keep: called when a password has changed.
    """

    def __init__(
        self,
        folder: Path,
        state: State,
        server: Server,
        address: str = "127.0.0.1",
        port: int = 0,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._keep = keep
        self.state, self.server, self.faults = state, server, Faults()
        self.updates = Updates(state)
        self.address = address
        self.seen: list[tuple[str, str]] = []
        """Method and path of every request that an account was shown with."""
        self._files = (folder / f"{state.serial}.crt", folder / f"{state.serial}.key")
        self._pending: resources.Key | None = None
        self._lock = threading.Lock()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._context.load_cert_chain(*self._files)
        except OSError:
            # There is none, or one half of it.
            key = resources.new_key({})
            self._show(resources.factory_certificate(key, state.serial), key)
        self._listener = Listener((address, port), handler_of(self), self._context)
        self.port: int = self._listener.server_address[1]

    @property
    def certificate_file(self) -> Path:
        """The certificate that it shows, PEM."""
        return self._files[0]

    @property
    def sha256(self) -> str:
        """Fingerprint of the certificate that it shows."""
        return resources.sha256_of(self.certificate_file.read_text())

    @contextlib.contextmanager
    def running(self) -> Iterator[Front]:
        """Answer as long as the block lasts."""
        thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._listener.over.set()
            self._listener.shutdown()
            self._listener.server_close()
            thread.join()

    def _show(self, certificate: bytes, key: resources.Key) -> None:
        for path, content in zip(self._files, (certificate, resources.key_pem(key)), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        self._context.load_cert_chain(*self._files)

    # -- answers -----------------------------------------------------------------------------------

    def answer(self, method: str, target: str, body: Document | None, authorization: str) -> Answer:
        """Answer a request; its faults are the handler's."""
        path = urlsplit(target).path
        path = path.rstrip("/") if path != f"{ROOT}/" else ROOT
        if path != ROOT:
            with self._lock:
                refusal = self._refusal(method, path, authorization)
            if refusal:
                return refusal
            self.seen.append((method, path))
        with self._lock:
            found = self._own(method, path, target, body)
        if found is not None:
            return found
        if method == "POST" and path.endswith("ComputerSystem.Reset"):
            if self.faults.power:
                return Answer(204)
            self.updates.reset()
        answer = self.server.ask(method, path if path != ROOT else f"{ROOT}/", body)
        if method == "GET" and answer.status == 200 and answer.body is not None:
            return Answer(200, self._completed(path, answer.body))
        return answer

    def _refusal(self, method: str, path: str, authorization: str) -> Answer | None:
        """Return why a request gets nothing: no account, or one that has to change its password first."""
        with contextlib.suppress(ValueError):
            name, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            locked = self.state.lockout and self.state.failed >= self.state.lockout
            for number, account in self.state.accounts.items():
                if (account.username, account.password, account.enabled, locked) == (
                    name,
                    password,
                    True,
                    False,
                ):
                    self.state.failed = 0
                    own = f"{ACCOUNTS}/Accounts/{number}"
                    if account.must_change and not (path.startswith(ACCOUNTS) and method in ("GET", "PATCH")):
                        message = "The password must be changed."
                        return Answer(403, error("PasswordChangeRequired", message, MessageArgs=[own]))
                    return None
        self.state.failed += bool(authorization)
        return Answer(401, error("NoValidSession", "There is no valid session."))

    def _own(self, method: str, path: str, target: str, body: Document | None) -> Answer | None:
        """Answer for what the BMC itself has; None for what is its server's."""
        system, manager, chassis = (
            f"{ROOT}/{kind}/{self._id(kind)}" for kind in ("Systems", "Managers", "Chassis")
        )
        if method == "PATCH":
            return self._changed(path, body or {}, system, manager)
        if method == "POST" and path.startswith(CERTIFICATES):
            return self._signed(path, body or {})
        if (answer := self.updates.answer(method, path, body)) is not None:
            return answer
        if method != "GET":
            return None
        skip = int((parse_qs(urlsplit(target).query).get("$skip") or ["0"])[0])
        numbers = [f"{ACCOUNTS}/Accounts/{number}" for number in self.state.accounts]
        https = f"{manager}/NetworkProtocol/HTTPS/Certificates"
        found: dict[str, Document] = {
            ACCOUNTS: resources.account_service(self.state),
            f"{ACCOUNTS}/Accounts": resources.collection(f"{ACCOUNTS}/Accounts", "ManagerAccount", numbers),
            CERTIFICATES: resources.certificate_service(),
            f"{manager}/NetworkProtocol": resources.network_protocol(manager, self.state),
            https: resources.collection(https, "Certificate", [f"{https}/1"]),
            f"{https}/1": {"@odata.id": f"{https}/1", "Id": "1", "CertificateType": "PEM"},
            f"{manager}/LogServices": resources.collection(
                f"{manager}/LogServices", "LogService", [f"{manager}/LogServices/SEL"]
            ),
            f"{manager}/LogServices/SEL": resources.log_service(manager),
            f"{manager}/LogServices/SEL/Entries": resources.log_page(manager, self.state, skip),
            f"{chassis}/Power": resources.power(chassis, self._watts(system)),
            **{
                f"{ACCOUNTS}/Accounts/{number}": resources.account(number, one)
                for number, one in self.state.accounts.items()
            },
        }
        return Answer(200, found[path]) if path in found else None

    def _id(self, kind: str) -> str:
        """Return the identity of the server's chassis or manager, as its own answer has it."""
        if kind == "Systems":
            return self.server.identity
        links = (self.server.ask("GET", f"{ROOT}/Systems/{self.server.identity}", None).body or {}).get(
            "Links", {}
        )
        entries = links.get({"Chassis": "Chassis", "Managers": "ManagedBy"}[kind]) or [{"@odata.id": "/none"}]
        return str(entries[0]["@odata.id"]).rpartition("/")[2]

    def _completed(self, path: str, body: Document) -> Document:
        """Return an answer of the server with what its BMC knows of it."""
        kind = path.removeprefix(f"{ROOT}/").partition("/")[0] if path != ROOT else "root"
        here = path.count("/") == ROOT.count("/") + 2
        if path == ROOT:
            services = {
                "AccountService": ACCOUNTS,
                "CertificateService": CERTIFICATES,
                "UpdateService": SERVICE,
            }
            return {**body, "Product": "ironspan lab BMC", **_links(services)}
        if path == f"{ROOT}/Systems":
            return resources.collection(path, "ComputerSystem", [f"{path}/{self.server.identity}"])
        if kind == "Systems" and here:
            return {
                **body,
                "SerialNumber": self.faults.serial or self.state.serial,
                "Model": self.state.model,
                "BiosVersion": self.state.bios,
                "PowerState": self._claimed(str(body.get("PowerState"))),
                "LocationIndicatorActive": self.state.light,
            }
        if kind == "Managers" and here:
            own = {"NetworkProtocol": f"{path}/NetworkProtocol", "LogServices": f"{path}/LogServices"}
            return {**body, "FirmwareVersion": self.state.firmware, "Model": "Lab BMC", **_links(own)}
        if kind == "Chassis" and here:
            system = self.server.ask("GET", f"{ROOT}/Systems/{self.server.identity}", None).body or {}
            return {**body, "PowerState": system.get("PowerState"), **_links({"Power": f"{path}/Power"})}
        if "VirtualMedia" in path and self.faults.stale_media and "Inserted" in body:
            return {**body, "Inserted": True, "Image": body.get("Image") or "http://192.0.2.1/stale.iso"}
        return body

    def _claimed(self, power: str) -> str:
        return {"claims-off": "Off", "claims-on": "On"}.get(self.faults.power, power)

    def _watts(self, system: str) -> float:
        body = self.server.ask("GET", system, None).body or {}
        return self.state.watts_off if body.get("PowerState") == "Off" else self.state.watts_on

    def _changed(self, path: str, body: Document, system: str, manager: str) -> Answer | None:
        if path == f"{manager}/NetworkProtocol":
            for name, value in body.items():
                if name in self.state.locked_services:
                    return Answer(400, error("PropertyNotWritable", f"{name} is read only."))
                self.state.services[name] = bool(value["ProtocolEnabled"])
            return Answer(204)
        if path == system and "LocationIndicatorActive" in body:
            self.state.light = bool(body["LocationIndicatorActive"])
            return Answer(204)
        matched = re.fullmatch(rf"{ACCOUNTS}/Accounts/([^/]+)", path)
        account = self.state.accounts.get(matched[1]) if matched else None
        if account is None:
            return None
        password = str(body.get("Password") or "")
        if not self.state.least <= len(password) <= self.state.most:
            message = f"The value {password} of the property Password is not of a length that is accepted."
            return Answer(400, error("PropertyValueFormatError", message))
        account.password, account.must_change = password, False
        self._keep()
        return Answer(204)

    def _signed(self, path: str, body: Document) -> Answer:
        if path.endswith("GenerateCSR"):
            self._pending = resources.new_key(body)
            csr = resources.request_pem(self._pending, body)
            return Answer(200, {"CSRString": csr, "CertificateCollection": body["CertificateCollection"]})
        text = str(body["CertificateString"]).encode()
        key = self._pending
        with contextlib.suppress(ValueError):
            if key and x509.load_pem_x509_certificate(text).public_key() == key.public_key():
                self._show(text, key)
                return Answer(204)
        return Answer(400, error("PropertyValueIncorrect", "The certificate is not for the key of this BMC."))


def _links(paths: t.Mapping[str, str]) -> Document:
    return {name: {"@odata.id": path} for name, path in paths.items()}
