# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How every secret is stored in etcd, by what its value begins with; the rest of the value is not looked at.

An API server writes ``k8s:enc:PROVIDER:VERSION:NAME:`` before what it has encrypted (apiserver, package
storage/value/encrypt), and nothing before what it has not.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import IDENTITY

PREFIX = "/registry"
_ENCRYPTED = re.compile(rb"k8s:enc:(?:secretbox:v1|kms:v2):([a-z0-9-]+):")
_STRANGE = re.compile(rb"k8s:enc:([a-z0-9]+:v[0-9]+:[^:]{1,60}):")
_KEY_ID_FIELD = 2
"""``keyID`` of EncryptedObject (apiserver, kmsv2/v2/api.proto)."""
_BYTES = 2
"""The wire type of fields that have a length (Protocol Buffers, encoding)."""


class Secret(t.NamedTuple):
    """One secret as it is stored.

    Args:
        namespace: of the object.
        name: of the object.
        provider: what it was written with: a name of this site's, ``identity`` for clear text.
        key_id: which key the vault's plugin said it was, "" for other providers.
    """

    namespace: str
    name: str
    provider: str
    key_id: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Pages(t.Protocol):
    """Reads the keys below a prefix in pages, see cluster/members.py."""

    def pairs_below(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield keys and values in the order of keys."""


def secrets(store: Pages, prefix: str = PREFIX) -> Iterator[Secret]:
    """Yield every secret.

    Args:
        store: the members of etcd.
        prefix: what API servers put before all keys (``--etcd-prefix``).

    Raises:
        ClusterError: no member answers with a quorum.
    """
    for key, value in store.pairs_below(f"{prefix}/secrets/"):
        namespace, name = key.split("/")[-2:]
        yield Secret(namespace, name, *_written_by(value))


def _written_by(value: bytes) -> tuple[str, str]:
    if found := _ENCRYPTED.match(value):
        provider = found[1].decode()
        return provider, key_id(value[found.end() :]) if found[0].startswith(b"k8s:enc:kms:") else ""
    if found := _STRANGE.match(value):
        return found[1].decode("ascii", "replace"), ""
    return IDENTITY, ""


def key_id(message: bytes) -> str:
    """Return the key id of an encrypted object, "" when there is none.

    Args:
        message: EncryptedObject, encoded.
    """
    position = 0
    while position < len(message):
        tag, position = _number(message, position)
        if tag & 7 != _BYTES:
            _, position = _number(message, position)
            continue
        size, position = _number(message, position)
        if tag >> 3 == _KEY_ID_FIELD:
            return message[position : position + size].decode("utf-8", "replace")
        position += size
    return ""


def _number(message: bytes, position: int) -> tuple[int, int]:
    """Return the variable-length number at a position, and the position after it."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, position
