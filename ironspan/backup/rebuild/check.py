# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compares what a restored etcd holds with what the manifests of snapshots say that it has to hold.

A program that reads a file can be satisfied with a damaged one: ``etcdutl snapshot status`` is with a flipped
byte. Here a server that runs on the data is asked for etcd's own hash over every key, revision and value.
"""

from __future__ import annotations

import dataclasses

from ironspan.backup import objects
from ironspan.backup.manifest import Manifest
from ironspan.backup.rebuild.replay import Replayed
from ironspan.etcd.client import ALL, EtcdClient
from ironspan.etcd.errors import EtcdError

HASH_SECONDS = 600.0
"""etcd reads its whole database for a hash: 1 GiB takes a second from memory, slow disks minutes."""
_NO_EVIDENCE = (0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What an etcd holds; ``findings`` has a line for each thing that is not as it should be."""

    revision: int
    objects: int
    findings: list[str]


def check(
    client: EtcdClient, endpoint: str, manifest: Manifest, replayed: Replayed, later: Manifest | None = None
) -> Found:
    """Compare a restored etcd with the manifests of the snapshots whose revisions it went through.

    Args:
        client: of the restored etcd, a scratch one: its history is compacted as that of the member was
            whose hash is compared.
        endpoint: its URL.
        manifest: of the snapshot that it was restored from.
        replayed: what the log added.
        later: of a snapshot that the log leads to. Its hash is compared unless the log lacks values.

    Returns:
        What there is, and every difference.
    """
    now = client.range(ALL, ALL, count_only=True)
    findings = []
    if now.header.revision < replayed.revision:
        findings.append(f"etcd is at revision {now.header.revision}, not {replayed.revision}")
    try:
        findings += _differences(client, endpoint, manifest)
        if later is not None:
            findings += _differences(client, endpoint, later, values=not replayed.fillers)
    except EtcdError as error:
        findings.append(f"the scratch etcd cannot be read: {error.message}")
    return Found(now.header.revision, now.count, findings)


def _differences(client: EtcdClient, endpoint: str, manifest: Manifest, values: bool = True) -> list[str]:
    revision = manifest.revision
    if (manifest.hashkv, manifest.compact_revision) == _NO_EVIDENCE:
        return [
            f"the manifest has no hash of revision {revision} to compare with: it was compacted meanwhile"
        ]
    findings = []
    counts = objects.count(client, endpoint, revision)
    for name in sorted(counts.keys() | manifest.object_counts.keys()):
        have, need = counts.get(name, 0), manifest.object_counts.get(name, 0)
        if have != need:
            findings.append(f"at revision {revision} there are {have} keys of {name or 'others'}, not {need}")
    if not values:
        return findings
    answer = client.hash_kv(endpoint, revision, HASH_SECONDS)
    if answer.compact_revision < manifest.compact_revision:
        # The member was compacted between the stream's beginning and its hash.
        client.compact(manifest.compact_revision, physical=True, timeout=HASH_SECONDS)
        answer = client.hash_kv(endpoint, revision, HASH_SECONDS)
    if answer.compact_revision == revision > manifest.compact_revision:
        # The member had compacted this very revision, and told the hash that it remembers of before that.
        return findings
    if (answer.hash, answer.compact_revision) != (manifest.hashkv, manifest.compact_revision):
        findings.append(
            f"the hash of revision {revision} is {answer.hash} (compacted {answer.compact_revision}), "
            f"not {manifest.hashkv} (compacted {manifest.compact_revision})"
        )
    return findings
