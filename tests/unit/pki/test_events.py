# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in ``ironspan-events``: tokens that change without a gap, also where a run is killed."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder


@pytest.fixture
def store(tmp_path: pathlib.Path, key_file: pathlib.Path) -> Store:
    made = open_store(tmp_path / "pki", key_file)
    made.ensure_cas()
    return made


def lines(store: Store) -> list[str]:
    """Return the tokens that the host takes."""
    return store.events.secrets()[store.events.names()["token"]]().splitlines()


def test_there_is_none_before_a_host_gets_it(store: Store) -> None:
    before = store.backup_keys.stamp()
    assert store.events.names() == {"token": "events-token-1", "account": ""}
    assert store.events.secrets() == {}
    with pytest.raises(PkiError, match="no token for Alertmanager"):
        store.events.token()
    assert store.events.ensure() and not store.events.ensure()
    assert lines(store) == [store.events.token()]
    # A recovery has to have it.
    assert store.backup_keys.stamp() != before


def test_another_token_leaves_the_one_before_good_and_no_older_one(store: Store) -> None:
    store.events.ensure()
    first = store.events.token()
    store.events.another()
    second = store.events.token()
    assert lines(store) == [second, first]
    store.events.another()
    assert lines(store) == [store.events.token(), second]
    assert store.events.names()["token"] == "events-token-3"
    store.events.prove()


def test_the_account_is_kept_once_and_numbered(store: Store) -> None:
    assert store.events.keep_account("a-token-of-awx")
    assert not store.events.keep_account("a-token-of-awx")
    assert store.events.names()["account"] == "events-account-1"
    assert store.events.keep_account("another-one")
    assert store.events.secrets()["events-account-2"]() == "another-one\n"
    assert "events-account-1" not in store.events.secrets()


class Killed(BaseException):
    """The run ends here."""


@pytest.mark.parametrize("where", ["seal", "change_header"])
def test_a_kill_in_between_leaves_what_was_there(
    store: Store, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.events.ensure()
    before = lines(store)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Folder, where, killed)
        with pytest.raises(Killed):
            store.events.another()
    assert lines(store) == before
    store.events.another()
    assert lines(store)[1:] == before


def test_a_secret_that_is_lost_is_named(store: Store) -> None:
    store.events.ensure()
    next(store.path.rglob("events-token-1.sealed")).unlink()
    with pytest.raises(PkiError, match="has lost events-token-1"):
        store.ensure_cas()
