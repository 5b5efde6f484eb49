# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The XML of a container's listing, changed on its way to the client."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Collection

from ironspan.lab.azure.http import Response


async def read(response: Response) -> bytes:
    """Return an answer's whole body."""
    if isinstance(response.body, bytes):
        return response.body
    return b"".join([part async for part in response.body])


def written(response: Response, document: ElementTree.Element) -> Response:
    """Return the answer with another document as its body."""
    text: bytes = ElementTree.tostring(document, encoding="utf-8", xml_declaration=True)
    headers = {n: v for n, v in response.headers.items() if n not in ("content-length", "transfer-encoding")}
    return Response(response.status, headers, text)


async def without(response: Response, container: str, hidden: Collection[str]) -> Response:
    """Return a listing that lacks the blobs `hidden` (/CONTAINER/BLOB)."""
    if response.status != 200:
        return response
    document = ElementTree.fromstring(await read(response))
    blobs = document.find("Blobs")
    for blob in list(blobs.findall("Blob")) if blobs is not None else []:
        if blobs is not None and f"/{container}/{blob.findtext('Name')}" in hidden:
            blobs.remove(blob)
    return written(response, document)


async def of(response: Response, account: str, container: str) -> Response:
    """Return a listing that names the account and container that were asked for."""
    if response.status != 200:
        return response
    document = ElementTree.fromstring(await read(response))
    document.set("ServiceEndpoint", f"https://{account}.blob.core.windows.net/")
    document.set("ContainerName", container)
    return written(response, document)
