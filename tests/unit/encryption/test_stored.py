# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How secrets are stored: what values begin with, and rewriting them."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.rewrite import rewrite
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.stored import (
    Secret,
    key_id,
    secrets,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from hypothesis import given
from hypothesis import strategies as st

PLACE = "acme.vault.azure.net/keys/etcd/1"
MESSAGE = b"\x0a\x03abc" + b"\x12" + bytes([len(PLACE)]) + PLACE.encode() + b"\x1a\x02de" + b"\x28\x01"


class Values:
    """A store that has these values."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values = values
        self.asked: list[str] = []

    def pairs_below(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield keys and values."""
        self.asked.append(prefix)
        yield from sorted(self.values.items())


@pytest.mark.parametrize(
    ("value", "provider", "key"),
    [
        (b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret", "identity", ""),
        (b'{"kind":"Secret"}', "identity", ""),
        (b"", "identity", ""),
        (b"k8s:enc:secretbox:v1:secretbox-2:\x00\xff", "secretbox-2", ""),
        (b"k8s:enc:kms:v2:kms-1:" + MESSAGE, "kms-1", PLACE),
        (b"k8s:enc:kms:v2:kms-1:", "kms-1", ""),
        (b"k8s:enc:aescbc:v1:key1:\x00", "aescbc:v1:key1", ""),
        (b"k8s:enc:kms:v1:azurekmsprovider:\x00", "kms:v1:azurekmsprovider", ""),
    ],
)
def test_a_value_tells_who_wrote_it(value: bytes, provider: str, key: str) -> None:
    store = Values({"/registry/secrets/team-a/token": value})
    assert list(secrets(store)) == [Secret("team-a", "token", provider, key)]
    assert store.asked == ["/registry/secrets/"]


def test_another_prefix_of_all_keys() -> None:
    store = Values({})
    assert list(secrets(store, "/clusters/one")) == []
    assert store.asked == ["/clusters/one/secrets/"]


@given(st.binary(max_size=80))
def test_whatever_follows_is_read_without_an_end(message: bytes) -> None:
    assert isinstance(key_id(message), str)


@given(st.binary(max_size=300), st.text(max_size=300))
def test_the_key_id_is_found_behind_any_ciphertext(ciphertext: bytes, wanted: str) -> None:
    encoded = wanted.encode()
    message = b"\x0a" + number(len(ciphertext)) + ciphertext + b"\x12" + number(len(encoded)) + encoded
    assert key_id(message) == wanted


def number(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class Server:
    """An API that writes what it is asked to patch with the new key."""

    def __init__(self, store: Values, refusals: dict[str, int] | None = None) -> None:
        self.store, self.refusals = store, refusals or {}
        self.patched: list[tuple[str, t.Any, dict[str, t.Any]]] = []

    def request(self, method: str, path: str, body: t.Any, *_: t.Any, **options: t.Any) -> bytes:
        """Answer a patch."""
        self.patched.append((f"{method} {path}", body, options))
        namespace, name = path.split("/")[-3], path.split("/")[-1]
        if status := self.refusals.get(name):
            raise ApiError(status, "Forbidden", "no", f"{method} {path}")
        self.store.values[f"/registry/secrets/{namespace}/{name}"] = b"k8s:enc:secretbox:v1:secretbox-2:x"
        return b"{}"


OLD, NEW = b"k8s:enc:secretbox:v1:secretbox-1:x", b"k8s:enc:secretbox:v1:secretbox-2:x"


def stored(**values: bytes) -> Values:
    return Values({f"/registry/secrets/a/{name}": value for name, value in values.items()})


def test_only_what_another_key_has_written_is_written_again_without_any_content() -> None:
    store = stored(old=OLD, new=NEW, clear=b"k8s\x00")
    server = Server(store)
    outcome = rewrite([t.cast("Api", server)], lambda: secrets(store), "secretbox-2")
    assert sorted(path for path, _, _ in server.patched) == [
        "PATCH /api/v1/namespaces/a/secrets/clear",
        "PATCH /api/v1/namespaces/a/secrets/old",
    ]
    assert all(body == {} for _, body, _ in server.patched)
    assert all("PartialObjectMetadata" in options["accept"] for _, _, options in server.patched)
    assert (outcome.asked, outcome.refused, outcome.left) == (2, [], [])
    assert outcome.stored == {"secretbox-2": 3}


def test_a_second_run_has_nothing_to_do_unless_everything_is_asked_for() -> None:
    store = stored(one=NEW, two=NEW)
    server = Server(store)
    assert rewrite([t.cast("Api", server)], lambda: secrets(store), "secretbox-2").asked == 0
    outcome = rewrite([t.cast("Api", server)], lambda: secrets(store), "secretbox-2", everything=True)
    assert outcome.asked == len(server.patched) == 2


def test_what_is_refused_is_named_and_what_is_gone_is_not() -> None:
    store = stored(gone=OLD, kept=OLD)
    server = Server(store, {"gone": 404, "kept": 403})
    outcome = rewrite([t.cast("Api", server)], lambda: secrets(store), "secretbox-2")
    (reason,) = outcome.refused
    assert reason.startswith("secret a/kept: ")
    assert {secret.name for secret in outcome.left} == {"gone", "kept"}


def test_api_servers_take_turns() -> None:
    store = stored(**{f"s{number}": OLD for number in range(6)})
    servers = [Server(store), Server(store)]
    rewrite([t.cast("Api", server) for server in servers], lambda: secrets(store), "secretbox-2")
    assert [len(server.patched) for server in servers] == [3, 3]
