# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tell whether a text is something: what the grammars of texts are made from.

Patterns name the digits and letters that they take: Python's classes also hold those of other scripts.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Callable

Judge = Callable[[str], bool]


def like(pattern: str, longest: int = 0) -> Judge:
    """Return a judge of whole texts by a regular expression, with a most of characters where one is given."""
    compiled = re.compile(pattern, re.ASCII)

    def is_right(text: str) -> bool:
        return compiled.fullmatch(text) is not None and not (longest and len(text) > longest)

    return is_right


def no_climbing(judge: Judge) -> Judge:
    """Let a judge refuse ``..`` between slashes."""
    return lambda text: judge(text) and ".." not in text.split("/")


_URL_TEXT = like(r"https?://[A-Za-z0-9._~:/?#@!&'()*+,=%\[\]-]+")
HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
"""Pattern of a host's name in an address."""
_GIT_URL = like(
    rf"https?://{HOST}(:[0-9]{{1,5}})?/[A-Za-z0-9._~/%+-]+"
    rf"|(ssh|git)://([A-Za-z0-9._-]+@)?{HOST}(:[0-9]{{1,5}})?/[A-Za-z0-9._~/%+-]+"
    rf"|[A-Za-z0-9._-]+@{HOST}:[A-Za-z0-9._~/%+-]+|file:///[A-Za-z0-9._~/%+-]+"
)
_GIT_REF = like(r"[A-Za-z0-9_][A-Za-z0-9._@+,=%#-]*(/[A-Za-z0-9_@+,=%#-][A-Za-z0-9._@+,=%#-]*)*")


def is_address(text: str) -> bool:
    """Tell whether a text is an IP address without a zone."""
    try:
        return "%" not in text and str(ipaddress.ip_address(text)) != ""
    except ValueError:
        return False


def is_network(text: str) -> bool:
    """Tell whether a text is an IPv4 network, written as the standard library writes it."""
    try:
        return "/" in text and text.isascii() and str(ipaddress.IPv4Network(text)) == text
    except ValueError:
        return False


def is_url(text: str) -> bool:
    """Tell whether a text is an address of http or https without a login."""
    if not _URL_TEXT(text):
        return False
    try:
        parts = urllib.parse.urlsplit(text)
        # A login would be in every log that has the address.
        is_open = "@" not in parts.netloc
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and is_open
    except ValueError:
        return False


def is_git_url(text: str) -> bool:
    """Tell whether git can clone from a text, without a password in it."""
    if not _GIT_URL(text):
        return False
    try:
        return "://" not in text or urllib.parse.urlsplit(text).port != 0
    except ValueError:
        return False


def is_git_ref(text: str) -> bool:
    """Tell whether a text can be a branch, a tag or a commit, as git-check-ref-format(1) has it."""
    parts = text.split("/")
    return _GIT_REF(text) and ".." not in text and not any(part.endswith((".", ".lock")) for part in parts)


def is_line(text: str) -> bool:
    """Tell whether a text is one line that can be read."""
    # A non-breaking space is no printable character to Python; people's keyboards make them.
    return bool(text.strip()) and all(char.isprintable() or char == "\u00a0" for char in text)
