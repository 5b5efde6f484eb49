# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The API of a controller (v2): where it is, one request, lists. Only what AWX, Ascender and AAP share."""

from __future__ import annotations

import json
import os
import typing as t
import urllib.parse
from collections.abc import Iterator, Mapping

import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

Content = dict[str, t.Any]
TOKEN_VARIABLE = "IRONSPAN_AWX_TOKEN"
PAGE = 200
"""The most that a controller puts on one page."""
WAITS_S = (10.0, 60.0)
"""For a connection, and for an answer."""
AGAIN = 2
"""How often a question is repeated that gets no answer: what is in front of a controller closes connections
that were not used for a while, at times just when one is used again."""
OLDEST: t.Final = {"AWX": (24, 6), "": (4, 6)}
"""Versions from which on the API is known: of AWX and Ascender, and of automation controller (AAP 2.5)."""


class ControllerError(RemoteError):
    """A controller cannot be asked, or refuses something."""


class Refused(ControllerError):
    """The controller answered with an error.

    Args:
        message: what it said, with the request.
        status: of HTTP.
    """

    def __init__(self, message: str, status: int, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


class Api:
    """One controller.

    Args:
        host: its URL; what is behind the name is kept (a path in front of ``/api/``).
        token: of an account.
        ca_file: of the authority that signed its certificate; "" for those that this machine trusts.
    """

    def __init__(self, host: str, token: str, ca_file: str = "") -> None:
        self._host = host.rstrip("/")
        self._token = token
        # An answer that did not come may have been acted upon: only questions are repeated.
        self._pool = urllib3.PoolManager(maxsize=8, retries=False, ca_certs=ca_file or None)
        self._prefix = ""

    @property
    def prefix(self) -> str:
        """Return the path of the API v2, asked for once.

        Raises:
            ControllerError: there is none, or one of a version that is not known.
        """
        if not self._prefix:
            self._prefix = self._discovered()
        return self._prefix

    def _discovered(self) -> str:
        top = self._request("GET", "/api/")
        if not isinstance(top, dict):
            raise self._no_controller()
        if versions := top.get("available_versions"):
            found = str(versions.get("v2") or "")
        elif controller := (top.get("apis") or {}).get("controller"):
            found = f"{str(controller).rstrip('/')}/v2/"
        else:
            found = ""
        if not found.startswith("/"):
            raise self._no_controller()
        self._insist_on_version(found)
        return found

    def _no_controller(self) -> ControllerError:
        return ControllerError(
            f"{self._host}/api/ does not answer as a controller does",
            "write the URL into awx_host that people open in their browsers, without /api",
        )

    def _insist_on_version(self, prefix: str) -> None:
        answer = self._request("GET", f"{prefix}ping/")
        text = str(answer.get("version", "")) if isinstance(answer, dict) else ""
        parts = tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())
        # AWX and Ascender count from 24 on, automation controller is at 4.
        oldest = OLDEST["AWX"] if parts and parts[0] >= 10 else OLDEST[""]
        if parts < oldest:
            raise ControllerError(
                f"the controller at {self._host} has version {text or 'unknown'}",
                "upgrade it: AWX 24.6, Ascender 25, automation controller 4.6 (AAP 2.5) or later",
            )

    def get(self, path: str, **query: t.Any) -> Content:
        """Return one object.

        Raises:
            ControllerError: it does not answer, or refuses.
        """
        return t.cast("Content", self._request("GET", self._path(path), query=query))

    def listed(self, path: str, **query: t.Any) -> Iterator[Content]:
        """Yield the objects of a list, page after page.

        Raises:
            ControllerError: it does not answer, or refuses.
        """
        page: t.Any = self.get(path, page_size=PAGE, **query)
        while True:
            yield from page["results"]
            if not page.get("next"):
                return
            page = self._request("GET", str(page["next"]))

    def post(self, path: str, body: Mapping[str, t.Any]) -> Content:
        """Make something; return the answer, empty where there is none."""
        return t.cast("Content", self._request("POST", self._path(path), body) or {})

    def patch(self, path: str, body: Mapping[str, t.Any]) -> Content:
        """Change fields of an object."""
        return t.cast("Content", self._request("PATCH", self._path(path), body) or {})

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._request("DELETE", self._path(path))

    def _path(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.prefix}{path}"

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, t.Any] | None = None,
        query: Mapping[str, t.Any] | None = None,
    ) -> t.Any:
        url = self._host + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body)
        timeout = urllib3.Timeout(connect=WAITS_S[0], read=WAITS_S[1])
        for left in range(AGAIN if method == "GET" else 0, -1, -1):
            try:
                answer = self._pool.request(
                    method, url, body=data, headers=headers, timeout=timeout, redirect=False
                )
                break
            except urllib3.exceptions.HTTPError as error:
                if left:
                    continue
                raise ControllerError(
                    f"the controller at {self._host} does not answer: {type(error).__name__}",
                    "look at awx_host and awx_ca_file, and whether it can be reached from here",
                ) from error
        return self._answered(method, path, answer.status, answer.data)

    def _answered(self, method: str, path: str, status: int, data: bytes) -> t.Any:
        try:
            content = json.loads(data) if data.strip() else None
        except ValueError:
            content = None
            if status < 300:
                raise self._no_controller() from None
        if status < 300:
            return content
        said = _said(content)
        if status == 401:
            raise Refused(
                f"the controller does not take the token: {said}",
                status,
                f"make another one (User, Tokens, scope write) and set {TOKEN_VARIABLE}",
            )
        if status == 403:
            raise Refused(
                f"{method} {path}: the account of the token may not: {said}",
                status,
                "use the token of an administrator; credential types need a system administrator",
            )
        raise Refused(f"{method} {path}: {status}: {said}", status)


def _said(content: t.Any) -> str:
    """Return what an answer says is wrong, without what was sent."""
    if isinstance(content, dict):
        parts = []
        for key, value in content.items():
            text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
            parts.append(text if key in ("detail", "error", "__all__") else f"{key}: {text}")
        return ", ".join(parts)[:500]
    return "no reason was given"


def token_of_environment(name: str = TOKEN_VARIABLE) -> str:
    """Return the token.

    Raises:
        ControllerError: there is none.
    """
    token = os.environ.get(name, "").strip()
    if not token:
        raise ControllerError(
            f"{name} is not set", "set it to a token of the controller (User, Tokens), with the scope write"
        )
    return token
