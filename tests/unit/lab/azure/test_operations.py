# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a request does, and which identities may ask for it."""

from __future__ import annotations

import pytest

from ironspan.lab.azure.operations import split, understand
from ironspan.lab.azure.settings import IDENTITIES, TENANT, by_object, chosen

HOST = "labstore.blob.core.windows.net"
BLOB = "/etcd/lab/e000001/log/1.log"


@pytest.mark.parametrize(
    ("host", "path", "parts"),
    [
        (HOST, BLOB, ("labstore", "etcd", "lab/e000001/log/1.log")),
        (f"{HOST}:443", "/etcd", ("labstore", "etcd", "")),
        (HOST, "/", ("labstore", "", "")),
        ("127.0.0.1:4430", f"/labstore{BLOB}", ("labstore", "etcd", "lab/e000001/log/1.log")),
        ("10.98.0.253", "/labstore", ("labstore", "", "")),
        ("localhost:4430", "/labstore/etcd/a", ("labstore", "etcd", "a")),
    ],
)
def test_both_styles_of_urls(host: str, path: str, parts: tuple[str, str, str]) -> None:
    assert split(host, path) == parts


@pytest.mark.parametrize(
    ("method", "target", "effect", "allowed"),
    [
        ("GET", BLOB, "read", {"writer", "collector", "reader", "operator"}),
        ("HEAD", BLOB, "read", {"writer", "collector", "reader", "operator"}),
        ("GET", "/etcd?restype=container&comp=list", "read", {"writer", "collector", "reader", "operator"}),
        ("PUT", BLOB, "put", {"writer", "operator"}),
        ("PUT", f"{BLOB}?comp=block&blockid=AA", "block", {"writer", "operator"}),
        ("PUT", f"{BLOB}?comp=blocklist", "put", {"writer", "operator"}),
        ("PUT", f"{BLOB}?comp=appendblock", "append", {"writer", "operator"}),
        ("PUT", f"{BLOB}?comp=lease", "lease", {"writer", "operator"}),
        ("PUT", f"{BLOB}?comp=metadata", "change", {"writer", "operator"}),
        ("DELETE", BLOB, "delete", {"collector", "operator"}),
        ("PUT", "/etcd?restype=container", "other", {"operator"}),
        ("DELETE", "/etcd?restype=container", "delete", {"operator"}),
    ],
)
def test_who_may_do_what(method: str, target: str, effect: str, allowed: set[str]) -> None:
    operation = understand(method, HOST, target)
    assert operation is not None
    assert operation.effect == effect
    assert {name for name, one in IDENTITIES.items() if operation.action in one.actions} == allowed


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", BLOB),
        ("PUT", f"{BLOB}?comp=immutabilityPolicies"),
        ("PUT", f"{BLOB}?comp=undelete"),
        ("PUT", "/?comp=properties&restype=service"),
        ("PUT", "/etcd?restype=container&comp=acl"),
    ],
)
def test_what_the_lab_does_not_have_is_not_understood(method: str, target: str) -> None:
    assert understand(method, HOST, target) is None


def test_the_path_of_a_fault_is_the_same_in_both_styles() -> None:
    by_name = understand("PUT", HOST, "/etcd/a%20b?comp=block")
    by_path = understand("PUT", "127.0.0.1:1", "/labstore/etcd/a%20b?comp=block")
    assert by_name is not None
    assert by_path is not None
    assert by_name.path == by_path.path == "/etcd/a b"


def test_each_identity_is_found_by_each_of_its_names_and_no_other() -> None:
    for one in IDENTITIES.values():
        assert chosen(client_id=one.client_id) is one
        assert chosen(object_id=one.object_id) is one
        assert chosen(resource_id=one.resource_id.upper()) is one
        assert by_object(one.object_id) is one
        assert by_object(one.client_id) is None
    assert chosen() is IDENTITIES["writer"]
    assert chosen(client_id=TENANT) is None
    assert by_object(None) is None
