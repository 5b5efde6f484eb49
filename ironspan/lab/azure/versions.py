# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Former versions of blobs, kept beside Azurite, which has none ("Blob versioning", Azure documentation).

A version is a file with the blob's bytes and one with its properties, in a folder of its blob.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import secrets
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.azure import listing
from ironspan.lab.azure.http import CHUNK, Response

_RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z")
#: Properties of a blob that its versions keep, by header.
_KEPT = ("content-type", "etag", "last-modified", "x-ms-creation-time", "x-ms-blob-type")


@dataclass(frozen=True)
class Version:
    """One former version of a blob; `path` is /CONTAINER/BLOB."""

    path: str
    id: str
    headers: dict[str, str]
    data: Path

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.data.stat().st_size


def fresh_id() -> str:
    """A version's id: the time of its write, as Azure writes it."""
    now = time.time_ns()
    moment = datetime.datetime.fromtimestamp(now // 10**9, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 10**9 // 100:07d}Z"


class Versions:
    """All former versions, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _of(self, path: str) -> Path:
        return self._folder / hashlib.sha256(path.encode()).hexdigest()

    def current(self, path: str) -> str:
        """The id of what is there now; made up for a blob from before versions were kept."""
        file = self._of(path) / "current"
        return file.read_text() if file.exists() else fresh_id()

    def written(self, path: str) -> str:
        """Give what was just written an id of its own."""
        version = fresh_id()
        files.write_atomic(self._of(path) / "current", version)
        return version

    async def copy(self, path: str, response: Response) -> Path:
        """Copy a blob, read by `response`, to where `keep` finds it; returns the copy."""
        folder = self._of(path)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"copy-{secrets.token_hex(8)}"
        with target.open("wb") as output:
            if isinstance(response.body, bytes):
                output.write(response.body)
            else:
                async for part in response.body:
                    output.write(part)
        return target

    def keep(self, path: str, copy: Path, headers: dict[str, str]) -> None:
        """Make a copy the former version of its blob."""
        version = self.current(path)
        kept = {name: headers[name] for name in _KEPT if name in headers}
        copy.rename(self._of(path) / f"{version}.data")
        document = {"path": path, "id": version, "headers": kept}
        files.write_atomic(self._of(path) / f"{version}.json", json.dumps(document))
        (self._of(path) / "current").unlink(missing_ok=True)

    def find(self, path: str, version: str) -> Version | None:
        """Return one former version of a blob."""
        return next((one for one in self.all(path) if one.id == version), None)

    def remove(self, version: Version) -> None:
        """Remove a former version for good."""
        version.data.with_suffix(".json").unlink(missing_ok=True)
        version.data.unlink(missing_ok=True)

    def all(self, path: str = "") -> Iterator[Version]:
        """Return the former versions of a blob, or of all."""
        folders = [self._of(path)] if path else sorted(self._folder.glob("*"))
        for folder in folders:
            for file in sorted(folder.glob("*.json")):
                document: dict[str, Any] = json.loads(file.read_text())
                yield Version(
                    document["path"],
                    document["id"],
                    document["headers"],
                    file.with_name(f"{document['id']}.data"),
                )

    async def listed(self, response: Response, container: str, prefix: str) -> Response:
        """Return a container's listing with former versions in its last page."""
        document = ElementTree.fromstring(await listing.read(response))
        blobs = document.find("Blobs")
        if response.status != 200 or blobs is None:
            return response
        for blob in blobs.findall("Blob"):
            ElementTree.SubElement(blob, "VersionId").text = self.current(
                f"/{container}/{blob.findtext('Name')}"
            )
            ElementTree.SubElement(blob, "IsCurrentVersion").text = "true"
        if not document.findtext("NextMarker"):
            for version in self.all():
                owner, _, name = version.path.lstrip("/").partition("/")
                if owner == container and name.startswith(prefix):
                    blobs.append(_element(name, version))
        return listing.written(response, document)


def _element(name: str, version: Version) -> ElementTree.Element:
    blob = ElementTree.Element("Blob")
    for tag, text in (("Name", name), ("Deleted", "false"), ("VersionId", version.id)):
        ElementTree.SubElement(blob, tag).text = text
    properties = ElementTree.SubElement(blob, "Properties")
    for tag, text in (
        ("Creation-Time", version.headers.get("x-ms-creation-time", version.headers["last-modified"])),
        ("Last-Modified", version.headers["last-modified"]),
        ("Etag", version.headers["etag"]),
        ("Content-Length", str(version.size)),
        ("Content-Type", version.headers.get("content-type", "application/octet-stream")),
        ("BlobType", version.headers["x-ms-blob-type"]),
    ):
        ElementTree.SubElement(properties, tag).text = text
    return blob


def read(version: Version, wanted: str, head: bool) -> Response:
    """Answer a GET or HEAD of a former version; `wanted` is the header that names a range, or empty."""
    size = version.size
    headers = {**version.headers, "x-ms-version-id": version.id, "accept-ranges": "bytes"}
    asked = _RANGE.match(wanted)
    first, last = (int(asked[1]), min(int(asked[2] or size - 1), size - 1)) if asked else (0, size - 1)
    headers["content-length"] = str(max(0, last - first + 1))
    if asked:
        headers["content-range"] = f"bytes {first}-{last}/{size}"
    return Response(206 if asked else 200, headers, _bytes(version.data, first, last + 1), head)


async def _bytes(path: Path, first: int, end: int) -> AsyncIterator[bytes]:
    with path.open("rb") as source:
        source.seek(first)
        while first < end:
            part = source.read(min(CHUNK, end - first))
            first += len(part)
            yield part
