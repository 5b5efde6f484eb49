# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The mirror as real nginx serves it: files, ranges, the OCI pull API; run by pid file only."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from ironspan.artifacts import cache, image, index, mirror
from ironspan.cli.outcome import CommandError, Exit
from ironspan.lab.ports import free_port

from .stage import small_lock

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
REF = "registry.example.org/team/etcd:v1.0"


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def request(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Ask the mirror; return status, headers in lower case and body."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


@pytest.fixture
def filled(place: cache.Cache, tmp_path: pathlib.Path) -> image.Laid:
    """Put one file and one image into the mirror."""
    program = tmp_path / "program"
    program.write_bytes(b"0123456789" * 100)
    cache.link_or_copy(program, place.below_mirror("/dl.example.org/v1/kubelet"), tmp_path)
    layer = image.program_layer({"/usr/bin/etcd": program}, tmp_path / "layer.tar")
    laid = image.lay_out(small_lock(tmp_path).images[REF], [layer], "amd64", place, tmp_path)
    entry = index.ImageEntry(
        REF, "amd64", laid.digest, laid.media_type, laid.blobs, laid.size, "go", "l", "b", "r"
    )
    index.record(place, [entry])
    (place.mirror / ".hidden").write_text("no")
    return laid


@pytest.fixture
def state(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state"


@pytest.fixture
def address(place: cache.Cache, filled: image.Laid, state: pathlib.Path) -> Iterator[str]:
    """Serve the mirror; return where."""
    where = free_address()
    serving = mirror.Mirror(place.mirror)
    serving.start(state, [where])
    yield where
    serving.stop(state)


@needs_nginx
def test_files_are_served_whole_and_in_ranges(address: str) -> None:
    path = "/dl.example.org/v1/kubelet"
    status, headers, body = request(address, path)
    assert (status, body) == (200, b"0123456789" * 100)
    assert headers["content-type"] == "application/octet-stream"
    status, headers, body = request(address, path, Range="bytes=995-")
    assert (status, body, headers["content-range"]) == (206, b"56789", "bytes 995-999/1000")
    status, headers, body = request(address, path, "HEAD")
    assert (status, headers["content-length"], body) == (200, "1000", b"")


@needs_nginx
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_image_is_pulled_by_tag_and_by_digest(
    address: str, filled: image.Laid, place: cache.Cache, method: str
) -> None:
    base = "/v2/registry.example.org/team/etcd"
    for reference in ("v1.0", filled.digest):
        status, headers, body = request(
            address, f"{base}/manifests/{reference}?ns=registry.example.org", method
        )
        assert status == 200
        assert headers["content-type"] == "application/vnd.oci.image.manifest.v1+json"
        assert headers["docker-distribution-api-version"] == "registry/2.0"
        if method == "GET":
            assert image.digest(body) == filled.digest
    for blob in filled.blobs:
        status, headers, body = request(address, f"{base}/blobs/{blob}", method)
        assert (status, headers["content-type"]) == (200, "application/octet-stream")
        if method == "GET":
            assert image.digest(body) == blob


@needs_nginx
def test_a_manifest_of_dockers_kind_has_its_own_type(
    address: str, filled: image.Laid, place: cache.Cache, tmp_path: pathlib.Path
) -> None:
    item = small_lock(tmp_path).images[REF]
    data = (place.below_mirror(item.mirror_folder) / "manifests" / filled.digest).read_bytes() + b" "
    laid = image.publish_manifest(item, data, image.DOCKER_MANIFEST, place, tmp_path)
    for reference in ("v1.0", laid.digest):
        status, headers, body = request(address, f"{item.mirror_folder}/manifests/{reference}")
        assert (status, body) == (200, data)
        assert headers["content-type"] == "application/vnd.docker.distribution.manifest.v2+json"
        assert headers["docker-distribution-api-version"] == "registry/2.0"


@needs_nginx
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/", 200),
        ("/healthz", 200),
        ("/index.json", 200),
        ("/v2/registry.example.org/team/etcd/manifests/v9", 404),
        ("/v2/registry.example.org/team/none/manifests/v1.0", 404),
        ("/v2/registry.example.org/team/etcd/blobs/sha256:00", 404),
        ("/.hidden", 404),
        ("/../locks/index.lock", 400),
        ("/%2e%2e/locks/index.lock", 400),
        ("/dl.example.org/", 403),
        ("/dl.example.org/v2/kubelet", 404),
    ],
)
def test_what_is_served_and_what_is_not(address: str, path: str, status: int) -> None:
    assert request(address, path)[0] == status


@needs_nginx
def test_the_index_and_the_api_root_are_json(address: str) -> None:
    for path in ("/index.json", "/v2/"):
        _, headers, body = request(address, path)
        assert headers["content-type"] == "application/json"
        assert isinstance(json.loads(body), dict)


@needs_nginx
def test_starting_again_changes_nothing_until_an_address_is_added(
    place: cache.Cache, filled: image.Laid, state: pathlib.Path
) -> None:
    first, second = free_address(), free_address()
    serving = mirror.Mirror(place.mirror)
    try:
        process = serving.start(state, [first])
        assert serving.start(state, [first]) == process
        assert serving.running(state) == process
        serving.start(state, [first, second])
        assert [request(where, "/healthz")[0] for where in (first, second)] == [200, 200]
    finally:
        assert serving.stop(state) is True
    assert serving.running(state) is None
    assert serving.stop(state) is False
    for where in (first, second):
        with pytest.raises(OSError, match="refused"):
            request(where, "/healthz")


@needs_nginx
def test_two_mirrors_live_side_by_side(
    place: cache.Cache, filled: image.Laid, tmp_path: pathlib.Path, address: str, state: pathlib.Path
) -> None:
    other, where = mirror.Mirror(place.mirror), free_address()
    other.start(tmp_path / "other", [where])
    assert other.stop(tmp_path / "other")
    assert request(address, "/healthz")[0] == 200


@needs_nginx
def test_an_address_that_is_taken_is_an_error_that_says_so(
    place: cache.Cache, filled: image.Laid, state: pathlib.Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CommandError, match="Address already in use"):
            mirror.Mirror(place.mirror).start(state, [f"127.0.0.1:{taken.getsockname()[1]}"])
    assert mirror.Mirror(place.mirror).running(state) is None


@needs_nginx
def test_a_mirror_stops_while_somebody_downloads(
    place: cache.Cache, filled: image.Laid, state: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "STOP_S", 0.5)
    with place.below_mirror("/large").open("wb") as large:
        large.truncate(200_000_000)
    where = free_address()
    serving = mirror.Mirror(place.mirror)
    serving.start(state, [where])
    connection = http.client.HTTPConnection(where, timeout=60)
    connection.request("GET", "/large")
    connection.getresponse().read(1000)
    begun = time.monotonic()
    assert serving.stop(state) is True
    assert serving.running(state) is None
    assert time.monotonic() - begun < 60
    connection.close()


def test_a_process_that_is_not_ours_is_never_ended(place: cache.Cache, state: pathlib.Path) -> None:
    state.mkdir()
    serving = mirror.Mirror(place.mirror)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (state / mirror.PID).write_text(f"{stranger.pid}\n")
        assert serving.running(state) is None
        assert serving.stop(state) is False
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("text", ["", "none", "0", "99999999"])
def test_a_stale_pid_file_is_no_nginx(place: cache.Cache, state: pathlib.Path, text: str) -> None:
    state.mkdir()
    (state / mirror.PID).write_text(text)
    assert mirror.Mirror(place.mirror).running(state) is None


@pytest.mark.parametrize(
    "listen", ["8080", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:99999", "a;b:80", ":80"]
)
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(CommandError) as caught:
        mirror.nginx_server_config("/mirror", [listen])
    assert caught.value.code == Exit.BAD_INPUT


@pytest.mark.parametrize("folder", ["/a b", "/a;b", "/a\nb", '/a"b', "/a$b", "/a{b"])
def test_a_folder_that_nginx_would_misread_is_refused(folder: str) -> None:
    with pytest.raises(CommandError, match="special"):
        mirror.nginx_server_config(folder, ["127.0.0.1:80"])


def test_without_nginx_the_package_is_named(
    place: cache.Cache, state: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mirror.mkdir(parents=True)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(CommandError) as caught:
        mirror.Mirror(place.mirror).start(state, ["127.0.0.1:1"])
    assert "apt-get install" in caught.value.remedy
    assert caught.value.code == Exit.BAD_INPUT
