# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Downloads: resumed, refused when a byte differs, and whether names resolve."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
import threading
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from ironspan.artifacts import cache, download
from ironspan.cli.outcome import CommandError

from .stage import PUBLISHED, PUBLISHED_DIGEST, Server, file_server

SLOW_FETCH = """
import pathlib, sys
from ironspan.artifacts import download
def say(detail):
    print("got", flush=True)
    import time
    time.sleep(60)
download.fetch(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), say)
"""


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def target(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "download"


def test_a_file_arrives_and_progress_is_told(server: Server, target: pathlib.Path) -> None:
    server.files["/f"] = PUBLISHED
    told: list[str] = []
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, told.append)
    assert target.read_bytes() == PUBLISHED
    assert told[-1] == "1.1 MB of 1.1 MB"
    assert server.seen == [("/f", "")]


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    cuts=st.lists(st.integers(0, len(PUBLISHED) - 1), max_size=download.TRIES - 1), ranges=st.booleans()
)
def test_a_download_that_breaks_off_goes_on(
    cuts: list[int], ranges: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("cut") / "download"
    with file_server() as server:
        server.files["/f"], server.ranges, server.cut_after = PUBLISHED, ranges, list(cuts)
        download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert target.read_bytes() == PUBLISHED
    # A later cut may lie behind the end of what is left.
    assert min(len(cuts), 1) + 1 <= len(server.seen) <= len(cuts) + 1


def test_a_killed_download_goes_on_where_it_stopped(server: Server, target: pathlib.Path) -> None:
    server.files["/f"] = PUBLISHED * 4
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_FETCH, server.url("/f"), PUBLISHED_DIGEST, str(target)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "got\n"
        process.kill()
    server.files["/f"] = PUBLISHED
    # What was written reached the file in pieces; keep a part that is surely a beginning.
    part = target.read_bytes()[:1000] or PUBLISHED[:1000]
    target.write_bytes(part)
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert target.read_bytes() == PUBLISHED
    assert server.seen[-1] == ("/f", "bytes=1000-")


def test_one_wrong_byte_is_refused_and_the_file_removed(server: Server, target: pathlib.Path) -> None:
    server.files["/f"] = PUBLISHED[:-1] + b"X"
    with pytest.raises(CommandError, match="has another digest than the lock file says") as caught:
        download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert PUBLISHED_DIGEST in caught.value.message
    assert not target.exists()


def test_a_wrong_beginning_is_thrown_away_and_fetched_again(server: Server, target: pathlib.Path) -> None:
    server.files["/f"] = PUBLISHED
    target.write_bytes(b"something else")
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert target.read_bytes() == PUBLISHED
    assert [begin for _, begin in server.seen] == ["bytes=14-", ""]


@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_file_that_is_already_whole_or_too_long(server: Server, target: pathlib.Path, extra: bytes) -> None:
    server.files["/f"] = PUBLISHED
    target.write_bytes(PUBLISHED + extra)
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert target.read_bytes() == PUBLISHED


@pytest.mark.parametrize("begun", [0, 100])
def test_no_byte_more_is_written_than_there_may_be(
    server: Server, target: pathlib.Path, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    server.files["/f"] = PUBLISHED
    target.write_bytes(PUBLISHED[:begun])
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet, largest=len(PUBLISHED))
    target.write_bytes(PUBLISHED[:begun])
    monkeypatch.setattr(cache, "CHUNK", 1000)
    written: list[int] = []
    unlink = pathlib.Path.unlink

    def watched(path: pathlib.Path, missing_ok: bool = False) -> None:
        written.append(path.stat().st_size)
        unlink(path, missing_ok)

    monkeypatch.setattr(pathlib.Path, "unlink", watched)
    most = len(PUBLISHED) - 1
    with pytest.raises(CommandError, match=f"is larger than the {most} bytes"):
        download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet, largest=most)
    assert len(written) == 1
    assert most - 1000 <= written[0] <= most
    assert not target.exists()


@pytest.mark.parametrize("status", [403, 404, 410])
def test_what_is_not_there_is_asked_for_once(server: Server, target: pathlib.Path, status: int) -> None:
    server.statuses = [status] * 10
    with pytest.raises(CommandError, match=f"cannot download .*: {status} "):
        download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert len(server.seen) == 1


def test_a_server_that_recovers_is_asked_again(server: Server, target: pathlib.Path) -> None:
    server.files["/f"], server.statuses = PUBLISHED, [503, 500]
    download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert len(server.seen) == 3


def test_a_server_that_does_not_recover_is_given_up(server: Server, target: pathlib.Path) -> None:
    server.statuses = [503] * 10
    with pytest.raises(CommandError, match="503") as caught:
        download.fetch(server.url("/f"), PUBLISHED_DIGEST, target, quiet)
    assert "goes on where it stopped" in caught.value.remedy
    assert len(server.seen) == download.TRIES


def test_nobody_listening_is_an_error(target: pathlib.Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/f"
    with pytest.raises(CommandError, match=r"cannot download .*[Rr]efused"):
        download.fetch(address, PUBLISHED_DIGEST, target, quiet)
    with pytest.raises(CommandError, match=r"cannot download .*[Rr]efused"):
        download.fetch_unchecked(address, target, quiet)


@pytest.mark.parametrize(
    ("known", "asked", "answer"),
    [
        ({"a", "b"}, {"a", "b:5000"}, True),
        ({"a"}, {"a", "b"}, False),
        (set(), {"a"}, False),
        (set(), set(), True),
    ],
)
def test_names_resolve_together_or_not_at_all(
    known: set[str], asked: set[str], answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(name: str, *_: object, **__: object) -> list[object]:
        if name in known:
            return []
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    assert download.resolves(asked) is answer


def test_a_resolver_that_hangs_counts_as_no(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hold.wait(120))
    begun = time.monotonic()
    assert download.resolves({"a", "b"}, timeout=0.2) is False
    assert time.monotonic() - begun < 60
    hold.set()
