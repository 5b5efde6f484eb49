# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``container_image``, with a stand-in for ctr that keeps images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.container_image import (
    KIND,
    PINNED,
    ContainerImageKind,
    Image,
    parse_listing,
    repository,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import insist

from .fake_host import FakeHost, converge, filled

REF = "registry.k8s.io/pause:3.10.2"
GOOD = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
CTR = """
import json, os, sys
root = os.environ["IRONSPAN_ROOT"]
path = root + "/images.json"
images = json.load(open(path))
assert sys.argv[1:4] == ["-n", "k8s.io", "images"]
verb, arguments = sys.argv[4], [a for a in sys.argv[5:] if a != "--force"]
if verb == "list":
    print("REF TYPE DIGEST SIZE PLATFORMS LABELS")
    for ref, (digest, labels) in images.items():
        if "name==" + ref not in arguments and not (
            arguments == ['labels."io.cri-containerd.pinned"==pinned'] and "cri-containerd.pinned=" in labels
        ):
            continue
        kind = "application/vnd.oci.image.manifest.v1+json"
        print(ref, kind, digest, "12.3 MiB", "linux/amd64", labels or "-")
elif verb == "pull":
    assert arguments[:2] == ["--hosts-dir", "/etc/containerd/certs.d"]
    ref = arguments[-1]
    digest = ref.partition("@")[2] or open(root + "/mirror").read()
    if digest != open(root + "/mirror").read():
        sys.stderr.write("elapsed: 0.1 s\\nctr: %s: not found\\n" % ref)
        sys.exit(1)
    images[ref] = [digest, ""]
elif verb == "tag":
    if arguments[0] not in images:
        sys.exit("ctr: no such image")
    images[arguments[1]] = list(images[arguments[0]])
elif verb == "label":
    images[arguments[0]][1] = "" if arguments[1].endswith("=") else ",".join(arguments[1:])
elif verb == "remove":
    images.pop(arguments[0], None)
json.dump(images, open(path, "w"))
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.python_program("ctr", CTR)
    host.put("/mirror", GOOD)
    images(host)
    return host


def images(host: FakeHost, pause: list[str] | None = None) -> None:
    """Let containerd hold the image (digest and labels), or none."""
    host.put("/images.json", json.dumps({REF: pause} if pause else {}))


def spec(**values: Any) -> dict[str, Any]:
    return filled(KIND, **{"id": "node/pause", "ref": REF, "digest": GOOD, "pinned": False, **values})


@pytest.mark.parametrize(
    ("present", "wanted", "differing"),
    [
        (None, {}, {"digest"}),
        (None, {"digest": ""}, {"digest"}),
        ([GOOD, ""], {}, set()),
        ([OTHER, ""], {}, {"digest"}),
        ([OTHER, ""], {"digest": ""}, set()),
        ([GOOD, ""], {"pinned": True}, {"pinned"}),
        ([GOOD, f"a=b,{PINNED}"], {"pinned": True}, set()),
        ([OTHER, ""], {"pinned": True}, {"digest", "pinned"}),
    ],
)
def test_compare(
    host: FakeHost, present: list[str] | None, wanted: dict[str, Any], differing: set[str]
) -> None:
    images(host, present)
    change = KIND.compare(spec(**wanted), host)
    assert set(change.after if change else ()) == differing


def test_images_are_pinned_unless_the_document_says_otherwise() -> None:
    assert filled(KIND, id="node/pause", ref=REF)["pinned"] is True


def test_one_listing_for_all_images(host: FakeHost) -> None:
    kind = ContainerImageKind()
    for name in ("a/b:1", "c/d:2"):
        assert kind.check(spec(ref=name)) == []
    for name in ("a/b:1", "c/d:2"):
        kind.compare(spec(ref=name), host)
    assert host.calls() == [["ctr", "-n", "k8s.io", "images", "list", "name==a/b:1", "name==c/d:2"]]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, ""),
        ({"ref": "ghcr.io:443/flannel-io/flannel:v0.28.4", "digest": ""}, ""),
        ({"ref": "pause"}, "ref"),
        ({"ref": "registry.k8s.io/pause"}, "ref"),
        ({"ref": "registry.k8s.io/pause:1 --all"}, "ref"),
        ({"ref": "--help/a:1"}, "ref"),
        ({"digest": "sha256:abc"}, "digest"),
        ({"digest": "latest"}, "digest"),
    ],
)
def test_check(values: dict[str, Any], problem: str) -> None:
    assert "".join(ContainerImageKind().check(spec(**values)))[: len(problem) or None] == problem


@pytest.mark.parametrize("program", ["exit 1", None])
def test_before_containerd_runs_every_image_is_missing(host: FakeHost, program: str | None) -> None:
    if program:
        host.program("ctr", program)
    else:
        Path(host.path("/usr/local/ironspan-test-bin/ctr")).unlink()
    change = KIND.compare(spec(), host)
    assert change is not None
    assert change.action == "create"


@pytest.mark.parametrize("digest", [GOOD, ""])
def test_pulls_by_digest_names_and_pins(host: FakeHost, digest: str) -> None:
    change = converge(KIND, spec(digest=digest, pinned=True), host)
    assert change is not None
    pulled = next(call for call in host.calls() if call[4] == "pull")
    assert pulled[-1] == (f"registry.k8s.io/pause@{GOOD}" if digest else REF)
    kept = json.loads(host.text("/images.json"))
    assert kept[REF] == [GOOD, PINNED]
    KIND.undo(spec(digest=digest), change, host)
    assert json.loads(host.text("/images.json")) == {}


def test_a_mirror_with_another_image_is_refused_and_nothing_changes(host: FakeHost) -> None:
    images(host, pause=[OTHER, ""])
    host.put("/mirror", "sha256:" + "c" * 64)
    before = host.text("/images.json")
    change = KIND.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match="not found") as caught:
        KIND.apply(spec(), change, host)
    assert GOOD in caught.value.remedy
    insist("mirror-image", f"{caught.value}. {caught.value.remedy}")
    assert json.loads(host.text("/images.json")) == json.loads(before)


def test_a_full_disk_is_not_the_mirrors_fault(host: FakeHost) -> None:
    change = KIND.compare(spec(), host)
    assert change is not None
    problem = "ctr: failed to copy: write /var/lib/containerd/x: no space left on device"
    host.program("ctr", f"#!/bin/sh\necho '{problem}' >&2\nexit 1\n")
    with pytest.raises(ResourceError) as caught:
        KIND.apply(spec(), change, host)
    insist("image-disk", f"{caught.value}. {caught.value.remedy}")


def test_an_image_that_its_host_wants_signed_is_not_the_mirrors_fault(host: FakeHost) -> None:
    change = KIND.compare(spec(), host)
    assert change is not None
    reason = "verifier ironspan rejected image (exit code 1): it is not signed: x.sig is not there"
    problem = f"ctr: image verifier bindir blocked pull of x with digest {GOOD} for reason: {reason}"
    host.program("ctr", f"#!/bin/sh\necho '{problem}' >&2\nexit 1\n")
    with pytest.raises(ResourceError) as caught:
        KIND.apply(spec(), change, host)
    insist("image-unsigned", f"{caught.value}. {caught.value.remedy}")


def test_undo_gives_the_name_back_to_the_former_image(host: FakeHost) -> None:
    former = f"registry.k8s.io/pause@{OTHER}"
    host.put("/images.json", json.dumps({REF: [OTHER, ""], former: [OTHER, ""]}))
    change = converge(KIND, spec(), host)
    assert change is not None
    KIND.undo(spec(), change, host)
    assert json.loads(host.text("/images.json")) == {REF: [OTHER, ""], former: [OTHER, ""]}


def test_undo_of_a_pin(host: FakeHost) -> None:
    images(host, pause=[GOOD, ""])
    change = converge(KIND, spec(pinned=True), host)
    assert change is not None
    KIND.undo(spec(pinned=True), change, host)
    assert json.loads(host.text("/images.json"))[REF] == [GOOD, ""]


def test_versions_that_are_not_declared_any_more_are_unpinned(host: FakeHost) -> None:
    names = ("pause:3.9", "pause:3.8", "pause/b:3.9")
    former, declared, other = (f"registry.k8s.io/{name}" for name in names)
    host.put("/images.json", json.dumps({ref: [OTHER, PINNED] for ref in (former, declared, other)}))
    kind = ContainerImageKind()
    assert kind.check(spec(ref=declared)) == kind.check(spec()) == []
    converge(kind, spec(pinned=True), host)
    kept = json.loads(host.text("/images.json"))
    assert {ref: labels for ref, (_, labels) in kept.items() if ":" in ref and "@" not in ref} == {
        REF: PINNED,
        former: "",
        declared: PINNED,
        other: PINNED,
    }


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause"),
        ("registry:5000/a/b:1", "registry:5000/a/b"),
        ("registry:5000/a/b", "registry:5000/a/b"),
        ("a/b:1@sha256:abc", "a/b"),
        ("busybox:1", "busybox"),
    ],
)
def test_repository(reference: str, expected: str) -> None:
    assert repository(reference) == expected


def test_listing() -> None:
    text = (
        "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
        f"{REF} application/vnd.oci.image.index.v1+json {GOOD} 311.6 KiB linux/amd64,linux/arm64 a=b,c=d \n"
        f"sha256:0 application/vnd.oci.image.index.v1+json {OTHER} 0.0 B - - \n"
    )
    assert parse_listing(text) == {REF: Image(GOOD, ("a=b", "c=d")), "sha256:0": Image(OTHER, ())}


@given(st.text())
def test_listing_never_fails(text: str) -> None:
    assert all(image.digest.startswith("sha256:") for image in parse_listing(text).values())
