# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a server's ramdisk says to Ironic, without a server: it is looked up, calls back, and takes commands.

As ironic-python-agent 13.0.0 does it: ``/v1/lookup`` and ``/v1/heartbeat`` of Ironic without a login, its own
``/v1/commands``, and the token that the lookup gave it. A command can fail as for an agent without a tool.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import ssl
import threading
import typing as t
import urllib.request
import uuid

VERSION = "13.0.0"
STEP = {"step": "erase_devices_metadata", "priority": 0, "interface": "deploy", "reboot_requested": False}
MANAGER = "GenericHardwareManager"
FIRST = {
    f"get_{kind}_steps": {f"{kind}_steps": {MANAGER: [STEP]}, "hardware_manager_version": {MANAGER: "1.2"}}
    for kind in ("deploy", "clean")
}
"""What is answered to the questions that come before work."""


class Secured(t.NamedTuple):
    """How an agent speaks to Ironic, and is spoken to, with TLS.

    Args:
        address: where it listens.
        token: what its medium has, so that nobody else speaks for the server.
        trust: of Ironic and its files, by the authority on the medium.
        certificate: PEM file of the agent's own certificate, which Ironic is told.
        key: PEM file of its key.
    """

    address: str
    token: str
    trust: ssl.SSLContext
    certificate: pathlib.Path
    key: pathlib.Path


class Agent:
    """An agent that runs until the block ends.

    Args:
        ironic: address of the API.
        mac: of a port of its server.
        fails: step to the error that it ends with.
        secured: speak TLS; without it everything is on loopback, in clear.
    """

    def __init__(
        self, ironic: str, mac: str, fails: t.Mapping[str, str], secured: Secured | None = None
    ) -> None:
        self.commands: list[dict[str, t.Any]] = []
        """What it was told, with how each ended."""
        self._ironic, self._mac, self._fails = ironic, mac, dict(fails)
        self._secured = secured
        self._over = threading.Event()
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({"commands": agent.commands})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(agent._ended(body["name"].rpartition(".")[2], body.get("params") or {}))

            def answer(self, body: t.Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: t.Any) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(
            (secured.address if secured else "127.0.0.1", 0), Handler
        )
        if secured:
            own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            own.load_cert_chain(secured.certificate, secured.key)
            self._server.socket = own.wrap_socket(self._server.socket, server_side=True)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._beat, daemon=True),
        ]

    def __enter__(self) -> Agent:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(60)
        self._server.server_close()

    def _ended(self, name: str, params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        step = params.get("step")
        reason = self._fails.get(step["step"]) if step else None
        if step and step["step"] == "write_image" and not reason:
            reason = self.write(step["args"])
        kind = name.removeprefix("execute_").removesuffix("_step")
        done = {f"{kind}_step": step, f"{kind}_result": None} if step else FIRST.get(name, {"result": "done"})
        error = {"type": "CommandExecutionError", "code": 500, "message": reason, "details": reason}
        ended = {
            "id": str(uuid.uuid4()),
            "command_name": name,
            "command_params": dict(params),
            "command_status": "FAILED" if reason else "SUCCEEDED",
            "command_result": None if reason else done,
            "command_error": error if reason else None,
        }
        self.commands.append(ended)
        return ended

    def write(self, told: t.Mapping[str, t.Any]) -> str | None:
        """Write the image; return what went wrong. This agent has no disk."""

    def _beat(self) -> None:
        """Look the node up until Ironic waits for its agent, then call back every second."""
        token, node = "", ""
        while not self._over.wait(1):
            try:
                if not node:
                    found = self._ask(f"/v1/lookup?addresses={self._mac}")
                    node, token = found["node"]["uuid"], found["config"]["agent_token"]
                url = f"http://127.0.0.1:{self._server.server_port}"
                told = {"callback_url": url, "agent_version": VERSION, "agent_token": token}
                if self._secured:
                    told["callback_url"] = f"https://{self._secured.address}:{self._server.server_port}"
                    told["agent_token"] = self._secured.token
                    told["agent_verify_ca"] = self._secured.certificate.read_text()
                self._ask(f"/v1/heartbeat/{node}", told)
            except OSError:
                continue  # it does not wait for one now, or not any more

    def _ask(self, path: str, body: t.Any = None) -> t.Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"X-OpenStack-Ironic-API-Version": "1.72", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._ironic}{path}", data, headers)
        with self.fetched(request) as answer:
            said = answer.read()
        return json.loads(said) if said else None

    def fetched(self, request: str | urllib.request.Request) -> t.Any:
        """Return an answer, to be closed; with TLS, of those whom the medium's authority vouches for."""
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._secured:
            handlers.append(urllib.request.HTTPSHandler(context=self._secured.trust))
        return urllib.request.build_opener(*handlers).open(request, timeout=60)
