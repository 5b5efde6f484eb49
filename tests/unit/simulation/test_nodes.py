# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A node that stops being Ready is seen, whatever happens to it afterwards."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import typing as t
from collections.abc import Iterator

import pytest

from tests.support.simulation.nodes import Readiness, watched


def event(
    ready: str | None, kind: str = "MODIFIED", network: str = "10.128.0.0/24", version: str = "1"
) -> dict[str, t.Any]:
    """Return what a watch tells of a node."""
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    spec = {"podCIDR": network} if network else {}
    return {
        "type": kind,
        "object": {
            "metadata": {"name": "sim-1", "resourceVersion": version},
            "spec": spec,
            "status": {"conditions": conditions},
        },
    }


@pytest.mark.parametrize(
    ("events", "flaps", "joined"),
    [
        ([event(None, "ADDED"), event("False"), event("True")], 0, True),
        ([event("True", "ADDED"), event("Unknown")], 1, False),
        (
            [event("True"), event("False"), event("True"), event("True"), event("Unknown"), event("True")],
            2,
            True,
        ),
        ([event("True"), event("True", "DELETED"), event(None, "ADDED")], 0, False),
        ([event("True", network="")], 0, False),
        ([{"type": "BOOKMARK", "object": {}}], 0, False),
    ],
    ids=["joins", "is lost", "flaps twice", "is rebuilt", "has no part of the pod network", "bookmark"],
)
def test_readiness(events: list[dict[str, t.Any]], flaps: int, joined: bool) -> None:
    seen = Readiness()
    for told in events:
        seen.take(told)
    assert (seen.flaps, seen.joined) == (["sim-1"] * flaps, {"sim-1"} if joined else set())


def test_a_node_that_never_is_ready_is_named() -> None:
    with pytest.raises(TimeoutError, match="sim-1 is not Ready"):
        Readiness().wait("sim-1", 0)


GONE: dict[str, t.Any] = {"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "code": 410}}


@contextlib.contextmanager
def api_server(answers: list[tuple[int, list[dict[str, t.Any]]]]) -> Iterator[tuple[str, list[str]]]:
    """Answer one watch after the other and end it; the last one stays open."""
    asked: list[str] = []
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path.partition("resourceVersion=")[2])
            status, events = answers[len(asked) - 1]
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for told in events:
                line = json.dumps(told).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            if len(asked) == len(answers):
                over.wait()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: t.Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            over.set()
            server.shutdown()
            thread.join()


def test_a_watch_that_the_api_server_ends_goes_on_behind_its_last_event() -> None:
    answers: list[tuple[int, list[dict[str, t.Any]]]] = [
        (200, [event(None, "ADDED", version="6"), event("True", version="7")]),
        (503, [{"kind": "Status"}]),
        (200, []),
        (200, [event("Unknown", version="8"), event("True", version="9")]),
    ]
    with api_server(answers) as (server, asked), watched(server, "localhost", None) as seen:
        seen.wait("sim-1", 10)
        with seen._changed:
            assert seen._changed.wait_for(lambda: seen.seen == 4, 120)
    assert seen.flaps == ["sim-1"]
    assert asked == ["", "7", "7", "7"]


@pytest.mark.parametrize("told", [(200, [GONE]), (410, [])], ids=["in the watch", "at once"])
def test_what_the_api_server_has_forgotten_is_no_peace(told: tuple[int, list[dict[str, t.Any]]]) -> None:
    first = (200, [event("True", "ADDED")])
    with (
        api_server([first, told, (200, [])]) as (server, asked),
        pytest.raises(RuntimeError, match="flaps may have been missed"),
        watched(server, "localhost", None),
    ):
        for thread in threading.enumerate():
            if thread.name == "watch on nodes":
                thread.join(120)
    assert asked == ["", "1"]
