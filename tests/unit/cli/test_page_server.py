# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The server of pages: who gets in, what it says, and that it follows what goes on."""

from __future__ import annotations

import http.client
import json
import threading
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.cli import page_server
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.page_server import PageServer, insist_on_loopback


class Source:
    """Pages that a test chooses."""

    name = "north"

    def __init__(self) -> None:
        self.going, self.last = "<p>one</p>", "a"

    def site(self) -> str:
        return "<main>the site</main>"

    def run(self, name: str) -> str | None:
        return f"<main>{name}</main>" if name == "apply-1" else None

    def live(self) -> str:
        return self.going

    def ended(self) -> str:
        return self.last


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    monkeypatch.setattr(page_server, "TICK_S", 0.01)
    with PageServer("127.0.0.1", 0, Source()) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.putrequest(method, path, skip_host=True)
    whole = {
        "Host": f"127.0.0.1:{server.server_port}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    for name, value in whole.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def bearer(server: PageServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.key}"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "", "192.0.2.1"])
def test_addresses_that_others_reach_are_refused(address: str) -> None:
    with pytest.raises(CommandError, match="no loopback address") as caught:
        insist_on_loopback(address)
    assert caught.value.code == Exit.BAD_INPUT
    insist_on_loopback("127.0.0.9")
    insist_on_loopback("::1")


def test_the_first_page_says_nothing_of_the_site_but_its_name(server: PageServer) -> None:
    answer = ask(server, "/")
    text = answer.read().decode()
    assert answer.status == 200 and "the site</main>" not in text and server.key not in text
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/site", "/events", "/run/apply-1", "/nothing"])
def test_without_the_key_there_is_nothing(path: str, server: PageServer) -> None:
    for given in (
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": f"Basic {server.key}"},
        {"Authorization": "é"},
    ):
        assert ask(server, path, **given).status == 401
    assert ask(server, f"{path}?key={server.key}").status == 401


def test_with_the_key(server: PageServer) -> None:
    key = bearer(server)
    assert ask(server, "/site", **key).read() == b"<main>the site</main>"
    assert ask(server, "/run/apply-1", **key).read() == b"<main>apply-1</main>"
    for path in (
        "/run/gone",
        "/run/../x",
        "/run/..%2fx",
        "/run/.hidden",
        "/run/",
        "/SITE",
        "/site/",
    ):
        assert ask(server, path, **key).status == 404, path


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", ""]
)
def test_a_name_that_points_here_is_refused(host: str, server: PageServer) -> None:
    assert ask(server, "/", Host=host).status == 421
    assert ask(server, "/site", **bearer(server), Host=host).status == 421


def test_other_pages_are_refused_and_nothing_is_ever_changed(server: PageServer) -> None:
    assert ask(server, "/", Sec_Fetch_Site="cross-site").status == 403
    assert ask(server, "/", Sec_Fetch_Site="same-origin").status == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(server, "/site", method, **bearer(server)).status == 501


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, t.Any]]:
    kind = ""
    for line in answer:
        name, _, value = line.decode().strip().partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_a_stream_tells_what_goes_on_and_when_a_run_has_ended(server: PageServer) -> None:
    source = t.cast("Source", server.source)
    answer = ask(server, "/events", **bearer(server))
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = events(answer)
    assert next(found) == ("live", "<p>one</p>")
    source.going = "<p>two\n</p>"
    assert next(found) == ("live", "<p>two\n</p>")
    source.last = "b"
    assert next(found) == ("site", {})


def test_streams_are_counted(server: PageServer) -> None:
    kept = [ask(server, "/events", **bearer(server)) for _ in range(page_server.MOST_STREAMS)]
    assert ask(server, "/events", **bearer(server)).status == 503
    assert {answer.status for answer in kept} == {200}


def test_the_address_has_the_key_where_browsers_send_it_to_nobody(server: PageServer) -> None:
    path, _, fragment = server.url.partition("#")
    assert path == f"http://127.0.0.1:{server.server_port}/" and fragment == f"key={server.key}"
