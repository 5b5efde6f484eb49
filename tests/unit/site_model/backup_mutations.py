# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a site says about its backups, one each."""

from __future__ import annotations

from .mutations import _HAPROXY, ALL, Mutation

AZURE = """
etcd_backup_stores:
  - kind: azure
    account_url: https://backups.blob.core.windows.net
    container: etcd
    credential: {kind: managed_identity}
"""
FILE = """
etcd_backup_stores:
  - kind: file
    path: /srv/etcd-backup
"""
SECOND = """
  - prefix: ""
    kind: azure
    account_url: https://backups.blob.core.windows.net
    container: etcd
    credential: {kind: arc}
"""
TOKEN = """    credential:
      kind: workload_identity
      client_id: 11111111-2222-3333-4444-555555555555
      tenant_id: contoso
      token_file: /var/run/token
"""
VAULT = """
etcd_backup_keys:
  kind: key_vault
  vault_url: https://keys.vault.azure.net
  key: etcd
  credential: {kind: arc}
"""
KEY_FILES = """
etcd_backup_keys: {kind: file}
"""
_URL = "account_url: https://backups.blob.core.windows.net"
_CREDENTIAL = "    credential: {kind: managed_identity}\n"


def wrong(
    name: str, text: str, old: str, new: str, says: str, at: str = "", problems: int = 1, more: str = ""
) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in a text that is right and added to the inventory."""
    assert old in text + more, name
    changed = (text + more).replace(old, new, 1)
    where = at or next(line.strip() for line in new.splitlines() if line.strip())
    return Mutation(name, ((ALL, "", changed),), ALL, where, says, problems)


BACKUP = (
    wrong(
        "key in the backup account's address",
        AZURE,
        _URL,
        "account_url: DefaultEndpointsProtocol=https;AccountName=backups;AccountKey=c2VjcmV0",
        "etcd_backup_stores[0].account_url: has a key or signature in it",
    ),
    wrong(
        "signature in the backup account's address",
        AZURE,
        _URL,
        f"{_URL}/?sv=2024&sig=c2VjcmV0",
        "has a key or signature in it",
    ),
    wrong(
        "backup account without TLS",
        AZURE,
        "account_url: https",
        "account_url: http",
        "is not of the form https",
    ),
    wrong(
        "backup account without an address",
        AZURE,
        f"    {_URL}\n",
        "",
        "account_url: is missing, and azure needs it",
        at="- kind: azure",
    ),
    wrong(
        "account key for backups",
        AZURE,
        "container: etcd",
        "container: etcd\n    account_key: c2VjcmV0",
        "etcd_backup_stores[0].account_key: unknown key",
        at="account_key",
    ),
    wrong(
        "container's name", AZURE, "container: etcd", "container: Etcd_Backups", "is no name of a container"
    ),
    wrong(
        "store without an identity",
        AZURE,
        _CREDENTIAL,
        "",
        "credential: is missing, and azure needs it",
        at="- kind: azure",
    ),
    wrong(
        "kind of identity",
        AZURE,
        "{kind: managed_identity}",
        "{kind: account_key}",
        "is not one of managed_identity, arc, workload_identity",
        at="credential: {kind: account_key}",
    ),
    wrong(
        "tenant's identifier",
        AZURE,
        _CREDENTIAL,
        TOKEN,
        "'contoso' is no identifier",
        at="tenant_id: contoso",
    ),
    wrong(
        "projected token without a file",
        AZURE,
        _CREDENTIAL,
        TOKEN.replace("contoso", "11111111-2222-3333-4444-666666666666").replace(
            "      token_file: /var/run/token\n", ""
        ),
        "credential.token_file: is missing, and workload_identity needs it",
        at="kind: workload_identity",
    ),
    wrong("kind of store", FILE, "kind: file", "kind: nfs", "is not one of azure, file"),
    wrong(
        "relative folder for backups",
        FILE,
        "path: /srv/etcd-backup",
        "path: srv/etcd-backup",
        "is no path on a host",
    ),
    wrong(
        "backups among the data",
        FILE,
        "path: /srv/etcd-backup",
        "path: /var/lib/etcd/backup",
        "is no place for backups",
    ),
    wrong("backups in the root", FILE, "path: /srv/etcd-backup", "path: /srv", "is no place for backups"),
    wrong(
        "folder with a container",
        FILE,
        "path: /srv/etcd-backup",
        "path: /srv/etcd-backup\n    container: etcd",
        "container: means nothing for file",
        at="container: etcd",
    ),
    wrong(
        "folder without a path",
        FILE,
        "    path: /srv/etcd-backup\n",
        "",
        "path: is missing, and file needs it",
        at="- kind: file",
    ),
    wrong(
        "prefix",
        FILE,
        "kind: file",
        "kind: file\n    prefix: /europe",
        "'/europe' is no prefix",
        at="prefix: /europe",
    ),
    wrong(
        "two stores in one place",
        AZURE,
        'prefix: ""',
        "prefix: ''",
        "is the same place as etcd_backup_stores[0]",
        at="    kind: azure",
        more=SECOND,
    ),
    wrong(
        "retention that keeps nothing",
        FILE,
        "/srv/etcd-backup\n",
        "/srv/etcd-backup\netcd_backup_retention: {hourly: 0}\n",
        "etcd_backup_retention.hourly: 0 is outside 1 to 10000",
        at="etcd_backup_retention: {hourly: 0}",
    ),
    wrong(
        "retention of another name",
        FILE,
        "/srv/etcd-backup\n",
        "/srv/etcd-backup\netcd_backup_retention: {houry: 5}\n",
        "unknown key; write hourly",
        at="etcd_backup_retention: {houry: 5}",
    ),
    wrong(
        "address of the metrics",
        FILE,
        "/srv/etcd-backup\n",
        "/srv/etcd-backup\netcd_backup_metrics_address: localhost\n",
        "'localhost' is no IP address",
        at="etcd_backup_metrics_address: localhost",
    ),
    wrong(
        "flush too seldom",
        FILE,
        "/srv/etcd-backup\n",
        "/srv/etcd-backup\netcd_backup_flush_ms: 60000\n",
        "60000 is outside 20 to 5000",
        at="etcd_backup_flush_ms: 60000",
    ),
    wrong(
        "version of the backup program",
        FILE,
        "/srv/etcd-backup\n",
        "/srv/etcd-backup\netcd_backup_version: '9.9.9'\n",
        "etcd-backup 9.9.9 is not in artifacts.lock.yml",
        at="etcd_backup_version: '9.9.9'",
    ),
    wrong(
        "vault without a key",
        AZURE,
        "  key: etcd\n",
        "",
        "etcd_backup_keys.key: is missing, and key_vault needs it",
        at="kind: key_vault",
        more=VAULT,
    ),
    wrong(
        "keys in files, and a vault",
        AZURE,
        "kind: key_vault",
        "kind: file",
        "etcd_backup_keys.vault_url: means nothing for file",
        at="vault_url: https://keys.vault.azure.net",
        problems=3,
        more=VAULT,
    ),
    wrong(
        "vault without TLS",
        AZURE,
        "vault_url: https",
        "vault_url: http",
        "is not of the form https",
        more=VAULT,
    ),
    wrong(
        "a collector by its name",
        "etcd_backup_gc_identity: 11111111-2222-3333-4444-555555555555\n",
        "11111111-2222-3333-4444-555555555555",
        "collector",
        "etcd_backup_gc_identity: 'collector' is no identifier; write the UUID",
        at="etcd_backup_gc_identity: collector",
    ),
    wrong(
        "more than a calendar",
        "etcd_backup_gc_calendar: daily\n",
        "daily",
        '"daily\\nUnit=other.service"',
        "etcd_backup_gc_calendar: 'daily",
        at="etcd_backup_gc_calendar",
    ),
    Mutation(
        "a drill beside a member",
        (
            (ALL, "", AZURE),
            ("hosts.yml", _HAPROXY, "    etcd_drill:\n      hosts:\n        az-2: {}  # drills\n"),
        ),
        "hosts.yml",
        "        az-2: {}  # drills",
        "host az-2 is in etcd too",
    ),
    Mutation(
        "a drill of other backups",
        (
            (ALL, "", AZURE),
            ("hosts.yml", _HAPROXY, "    etcd_drill:\n      hosts:\n        cpu-c-01:\n"),
            ("host_vars/cpu-c-01.yml", "", AZURE.replace("container: etcd", "container: other")),
        ),
        "host_vars/cpu-c-01.yml",
        "etcd_backup_stores:",
        "are other places for cpu-c-01 than for az-1",
    ),
    Mutation(
        "a mistake of a collector only",
        (
            (ALL, "", AZURE),
            ("hosts.yml", _HAPROXY, "    etcd_collector:\n      hosts:\n        cpu-c-01:\n"),
            (
                "host_vars/cpu-c-01.yml",
                "",
                AZURE.replace(_CREDENTIAL, "    credential: {kind: arc, client_id: me}\n"),
            ),
        ),
        "host_vars/cpu-c-01.yml",
        "client_id",
        "'me' is no identifier",
    ),
    Mutation(
        "members with different backups",
        ((ALL, "", AZURE), ("host_vars/az-2.yml", "", FILE)),
        "host_vars/az-2.yml",
        "etcd_backup_stores:",
        "etcd_backup_stores: is another one for az-2 than for az-1",
    ),
)
