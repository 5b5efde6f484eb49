# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An etcd of their own for events: nothing without the switch; with it a store named after its members."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import groups_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
ON: dict[str, t.Any] = {"etcd_events_enabled": True}
FLAG = "etcd-servers-overrides"
PATHS = {False: "/var/lib/etcd-events", True: "/var/lib/etcd/events"}
"""Where its data are, by whether etcd has a disk to itself."""


def of_events(rendered: Rendered, host: str = "az-1") -> dict[str, t.Any]:
    """Return the resources of the layer by their names in it."""
    found = rendered.resources(host).items()
    return {name.split("/")[1]: each for name, each in found if name.startswith("etcd_events/")}


def config(rendered: Rendered, host: str = "az-1") -> dict[str, t.Any]:
    """Return what the second etcd of a host is told."""
    return dict(yaml.safe_load(of_events(rendered, host)["config"]["content"]))


def api_server(rendered: Rendered) -> str:
    """Return what the first control plane gives kubeadm."""
    return str(rendered.resources("az-1")["control_plane/member"]["config"])


def without(rendered: Rendered, name: str) -> Rendered:
    """Return the same site with a member leaving."""
    site: Site = rendered.site
    site.leaving = frozenset({name})
    return Rendered(site)


def test_without_the_switch_there_is_nothing(render: Render) -> None:
    rendered = render("example")
    assert {each["kind"] for each in of_events(rendered).values()} == {"absent"}
    taken = rendered.after("az-1", render("example", ON))
    ours = [each for name, each in taken.items() if name.startswith("etcd_events/")]
    assert {each["kind"] for each in ours} == {"systemd_unit", "absent"}
    assert (ours[0]["name"], ours[0]["state"]) == ("etcd-events.service", "stopped")
    assert [each["path"] for each in ours[1:] if "/var/lib" in each["path"]] == [*PATHS.values()]
    assert FLAG not in api_server(rendered)


def test_api_servers_keep_events_on_every_member(render: Render) -> None:
    rendered = render("example", ON)
    urls = [f"https://{host.address}:2389" for host in rendered.site.group("etcd")]
    assert len(urls) == 3
    assert f'{{name: "{FLAG}", value: "/events#{";".join(urls)}"}}' in api_server(rendered)
    for host, url in zip(rendered.site.group("etcd"), urls, strict=True):
        assert config(rendered, host.name)["advertise-client-urls"] == url


def test_it_has_nothing_in_common_with_the_store_but_its_certificate(render: Render) -> None:
    rendered = render("example", ON)
    own, first = config(rendered), yaml.safe_load(rendered.content("az-1", "etcd/config"))
    assert set(first) <= set(own) | {"feature-gates"}
    for key in ("data-dir", "initial-cluster-token", *(key for key in first if key.endswith("-urls"))):
        assert not set(str(own[key]).split(",")) & set(str(first[key]).split(",")), key
    for side in ("client-transport-security", "peer-transport-security"):
        assert own[side] == {**first[side], "trusted-ca-file": "/etc/etcd/events-ca.crt"}
    unit = of_events(rendered)["unit"]["content"]
    assert f"! -name {own['data-dir'].rpartition('/')[2]} -exec rm" in unit
    assert own["data-dir"].startswith("/var/lib/etcd-events/")
    assert "StateDirectory=etcd-events\n" in unit


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own disk"])
def test_its_data_are_on_etcds_own_disk_where_there_is_one(render: Render, own: bool) -> None:
    disk = {"etcd_disk_devices": ["/dev/disk/azure/data/by-lun/0"]} if own else {}
    rendered = render("example", {**ON, **disk})
    found, folder = of_events(rendered), PATHS[own]
    assert config(rendered)["data-dir"].rpartition("/")[0] == folder
    unit = found["unit"]["content"]
    assert f"/usr/bin/find {folder} -mindepth 1" in unit
    # As etcd itself: without the disk it does not start, and nothing is written elsewhere.
    assert ("\nAssertPathIsMountPoint=/var/lib/etcd\n" in unit) is own
    assert ("StateDirectory=" in unit) is not own
    assert ("folder" in found) is own
    # What it had in the other place goes once it runs here.
    (gone,) = (each for each in found.values() if each["kind"] == "absent")
    assert (gone["path"], gone["requires"]) == (PATHS[not own], ["etcd_events/service"])


def test_another_list_of_members_is_another_store(render: Render) -> None:
    rendered = render("example", {**ON, "etcd_events_quota_bytes": 2**30})
    before = [config(rendered, name) for name in ("az-1", "az-2")]
    after = [config(without(rendered, "az-3"), name) for name in ("az-1", "az-2")]
    for key in ("data-dir", "initial-cluster-token", "initial-cluster"):
        assert before[0][key] == before[1][key] != after[0][key] == after[1][key]
    moved = config(render("example", {**ON, "etcd_events_peer_port": 3390}))
    assert moved["data-dir"] != before[0]["data-dir"], "data hold the addresses that members had"
    assert "az-3" not in after[0]["initial-cluster"]
    assert before[0]["quota-backend-bytes"] == 2**30


def test_another_version_is_another_unit_which_restarts(render: Render) -> None:
    rendered = render("example", ON)
    version, resources = rendered.site.hosts["az-1"].variables["etcd_version"], of_events(rendered)
    assert f"etcd {version} for events" in resources["unit"]["content"]
    assert {f"etcd_events/{name}" for name in ("unit", "config", "ca")} == set(
        resources["service"]["restart_on"]
    )


@pytest.mark.parametrize(
    ("actions", "group"),
    [
        (["create", "start"], "__ironspan_pending_etcd_events"),
        (["update", "restart"], "__ironspan_pending_etcd_events"),
        (["stop", "delete"], "__ironspan_retired_etcd_events"),
        (["delete"], "__ironspan_retired_etcd_events"),
    ],
)
def test_hosts_that_only_lose_it_wait_for_the_api_servers(actions: list[str], group: str) -> None:
    changes = [{"resource": "etcd_events/x", "kind": "file", "action": action} for action in actions]
    found = groups_for({"changes": changes})
    assert [name for name in found if "events" in name and "restart" not in name] == [group]
    other = {"resource": "etcd_backup/x", "kind": "file", "action": "delete"}
    assert group not in groups_for({"changes": [other]})
