# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which Ironic the picture of the racks is of: the cloud that the site names, or its own one."""

from __future__ import annotations

import argparse
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from ironspan.cli.outcome import CommandError
from ironspan.cli.site_view import racks_of

ROW = "name,bmc_address,rack,position\ngpu-1,192.0.2.1,a,1\n"


class Nobody:
    """An Ironic without servers."""

    def entries(self, *fields: str) -> dict[str, t.Any]:
        return {}


def site(folder: Path, *own: str, **variables: t.Any) -> t.Any:
    """Return what of a site's model is looked at; ``own`` are hosts of its own Ironic."""
    ports = {"ironic_address": "", "ironic_api_port": 6385}
    hosts = [types.SimpleNamespace(address=address, variables=ports) for address in own]
    return types.SimpleNamespace(
        hosts={"a1": types.SimpleNamespace(variables=variables)},
        variables=variables,
        group=lambda name: hosts if name == "ironic" else [],
        pki_store=str(folder / "pki"),
        pki_key_file=str(folder / "key"),
    )


@pytest.fixture
def arguments(tmp_path: Path) -> argparse.Namespace:
    (tmp_path / "racks.csv").write_text(ROW)
    return argparse.Namespace(expected=str(tmp_path / "racks.csv"), mapping="")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, t.Any]]:
    """How an Ironic was spoken to."""
    found: list[dict[str, t.Any]] = []

    def connected(**login: t.Any) -> Nobody:
        found.append(login)
        return Nobody()

    monkeypatch.setattr(ironic_api, "connected", connected)
    return found


def test_the_sites_own_ironic_needs_no_cloud(
    tmp_path: Path, arguments: argparse.Namespace, asked: list[dict[str, t.Any]]
) -> None:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    store.ensure_cas()
    store.ironic.ensure()
    (place,) = racks_of(arguments, site(tmp_path, "10.2.0.5"))
    assert place.server.name == "gpu-1"
    assert asked[0]["auth"]["endpoint"] == "https://10.2.0.5:6385"
    assert asked[0]["auth"]["password"] == store.ironic.password().strip()


def test_a_named_cloud_wins(
    tmp_path: Path, arguments: argparse.Namespace, asked: list[dict[str, t.Any]]
) -> None:
    racks_of(arguments, site(tmp_path, "10.2.0.5", site_bare_metal_cloud="racks"))
    assert asked == [{"cloud": "racks", "clouds": ""}]


def test_a_site_without_either_is_told_what_to_write(tmp_path: Path, arguments: argparse.Namespace) -> None:
    with pytest.raises(CommandError, match=r"names no Ironic.*give the group ironic a host"):
        racks_of(arguments, site(tmp_path))
