# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process in which two nodes test what lies between them; it may hang, and is killed then.

Reads a ``Meeting`` as JSON, and writes a line of JSON when a test begins and when it has ended:

    {"begun": "A10"}
    {"test": "A10", "passed": true, "measured": 9.3, "unit": "Gbit/s", "way": "TCP", "detail": "..."}

The last line is ``{"done": ""}``, or why there is none.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
import sys
import time
import typing as t
from dataclasses import dataclass

from ironspan.gpud.preflight import links, streams
from ironspan.gpud.preflight.children import bound
from ironspan.gpud.preflight.cuda import Cuda, CudaError

VERSION = 1
ANSWER_S = 300.0
"""Seconds for which the other node may be silent: longer than its longest test."""
_CONNECT_S, _AGAIN_S = 5.0, 1.0
_LONGEST = 1 << 16
_LARGEST = 1 << 30
TLS = b"\x16"
"""With this byte TLS begins; tokens of streams begin with another."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What this node is told of a meeting.

    Args:
        id: of the request, the same on both nodes.
        peer: name of the other Node.
        address, port: where one listens and the other calls.
        listens: whether it is this node that listens.
        wait_s: seconds for which the other node is waited for.
        seconds: how long TCP is measured, each way.
        authority: file with the cluster's authority.
        certificate, key: this node's, for listening or for calling.
        nccl: whether NCCL may be used on this node.
    """

    id: str
    peer: str
    address: str
    port: int
    listens: bool
    wait_s: float
    seconds: float
    authority: str
    certificate: str
    key: str
    nccl: bool


class PeerError(Exception):
    """The other node does not come, is another one, or has ended it: that says nothing about either."""


class Line:
    """The connection to the other node, of which both know who the other one is.

    Args:
        connection: TLS, with the other node's certificate.
        peer: name of the Node that it has to be.

    Raises:
        PeerError: it is another one.
    """

    def __init__(self, connection: ssl.SSLSocket, peer: str) -> None:
        named = {pair for part in (connection.getpeercert() or {}).get("subject", ()) for pair in part}
        if not {("commonName", f"system:node:{peer}"), ("organizationName", "system:nodes")} <= named:
            raise PeerError("who is there has another node's certificate")
        connection.settimeout(ANSWER_S)
        self._connection, self._file = connection, connection.makefile("rb")

    def say(self, **what: t.Any) -> None:
        """Send something.

        Raises:
            PeerError: nobody is there any more.
        """
        try:
            self._connection.sendall(json.dumps(what).encode() + b"\n")
        except OSError as error:
            raise PeerError("the other node ended it") from error

    def hear(self) -> dict[str, t.Any]:
        """Return what the other node says.

        Raises:
            PeerError: it says nothing any more, or nothing that could be read.
        """
        try:
            found = json.loads(self._file.readline(_LONGEST))
            if not isinstance(found, dict):
                raise ValueError
        except (OSError, ValueError, RecursionError) as error:
            raise PeerError("the other node ended it") from error
        return found


def _context(meeting: Meeting) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if meeting.listens else ssl.PROTOCOL_TLS_CLIENT)
    # Who it is stands in the certificate's subject, which the cluster's authority gives to nodes alone.
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_verify_locations(cafile=meeting.authority)
    made.load_cert_chain(meeting.certificate, meeting.key)
    return made


def accepted(meeting: Meeting, server: socket.socket) -> Line:
    """Return the line to the other node; others that call are hung up on.

    Raises:
        PeerError: it does not call in time.
    """
    context, end, seen = _context(meeting), time.monotonic() + meeting.wait_s, ""
    while (left := end - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            plain, _ = server.accept()
        except TimeoutError:
            break
        plain.settimeout(min(_CONNECT_S, left))
        try:
            return Line(context.wrap_socket(plain, server_side=True), meeting.peer)
        except (OSError, PeerError) as error:
            seen = f"; somebody else called: {error}"
            plain.close()
    raise PeerError(f"{meeting.peer} did not call within {meeting.wait_s:g} s{seen}")


def called(meeting: Meeting) -> Line:
    """Return the line to the other node.

    Raises:
        PeerError: it does not answer in time, or somebody else does.
    """
    context, end, last = _context(meeting), time.monotonic() + meeting.wait_s, ""
    while time.monotonic() < end:
        try:
            plain = socket.create_connection((meeting.address, meeting.port), _CONNECT_S)
            return Line(context.wrap_socket(plain), meeting.peer)
        except OSError as error:
            last = f": {error}"
            time.sleep(_AGAIN_S)
    raise PeerError(f"{meeting.peer} does not answer at {meeting.address} port {meeting.port}{last}")


def tell(**what: t.Any) -> None:
    """Write a line for the process that started this one."""
    print(json.dumps(what), flush=True)


def network(meeting: Meeting, line: Line, server: socket.socket | None) -> dict[str, t.Any]:
    """A10: send as much as goes through, one way after the other, and look at each byte.

    Raises:
        PeerError: the other node has ended it.
    """
    token = secrets.token_bytes(streams.TOKEN_BYTES - 1) if server else b""
    if server is not None:
        line.say(token=token.hex())
    else:
        token = bytes.fromhex(str(line.hear().get("token")))
    token = streams.MARK + token
    try:
        if server is not None:
            connections = streams.accepted(server, token)
        else:
            connections = streams.opened((meeting.address, meeting.port), token)
        with contextlib.ExitStack() as stack:
            for connection in connections:
                stack.enter_context(connection)
            # Each way has its own pattern, so that nothing comes back as an echo.
            if server is not None:
                found = streams.received(connections, token)
                streams.sent(connections, token[::-1], meeting.seconds)
            else:
                streams.sent(connections, token, meeting.seconds)
                found = streams.received(connections, token[::-1])
        mine: dict[str, t.Any] = {"gbits": found.gbits, "wrong": found.wrong}
    except OSError as error:
        mine = {"failed": str(error)[:120]}
    line.say(**mine)
    other = line.hear()
    for each, where in ((mine, "here"), (other, meeting.peer)):
        if each.get("failed"):
            return {"passed": False, "way": "TCP", "detail": f"{where}: {str(each['failed'])[:120]}"}
    figures = {"here": float(mine["gbits"]), meeting.peer: float(other["gbits"])}
    wrong = {"here": int(mine["wrong"]), meeting.peer: int(other["wrong"])}
    words = [f"{where} {figure:.2f}" for where, figure in figures.items()]
    words += [f"{count} blocks came {where} with wrong bits" for where, count in wrong.items() if count]
    return {
        "passed": not any(wrong.values()),
        "measured": min(figures.values()),
        "unit": "Gbit/s",
        "way": "TCP",
        "detail": "; ".join(words),
    }


def collective(meeting: Meeting, line: Line) -> dict[str, t.Any]:
    """A09: NCCL's all-reduce over the GPUs of both.

    Raises:
        PeerError: the other node has ended it.
    """
    why, cuda, library, mine = "", None, links.nccl() if meeting.nccl else None, {"gpus": 0, "size": 0}
    if not meeting.nccl:
        why = "MIG is on"
    elif library is None:
        why = "libnccl.so.2 is not there"
    else:
        try:
            cuda = Cuda()
            mine = {"gpus": cuda.count(), "size": min(_LARGEST, cuda.free_bytes() // 8) >> 20 << 20}
        except (CudaError, OSError) as error:
            line.say(**mine, why=str(error)[:120])
            line.hear()
            return {"passed": False, "way": "NCCL", "detail": str(error)[:120]}
    line.say(**mine, why=why)
    other = line.hear()
    if why or other.get("why"):
        return {"passed": None, "detail": why or f"{meeting.peer}: {str(other['why'])[:120]}"}
    assert cuda is not None
    ranks, size = mine["gpus"] + int(other["gpus"]), min(mine["size"], int(other["size"]))
    if meeting.listens:
        name = links.unique_id(library)
        line.say(name=name.hex())
    else:
        name = bytes.fromhex(str(line.hear()["name"]))
    first = 0 if meeting.listens else int(other["gpus"])
    passed, measured, unit, way, detail = links.all_reduce_between(cuda, library, name, first, ranks, size)
    return {"passed": passed, "measured": measured, "unit": unit, "way": way, "detail": detail}


def main(meeting: Meeting) -> None:
    """Meet the other node, and test.

    Args:
        meeting: what is known of it.
    """
    try:
        with contextlib.ExitStack() as stack:
            server = None
            if meeting.listens:
                server = stack.enter_context(streams.listening(meeting.address, meeting.port))
            line = accepted(meeting, server) if server else called(meeting)
            line.say(version=VERSION, id=meeting.id)
            if line.hear() != {"version": VERSION, "id": meeting.id}:
                raise PeerError("the other node was asked for something else")
            for test, run in (
                ("A10", lambda: network(meeting, line, server)),
                ("A09", lambda: collective(meeting, line)),
            ):
                tell(begun=test)
                tell(test=test, **_caught(run))
            # Neither goes before the other one has read all.
            line.say(done=True)
            line.hear()
        tell(done="")
    except (PeerError, OSError) as error:
        tell(done=str(error)[:200] or "it cannot be done")


def _caught(run: t.Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
    try:
        return run()
    except PeerError:
        raise
    except Exception as error:
        known = isinstance(error, CudaError | OSError)
        return {"passed": False, "detail": (str(error) if known else repr(error))[:200]}


if __name__ == "__main__":
    bound(int(sys.argv[1]))
    main(Meeting(**json.loads(sys.stdin.readline(_LONGEST))))
