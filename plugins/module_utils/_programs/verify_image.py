#!/usr/bin/python3 -IS
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tells containerd whether an image may be pulled: signed by a key of the site's policy, or not.

containerd (plugin io.containerd.image-verifier.v1.bindir) calls this with -name REFERENCE -digest DIGEST once
it knows the digest and before it fetches anything. Exit code 0 lets the pull go on, another one stops it, and
what is printed becomes part of the pod's event. Signatures are cosign's: layers of the image
REPOSITORY:sha256-HEX.sig, each a payload that names the digest, with the signature in an annotation. Neither
the API nor a log of signatures is asked.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import syslog
import time
import typing as t
import urllib.error
import urllib.request

POLICY = "/etc/ironspan-images.json"
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
CLAIM = "cosign container image signature"
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PATIENCE_S = 8.0
"""Seconds for all of it: containerd gives up after 10 s, and would not say why."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The mirror is the site's own: never through a proxy, which containerd's environment may name."""
LARGEST_BYTES = 1 << 20
MOST_SIGNATURES = 16


class Refused(Exception):
    """The image may not be pulled; the text says why."""


def repository(reference: str) -> str:
    """Return a reference without tag and digest, with the name that containerd has for Docker's registry."""
    name = reference.split("@", 1)[0]
    head, slash, tail = name.rpartition("/")
    name = head + slash + tail.split(":", 1)[0]
    return "docker.io/" + name[len("index.docker.io/") :] if name.startswith("index.docker.io/") else name


def matches(name: str, patterns: t.Iterable[str]) -> bool:
    """Tell whether a repository is meant by one of some patterns; a star stands for any text."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def is_signed(payload: bytes, signature: bytes, key: str, seconds: float) -> bool:
    """Ask openssl whether a signature over a payload is a key's (ECDSA or RSA, with SHA-256)."""
    places = []
    try:
        for content in (key.encode(), signature):
            places.append(os.memfd_create("image"))
            os.write(places[-1], content)
        files = [f"/proc/self/fd/{place}" for place in places]
        done = subprocess.run(
            ["openssl", "dgst", "-sha256", "-verify", files[0], "-signature", files[1]],
            input=payload,
            pass_fds=places,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    finally:
        for place in places:
            os.close(place)
    return done.returncode == 0


def claims(payload: bytes, digest: str, signers: t.Iterable[str]) -> bool:
    """Tell whether a payload speaks of this digest, signed under a name that one of the patterns allows."""
    try:
        critical = json.loads(payload)["critical"]
        told = critical["type"], critical["image"]["docker-manifest-digest"]
        name = critical["identity"]["docker-reference"]
    except (ValueError, KeyError, TypeError):
        return False
    return told == (CLAIM, digest) and isinstance(name, str) and matches(repository(name), signers)


class Registry:
    """Where the signatures of one repository are.

    Args:
        base: URL up to and with the repository, without ``/manifests``.
        deadline: when to give up, on the clock ``time.monotonic``.
    """

    def __init__(self, base: str, deadline: float) -> None:
        self.base = base
        self.deadline = deadline

    def seconds(self) -> float:
        """Return how long there is still time."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Refused(f"{self.base} did not answer within {PATIENCE_S:.0f} s")
        return left

    def fetch(self, path: str) -> bytes:
        """Return what is at a path below the repository."""
        request = urllib.request.Request(f"{self.base}/{path}", headers={"Accept": MANIFESTS})
        try:
            with DIRECT.open(request, timeout=self.seconds()) as answer:
                content: bytes = answer.read(LARGEST_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code == 404 and path.startswith("manifests/"):
                raise Refused(f"it is not signed: {self.base}/{path} is not there") from error
            raise Refused(f"{self.base}/{path} answers {error.code}") from error
        except OSError as error:
            raise Refused(f"{self.base} cannot be asked for its signature: {error}") from error
        if len(content) > LARGEST_BYTES:
            raise Refused(f"{self.base}/{path} is larger than {LARGEST_BYTES} bytes")
        return content

    def signatures(self, digest: str) -> t.Iterator[tuple[bytes, bytes]]:
        """Return payloads with their signatures, none of them checked.

        Args:
            digest: of the image.
        """
        manifest = json.loads(self.fetch(f"manifests/{digest.replace(':', '-')}.sig"))
        for layer in manifest["layers"][:MOST_SIGNATURES]:
            text = (layer.get("annotations") or {}).get(SIGNATURE)
            if layer.get("mediaType") != PAYLOAD or not text or not DIGEST.fullmatch(layer["digest"]):
                continue
            payload = self.fetch(f"blobs/{layer['digest']}")
            if hashlib.sha256(payload).hexdigest() != layer["digest"].split(":")[1]:
                raise Refused(f"{self.base}/blobs/{layer['digest']} has another digest")
            try:
                yield payload, base64.b64decode(text, validate=True)
            except binascii.Error:
                continue


def judge(policy: t.Mapping[str, t.Any], name: str, digest: str) -> str:
    """Return why an image may be pulled.

    Args:
        policy: what the policy file holds.
        name: reference that is pulled.
        digest: digest that the registry has for it.

    Raises:
        Refused: it may not.
    """
    wanted = repository(name)
    rule = next((rule for rule in policy["rules"] if matches(wanted, rule["images"])), None)
    if rule is None:
        return "the site's policy names no key for it"
    if not DIGEST.fullmatch(digest):
        raise Refused(f"its digest {digest} is no SHA-256")
    host, _, path = wanted.partition("/")
    base = policy["registries"].get(host, f"https://{host}/v2")
    registry = Registry(f"{base}/{path}", time.monotonic() + PATIENCE_S)
    found = 0
    for payload, signature in registry.signatures(digest):
        found += 1
        signed = any(is_signed(payload, signature, key, registry.seconds()) for key in rule["keys"])
        if signed and claims(payload, digest, rule["signed_as"] or rule["images"]):
            return "signed by a key of the site's policy"
    raise Refused(f"none of its {found} signatures is by a key of the site's policy for this image and name")


def main(arguments: t.Sequence[str], policy_file: str = POLICY) -> int:
    """Judge one image and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-name", required=True)
    parser.add_argument("-digest", required=True)
    options, _ = parser.parse_known_args(arguments)
    mode = "enforce"
    try:
        policy = json.loads(pathlib.Path(policy_file).read_text(encoding="utf-8"))
        mode = policy["mode"]
        print(judge(policy, options.name, options.digest))
        return 0
    except Refused as refused:
        reason = str(refused)
    except Exception as error:  # whatever it is: an image that cannot be judged is not let through
        reason = f"it cannot be judged ({type(error).__name__}: {error})"
    verdict = "refused" if mode == "enforce" else "would be refused"
    syslog.openlog("ironspan-image", facility=syslog.LOG_AUTH)
    syslog.syslog(syslog.LOG_WARNING, f"{options.name} ({options.digest}) {verdict}: {reason}")
    print(reason)
    return 1 if mode == "enforce" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
