# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether files with firmware are where BMCs shall get them, asked before anything is planned."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

SECONDS = 10.0
"""For one answer: a plan asks for each file once."""
NOT_THERE = (403, 404, 410)
"""Answers by which a server says that it gives no such file to anybody who asks like this."""
Served = Callable[[str], str]
"""Called with the address of a file; returns what its server says against it, "" for nothing."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection is an answer too: what is behind it is the BMC's to find out."""

    def redirect_request(self, *_: object) -> None:
        return None


def asked_of(authorities: str = "") -> Served:
    """Return what asks servers for files, without fetching one.

    A server that this controller cannot reach, or whose certificate it does not know, says nothing: BMCs are
    on a network of their own.

    Args:
        authorities: file with those of the site's own server, for https; empty for the system's.
    """

    def ask(url: str) -> str:
        # No proxy: BMCs use none either. Made here, since most answers come from no TLS.
        context = ssl.create_default_context(cafile=authorities or None)
        handlers = (
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
            _NoRedirect(),
        )
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"answers {error.code}" if error.code in NOT_THERE else ""
        except (OSError, http.client.HTTPException, ValueError):
            return ""

    return ask


def missing_files(urls: Sequence[str], ask: Served) -> dict[str, str]:
    """Return the files that are not served, each asked for once: address to what its server says."""
    found = {url: ask(url) for url in dict.fromkeys(urls) if url}
    return {url: said for url, said in found.items() if said}
