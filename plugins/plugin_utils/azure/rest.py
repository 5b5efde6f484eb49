# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks Azure's resource manager what no SDK of the controller has a method for."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import asked
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection, sdk
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError


class Rest:
    """The resource manager, for one subscription.

    Args:
        connection: how it is spoken to.
        subscription: its id.
    """

    def __init__(self, connection: Connection, subscription: str) -> None:
        self.subscription = subscription
        self._url = connection.url
        self.client = connection.client(
            "azure.mgmt.resource.resources", "ResourceManagementClient", subscription
        )

    def get(self, path: str, version: str, what: str, **query: str) -> t.Any:
        """Return what the resource manager has at a path, as JSON; None when it has nothing there.

        Raises:
            Refused: it does not say.
        """
        return self._send("GET", path, version, what, query)

    def post(self, path: str, version: str, what: str, body: Mapping[str, t.Any]) -> t.Any:
        """Return what the resource manager answers to a question. Raises as ``get``."""
        return self._send("POST", path, version, what, {}, json=dict(body))

    def listed(self, path: str, version: str, what: str, **query: str) -> list[t.Any]:
        """Return all pages of a list; an empty one where there is none. Raises as ``get``."""
        found: list[t.Any] = []
        answer = self.get(path, version, what, **query)
        while answer:
            found += answer.get("value") or ()
            link = str(answer.get("nextLink") or "")
            answer = self._send("GET", link.removeprefix(self._url), "", what, {}) if link else None
        return found

    def _send(
        self, method: str, path: str, version: str, what: str, query: Mapping[str, str], **body: t.Any
    ) -> t.Any:
        if not path.startswith("/"):
            # Tokens go to the resource manager only, whatever an answer says.
            raise RemoteError(f"Azure leads to another host for {what}")
        params = {**({"api-version": version} if version else {}), **query}
        request = sdk("azure.core.rest").HttpRequest(method, f"{self._url}{path}", params=params, **body)

        def answer() -> t.Any:
            response = self.client.send_request(request)
            response.raise_for_status()
            return response.json()

        return asked(what, answer)
