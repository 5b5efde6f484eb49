#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes a snapshot of etcd on one of its members, verifies it, and keeps the last few."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: etcd_snapshot
short_description: Take a snapshot of etcd on a member
version_added: "0.1.0"
description:
  - Runs C(etcdctl snapshot save) and C(etcdutl snapshot status) on the host. The file gets its name only when
    it is whole and its content agrees with its checksum.
  - The snapshot holds everything in the cluster, secrets included, as the member's own data do; only root can
    read it.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Takes no snapshot.
  diff_mode:
    support: none
    description: A snapshot is no text.
options:
  directory:
    description: Folder for snapshots.
    type: path
    default: /var/lib/etcd/snapshots
  keep:
    description: How many are kept, this one included; older ones are removed.
    type: int
    default: 3
  environment_file:
    description: File with the settings of etcdctl.
    type: path
    default: /etc/etcd/etcdctl.env
"""

EXAMPLES = r"""
- name: Keep what is in etcd now
  ironspan.hybrid.etcd_snapshot:
"""

RETURN = r"""
path:
  description: The snapshot.
  returned: success
  type: str
bytes:
  description: Its size.
  returned: success
  type: int
revision:
  description: Revision of etcd that it holds.
  returned: success
  type: int
keys:
  description: Number of keys.
  returned: success
  type: int
removed:
  description: Older snapshots that were removed.
  returned: success
  type: list
  elements: str
"""

import json
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

_LEAST_FREE = 1 << 28
"""Bytes that stay free on the disk: a full one stops the member."""
_PREFIX = "snapshot-"


def settings(text: str) -> t.Dict[str, str]:
    """Read lines of NAME=value."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def superfluous(names: t.Iterable[str], keep: int) -> t.List[str]:
    """Return the names of the snapshots that go; names sort by time."""
    return sorted(name for name in names if name.startswith(_PREFIX) and name.endswith(".db"))[:-keep]


def own(folder: str) -> int:
    """Make the folder if it is not there, and let it be root's alone; returns it open.

    What is written in it is named from the open folder: what lies above it may be another user's.
    """
    paths.make_folders(folder)
    descriptor = paths.opened(folder, os.O_RDONLY | os.O_DIRECTORY)
    paths.give(descriptor, 0o700, (os.geteuid(), os.getegid()))
    return descriptor


def save(
    module: AnsibleModule, folder: str, descriptor: int, environment: t.Dict[str, str]
) -> t.Dict[str, t.Any]:
    """Take one snapshot; the file has its name when it is whole."""
    for left in paths.names(folder):
        if left.startswith(f".{_PREFIX}"):
            # Of a run that was killed.
            paths.remove(f"{folder}/{left}")
    answer = json.loads(_run(module, environment, "etcdctl", "endpoint", "status", "--write-out=json"))
    size = max(int(entry["Status"].get("dbSize", 0)) for entry in answer)
    disk = os.statvfs(descriptor)
    free = disk.f_bavail * disk.f_frsize
    if free < size + _LEAST_FREE:
        module.fail_json(
            msg=f"{folder} has {free} bytes free and etcd holds {size}: a snapshot could fill the disk; "
            "make room, or remove snapshots there"
        )
    name = time.strftime(f"{_PREFIX}%Y%m%dT%H%M%SZ.db", time.gmtime())
    part, path = f"{folder}/.{name}.part", f"{folder}/{name}"
    _run(module, environment, "etcdctl", "snapshot", "save", f".{name}.part", folder=descriptor)
    status = json.loads(
        _run(
            module, environment, "etcdutl", "snapshot", "status", f".{name}.part", "--write-out=json",
            folder=descriptor,
        )
    )  # fmt: skip
    paths.set_owner_and_mode(part, 0o600, follow=False)
    with paths.reading(part) as stream:
        os.fsync(stream.fileno())
    paths.rename(part, path)
    return {
        "path": path,
        "bytes": paths.there(path).st_size,
        "revision": int(status.get("revision", 0)),
        "keys": int(status.get("totalKey", 0)),
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "default": "/var/lib/etcd/snapshots"},
            "keep": {"type": "int", "default": 3},
            "environment_file": {"type": "path", "default": "/etc/etcd/etcdctl.env"},
        },
        supports_check_mode=True,
    )
    folder, keep = str(module.params["directory"]).rstrip("/"), module.params["keep"]
    if keep < 1:
        module.fail_json(msg=f"keep is {keep}; keep at least one")
    if module.check_mode:
        module.exit_json(changed=True, path="", msg="A snapshot would be taken.")
    try:
        environment = settings(paths.text(module.params["environment_file"]))
        descriptor = own(folder)
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}; is this an etcd member?")
    saved = save(module, folder, descriptor, environment)
    removed = superfluous(paths.names(folder), keep)
    for name in removed:
        paths.remove(f"{folder}/{name}")
    module.exit_json(changed=True, removed=removed, **saved)


def _run(
    module: AnsibleModule, environment: t.Dict[str, str], *argv: str, folder: t.Optional[int] = None
) -> str:
    # Where the role puts them; root's PATH over ssh need not have it.
    status, output, problems = module.run_command(
        list(argv),
        environ_update=environment,
        path_prefix="/usr/local/bin",
        cwd=None if folder is None else f"/proc/self/fd/{folder}",
    )
    if status != 0:
        lines = (problems or output).strip().splitlines()
        module.fail_json(msg=f"{' '.join(argv[:3])} failed: {lines[-1] if lines else 'without a message'}")
    return str(output)


if __name__ == "__main__":
    main()
