# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings file: what is read, and that everything wrong is named at once."""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup import settings
from ironspan.program.settings import SettingsError

GOOD: dict[str, t.Any] = {
    "site": "lab-default",
    "host": "az-1",
    "etcd": {
        "endpoints": ["https://10.98.0.11:2379", "https://10.98.0.12:2379"],
        "local": "https://127.0.0.1:2379",
        "ca": "/etc/etcd/pki/ca.crt",
        "certificate": "/etc/etcd/pki/server.crt",
        "key": "/etc/etcd/pki/server.key",
        "data_dir": "/var/lib/etcd/uid",
    },
    "stores": [
        {
            "kind": "azure",
            "account_url": "https://name.blob.core.windows.net",
            "container": "etcd",
            "prefix": "",
            "credential": {"kind": "managed_identity", "client_id": "", "tenant_id": "", "token_file": ""},
            "ca": "",
            "private": True,
        },
        {"kind": "file", "path": "/srv/etcd-backup", "prefix": "a/"},
    ],
    "keys": {"kind": "file", "folder": "/etc/ironspan/etcd-backup/keys"},
    "proof": {
        "trusted": {"writer": {"1": "A" * 43 + "=", "2": "B" * 43 + "="}, "drill": {"1": "C" * 43 + "="}},
        "sign": {"writer": "/etc/ironspan/etcd-backup/signing/writer-2.key"},
    },
    "spool": {"path": "/var/lib/ironspan/etcd-backup/spool", "max_bytes": 1 << 30},
    "flush_ms": 200,
    "snapshot_every_s": 3600,
    "coalesce_node_leases": True,
    "retention": {"hourly": 24, "daily": 7, "weekly": 4, "monthly": 6},
    "metrics": {"address": "127.0.0.1", "port": 2384},
    "drill": {"after_snapshot": True, "max_age_s": 90000, "memory_max": 2 << 30, "cpu_quota_percent": 50},
    "care": {
        "defragment_fragmentation_percent": 45,
        "defragment_least_bytes": 100 << 20,
        "quota_warn_percent": 80,
    },
}
UNSIGNING = GOOD | {"proof": {"trusted": {"writer": {}, "drill": {}}}}
"""The same of a host that signs nothing, so that no key has to be there."""


def changed(path: str, value: object) -> dict[str, t.Any]:
    """Return the good settings with one value at a dotted path replaced, or removed when it is ``...``."""
    data = copy.deepcopy(GOOD)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: t.Any = data
    for part in above:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(GOOD))
    found = settings.load(file)
    assert found.etcd.endpoints == ("https://10.98.0.11:2379", "https://10.98.0.12:2379")
    assert found.stores[0]["container"] == "etcd"
    assert found.stores[1] == GOOD["stores"][1]
    assert found.keys == GOOD["keys"]
    assert found.proof == GOOD["proof"]
    assert found.spool.path == Path("/var/lib/ironspan/etcd-backup/spool")
    assert (found.retention.hourly, found.retention.monthly) == (24, 6)


def test_what_has_a_default_may_be_left_out() -> None:
    needed = {key: GOOD[key] for key in ("site", "host", "etcd", "stores", "keys", "proof")}
    with_all = copy.deepcopy(GOOD)
    with_all["stores"][0]["credential"] = {"kind": "managed_identity"}
    assert settings.parse(needed) == settings.parse(GOOD) == settings.parse(with_all)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("site", ..., "site is missing; write the site's name"),
        ("site", "Lab Default", "site is 'Lab Default'; write the site's name"),
        ("flush_ms", 5, "flush_ms is 5; write a whole number from 20 to 5000"),
        ("flush_ms", True, "flush_ms is True; write a whole number"),
        ("flush_ms", "200", "flush_ms is '200'; write a whole number"),
        ("coalesce_node_leases", 1, "coalesce_node_leases is 1; write true or false"),
        ("snapshot_evry_s", 60, "snapshot_evry_s is not known; write snapshot_every_s"),
        ("etcd", [], "etcd is []; write a mapping"),
        ("etcd.endpoints", [], 'etcd.endpoints is []; write ["https://ADDRESS:2379"]'),
        ("etcd.endpoints.1", "10.0.0.1", "etcd.endpoints[1] is '10.0.0.1'; write https://ADDRESS:2379"),
        ("etcd.endpoints.0", "http://10.0.0.1:2379", "etcd.endpoints[0] is 'http://10.0.0.1:2379'"),
        ("etcd.ca", ..., "etcd.ca is missing"),
        ("etcd.key", "server.key", "etcd.key is 'server.key'; write the path of its private key"),
        ("stores", [], "stores is []; write a list of at least one store"),
        ("stores.0", "azure", "stores[0] is 'azure'; write a mapping"),
        ("stores.0.kind", "s3", "stores[0].kind is 's3'; write azure or file"),
        ("stores.0.account_url", "http://x", "stores[0].account_url is 'http://x'; write https://NAME.blob"),
        ("stores.0.credential", ..., "stores[0].credential is missing; write a mapping"),
        ("stores.0.credential.kind", "key", "stores[0].credential.kind is 'key'; write managed_identity or"),
        ("stores.0.account_key", "x", "stores[0].account_key is not known"),
        ("stores.1.path", "srv", "stores[1].path is 'srv'; write an absolute path"),
        ("stores.1.prefix", "a", "stores[1].prefix is 'a'; write nothing, or a folder that ends with /"),
        ("keys.folder", ..., "keys.folder is missing"),
        ("keys.kind", "env", "keys.kind is 'env'; write file or key_vault"),
        ("retention.hourly", 0, "retention.hourly is 0; write a whole number from 1"),
        ("metrics.port", 99999, "metrics.port is 99999; write a whole number from 1 to 65535"),
    ],
)
def test_one_wrong_thing_is_one_line(path: str, value: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.parse(changed(path, value))
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(said)


def test_workload_identity_needs_all_three() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.parse(changed("stores.0.credential", {"kind": "workload_identity"}))
    assert [line.split(" is ")[0].rsplit(".", 1)[1] for line in caught.value.problems] == [
        "client_id",
        "tenant_id",
        "token_file",
    ]


def test_all_that_is_wrong_is_named_at_once() -> None:
    data = changed("flush_ms", 0) | {"site": 7, "unknown": 1, "etcd": "none"}
    with pytest.raises(SettingsError) as caught:
        settings.parse(data, Path("/x.json"))
    assert [line.split()[0] for line in caught.value.problems] == ["site", "etcd", "flush_ms", "unknown"]
    assert str(caught.value).startswith("/x.json cannot be used:\n  site is 7; write")


def test_a_scratch_etcd_on_loopback_needs_no_certificates() -> None:
    etcd = {"endpoints": ["http://127.0.0.5:1"], "local": "http://127.0.0.5:1", "data_dir": "/x"}
    assert settings.parse(GOOD | {"etcd": etcd}).etcd.ca == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="cannot be used"):
        settings.load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the role etcd_backup writes this file"):
        settings.load(tmp_path / "none.json")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PLACES = ["site", "etcd", "etcd.endpoints", "stores", "stores.0", "stores.0.credential", "keys", "care"]


@given(place=st.sampled_from(PLACES), value=ANY)
def test_nothing_in_the_file_breaks_the_reader(place: str, value: object) -> None:
    try:
        settings.parse(changed(place, value))
    except SettingsError as error:
        assert error.problems
        assert all("; write " in line or " is not known; " in line for line in error.problems)
