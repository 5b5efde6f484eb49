# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The administrator's account of a virtual machine, as Azure's agent makes it: key, sudo, no password."""

from __future__ import annotations

import os
from pathlib import Path

from ironspan.lab import files

#: The first ordinary account of Debian.
_ID = 1000
_LINES = {
    "passwd": "{user}:x:{id}:{id}::/home/{user}:/bin/bash",
    "group": "{user}:x:{id}:",
    "shadow": "{user}:*:19000:0:99999:7:::",
    "gshadow": "{user}:!::",
}
_MODES = {"passwd": 0o644, "group": 0o644, "shadow": 0o640, "gshadow": 0o640}


def create(base: Path, tree: Path, user: str, keys: tuple[str, ...]) -> None:
    """Make an account in the tree of a host that was never started.

    Args:
        base: The tree that it lies over.
        tree: The host's own.
        user: Name of the account.
        keys: Public keys that open it.
    """
    for name, line in _LINES.items():
        before = (base / "etc" / name).read_text()
        if any(one.startswith(f"{user}:") for one in before.splitlines()):
            continue
        path = tree / "etc" / name
        files.write_if_changed(path, before + line.format(user=user, id=_ID) + "\n", _MODES[name])
        group = (base / "etc" / name).stat().st_gid
        os.chown(path, 0, group)
    files.write_if_changed(tree / "etc/sudoers.d/90-azure", f"{user} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    home = tree / "home" / user
    files.write_if_changed(home / ".ssh/authorized_keys", "".join(f"{key}\n" for key in keys), 0o600)
    for path, mode in ((home, 0o750), (home / ".ssh", 0o700), (home / ".ssh/authorized_keys", 0o600)):
        path.chmod(mode)
        os.chown(path, _ID, _ID)
