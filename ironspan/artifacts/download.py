# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Downloads of published files: resumed where they stopped, given a place only with the right digest."""

from __future__ import annotations

import collections.abc
import http.client
import pathlib
import socket
import threading
import typing as t
import urllib.error
import urllib.request

from ironspan.artifacts import cache
from ironspan.cli.outcome import CommandError

TIMEOUT_S = 30.0
"""Seconds without a byte after which a download counts as stuck."""
LARGEST_BYTES = 2 << 30
"""More is never written of a file whose size nobody said: ten times the largest that is published."""
RESOLVE_S = 5.0
"""Seconds that a name has for its answer when `--source auto` asks: without DNS nobody shall wait long."""
TRIES = 4
"""Attempts for one download; each goes on where the last one stopped."""

Say = collections.abc.Callable[[str], None]
Opener = collections.abc.Callable[[urllib.request.Request], t.Any]


def open_url(request: urllib.request.Request) -> t.Any:
    """Open a request with the usual timeout; proxies come from the environment as Python knows them."""
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)


DISTRUST = "Do not use it before you know why: it was changed there, or something on the way changes files."


class TooLarge(Exception):
    """More is served than there may be."""


def fetch(
    url: str,
    digest: str,
    target: pathlib.Path,
    say: Say,
    opener: Opener = open_url,
    largest: int = LARGEST_BYTES,
) -> None:
    """Download a file to ``target``; what an earlier, killed download left there is continued.

    Args:
        url: the address.
        digest: what the file must have, ``sha256:HEX`` or ``sha512:HEX``.
        target: an unfinished file, in a folder that only this step uses.
        say: told how far it is.
        opener: opens requests; tests hand in their own.
        largest: bytes, of which not one more is written: a server could fill the disk before its digest is
            seen to be wrong.

    Raises:
        CommandError: not reachable, or the served file has another digest or is larger; it is then removed.
    """
    problem = ""
    for _ in range(TRIES):
        begun = target.stat().st_size if target.exists() else 0
        try:
            _continue(url, target, begun, say, opener, largest)
        except TooLarge:
            target.unlink()
            raise CommandError(
                f"{url} is larger than the {largest} bytes that it may have",
                DISTRUST,
            ) from None
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
            if error.code in (403, 404, 410):
                break
            if error.code == 416:
                # What is there is not a beginning of what the server has, or already all of it.
                if cache.has_digest(target, digest):
                    return
                target.unlink(missing_ok=True)
            continue
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", "") or error)
            continue
        if cache.has_digest(target, digest):
            return
        found = cache.digest_of(target, digest.partition(":")[0])
        target.unlink()
        if begun:
            # The part from the earlier run may be the wrong one: once more from the start.
            problem = f"served {found}"
            continue
        raise CommandError(
            f"{url} has another digest than the lock file says\n  lock file: {digest}\n  served:    {found}",
            DISTRUST,
        )
    raise CommandError(
        f"cannot download {url}: {problem}", "Run the same command again: it goes on where it stopped."
    )


def fetch_unchecked(url: str, target: pathlib.Path, say: Say, opener: Opener = open_url) -> None:
    """Download a file that no digest is known of yet, to learn its digest; never to use it.

    Raises:
        CommandError: not reachable.
    """
    try:
        _continue(url, target, 0, say, opener, LARGEST_BYTES)
    except TooLarge as error:
        target.unlink()
        raise CommandError(f"{url} is larger than {LARGEST_BYTES} bytes") from error
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"cannot download {url}: {error}") from error


def _continue(url: str, target: pathlib.Path, begun: int, say: Say, opener: Opener, largest: int) -> None:
    headers = {"User-Agent": "ironspan", **({"Range": f"bytes={begun}-"} if begun else {})}
    with opener(urllib.request.Request(url, headers=headers)) as answer:
        # A server that does not know ranges sends everything with 200.
        resumed = begun > 0 and answer.status == 206
        expected = int(answer.headers.get("Content-Length") or 0)
        total = expected + (begun if resumed else 0)
        done = begun if resumed else 0
        told = 0
        with target.open("ab" if resumed else "wb") as handle:
            while chunk := answer.read(cache.CHUNK):
                done += len(chunk)
                if done > largest:
                    raise TooLarge
                handle.write(chunk)
                if total and done * 20 // total > told:
                    told = done * 20 // total
                    say(f"{cache.readable_size(done)} of {cache.readable_size(total)}")
    if total and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def resolves(hosts: collections.abc.Collection[str], timeout: float = RESOLVE_S) -> bool:
    """Say whether all these host names resolve, asking for all at once.

    Args:
        hosts: names, with or without a port.
        timeout: seconds for all of them together.
    """
    answers: list[bool] = []

    def ask(name: str) -> None:
        try:
            socket.getaddrinfo(name.partition(":")[0], 443, type=socket.SOCK_STREAM)
            answers.append(True)
        except OSError:
            answers.append(False)

    # Threads that may outlive the wait: getaddrinfo cannot be interrupted.
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in sorted(set(hosts))]
    for thread in threads:
        thread.start()
    limit = threading.Event()
    timer = threading.Timer(timeout, limit.set)
    timer.daemon = True
    timer.start()
    while not limit.is_set() and any(thread.is_alive() for thread in threads):
        limit.wait(0.02)
        if False in answers:
            break
    timer.cancel()
    return len(answers) == len(threads) and all(answers)
