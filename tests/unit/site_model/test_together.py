# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values that are right each by itself and do not go together: two fields, two variables, two hosts."""

from __future__ import annotations

import pytest

from .backup_mutations import AZURE, FILE
from .conftest import Example
from .mutations import _HAPROXY, ALL, HOSTS

ID, OTHER = "72f988bf-86f1-41af-91ab-2d7cd011db47", "72f988bf-86f1-41af-91ab-2d7cd011db48"
NAMED = AZURE.replace("managed_identity", f"managed_identity, client_id: {ID}")
CONTAINER = f"subscription: {OTHER}, resource_group: rg, account: backups, container: etcd, retention_days: 9"
WRONG = (
    (AZURE.replace("managed_identity", "managed_identity, token_file: /x"), "means nothing for managed_id"),
    (AZURE.replace("managed_identity", f"arc, tenant_id: {ID}"), "means nothing for arc"),
    (f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup/copy}}", "are one inside of the other"),
    (f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup, prefix: a/}}", "are one inside"),
    ("etcd_backup_stores: [{kind: file, path: /tmp/backup}]", "is no place for backups"),
    ("etcd_backup_stores: [{kind: file, path: /var/tmp/backup}]", "is no place for backups"),
    ("etcd_backup_drill_max_age_seconds: 1800", "would come between any two snapshots (3600 s); write 7200"),
    ("etcd_backup_snapshot_seconds: 604800", "write less than 90000"),
    (f"etcd_backup_management: {{kind: azure_cli, client_id: {ID}}}", "which does not read it"),
    ("etcd_backup_management: {kind: managed_identity, token_file: /x}", "which does not read it"),
    ("etcd_backup_management: {url: 'http://management.azure.com'}", "would send tokens unencrypted"),
    (
        f"etcd_backup_containers:\n  - {{{CONTAINER}}}\n  - {{{CONTAINER.replace('days: 9', 'days: 30')}}}",
        "is that of etcd_backup_containers[0] too",
    ),
    (f"etcd_backup_containers: [{{{CONTAINER}, writers: [{ID}], collectors: [{ID}]}}]", "is a writer too"),
)
RIGHT = (
    f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup-2}}\n",
    f"{FILE}    prefix: a/\n  - {{kind: file, path: /srv/etcd-backup, prefix: b/}}\n",
    "etcd_backup_snapshot_seconds: 86400\n",
    "etcd_backup_management: {kind: azure_cli, url: 'https://management.usgovcloudapi.net'}\n",
    f"etcd_backup_containers: [{{{CONTAINER}, writers: [{ID}], collectors: [{OTHER}]}}]\n",
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_does_not_go_together(example: Example, lines: str, says: str) -> None:
    example.append(ALL, f"{lines.rstrip()}\n")
    (problem,) = example.problems()
    assert says in str(problem)
    last = lines.rstrip().splitlines()[-1]
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, last))


@pytest.mark.parametrize("lines", RIGHT)
def test_what_does(example: Example, lines: str) -> None:
    example.append(ALL, lines)
    assert example.problems() == []


def test_who_deletes_is_not_who_writes(example: Example) -> None:
    """Azure refuses it each night, as the writer's identity may delete nothing."""
    example.replace(HOSTS, _HAPROXY, f"{_HAPROXY}    etcd_collector:\n      hosts:\n        cpu-c-01:\n")
    example.append(ALL, NAMED)
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "etcd_backup_stores:")
    assert f"{ID} is the identity that writes" in problem.message
    example.append(ALL, f"etcd_backup_gc_identity: {ID}\n")
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "etcd_backup_gc_identity")
    example.put(ALL, f"etcd_backup_gc_identity: {OTHER}\n")
    assert example.problems() == []
