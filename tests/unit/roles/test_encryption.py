# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What control planes get to encrypt secrets: nothing without it, a configuration by reference, a plugin."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer

from tests.support.public_side import PublicSide

from .conftest import Rendered, Resource

VAULT: dict[str, t.Any] = {
    "control_plane_secrets_encryption": "key_vault",
    "control_plane_key_vault": {
        "vault_url": "https://acme.vault.azure.net",
        "key": "etcd-secrets",
        "credential": {"kind": "managed_identity"},
    },
}
PLUGIN = {"kms-root", "kms-bin", "kms-data", "kms-program", "kms-key", "kms-settings", "kms-unit", "kms"}
Render = Callable[..., Rendered]


class Side(PublicSide):
    """A PKI store whose secrets are encrypted."""

    def __init__(self, state: Encryption) -> None:
        self.state = state

    def encryption(self) -> Encryption:
        """Return how."""
        return self.state


def resources(
    render: Render, state: Encryption, template: str = "desired.yml.j2", **variables: t.Any
) -> dict[str, Resource]:
    """Return the resources of the layer control_plane by their ids without the layer."""
    rendered = Rendered(render("lab", variables).site)
    rendered.renderer = Renderer(rendered.site, Side(state))
    return {
        name.removeprefix("control_plane/"): resource
        for name, resource in rendered.resources("az-1", template).items()
        if name.startswith("control_plane/")
    }


def after(
    render: Render, former: Encryption, state: Encryption, template: str = "desired.yml.j2"
) -> dict[str, Resource]:
    """Return the layer's resources with the removal that the engine adds after the former state."""

    def rendered(of: Encryption) -> Rendered:
        made = Rendered(render("lab", VAULT).site)
        made.renderer = Renderer(made.site, Side(of))
        return made

    found = rendered(state).after("az-1", rendered(former), template)
    return {
        name.removeprefix("control_plane/"): resource
        for name, resource in found.items()
        if name.startswith("control_plane/")
    }


def api_server(found: dict[str, Resource]) -> dict[str, t.Any]:
    """Return the API server's part of the cluster configuration."""
    documents = yaml.safe_load_all(found["member"]["config"])
    return t.cast(
        "dict[str, t.Any]", next(d["apiServer"] for d in documents if d["kind"] == "ClusterConfiguration")
    )


def flags(found: dict[str, Resource]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in api_server(found)["extraArgs"]}


def test_a_site_without_encryption_has_nothing_of_it(render: Render) -> None:
    found = resources(render, Encryption())
    assert "encryption" not in json.dumps(found)
    assert "kms" not in json.dumps(found)


def test_the_configuration_is_a_secret_and_there_before_the_api_server(render: Render) -> None:
    state = Encryption(("secretbox-1",))
    found = resources(render, state)
    assert found["encryption"] == {
        **found["encryption"],
        "path": "/etc/kubernetes/ironspan/encryption.json",
        "mode": "0600",
        "secret": state.secret_name,
    }
    assert "control_plane/encryption" in found["member"]["requires"]
    assert flags(found)["encryption-provider-config"] == found["encryption"]["path"]
    assert flags(found)["encryption-provider-config-automatic-reload"] == "true"
    assert not PLUGIN & set(found)


def test_another_key_is_another_file_and_no_other_manifest(render: Render) -> None:
    before = resources(render, Encryption(("secretbox-1",)))
    after = resources(render, Encryption(("secretbox-1", "secretbox-2")))
    assert before["member"] == after["member"]
    assert before["encryption"]["secret"] != after["encryption"]["secret"]


def test_a_key_in_a_vault_brings_the_plugin(render: Render) -> None:
    found = resources(render, Encryption(("kms-1",)), **VAULT)
    assert set(found) >= PLUGIN
    assert "control_plane/kms" in found["member"]["requires"]
    settings = json.loads(found["kms-settings"]["content"])
    assert settings["vault"]["vault_url"] == "https://acme.vault.azure.net"
    assert settings["vault"]["private"] and not settings["vault"]["asks"]
    assert settings["outage_hours"] == 72
    assert found["kms-key"]["secret"] == "encryption-cache-key" and found["kms-key"]["mode"] == "0600"
    volumes = {volume["name"]: volume for volume in api_server(found)["extraVolumes"]}
    assert volumes["ironspan-kms"]["hostPath"] == "/run/ironspan-kms"
    unit = found["kms-unit"]["content"]
    assert "RuntimeDirectoryPreserve=yes" in unit and "RuntimeDirectory=ironspan-kms\n" in unit


def test_the_settings_are_what_the_program_reads(render: Render, tmp_path: t.Any) -> None:
    from ironspan.kms import settings

    found = resources(render, Encryption(("kms-1",)), **VAULT)
    (tmp_path / "kms.json").write_text(found["kms-settings"]["content"])
    read = settings.load(tmp_path / "kms.json")
    assert read.place == "acme.vault.azure.net/keys/etcd-secrets"
    assert read.outage_s == 72 * 3600
    assert str(read.socket).startswith("/run/ironspan-kms/")
    assert str(read.seal_key) == found["kms-key"]["path"]
    assert str(read.seeds).startswith(found["kms-data"]["path"])


def test_the_plugin_goes_after_the_api_server_needs_it_no_more(render: Render) -> None:
    found = after(render, Encryption(("kms-1",)), Encryption(("secretbox-1",), "", "", ("kms-1",)))
    order = list(found)
    assert found["kms-unit-removed-1"] == {**found["kms-unit-removed-1"], "state": "stopped"}
    assert order.index("member") < order.index("kms-unit-removed-1") < order.index("kms-unit-removed")
    assert {name for name, each in found.items() if each["kind"] == "absent"} >= {
        f"{name}-removed" for name in PLUGIN - {"kms"}
    }


@pytest.mark.parametrize("state", [Encryption(("identity",), "", "", ("secretbox-1",))])
def test_clear_text_again_keeps_the_file(render: Render, state: Encryption) -> None:
    assert resources(render, state)["encryption"]["secret"] == state.secret_name


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        (Encryption(), set()),
        (Encryption(("secretbox-1",)), set()),
        (Encryption(("kms-1",)), PLUGIN - {"kms"}),
    ],
)
def test_a_reset_takes_the_plugin_away(render: Render, state: Encryption, parts: set[str]) -> None:
    found = after(render, state, state, "reset.yml.j2")
    assert {name.removesuffix("-removed") for name in found} & PLUGIN == parts
