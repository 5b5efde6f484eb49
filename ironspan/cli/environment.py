# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a command takes from the environment it is started in, and what it leaves to other projects."""

from __future__ import annotations

import collections.abc
import fnmatch
import os

KEPT = (
    # Who the operator is, and how secrets are asked for.
    "ANSIBLE_ASK_*", "ANSIBLE_*_PASSWORD_FILE", "ANSIBLE_PRIVATE_KEY_FILE", "ANSIBLE_SSH_AGENT*",
    "ANSIBLE_VAULT_*",
    # The operator's machine and terminal.
    "ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP", "ANSIBLE_SSH_CONTROL_PATH*", "ANSIBLE_SSH_EXECUTABLE",
    "ANSIBLE_SSH_RETRIES", "ANSIBLE_DEBUG", "ANSIBLE_LOG_PATH", "ANSIBLE_NOCOLOR", "ANSIBLE_VERBOSITY",
)  # fmt: skip
"""Settings of Ansible that are the operator's. ansible.cfg and the inventory say all others."""
LOCALE = "C.UTF-8"
"""Every program speaks English in it. Ansible refuses a locale that is not installed, or not UTF-8."""


def foreign(variables: collections.abc.Iterable[str]) -> list[str]:
    """Return the names among these that set something of Ansible that the project says itself."""
    return sorted(
        name
        for name in variables
        if name.startswith("ANSIBLE_") and not any(fnmatch.fnmatchcase(name, kept) for kept in KEPT)
    )


def settle(variables: collections.abc.MutableMapping[str, str] = os.environ) -> list[str]:
    """Make this process and those that it starts independent of other projects' settings.

    Args:
        variables: the environment, which is changed.

    Returns:
        The names of the variables that are ignored.
    """
    ignored = foreign(variables)
    for name in ignored:
        del variables[name]
    variables["LC_ALL"] = LOCALE
    return ignored
