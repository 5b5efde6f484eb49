# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``container_image``: an image is in containerd, in the namespace that Kubernetes uses."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

CTR = ("ctr", "-n", "k8s.io", "images")
HOSTS_FOLDER = "/etc/containerd/certs.d"
CACHE = "ctr images"
PIN = "io.cri-containerd.pinned"
PINNED = f"{PIN}=pinned"
"""The label by which the kubelet's garbage collection leaves an image alone."""
REFERENCE = re.compile(r"[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)+:[A-Za-z0-9_][A-Za-z0-9._-]*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TIMEOUT = 1800.0
"""Seconds for one pull: a few hundred megabytes over a slow line."""


class Image(t.NamedTuple):
    """One line of containerd's list."""

    digest: str
    labels: t.Tuple[str, ...]


def parse_listing(text: str) -> t.Dict[str, Image]:
    """Read ``ctr images ls``: REF TYPE DIGEST SIZE PLATFORMS LABELS, where SIZE itself holds a space.

    Args:
        text: its output, with the heading.

    Returns:
        reference -> image. Lines without a digest are skipped.
    """
    images: t.Dict[str, Image] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or not words[2].startswith("sha256:"):
            continue
        labels = () if words[-1] == "-" else tuple(words[-1].split(","))
        images[words[0]] = Image(words[2], labels)
    return images


def repository(reference: str) -> str:
    """Return a reference without its tag: the part before the last colon behind the last slash."""
    head, slash, tail = reference.rpartition("/")
    return head + slash + tail.split("@", 1)[0].split(":", 1)[0]


def _listing(host: Host, references: t.AbstractSet[str]) -> t.Dict[str, Image]:
    """Return those of some images that containerd has; the first call decides which are asked for."""

    def read() -> t.Dict[str, Image]:
        # Named ones only: containerd reads every listed image's manifests to tell its size.
        filters = [f"name=={reference}" for reference in sorted(references)]
        try:
            status, text, _ = host.run([*CTR, "list", *filters], check=False)
        except ResourceError:
            # containerd itself is one of the things still to be installed.
            return {}
        return parse_listing(text) if status == 0 else {}

    images: t.Dict[str, Image] = host.cached(CACHE, read)
    return images


class ContainerImageKind:
    """Pulls before the image is needed, through the mirrors in /etc/containerd/certs.d.

    containerd's CRI plugin learns of the image from containerd's events and adds its own label and its record
    by image id; doing that for it would keep it from making the record.
    """

    name = "container_image"
    stays = "images stay, the kubelet collects those that nothing uses"
    fields: t.Mapping[str, Field] = {
        "ref": Field((str,), required=True),
        "digest": Field((str,), default=""),
        "pinned": Field((bool,), default=True),
    }

    def __init__(self) -> None:
        # The images of the document, learnt while it is checked, so that one call can ask for all of them.
        self.references: t.Set[str] = set()

    def check(self, spec: Spec) -> t.List[str]:
        """Check reference and digest."""
        self.references.add(spec["ref"])
        problems = []
        if not REFERENCE.fullmatch(spec["ref"]):
            problems.append(f"ref: {spec['ref']!r} is not of the form HOST/NAME:TAG")
        if spec["digest"] and not DIGEST.fullmatch(spec["digest"]):
            problems.append("digest: not sha256: and 64 hexadecimal digits")
        return problems

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare with containerd's list; the digest is the manifest's (or the index's)."""
        image = _listing(host, self.references | {spec["ref"]}).get(spec["ref"])
        wanted = spec.get("digest") or ""
        if image is None:
            pinned = spec["pinned"]
            return Change(
                "create",
                {"digest": None, **({"pinned": False} if pinned else {})},
                {"digest": wanted or "any", **({"pinned": True} if pinned else {})},
                "not on the host",
            )
        before: State = {}
        after: State = {}
        if wanted and image.digest != wanted:
            before["digest"], after["digest"] = image.digest, wanted
        if spec["pinned"] and PINNED not in image.labels:
            before["pinned"], after["pinned"] = False, True
        if not after:
            return None
        return Change(
            "update", before, after, "another image has this name" if "digest" in after else "not pinned"
        )

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Pull by digest, so that a mirror cannot hand out anything else, then give it the name."""
        try:
            if "digest" in change.after:
                self._pull(spec, host)
            if spec["pinned"]:
                host.run([*CTR, "label", spec["ref"], PINNED])
                self._unpin_others(spec["ref"], host)
        finally:
            host.forget_cached(CACHE)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Take the name away again, or give it back to the former image while containerd still has that."""
        if "digest" in change.after:
            former = change.before["digest"]
            _remove(host, spec["ref"])
            if change.after["digest"] != "any":
                _remove(host, f"{repository(spec['ref'])}@{change.after['digest']}")
            if former:
                source = f"{repository(spec['ref'])}@{former}"
                host.run([*CTR, "tag", "--force", source, spec["ref"]], check=False)
        elif "pinned" in change.after:
            _unpin(host, spec["ref"])
        host.forget_cached(CACHE)

    def _unpin_others(self, reference: str, host: Host) -> None:
        """Leave the image's other versions to the kubelet, but for those that the document has as well."""

        def read() -> t.List[str]:
            _, text, _ = host.run([*CTR, "list", f'labels."{PIN}"==pinned'], check=False)
            return [name for name, image in parse_listing(text).items() if PINNED in image.labels]

        # Those that are pinned afterwards are the document's.
        for other in host.cached("ctr pinned", read):
            if repository(other) == repository(reference) and other not in self.references | {reference}:
                _unpin(host, other)

    def _pull(self, spec: Spec, host: Host) -> None:
        reference, digest = spec["ref"], spec.get("digest") or ""
        source = f"{repository(reference)}@{digest}" if digest else reference
        argv = [*CTR, "pull", "--hosts-dir", HOSTS_FOLDER]
        status, _, problem = host.run([*argv, source], check=False, timeout=TIMEOUT)
        if status != 0:
            remedy = (
                f"Check that the mirror named in {HOSTS_FOLDER} answers and holds this image with digest "
                f"{digest or 'of its tag'} ('ironspan artifacts verify')."
            )
            if "no space left" in problem:
                remedy = "Make room for containerd (df -h, df -i), and run again."
            if "image verifier" in problem:
                remedy = "Sign it ('ironspan artifacts sign'), or change containerd_image_policy."
            raise ResourceError(f"image {reference} cannot be pulled: {_last_line(problem)}", remedy)
        if digest:
            host.run([*CTR, "tag", "--force", source, reference])


def _unpin(host: Host, reference: str) -> None:
    host.run([*CTR, "label", reference, f"{PIN}="], check=False)


def _remove(host: Host, reference: str) -> None:
    host.run([*CTR, "remove", reference], check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"


KIND = ContainerImageKind()
