# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pulls published images from their registries (OCI distribution API) into the mirror."""

from __future__ import annotations

import json
import re
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ironspan.artifacts import cache, download, image
from ironspan.artifacts.lock import Image
from ironspan.cli.outcome import CommandError

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Registry name in references -> host of its API, where they differ."""


NOT_AS_EXPECTED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading an answer raises that is not of the form that it should have."""


def api_host(registry: str) -> str:
    """Return the host that answers for a registry's name."""
    return API_HOSTS.get(registry, registry)


class Registry:
    """One repository of a registry, read anonymously.

    Args:
        entry: the image whose registry and repository are meant.
        opener: opens requests; tests hand in their own.
        scheme: https; tests use http.
    """

    def __init__(
        self, entry: Image, opener: download.Opener = download.open_url, scheme: str = "https"
    ) -> None:
        self._entry = entry
        self._opener = opener
        self._base = f"{scheme}://{api_host(entry.registry)}/v2/{entry.repository}"
        self._token = ""

    def manifest(self, reference: str) -> tuple[bytes, str]:
        """Return a manifest (or an index of manifests) and its media type.

        Args:
            reference: a tag or a digest; what comes for a digest is checked against it.
        """
        accept = ", ".join((*image.MANIFEST_FOLDERS, *INDEXES))
        with self._open(f"{self._base}/manifests/{reference}", accept) as answer:
            data: bytes = answer.read()
            media_type = str(answer.headers.get("Content-Type", "")).partition(";")[0]
        if reference.startswith("sha256:") and image.digest(data) != reference:
            raise CommandError(
                f"{self._entry.ref}: the registry served a manifest with another digest\n"
                f"  asked for: {reference}\n  served:    {image.digest(data)}"
            )
        return data, media_type

    def resolve(self, arch: str) -> str:
        """Return the digest of the tag's manifest for one architecture."""
        data, media_type = self.manifest(self._entry.tag)
        if media_type not in INDEXES:
            return image.digest(data)
        try:
            for item in json.loads(data)["manifests"]:
                platform = item.get("platform", {})
                if platform.get("os") == "linux" and platform.get("architecture") == arch:
                    return str(item["digest"])
        except NOT_AS_EXPECTED as error:
            raise CommandError(
                f"{self._entry.ref}: the registry served no list of images: {error}"
            ) from error
        raise CommandError(f"{self._entry.ref} is not published for linux/{arch}")

    def blob(self, digest: str, size: int, folder: t.Any, scratch: t.Any, say: download.Say) -> None:
        """Download one blob into the folder of blobs, unless it is there with the right digest."""
        target = folder / digest
        if cache.has_digest(target, digest):
            return
        part = scratch / digest.replace(":", "-")
        say(f"layer {digest[7:19]}, {cache.readable_size(size)}")
        download.fetch(f"{self._base}/blobs/{digest}", digest, part, say, self._authorised, size)
        cache.publish(part, target)

    def _open(self, url: str, accept: str) -> t.Any:
        request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "ironspan"})
        try:
            return self._authorised(request)
        except (OSError, urllib.error.HTTPError) as error:
            reason = (
                f"{error.code} {error.reason}" if isinstance(error, urllib.error.HTTPError) else str(error)
            )
            raise CommandError(
                f"cannot ask {self._entry.registry} for {self._entry.ref}: {reason}"
            ) from error

    def _authorised(self, request: urllib.request.Request) -> t.Any:
        """Open a request; when the registry wants a token, get an anonymous one and ask again."""
        if self._token:
            # Unredirected: a registry sends blobs from a storage host that must not see the token.
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return self._opener(request)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or self._token or not challenge.lower().startswith("bearer "):
                raise
            error.close()
        self._token = self._anonymous_token(challenge)
        return self._authorised(request)

    def _anonymous_token(self, challenge: str) -> str:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        query = {"service": fields.get("service", ""), "scope": f"repository:{self._entry.repository}:pull"}
        url = f"{fields.get('realm', '')}?{urllib.parse.urlencode(query)}"
        try:
            with self._opener(urllib.request.Request(url, headers={"User-Agent": "ironspan"})) as answer:
                data = json.loads(answer.read())
            return str(data.get("token") or data.get("access_token") or "")
        except NOT_AS_EXPECTED as error:
            raise CommandError(f"{url} answered with something that is no token: {error}") from error


def pull(
    entry: Image,
    digest: str,
    place: cache.Cache,
    scratch: t.Any,
    say: download.Say,
    registry: Registry | None = None,
) -> image.Laid:
    """Copy a published image into the mirror.

    Args:
        entry: the image.
        digest: the pinned digest of its manifest for the architecture wanted.
        place: the cache with the mirror.
        scratch: the step's folder for unfinished files.
        say: told how far it is.
        registry: the source; tests hand in their own.

    Raises:
        CommandError: not reachable, a digest differs, or the manifest is of a kind that cannot be served.
    """
    source = registry if registry is not None else Registry(entry)
    data, _ = source.manifest(digest)
    # What the bytes say counts, not a header that something on the way may have changed.
    try:
        media_type = str(json.loads(data).get("mediaType", image.MANIFEST))
        blobs = image.references(data) if media_type in image.MANIFEST_FOLDERS else []
    except NOT_AS_EXPECTED as error:
        raise CommandError(f"{entry.ref}: the registry served no manifest for {digest}: {error}") from error
    if media_type not in image.MANIFEST_FOLDERS:
        raise CommandError(
            f"{entry.ref}: {digest} is not the manifest of one image but {media_type}",
            f"Pin it again: `ironspan artifacts pin {entry.ref}`.",
        )
    folder = place.below_mirror(entry.mirror_folder) / "blobs"
    for blob, size in blobs:
        source.blob(blob, size, folder, scratch, say)
    return image.publish_manifest(entry, data, media_type, place, scratch)
