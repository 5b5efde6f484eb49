# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What etcd is told, and what systemd is told of every program."""

from __future__ import annotations

import configparser
import re
import typing as t
from collections.abc import Callable

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import PEER_NAME
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer

from tests.support.public_side import UID, PublicSide
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]


def unit(text: str) -> configparser.ConfigParser:
    """Read a systemd unit in which no key appears twice in a section."""
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


ETCD = [
    ({}, "name", "az-2"),
    ({}, "data-dir", f"/var/lib/etcd/{UID}"),
    ({}, "initial-cluster-token", UID),
    ({}, "listen-client-urls", "https://10.98.0.12:2379,https://127.0.0.1:2379"),
    ({}, "listen-peer-urls", "https://10.98.0.12:2380"),
    ({}, "listen-metrics-urls", "http://127.0.0.1:2381"),
    ({}, "feature-gates", "InitialCorruptCheck=true,CompactHashCheck=true"),
    ({}, "quota-backend-bytes", 8 * 2**30),
    ({"etcd_quota_bytes": 2**30}, "quota-backend-bytes", 2**30),
    ({}, "auto-compaction-retention", "0"),
    ({}, "heartbeat-interval", 100),
    ({"etcd_heartbeat_ms": 250, "etcd_election_ms": 2500}, "election-timeout", 2500),
    ({"etcd_client_port": 12379}, "advertise-client-urls", "https://10.98.0.12:12379"),
]


@pytest.mark.parametrize(("variables", "key", "value"), ETCD)
def test_etcd(render: Render, variables: dict[str, t.Any], key: str, value: t.Any) -> None:
    assert yaml.safe_load(render(variables=variables).content("az-2", "etcd/config"))[key] == value


@pytest.mark.parametrize(
    ("host", "resource", "text", "keys"),
    [
        ("az-2", "etcd/config", "content", {"name", "initial-cluster-token"}),
        ("az-2", "etcd_events/config", "content", {"name", "initial-cluster-token"}),
        ("az-2", "control_plane/member", "config", {"name", "clusterName"}),
        ("rack-1", "node/join", "config", {"name"}),
    ],
)
def test_names_and_tokens_are_quoted_lest_they_are_read_as_numbers(
    render: Render, host: str, resource: str, text: str, keys: set[str]
) -> None:
    """Of 16 hexadecimal digits, the site's identity, one in 750 is a number like 1234567890e12345 to etcd."""
    rendered = render(variables={"etcd_events_enabled": True}).resources(host)[resource][text]
    found = re.findall(r"^ *(name|clusterName|initial-cluster-token): *(.)", rendered, re.MULTILINE)
    assert {key for key, _ in found} == keys
    assert {first for _, first in found} == {'"'}


def test_how_a_member_starts_is_no_part_of_its_document(render: Render) -> None:
    config, started = (render().resources("az-2")[f"etcd/{name}"] for name in ("config", "started"))
    assert "initial-cluster" not in yaml.safe_load(config["content"])
    assert config["path"] == started["settles"]
    for resource in (config, started):
        assert resource["data_dir"] == yaml.safe_load(config["content"])["data-dir"]
        assert (resource["member"], resource["peer_url"]) == ("az-2", "https://10.98.0.12:2380")
    # Whoever the other members are: no document changes with them, so nobody restarts.
    assert "10.98.0.11" not in config["content"]
    assert started["requires"] == ["etcd/service"]


@pytest.mark.parametrize("side", ["client-transport-security", "peer-transport-security"])
def test_etcd_asks_every_client_for_a_certificate(render: Render, side: str) -> None:
    security = yaml.safe_load(render().content("az-1", "etcd/config"))[side]
    assert security["client-cert-auth"] is True
    resources = render().resources("az-1")
    assert security["cert-file"] == resources["etcd/server"]["path"]
    assert security["key-file"] == resources["etcd/server-key"]["key_path"]
    assert security["trusted-ca-file"] == resources["etcd/ca"]["path"]
    assert resources["etcd/ca"]["content"] == "certificate of etcd\n"
    assert resources["etcd/server"]["issuer_sha256"] == "1" * 64


def test_etcd_certificate_names(render: Render) -> None:
    assert render().resources("az-1")["etcd/server-key"]["csr"] == {
        "common_name": "az-1",
        "organizations": [],
        "dns": ["az-1", "localhost", PEER_NAME],
        "ips": ["10.98.0.11", "127.0.0.1"],
    }


@pytest.mark.parametrize("layer", ["etcd", "etcd_events"])
@pytest.mark.parametrize("named", [True, False])
def test_peers_are_members(render: Render, layer: str, named: bool) -> None:
    """Certificates get the name first; members ask for it when all were seen to have it."""

    class Side(PublicSide):
        def peers_named(self) -> bool:
            return named

    site = render("lab", {"etcd_events_enabled": True}).site
    document = Renderer(site, Side()).document(site.hosts["az-1"])
    resources = {resource["id"]: resource for resource in document["resources"]}
    config = yaml.safe_load(resources[f"{layer}/config"]["content"])
    assert config["peer-transport-security"].get("allowed-hostname") == ([PEER_NAME] if named else None)
    assert "allowed-hostname" not in config["client-transport-security"]
    assert PEER_NAME in resources["etcd/server-key"]["csr"]["dns"]
    assert (
        "dns" not in resources["control_plane/etcd-client-key"]["csr"]
        or not (resources["control_plane/etcd-client-key"]["csr"]["dns"])
    )


UNITS = [
    ("az-1", "etcd/unit", {}, "Type", "notify"),
    ("az-1", "etcd/unit", {}, "User", "etcd"),
    ("az-1", "etcd/unit", {"etcd_limit_nofile": 4711}, "LimitNOFILE", "4711"),
    ("az-1", "etcd/unit", {"etcd_start_timeout_seconds": 60}, "TimeoutStartSec", "60"),
    ("rack-1", "containerd/unit", {}, "KillMode", "process"),
    ("rack-1", "containerd/unit", {"containerd_limit_nofile": 4711}, "LimitNOFILE", "4711"),
    ("rack-1", "containerd/unit", {"containerd_oom_score_adjust": -5}, "OOMScoreAdjust", "-5"),
    ("rack-1", "node/unit", {}, "Restart", "always"),
]


@pytest.mark.parametrize(("host", "identifier", "variables", "key", "value"), UNITS)
def test_units(
    render: Render, host: str, identifier: str, variables: dict[str, t.Any], key: str, value: str
) -> None:
    parsed = unit(render(variables=variables).content(host, identifier))
    assert parsed["Service"][key] == value
    assert parsed["Install"]["WantedBy"] == "multi-user.target"


def test_the_kubelet_waits_for_kubeadm_and_reads_our_settings(render: Render) -> None:
    assert (
        unit(render().content("rack-1", "node/unit"))["Unit"]["ConditionPathExists"]
        == "/var/lib/kubelet/config.yaml"
    )
    folder, _, _name = render().resources("rack-1")["node/settings"]["path"].rpartition("/")
    assert f"--config-dir={folder}" in render().content("rack-1", "node/drop-in")
