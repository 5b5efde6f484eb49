# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whose the folders are in which a restore works, and whose what it makes.

Programs of a restore run as root and open what they write by its path. Beside etcd's data, on their file
system, that is safe only where etcd's user cannot exchange anything on the way.
"""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.configuration import Configuration
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

USER = "etcd"
"""Whom the role lets etcd run as."""


def work_folder(own: Configuration) -> str:
    """Return the folder of this host in which a restore works, on the file system of the data."""
    return f"{own.data_dir}.restore"


def take_over(machine: Machine, own: Configuration) -> None:
    """Have the folder in which a restore works, and the one that it lies in, belong to root.

    Releases before 2026-12 gave the folder above its data to etcd's user.

    Args:
        machine: the host.
        own: its configuration.
    """
    work, (_, group) = machine.path(work_folder(own)), owner(machine)
    paths.set_owner_and_mode(os.path.dirname(work), 0o750, (os.geteuid(), group))
    # Only now nobody puts anything there any more.
    found = paths.status(work)
    if found is None or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        machine.remove(work_folder(own))
        paths.make_folder(work, 0o755)
    paths.set_owner_and_mode(work, 0o755, follow=False)


def owner(machine: Machine) -> t.Tuple[int, int]:
    """Return the user and group that etcd runs as on this host.

    Raises:
        RestoreError: there is no such user.
    """
    with contextlib.suppress(FileNotFoundError):
        for line in paths.text(machine.path("/etc/passwd")).splitlines():
            fields = line.split(":")
            if fields[0] == USER and len(fields) > 3:
                return int(fields[2]), int(fields[3])
    if machine.root == "/":
        # Not a local account: a directory service may know it.
        import pwd

        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(USER)
            return found.pw_uid, found.pw_gid
    raise RestoreError(f"There is no user {USER} on this host.", "Run site.yml for this host first.")


def give_tree(folder: str, owner: files.Ownership) -> None:
    """Give a tree to its user, from the inside out: what is not given yet nobody else can change."""
    for name in paths.names(folder):
        path = os.path.join(folder, name)
        if stat.S_ISDIR(paths.there(path, follow=False).st_mode):
            give_tree(path, owner)
            continue
        descriptor = paths.opened(path, follow=False)
        try:
            paths.give(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode), owner)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    files.sync_folder(folder)
    paths.set_owner_and_mode(folder, 0o700, owner, follow=False)
