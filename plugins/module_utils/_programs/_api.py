# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An API server, asked with the standard library alone by programs that are a single file."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import typing as t
from urllib.parse import urlencode

_TIMEOUT_SECONDS = 15
_PAGE = 500


class _Access(t.Protocol):
    """How an API server is reached: https://HOST:PORT, and files."""

    @property
    def server(self) -> str:
        """Its address."""

    @property
    def ca(self) -> str:
        """Who signs its certificate."""

    @property
    def certificate(self) -> str:
        """The program's own certificate."""

    @property
    def key(self) -> str:
        """The key of that."""


class Refused(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class Cluster:
    """The API server, over one connection a pass."""

    def __init__(self, settings: _Access) -> None:
        self._host = settings.server.partition("://")[2]
        self._context = ssl.create_default_context(cafile=settings.ca)
        self._context.load_cert_chain(settings.certificate, settings.key)

    def ask(self, method: str, path: str, body: t.Optional[t.Dict[str, t.Any]] = None) -> t.Dict[str, t.Any]:
        """Send one request.

        Raises:
            Refused, OSError: the API answered with an error, or could not be reached.
        """
        content = None if body is None else json.dumps(body)
        connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_SECONDS, context=self._context)
        with contextlib.closing(connection):
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        parsed: t.Dict[str, t.Any] = json.loads(text) if text else {}
        if answer.status >= 400:
            raise Refused(answer.status, str(parsed.get("message", "")))
        return parsed

    def every(self, path: str, **query: str) -> t.List[t.Dict[str, t.Any]]:
        """Return all objects of a list, read in parts."""
        found: t.List[t.Dict[str, t.Any]] = []
        while True:
            page = self.ask("GET", f"{path}?{urlencode({**query, 'limit': _PAGE})}")
            found += page["items"]
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return found
