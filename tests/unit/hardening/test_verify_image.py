# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program that containerd asks about images, as a process, against a mirror of static files."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import socketserver
import subprocess
import sys
import threading
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.artifacts import cache, image, sign
from tests.support.playbooks import ROOT

PROGRAM = ROOT / "plugins" / "module_utils" / "_programs" / "verify_image.py"
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
TEAM = "registry.example.com/team/app"
DESCRIPTOR = "application/vnd.oci.descriptor.v1+json"


def load() -> dict[str, t.Any]:
    """Return the program's names."""
    names: dict[str, t.Any] = {"__name__": "verify_image"}
    exec(compile(PROGRAM.read_text(), PROGRAM, "exec"), names)
    return names


NAMES = load()


@functools.cache
def key(name: str) -> sign.PrivateKey:
    """Return a key that is the same for all tests."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def public(name: str) -> str:
    """Return a public key as PEM."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key(name).public_key().public_bytes(serialization.Encoding.PEM, form).decode()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, format: str, *args: t.Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback."""
    handler = functools.partial(Quiet, directory=str(folder))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class World:
    """A mirror, and the policy of a node."""

    def __init__(self, place: cache.Cache, url: str, policy: Path) -> None:
        self.place = place
        self.policy = policy
        self.document: dict[str, t.Any] = {
            "mode": "enforce",
            "registries": {"registry.example.com": f"{url}/v2/registry.example.com"},
            "rules": [{"images": [TEAM], "signed_as": [], "keys": [public("one"), public("rsa")]}],
        }

    def manifest(self, repository: str = TEAM, digest: str = DIGEST) -> Path:
        """Return where the signatures of an image are."""
        return self.place.mirror / "v2" / repository / "manifests" / f"{digest.replace(':', '-')}.sig"

    def judge(self, name: str = f"{TEAM}:1", digest: str = DIGEST) -> tuple[int, str]:
        """Judge as containerd asks; return exit code and reason."""
        self.policy.write_text(json.dumps(self.document))
        arguments = ["-name", name, "-digest", digest, "-stdin-media-type", DESCRIPTOR]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = NAMES["main"](arguments, str(self.policy))
        return code, printed.getvalue().strip()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(NAMES["syslog"], "syslog", lambda *_: None)
    place = cache.Cache(tmp_path / "cache")
    place.mirror.mkdir(parents=True)
    with served(place.mirror) as url:
        yield World(place, url, tmp_path / "policy.json")


@pytest.mark.parametrize("signer", ["one", "rsa"])
def test_an_image_that_is_signed_passes(world: World, signer: str) -> None:
    assert sign.sign(key(signer), TEAM, DIGEST, world.place)
    assert world.judge() == (0, "signed by a key of the site's policy")


def test_an_image_that_is_not_signed_is_refused(world: World) -> None:
    code, reason = world.judge()
    assert code == 1
    assert reason.startswith("it is not signed: http://127.0.0.1")


def test_images_without_a_rule_are_not_asked_for(world: World) -> None:
    assert world.judge("docker.io/library/busybox:1") == (0, "the site's policy names no key for it")


def altered(path: Path, change: Callable[[dict[str, t.Any]], None]) -> None:
    """Change a manifest in its place."""
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def by_another_key(world: World) -> None:
    sign.sign(key("two"), TEAM, DIGEST, world.place)


def of_another_image(world: World) -> None:
    sign.sign(key("one"), TEAM, OTHER, world.place)
    world.manifest(digest=OTHER).rename(world.manifest())


def under_another_name(world: World) -> None:
    sign.sign(key("one"), "registry.example.com/elsewhere/app", DIGEST, world.place)
    folder = world.place.mirror / "v2" / "registry.example.com"
    (folder / "team").mkdir()
    (folder / "elsewhere" / "app").rename(folder / "team" / "app")


def payload_that_was_altered(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    payload = sign.payload_of(TEAM, DIGEST) + b" "
    folder = world.manifest().parent.parent / "blobs"
    (folder / image.digest(payload)).write_bytes(payload)
    altered(world.manifest(), lambda it: it["layers"][0].update(digest=image.digest(payload)))


def blob_of_another_digest(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    folder = world.manifest().parent.parent / "blobs"
    (folder / image.digest(sign.payload_of(TEAM, DIGEST))).write_bytes(b"{}")


def no_base64(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    altered(world.manifest(), lambda it: it["layers"][0]["annotations"].update({sign.SIGNATURE: "!"}))


def no_manifest(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    world.manifest().write_text("<html>")


def a_key_that_is_none(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    world.document["rules"][0]["keys"] = ["-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]


def no_mirror(world: World) -> None:
    sign.sign(key("one"), TEAM, DIGEST, world.place)
    world.document["registries"]["registry.example.com"] = "http://127.0.0.1:1/v2/registry.example.com"


def a_policy_without_rules(world: World) -> None:
    del world.document["rules"]


REFUSED: dict[Callable[[World], None], str] = {
    by_another_key: "none of its 1 signatures is by a key",
    of_another_image: "none of its 1 signatures is by a key",
    under_another_name: "none of its 1 signatures is by a key",
    payload_that_was_altered: "none of its 1 signatures is by a key",
    blob_of_another_digest: "has another digest",
    no_base64: "none of its 0 signatures is by a key",
    no_manifest: "cannot be judged (JSONDecodeError",
    a_key_that_is_none: "none of its 1 signatures is by a key",
    no_mirror: "cannot be asked for its signature",
    a_policy_without_rules: "cannot be judged (KeyError",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: str(change.__name__))
def test_what_is_refused(world: World, change: Callable[[World], None]) -> None:
    change(world)
    code, reason = world.judge()
    assert (code, REFUSED[change] in reason) == (1, True), reason


def test_a_warning_lets_it_pass_and_says_why(world: World) -> None:
    world.document["mode"] = "warn"
    code, reason = world.judge()
    assert code == 0
    assert "it is not signed" in reason


def test_a_process_without_a_policy_lets_nothing_pass(tmp_path: Path) -> None:
    program = tmp_path / "verify"
    program.write_text(PROGRAM.read_text().replace(NAMES["POLICY"], str(tmp_path / "missing.json")))
    done = subprocess.run(
        [sys.executable, "-IS", program, "-name", TEAM, "-digest", DIGEST, "-stdin-media-type", DESCRIPTOR],
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "cannot be judged (FileNotFoundError" in done.stdout


def test_several_may_sign_and_one_does(world: World) -> None:
    assert sign.sign(key("two"), TEAM, DIGEST, world.place)
    assert sign.sign(key("one"), TEAM, DIGEST, world.place)
    assert not sign.sign(key("one"), TEAM, DIGEST, world.place)
    assert world.judge()[0] == 0


def test_copies_of_images_that_others_signed(world: World) -> None:
    under_another_name(world)
    world.document["rules"][0]["signed_as"] = ["registry.example.com/elsewhere/*"]
    assert world.judge()[0] == 0


REFERENCES = [
    ("docker.io/library/busybox:1.37", "docker.io/library/busybox"),
    (f"docker.io/library/busybox@{DIGEST}", "docker.io/library/busybox"),
    (f"registry.example.com:5000/a/b:1@{DIGEST}", "registry.example.com:5000/a/b"),
    ("registry.example.com:5000/a/b", "registry.example.com:5000/a/b"),
    ("index.docker.io/library/busybox", "docker.io/library/busybox"),
]


@pytest.mark.parametrize(("reference", "repository"), REFERENCES)
def test_repository(reference: str, repository: str) -> None:
    assert NAMES["repository"](reference) == repository


VALUES = st.none() | st.text(max_size=5) | st.just(DIGEST) | st.just("cosign container image signature")
FIELDS = st.sampled_from(["type", "image", "identity", "docker-manifest-digest", "docker-reference"])


def inner(critical: dict[str, t.Any], field: str, name: str) -> t.Any:
    """Return a field of a field, None where there is none."""
    value = critical.get(field)
    return value.get(name) if isinstance(value, dict) else None


@settings(max_examples=40)
@given(st.dictionaries(FIELDS, VALUES | st.dictionaries(FIELDS, VALUES, max_size=3), max_size=3))
def test_only_payloads_with_all_their_fields_claim_an_image(critical: dict[str, t.Any]) -> None:
    complete = (
        critical.get("type") == NAMES["CLAIM"]
        and inner(critical, "image", "docker-manifest-digest") == DIGEST
        and isinstance(inner(critical, "identity", "docker-reference"), str)
    )
    payload = json.dumps({"critical": critical}).encode()
    assert NAMES["claims"](payload, DIGEST, ["*"]) == complete


@given(st.binary(max_size=20))
@settings(max_examples=20)
def test_bytes_that_are_no_payload_claim_nothing(payload: bytes) -> None:
    assert not NAMES["claims"](payload, DIGEST, ["*"])
