# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pulling published images: tokens, indexes of architectures, and nothing without the right digest."""

from __future__ import annotations

import json
import pathlib

import pytest

from ironspan.artifacts import cache, image, lock, lock_file, pin, recipes, registry
from ironspan.cli.outcome import CommandError

from .stage import Server, small_lock

REF = "registry.example.org/team/etcd:v1.0"
BASE = "/v2/team/etcd"
LAYER = b"a layer, compressed or not: the mirror does not look inside" * 100


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def entry(tmp_path: pathlib.Path) -> lock.Image:
    return small_lock(tmp_path).images[REF]


def publish(server: Server, media_type: str = image.MANIFEST, index: bool = True) -> str:
    """Publish an image; return its manifest's digest for amd64."""
    config = json.dumps({"architecture": "amd64"}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": {"digest": image.digest(config), "size": len(config)},
            "layers": [{"digest": image.digest(LAYER), "size": len(LAYER)}],
        }
    ).encode()
    for blob in (config, LAYER):
        server.files[f"{BASE}/blobs/{image.digest(blob)}"] = blob
    found = image.digest(manifest)
    other = {"digest": "sha256:" + "9" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
    mine = {"digest": found, "platform": {"os": "linux", "architecture": "amd64"}}
    listing = json.dumps({"manifests": [other, mine]}).encode()
    for reference, data, kind in (
        (found, manifest, media_type),
        ("v1.0", listing if index else manifest, registry.INDEXES[0] if index else media_type),
    ):
        server.files[f"{BASE}/manifests/{reference}"] = data
        server.types[f"{BASE}/manifests/{reference}"] = f"{kind}; charset=utf-8"
    return found


@pytest.mark.parametrize("token", ["", "secret-of-an-hour"])
@pytest.mark.parametrize("media_type", sorted(image.MANIFEST_FOLDERS))
def test_a_published_image_is_copied_as_it_is(
    entry: lock.Image, server: Server, place: cache.Cache, tmp_path: pathlib.Path, token: str, media_type: str
) -> None:
    digest = publish(server, media_type)
    server.token = token
    source = registry.Registry(entry, server.opener)
    assert source.resolve("amd64") == digest
    laid = registry.pull(entry, digest, place, tmp_path, quiet, source)
    assert (laid.digest, laid.media_type) == (digest, media_type)
    folder = place.mirror / "v2/registry.example.org/team/etcd"
    manifests = folder / image.MANIFEST_FOLDERS[media_type]
    assert (manifests / "v1.0").read_bytes() == server.files[f"{BASE}/manifests/{digest}"]
    assert (folder / "blobs" / laid.blobs[1]).read_bytes() == LAYER
    # A second pull finds the blobs and asks for none.
    server.seen.clear()
    registry.pull(entry, digest, place, tmp_path, quiet, source)
    assert not [path for path, _ in server.seen if "/blobs/" in path]


def test_a_tag_of_one_architecture_is_resolved(entry: lock.Image, server: Server) -> None:
    digest = publish(server, index=False)
    assert registry.Registry(entry, server.opener).resolve("amd64") == digest


def test_an_architecture_that_is_not_published_is_an_error(entry: lock.Image, server: Server) -> None:
    publish(server)
    server.files[f"{BASE}/manifests/v1.0"] = b'{"manifests": []}'
    with pytest.raises(CommandError, match="is not published for linux/amd64"):
        registry.Registry(entry, server.opener).resolve("amd64")


@pytest.mark.parametrize("what", ["manifest", "layer"])
def test_a_changed_byte_is_refused(
    entry: lock.Image, server: Server, place: cache.Cache, tmp_path: pathlib.Path, what: str
) -> None:
    digest = publish(server)
    path = f"{BASE}/manifests/{digest}" if what == "manifest" else f"{BASE}/blobs/{image.digest(LAYER)}"
    server.files[path] = server.files[path][:-1] + b" "
    with pytest.raises(CommandError, match="another digest"):
        registry.pull(entry, digest, place, tmp_path, quiet, registry.Registry(entry, server.opener))
    # Without its manifest an image is not there, whatever blobs already are.
    assert not (place.mirror / "v2/registry.example.org/team/etcd/manifests").exists()


def test_the_digest_of_an_index_cannot_be_pulled(
    entry: lock.Image, server: Server, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    data = json.dumps({"mediaType": registry.INDEXES[0], "manifests": []}).encode()
    server.files[f"{BASE}/manifests/{image.digest(data)}"] = data
    with pytest.raises(CommandError, match="is not the manifest of one image") as caught:
        registry.pull(
            entry, image.digest(data), place, tmp_path, quiet, registry.Registry(entry, server.opener)
        )
    assert f"ironspan artifacts pin {REF}" in caught.value.remedy


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_refusal_names_image_and_status(entry: lock.Image, server: Server, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(CommandError, match=f"cannot ask registry.example.org for {REF}: {status}"):
        registry.Registry(entry, server.opener).resolve("amd64")


def test_a_token_that_does_not_help_is_not_asked_for_again(entry: lock.Image, server: Server) -> None:
    publish(server)
    server.token = "right"
    source = registry.Registry(entry, server.opener)
    source._token = "wrong"
    with pytest.raises(CommandError, match="401"):
        source.resolve("amd64")
    assert [path for path, _ in server.seen if path == "/token"] == []


@pytest.mark.parametrize(("name", "host"), [("docker.io", "registry-1.docker.io"), ("ghcr.io", "ghcr.io")])
def test_names_in_references_and_hosts_differ_for_one_registry(name: str, host: str) -> None:
    assert registry.api_host(name) == host


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    """Send every request of this process to the file server."""
    monkeypatch.setattr("ironspan.artifacts.download.open_url", server.opener)
    monkeypatch.setattr(registry.Registry.__init__, "__defaults__", (server.opener, "https"))
    monkeypatch.setattr("ironspan.artifacts.download.fetch_unchecked.__defaults__", (server.opener,))
    return server


def test_pinning_an_image_writes_its_manifests_digest(
    offline: Server, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    locked = small_lock(tmp_path)
    digest = publish(offline)
    assert pin.pin_digest(locked.images[REF], "amd64", locked, place, False, quiet) is True
    assert lock_file.load(locked.path).images[REF].digests == {"amd64": digest, "arm64": None}
    assert recipes.from_upstream(lock_file.load(locked.path).images[REF], "amd64") == digest


@pytest.mark.parametrize(
    ("published", "size", "replace", "outcome"),
    [
        (b"as pinned", 9, False, "unchanged"),
        (b"as pinned", None, False, "written"),
        (b"as pinned", 8, False, "written"),
        (b"another", 9, False, "refused"),
        (b"another", None, False, "refused"),
        (b"another", 9, True, "written"),
    ],
)
def test_a_pinned_digest_is_replaced_only_on_request(
    offline: Server,
    place: cache.Cache,
    tmp_path: pathlib.Path,
    published: bytes,
    size: int | None,
    replace: bool,
    outcome: str,
) -> None:
    pinned = image.digest(b"as pinned")
    unpinned = "digests: {amd64: null, arm64: null}\n    go:\n      pack"
    known = f"sizes: {{amd64: {size}}}\n    " if size else ""
    locked = small_lock(tmp_path, **{unpinned: known + unpinned.replace("amd64: null", f"amd64: '{pinned}'")})
    offline.files["/v1.0/etcd-amd64.tar.gz"] = published
    item = locked.files["etcd/1.0"]
    if outcome == "refused":
        with pytest.raises(CommandError, match="and upstream now serves"):
            pin.pin_digest(item, "amd64", locked, place, replace, quiet)
    else:
        assert pin.pin_digest(item, "amd64", locked, place, replace, quiet) is (outcome == "written")
    now = lock_file.load(locked.path).files["etcd/1.0"]
    assert now.digests["amd64"] == (image.digest(published) if outcome == "written" else pinned)
    kept = {"amd64": size} if size else {}
    assert now.sizes == ({"amd64": len(published)} if outcome == "written" else kept)


def test_what_nobody_publishes_cannot_be_pinned(place: cache.Cache, tmp_path: pathlib.Path) -> None:
    locked = small_lock(tmp_path)
    with pytest.raises(CommandError, match=r"nobody publishes shim-lab/2\.0"):
        pin.pin_digest(locked.files["shim-lab/2.0"], "amd64", locked, place, False, quiet)
