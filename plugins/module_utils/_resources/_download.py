# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fetching a file from the mirror into a temporary file, checked before anybody sees it."""

from __future__ import annotations

import hashlib
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

ATTEMPTS = 3
TIMEOUT_SECONDS = 60.0
"""For connecting and for each read, not for the whole file."""
LEAST_BYTES = 1 << 16
"""What must come in that time: a mirror that trickles would hold the run up for ever."""

_CHUNK = 1 << 18

VERIFY = "Run 'ironspan artifacts verify' where the mirror's folder is; it names and replaces damaged files."


def fetch(url: str, beside: str, sha256: str, size: int) -> t.Tuple[int, str]:
    """Stream a file from the mirror to a temporary file and check its size and digest.

    Args:
        url: the file's full address (http or https).
        beside: the temporary file is made in this path's folder.
        sha256: the digest it must have, hexadecimal.
        size: its size in bytes; no more is ever written.

    Returns:
        The open descriptor of the temporary file and its path.

    Raises:
        ResourceError: the mirror does not answer or has not the file, or the content is not what was asked
            for. Nothing is left behind then.
    """
    if not url.startswith(("http://", "https://")):
        raise ResourceError(f"{url!r} is no address of a mirror", "Set site_mirror_url to http://HOST:PORT.")
    _check_space(os.path.dirname(beside), size)
    for attempt in range(1, ATTEMPTS + 1):
        descriptor, temporary = files.temporary_beside(beside)
        try:
            _stream(url, descriptor, sha256, size)
            return descriptor, temporary
        except BaseException as error:
            os.close(descriptor)
            files.remove_if_there(temporary)
            if not isinstance(error, _Unreachable):
                raise
            if attempt == ATTEMPTS:
                raise ResourceError(
                    str(error), "Check that the mirror runs and that this host reaches it."
                ) from error
        time.sleep(attempt)
    raise AssertionError("not reached")


class _Unreachable(Exception):
    """Worth another attempt."""


def _check_space(folder: str, size: int) -> None:
    descriptor = paths.opened(folder)
    try:
        status = os.statvfs(descriptor)
    finally:
        os.close(descriptor)
    free = status.f_bavail * status.f_frsize
    if size > free:
        raise ResourceError(
            f"{folder} has {free} bytes free, {size} are needed", "Make room on this file system."
        )


def _stream(url: str, descriptor: int, sha256: str, size: int) -> None:
    import http.client
    import socket
    import urllib.error
    import urllib.request

    # The mirror is part of the site: a proxy for the internet must not come between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    digest = hashlib.sha256()
    length = 0
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as response:
            header = response.headers.get("Content-Length") or ""
            announced = int(header) if header.isdigit() else None
            until, enough = time.monotonic() + TIMEOUT_SECONDS, LEAST_BYTES
            # Counted here: read1 of older Pythons does not know where an answer ends.
            while length != announced:
                chunk = response.read1(_CHUNK)
                if not chunk:
                    break
                length += len(chunk)
                if length >= enough:
                    until, enough = time.monotonic() + TIMEOUT_SECONDS, length + LEAST_BYTES
                elif time.monotonic() > until:
                    raise TimeoutError(f"less than {LEAST_BYTES} bytes came in {TIMEOUT_SECONDS:.0f} s")
                if length > size:
                    raise _wrong(url, "size", f"{size} bytes", f"more than {size} bytes")
                digest.update(chunk)
                files.write_all(descriptor, chunk)
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise _Unreachable(f"{url}: the mirror answers {error.code} {error.reason}") from error
        remedy = "Run 'ironspan artifacts build' (or fetch) where the mirror's folder is."
        raise ResourceError(f"{url}: the mirror answers {error.code} {error.reason}", remedy) from error
    except urllib.error.URLError as error:
        raise _Unreachable(f"{url}: {error.reason}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, socket.timeout) as error:  # noqa: UP041
        raise _Unreachable(f"{url}: {type(error).__name__}: {error}") from error
    if announced is not None and length < announced:
        raise _Unreachable(f"{url}: the connection ended after {length} of {announced} bytes")
    if length != size:
        raise _wrong(url, "size", f"{size} bytes", f"{length} bytes")
    if digest.hexdigest() != sha256.lower():
        raise _wrong(url, "SHA-256", sha256.lower(), digest.hexdigest())


def _wrong(url: str, what: str, wanted: str, got: str) -> ResourceError:
    return ResourceError(f"{url} has the wrong {what}: wanted {wanted}, got {got}", VERIFY)
