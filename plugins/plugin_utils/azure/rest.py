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
        """Return all pages of a list; an empty one where there is none.

        Raises:
            Refused: the resource manager does not say.
            RemoteError: what it says is no list of resources.
        """
        found: list[t.Any] = []
        answer = self.get(path, version, what, **query)
        while answer:
            page = mapping(answer, f"the answer {what}")
            found += (mapping(one, f"an entry of the answer {what}") for one in sequence(page, "value", what))
            link = str(page.get("nextLink") or "")
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
            try:
                return response.json()
            except ValueError:
                raise malformed(f"the answer {what}", "no JSON") from None

        return asked(what, answer)


def malformed(what: str, why: str) -> RemoteError:
    """Return the error for what Azure said and nothing can be made of."""
    return RemoteError(
        f"Azure's resource manager is not understood: {what} is {why}",
        "run it again; if it stays so, look for a proxy that answers in Azure's place",
    )


def mapping(said: t.Any, what: str) -> Mapping[str, t.Any]:
    """Return a part of an answer that has fields; none for what is not there.

    Args:
        said: by Azure.
        what: it is, for the message.

    Raises:
        RemoteError: it is something else.
    """
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise malformed(what, f"{type(said).__name__} in the place of an object")
    return said


def sequence(said: Mapping[str, t.Any], field: str, what: str) -> list[t.Any]:
    """Return a field of an answer that is a list; empty for what is not there. Raises as ``mapping``."""
    found = said.get(field)
    if found is None:
        return []
    if not isinstance(found, list):
        raise malformed(f"{field} of the answer {what}", f"{type(found).__name__} in the place of a list")
    return found
