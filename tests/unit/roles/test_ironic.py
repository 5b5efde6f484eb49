# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer ``ironic``: what a host of the group gets, and what its variables change."""

from __future__ import annotations

import configparser
import json
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
BOTH = ["redfish", "fake-hardware"]
MORE = """\
all:
  children:
    on_prem:
      hosts:
        deploy-1: {}
    ironic:
      hosts:
        deploy-1: {ansible_host: 10.98.0.77, site_mirror_url: "http://10.98.0.1:8080"}
"""


def rendered(render: Render, **variables: t.Any) -> Rendered:
    return render(variables=variables, more=MORE)


def configuration(found: Rendered) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(default_section="none")
    parser.read_string(found.content("deploy-1", "ironic/settings"))
    return parser


def test_the_host_has_the_layer_and_no_other_but_the_base(render: Render) -> None:
    document = rendered(render).document("deploy-1")
    assert document["layers"] == ["base", "ironic"]
    assert {"port": 6385, "allowed_process": ["nginx"]} in document["fitness"]["ports_free"]


def test_secrets_are_named_and_never_written(render: Render) -> None:
    found = rendered(render).resources("deploy-1")
    named = {name: one["secret"] for name, one in found.items() if "secret" in one}
    assert named == {
        "ironic/password": "ironic-password-2",
        "ironic/ironic-backup-key-1": "ironic-backup-key-1",
        "ironic/ironic-backup-key-2": "ironic-backup-key-2",
    }
    assert {found[name]["mode"] for name in named} == {"0600"}
    text = json.dumps(found)
    assert "mysql+pymysql://ironspan-ironic@localhost/" in text  # an account of the host, and no password


def test_the_api_has_tls_a_login_and_no_port_of_its_own(render: Render) -> None:
    found = rendered(render)
    settings, nginx = configuration(found), found.content("deploy-1", "ironic/web-settings")
    assert settings["DEFAULT"]["auth_strategy"] == "http_basic"
    assert settings["DEFAULT"]["rpc_transport"] == "none"
    assert settings["api"]["unix_socket"] == "/run/ironspan-ironic/api.sock"
    assert settings["service_catalog"]["endpoint_override"] == "https://10.98.0.77:6385"
    assert "listen 10.98.0.77:6385 ssl;" in nginx
    assert settings["agent"]["require_tls"] == "true"
    assert settings["agent"]["api_ca_file"] == "/etc/ironspan-ironic/ca.crt"
    key, certificate = (found.resources("deploy-1")[f"ironic/{name}"] for name in ("key", "certificate"))
    assert (key["csr"]["ips"], key["mode"], certificate["profile"]) == (
        ["10.98.0.77"],
        "0640",
        "ironic-server",
    )


@pytest.mark.parametrize(
    ("variables", "section", "option", "value"),
    [
        ({}, "DEFAULT", "enabled_hardware_types", "redfish"),
        ({}, "DEFAULT", "enabled_power_interfaces", "redfish"),
        ({}, "DEFAULT", "enabled_boot_interfaces", "redfish-virtual-media"),
        ({"ironic_hardware_types": BOTH}, "DEFAULT", "enabled_power_interfaces", "redfish,fake"),
        ({"ironic_hardware_types": ["fake-hardware"]}, "DEFAULT", "enabled_power_interfaces", "fake"),
        ({}, "conductor", "heartbeat_timeout", "60"),
        ({"ironic_database": "sqlite"}, "conductor", "heartbeat_timeout", "86400"),
        ({"ironic_database": "sqlite"}, "database", "connection", "sqlite:////var/lib/ironspan-ironic/database/ironic.sqlite"),
        ({}, "conductor", "automated_clean", "true"),
        ({}, "deploy", "erase_devices_priority", "0"),
        ({}, "deploy", "erase_devices_metadata_priority", "10"),
        ({"ironic_clean": "erase"}, "deploy", "erase_devices_priority", "10"),
        ({"ironic_clean": "erase"}, "deploy", "erase_devices_metadata_priority", "0"),
        ({"ironic_clean": "none"}, "conductor", "automated_clean", "false"),
        ({}, "conductor", "deploy_kernel", f"file:///srv/ironspan-ironic/{'4' * 64}/kernel"),
        ({}, "conductor", "bootloader", f"file:///srv/ironspan-ironic/{'4' * 64}/esp.img"),
        ({}, "conductor", "file_url_allowed_paths", "/srv/ironspan-ironic"),
        ({}, "deploy", "http_url", "http://10.98.0.77:8088/media/"),
        ({"ironic_http_tls": True}, "deploy", "http_url", "https://10.98.0.77:8088/media/"),
        ({"ironic_http_tls": True}, "DEFAULT", "webserver_verify_ca", "/etc/ironspan-ironic/ca.crt"),
        ({"ironic_address": "10.98.0.78"}, "deploy", "external_callback_url", "https://10.98.0.78:6385"),
        ({}, "redfish", "verify_ca", "/etc/ironspan-ironic/bmc-ca.crt"),
        ({"ironic_settings": {"conductor": {"enable_mdns": 9}}}, "conductor", "enable_mdns", "9"),
        ({"ironic_settings": {"fake": {"power_delay": "1.5"}}}, "fake", "power_delay", "1.5"),
        ({"ironic_settings": {"deploy": {"fast_track": True}}}, "deploy", "fast_track", "true"),
    ],
)  # fmt: skip
def test_a_setting_follows_from_the_sites_data(
    render: Render, variables: dict[str, t.Any], section: str, option: str, value: str
) -> None:
    assert configuration(rendered(render, **variables))[section][option] == value


def test_only_files_of_the_site_are_served_by_their_digest(render: Render) -> None:
    found = rendered(render).resources("deploy-1")
    served = {
        one["path"] for one in found.values() if one["path" if "path" in one else "id"].startswith("/srv/")
    }
    folder = f"/srv/ironspan-ironic/{'4' * 64}"
    # All of the index have the same digest here, so their folders are one path.
    assert {path for path in served if path.startswith(f"{folder}/")} == {
        f"{folder}/{name}" for name in ("disk.raw", "kernel", "ramdisk", "esp.img")
    }


FIRMWARE = {"component": "bios", "version": "2.1", "file": "firmware/dgx/bios-2.1.fwpkg", "sha256": "ab" * 32,
            "size": 33554432}  # fmt: skip


def test_firmware_comes_from_the_mirror_and_is_served_by_its_digest(render: Render) -> None:
    files = [FIRMWARE, {**FIRMWARE, "model": "DGX H100"}]
    found = rendered(render, site_bare_metal_firmware=files).resources("deploy-1")
    (name,) = [name for name, one in found.items() if "firmware" in name and one["kind"] == "artifact"]
    wanted = {
        "url_path": "/firmware/dgx/bios-2.1.fwpkg", "sha256": "ab" * 32, "size": 33554432, "mode": "0644",
        "path": f"/srv/ironspan-ironic/{'ab' * 32}/bios-2.1.fwpkg",
    }  # fmt: skip
    assert {key: found[name][key] for key in wanted} == wanted
    assert f"{name}-folder" in found
    # BMCs are told of the very place.
    assert "location /images/ { alias /srv/ironspan-ironic/; }" in found["ironic/web-settings"]["content"]


def test_a_database_in_a_file_brings_no_mariadb(render: Render) -> None:
    found = rendered(render, ironic_database="sqlite").resources("deploy-1")
    assert not [name for name in found if "mariadb" in name]
    assert "mariadb" not in found["ironic/unit"]["content"]


def test_pretended_servers_alone_need_no_tools_and_no_images(render: Render) -> None:
    found = rendered(render, ironic_hardware_types=["fake-hardware"], ironic_images_enabled=False)
    packages = {one["name"] for one in found.resources("deploy-1").values() if one["kind"] == "package"}
    assert {"mariadb-server", "nginx-light"} <= packages
    assert not packages & {"genisoimage", "mtools"}
    assert "deploy_kernel" not in configuration(found)["conductor"]


def test_who_may_fetch_media_is_the_sites_matter(render: Render) -> None:
    text = rendered(render, ironic_media_networks=["10.2.0.0/24"]).content("deploy-1", "ironic/web-settings")
    assert "allow 10.2.0.0/24;\n        deny all;" in text
    assert "deny" not in rendered(render).content("deploy-1", "ironic/web-settings")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ironic_settings": {"conductor": 3}}, "ironic_settings.conductor"),
        ({"ironic_settings": {"conductor": {"a": "b\n[api]"}}}, "ironic_settings.conductor.a"),
        ({"ironic_settings": {"con]ductor": {"a": "b"}}}, "con]ductor"),
        (
            {"ironic_settings": {"database": {"connection": "mysql://u:p@h/d"}}},
            "ironic_settings.database.connection",
        ),
        ({"ironic_address": "deploy.example"}, "ironic_address"),
        ({"ironic_media_networks": ["10.2.0.0/99"]}, "ironic_media_networks[0]"),
        ({"ironic_hardware_types": []}, "ironic_hardware_types"),
        ({"ironic_backup_folder": "backups"}, "ironic_backup_folder"),
        ({"ironic_http_port": 6385}, "ironic_http_port"),
        (
            {"site_bare_metal_firmware": [{**FIRMWARE, "file": "https://vendor.example/bios.bin"}]},
            "site_bare_metal_firmware[0].file",
        ),
        ({"site_bare_metal_firmware": ["bios"]}, "site_bare_metal_firmware[0]"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(
    render: Render, variables: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(SiteError) as refused:
        rendered(render, **variables)
    assert message in str(refused.value)


def test_two_hosts_are_refused(render: Render) -> None:
    more = MORE + "        deploy-2: {ansible_host: 10.98.0.78}\n"
    with pytest.raises(SiteError) as refused:
        render(more=more)
    assert "one host" in str(refused.value)
