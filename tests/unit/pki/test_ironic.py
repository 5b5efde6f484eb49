# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in a site's own Ironic: its password changes, also where that run is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.ironic import KEY


@pytest.fixture
def own(tmp_path: Path, key_file: Path) -> Store:
    made = open_store(tmp_path / "pki", key_file)
    made.ensure_cas()
    return made


def test_there_is_none_before_a_host_gets_it(own: Store) -> None:
    assert (own.ironic.exists(), own.ironic.is_changing(), own.ironic.former_password()) == (False, False, "")
    own.ironic.ensure()
    assert (own.ironic.exists(), own.ironic.is_changing(), own.ironic.former_password()) == (True, False, "")


def test_a_change_goes_on_until_it_was_seen_and_makes_one_password(own: Store) -> None:
    own.ironic.ensure()
    first = own.ironic.password()
    assert own.ironic.change_password()
    second = own.ironic.password()
    assert (own.ironic.is_changing(), own.ironic.former_password()) == (True, first)
    # The run is killed here; the next one, and one that only makes a key, leave the password alone.
    assert not own.ironic.change_password()
    own.ironic.add(KEY)
    assert (own.ironic.is_changing(), own.ironic.password()) == (True, second)
    own.ironic.password_changed()
    assert not own.ironic.is_changing()
    assert own.ironic.change_password()
    assert own.ironic.password() not in (first, second)
    assert own.ironic.former_password() == second
    own.ironic.prove()


class Killed(BaseException):
    """The run ends here."""


@pytest.mark.parametrize("where", ["seal", "change_header"])
def test_a_kill_while_it_is_made_leaves_the_one_before(
    own: Store, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.ironic.ensure()
    first = own.ironic.password()

    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Folder, where, killed)
        with pytest.raises(Killed):
            own.ironic.change_password()
    assert (own.ironic.password(), own.ironic.is_changing()) == (first, False)
    assert own.ironic.change_password()
    assert own.ironic.password() != first
