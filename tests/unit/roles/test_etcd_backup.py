# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the backup agent is told: the program's own reader takes the settings that the role writes."""

from __future__ import annotations

import configparser
import json
import re
import typing as t
import urllib.parse
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.steps import CLOSED

from ironspan.backup import settings
from ironspan.backup.agent import guard
from ironspan.backup.main import build_parser as program_parser
from ironspan.backup.rebuild.scratch import LIMITED
from tests.support.public_side import UID
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
AZURE = {
    "kind": "azure",
    "account_url": "https://backups.blob.core.windows.net",
    "container": "etcd",
    "credential": {"kind": "managed_identity"},
}
FILE = {"kind": "file", "path": "/srv/etcd-backup", "prefix": "second/"}
TOKEN = {
    "kind": "workload_identity",
    "client_id": "11111111-2222-3333-4444-555555555555",
    "tenant_id": "11111111-2222-3333-4444-666666666666",
    "token_file": "/var/run/token",
    "authority": "",
}
VAULT = {
    "kind": "key_vault",
    "vault_url": "https://keys.vault.azure.net",
    "key": "etcd",
    "credential": {"kind": "arc"},
}


HELPERS = """\
all:
  children:
    etcd_drill: {hosts: {rack-1: {}}}
    etcd_collector: {hosts: {az-3: {}, rack-2: {}}}
"""


def read(render: Render, **variables: t.Any) -> settings.Settings:
    """Return the settings of az-2 as the program reads them."""
    rendered = render(variables={"etcd_backup_stores": [AZURE], **variables})
    return settings.parse(json.loads(rendered.content("az-2", "etcd_backup/settings")))


def unit(render: Render, **variables: t.Any) -> configparser.ConfigParser:
    """Return the unit; no key appears twice in a section."""
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(render(variables=variables).content("az-1", "etcd_backup/unit"))
    return parser


def test_where_the_members_are(render: Render) -> None:
    found = read(render)
    assert (found.site, found.host) == ("lab-default", "az-2")
    assert found.etcd.endpoints == tuple(f"https://10.98.0.1{number}:2379" for number in (1, 2, 3))
    assert (found.etcd.local, found.etcd.data_dir) == ("https://127.0.0.1:2379", f"/var/lib/etcd/{UID}")
    assert found.etcd.certificate == "/etc/etcd/pki/server.crt"


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (
            AZURE,
            {
                **AZURE,
                "prefix": "",
                "credential": {
                    "kind": "managed_identity",
                    "client_id": "",
                    "tenant_id": "",
                    "token_file": "",
                    "authority": "",
                },
                "ca": "",
                "private": True,
            },
        ),
        (
            {**AZURE, "credential": TOKEN, "ca": "/etc/ssl/azure.crt", "private": False, "prefix": "eu/"},
            {**AZURE, "credential": TOKEN, "ca": "/etc/ssl/azure.crt", "private": False, "prefix": "eu/"},
        ),
        (FILE, FILE),
    ],
)
def test_stores(render: Render, store: dict[str, t.Any], expected: dict[str, t.Any]) -> None:
    assert read(render, etcd_backup_stores=[store]).stores == (expected,)


def test_the_first_store_comes_first(render: Render) -> None:
    assert [store["kind"] for store in read(render, etcd_backup_stores=[FILE, AZURE]).stores] == [
        "file",
        "azure",
    ]


def test_keys(render: Render) -> None:
    assert read(render).keys == {"kind": "file", "folder": "/etc/ironspan/etcd-backup/keys"}
    vault = read(render, etcd_backup_keys=VAULT).keys
    assert (vault["vault_url"], vault["key"]) == ("https://keys.vault.azure.net", "etcd")
    resources = render(variables={"etcd_backup_stores": [AZURE], "etcd_backup_keys": VAULT}).resources("az-1")
    assert not [name for name in resources if name.startswith("etcd_backup/key-")]


VALUES = [
    ("etcd_backup_flush_ms", 100, lambda found: found.flush_ms),
    ("etcd_backup_snapshot_seconds", 60, lambda found: found.snapshot_every_s),
    ("etcd_backup_coalesce_node_leases", False, lambda found: found.coalesce_node_leases),
    ("etcd_backup_spool_bytes", 2**21, lambda found: found.spool.max_bytes),
    ("etcd_backup_metrics_address", "0.0.0.0", lambda found: found.metrics.address),
    ("etcd_backup_metrics_port", 12384, lambda found: found.metrics.port),
    ("etcd_backup_drill_after_snapshot", False, lambda found: found.drill.after_snapshot),
    ("etcd_backup_drill_max_age_seconds", 7200, lambda found: found.drill.max_age_s),
    ("etcd_backup_drill_memory_bytes", 2**28, lambda found: found.drill.memory_max),
    ("etcd_backup_drill_cpu_percent", 75, lambda found: found.drill.cpu_quota_percent),
    ("etcd_backup_defragment_percent", 30, lambda found: found.care.defragment_fragmentation_percent),
    ("etcd_backup_defragment_least_bytes", 1, lambda found: found.care.defragment_least_bytes),
    ("etcd_backup_guard", "alarm", lambda found: found.guard),
    ("etcd_backup_quota_warn_percent", 70, lambda found: found.care.quota_warn_percent),
]


@pytest.mark.parametrize(("variable", "value", "of"), VALUES)
def test_every_variable_arrives(
    render: Render, variable: str, value: t.Any, of: Callable[[settings.Settings], t.Any]
) -> None:
    assert of(read(render, **{variable: value})) == value
    assert of(read(render)) != value


def test_defaults_are_the_programs_own(render: Render) -> None:
    """What the role writes without being told is what the program takes without being told."""
    written = json.loads(
        render(variables={"etcd_backup_stores": [FILE]}).content("az-1", "etcd_backup/settings")
    )
    bare = {name: written[name] for name in ("site", "host", "etcd", "stores", "keys", "proof")}
    assert settings.parse(written) == settings.parse(bare)


def test_retention_in_part(render: Render) -> None:
    assert read(render, etcd_backup_retention={"hourly": 48}).retention == settings.Retention(48, 7, 4, 6)


def test_who_signs_what(render: Render) -> None:
    more = """\
all:
  children:
    azure: {hosts: {drill-1: {ansible_host: 10.20.0.31}, gc-1: {ansible_host: 10.20.0.32}}}
    etcd_drill: {hosts: {drill-1: }}
    etcd_collector: {hosts: {gc-1: }}
"""
    for keys in ({}, {"etcd_backup_keys": VAULT}):
        rendered = render(more=more, variables={"etcd_backup_stores": [AZURE], **keys})
        signs = {
            host: sorted(
                name.split("-")[1]
                for name in rendered.resources(host)
                if name.startswith("etcd_backup/signing-")
            )
            for host in ("az-1", "drill-1", "gc-1")
        }
        assert signs == {"az-1": ["drill", "writer"], "drill-1": ["drill"], "gc-1": []}
        for host, parts in signs.items():
            proof = json.loads(rendered.content(host, "etcd_backup/settings"))["proof"]
            assert sorted(proof["sign"]) == parts
            assert proof["trusted"]["writer"] == {"1": "V" * 43 + "=", "2": "W" * 43 + "="}
            for part, path in proof["sign"].items():
                resource = rendered.resources(host)[
                    f"etcd_backup/signing-{part}-{2 if part == 'writer' else 1}"
                ]
                assert (resource["path"], resource["mode"]) == (path, "0600")
                assert path.endswith({"writer": "writer-2.key", "drill": "drill-1.key"}[part])


def test_nobody_else_reads_what_is_secret(render: Render) -> None:
    resources = render(variables={"etcd_backup_stores": [AZURE]}).resources("az-1")
    keys = [resources[f"etcd_backup/key-{version}"] for version in (1, 2)]
    assert [(key["secret"], key["path"].rpartition("/")[2]) for key in keys] == [
        ("backup-key-1", "1.key"),
        ("backup-key-2", "2.key"),
    ]
    recovery = resources["etcd_backup/recovery"]
    assert recovery["secret"] == "recovery-" + "4" * 16
    for resource in (*keys, recovery, resources["etcd_backup/settings"]):
        assert resource["mode"] == "0600"
    for name in ("secrets", "keys", "data", "spool"):
        assert resources[f"etcd_backup/{name}"]["mode"] == "0700"


def test_the_agent_restarts_for_all_that_it_reads_once(render: Render) -> None:
    service = render(variables={"etcd_backup_stores": [AZURE]}).resources("az-1")["etcd_backup/service"]
    assert set(service["restart_on"]) == {
        "etcd/ca", "etcd/server", "etcd_backup/program", "etcd_backup/settings", "etcd_backup/unit",
        "etcd_backup/key-1", "etcd_backup/key-2",
        "etcd_backup/signing-writer-2", "etcd_backup/signing-drill-1",
    }  # fmt: skip
    assert "etcd_backup/recovery" not in service["restart_on"], "it is brought to the store by the playbook"


def test_the_unit(render: Render) -> None:
    found = unit(render, etcd_backup_stores=[AZURE, FILE], etcd_backup_memory_bytes=2**29)
    service = found["Service"]
    assert service["ExecStart"].split()[0] == "/opt/ironspan/etcd-backup/bin/ironspan-etcd-backup"
    assert service["ReadWritePaths"] == "/var/lib/ironspan/etcd-backup /srv/etcd-backup"
    assert (service["MemoryMax"], service["CPUQuota"]) == (str(2**29), "100%")
    assert (service["CPUSchedulingPolicy"], service["CPUWeight"]) == ("idle", "20")
    assert "Slice" not in service, "a weight is one among those of the same slice, and etcd's is the system's"
    assert service["ProtectSystem"] == "strict"
    assert found["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_closes_etcd_for_the_file_that_the_agent_writes(render: Render) -> None:
    rendered = render(variables={"etcd_backup_stores": [AZURE]})
    found = settings.parse(json.loads(rendered.content("az-1", "etcd_backup/settings")))
    path = guard.closing_file(found)
    assert f"\nPathChanged={path}\n" in rendered.content("az-1", "etcd_backup/guard-path")
    service = rendered.content("az-1", "etcd_backup/guard-service")
    assert f"\nConditionPathExists={path}\n" in service
    assert service.endswith("\nExecStart=/usr/bin/systemctl stop etcd.service\n")
    assert f"\nConditionPathExists=!{path}\n" in rendered.content("az-1", "etcd/unit")
    assert str(path) == CLOSED, "where a restore takes it away"
    assert f"ReadWritePaths={path.parent}" in rendered.content("az-1", "etcd_backup/unit")


def test_a_host_that_is_no_member_does_the_drills(render: Render) -> None:
    limits = {"etcd_backup_drill_memory_bytes": 2**30, "etcd_backup_memory_bytes": 2**28}
    rendered = render(more=HELPERS, variables={"etcd_backup_stores": [FILE], **limits})
    resources = of_layer(rendered, "rack-1")
    assert "recovery" not in resources
    assert not {"service", "gc"} & resources.keys()
    assert resources["drill"]["name"] == "ironspan-etcd-backup-drill.timer"
    assert resources["etcd"]["members"] == ["etcd", "etcdutl"]
    assert {"key-1", "key-2"} <= resources.keys()
    service = resources["drill-service"]["content"]
    for line in (
        f"MemoryMax={2**30 + 2**28}", "CPUQuota=50%", "CPUWeight=20", "IOWeight=20",
        f"Environment={LIMITED}=1",
        "ReadWritePaths=/var/lib/ironspan/etcd-backup /srv/etcd-backup",
    ):  # fmt: skip
        assert f"\n{line}\n" in service
    found = settings.parse(json.loads(resources["settings"]["content"]))
    assert (found.host, found.etcd.ca) == ("rack-1", "")
    assert [urllib.parse.urlsplit(url).hostname for url in found.etcd.endpoints] == ["127.0.0.1"]
    command = re.search("^ExecStart=(.*)$", service, re.MULTILINE)
    assert command
    assert program_parser().parse_args(command[1].split()[1:]).once
    # The agents leave it to this host.
    assert settings.parse(json.loads(rendered.content("az-2", "etcd_backup/settings"))).drill.elsewhere
    assert not read(render).drill.elsewhere
    assert "2384" not in json.dumps(rendered.document("rack-1")["fitness"])


@pytest.mark.parametrize("host", ["az-3", "rack-2"])
def test_a_host_that_is_named_deletes_what_is_old(render: Render, host: str) -> None:
    variables = {"etcd_backup_stores": [FILE], "etcd_backup_gc_identity": TOKEN["client_id"]}
    rendered = render(more=HELPERS, variables={**variables, "etcd_backup_gc_calendar": "Sun 03:00"})
    resources = of_layer(rendered, host)
    assert resources["gc"]["name"] == "ironspan-etcd-backup-gc.timer"
    assert "\nOnCalendar=Sun 03:00\n" in resources["gc-timer"]["content"]
    command = re.search("^ExecStart=(.*)$", resources["gc-service"]["content"], re.MULTILINE)
    assert command
    assert program_parser().parse_args(command[1].split()[1:]).identity == TOKEN["client_id"]
    if host == "rack-2":
        assert not {"key-1", "recovery", "etcd", "service"} & resources.keys(), "deleting wants no keys"
    assert "gc" not in of_layer(rendered, "az-1")
    assert not of_layer(render(), host) or host == "az-3", "off unless named"
    gone = render().after(host, rendered)
    assert "etcd_backup/gc-timer-removed" in gone or host == "rack-2", "a host of the layer loses it again"


def of_layer(rendered: Rendered, host: str) -> dict[str, dict[str, t.Any]]:
    """Return the layer's resources on a host."""
    return {
        name.removeprefix("etcd_backup/"): value
        for name, value in rendered.resources(host).items()
        if name.startswith("etcd_backup/")
    }


def test_a_host_needs_a_python_that_there_are_modules_for(render: Render) -> None:
    fitness = render(variables={"etcd_backup_stores": [FILE]}).document("az-1")["fitness"]
    assert fitness["pythons"] == ["3.12", "3.13"]
    assert {"port": 2384, "allowed_process": ["ironspan-etcd-backup"]} in fitness["ports_free"]
    assert "pythons" not in render(variables={"etcd_backup_stores": []}).document("az-1")["fitness"]


def test_without_a_store_the_agent_is_taken_away_and_nothing_else(render: Render) -> None:
    former = render(variables={"etcd_backup_stores": [FILE]})
    taken = render(variables={"etcd_backup_stores": []}).after("az-1", former)
    ours = {name: value for name, value in taken.items() if name.startswith("etcd_backup/")}
    units = {value["name"]: value["state"] for value in ours.values() if value["kind"] == "systemd_unit"}
    paths = {value["path"].rpartition("/")[2] for value in ours.values() if value["kind"] == "absent"}
    assert set(units) == {
        "ironspan-etcd-backup.service",
        "ironspan-etcd-guard.path",
        "ironspan-etcd-guard.service",
    }
    assert set(units.values()) == {"stopped"}
    # A key that signs is on no host that signs nothing.
    assert paths == {*units, "writer-2.key", "drill-1.key", "signing"}


def test_a_reset_leaves_the_backups(render: Render) -> None:
    rendered = render(variables={"etcd_backup_stores": [FILE]})
    removed = rendered.after("az-1", rendered, "reset.yml.j2")
    (store,) = (value for value in removed.values() if str(value.get("path")).startswith("/srv"))
    assert (store["kind"], store["keep_used"]) == ("absent", True)
    assert not store.get("recursive")
