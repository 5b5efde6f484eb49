# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Rewrites secrets: an empty patch makes an API server write what it would encrypt otherwise now.

An API server leaves out a write that changes nothing, but not where what is stored was encrypted with another
key than it writes with (apiserver, storage/etcd3: stale data). So a patch can be repeated, and costs etcd
nothing for what is right already. Content of secrets is neither sent nor answered.
"""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import typing as t
from collections.abc import Callable, Iterable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.stored import Secret
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

AT_ONCE = 8
_PATCH = "application/merge-patch+json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Outcome(t.NamedTuple):
    """What rewriting secrets has come to.

    Args:
        asked: number of secrets that the API was asked to write.
        refused: why some were not, a sentence each.
        stored: secrets by what they are stored with now, with the key of a vault in brackets.
        left: secrets that something else than the wanted provider has written.
    """

    asked: int
    refused: list[str]
    stored: dict[str, int]
    left: list[Secret]


def rewrite(
    apis: Sequence[Api], read: Callable[[], Iterable[Secret]], provider: str, *, everything: bool = False
) -> Outcome:
    """Rewrite secrets until none is left that another provider has written.

    Args:
        apis: a client of each API server, which take turns: each writes with a key of its own where a vault
            wraps these, and the others have to get to know it while the vault answers.
        read: reads how secrets are stored.
        provider: the one that writes.
        everything: also those of this provider, whose key may have another version now.

    Returns:
        What has come of it, by what is stored.
    """
    stale = [secret for secret in read() if everything or secret.provider != provider]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        refused = [reason for reason in pool.map(_write, itertools.cycle(apis), stale) if reason]
    stored = list(read())
    left = [secret for secret in stored if secret.provider != provider]
    return Outcome(len(stale), refused, counted(stored), left)


def counted(stored: Sequence[Secret]) -> dict[str, int]:
    """Return the number of secrets by what they are stored with."""
    labels = (f"{one.provider} ({one.key_id})" if one.key_id else one.provider for one in stored)
    return dict(sorted(collections.Counter(labels).items()))


def _write(api: Api, secret: Secret) -> str:
    path = f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}"
    try:
        api.request("PATCH", path, {}, _PATCH, {"fieldManager": "ironspan"}, accept=_METADATA_ONLY)
    except ApiError as error:
        # What is gone needs nothing.
        return "" if error.status == 404 else f"secret {secret}: {error}"
    return ""
