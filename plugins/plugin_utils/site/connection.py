# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ansible's own variables about how a host is reached: what is expected of them, and their names."""

from __future__ import annotations

import difflib

from ansible import constants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import Option

_WORDS = (
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_private_key_file",
    "ansible_private_key_file",
)
"""Texts that ssh is given as they are; of a list it would get the brackets."""
CONNECTION = {
    "ansible_host": Option(name="ansible_host", role="ansible"),
    "ansible_port": Option(name="ansible_port", role="ansible", type="int"),
    "ansible_user": Option(
        name="ansible_user", role="ansible", format="account", default="the account that runs Ansible"
    ),
    "ansible_become": Option(name="ansible_become", role="ansible", type="bool", default=False),
    "ansible_become_user": Option(
        name="ansible_become_user", role="ansible", format="account", default="root"
    ),
    "ansible_become_method": Option(
        name="ansible_become_method", role="ansible", format="plugin", default="sudo"
    ),
    "ansible_python_interpreter": Option(
        name="ansible_python_interpreter", role="ansible", format="interpreter", default="python3"
    ),
    "ansible_ssh_host": Option(name="ansible_ssh_host", role="ansible"),
    "ansible_ssh_port": Option(name="ansible_ssh_port", role="ansible", type="int"),
    "ansible_ssh_user": Option(name="ansible_ssh_user", role="ansible", format="account"),
    "ansible_shell_type": Option(name="ansible_shell_type", role="ansible", format="plugin"),
    "ansible_timeout": Option(name="ansible_timeout", role="ansible", type="int"),
    "ansible_ssh_timeout": Option(name="ansible_ssh_timeout", role="ansible", type="int"),
    **{name: Option(name=name, role="ansible") for name in _WORDS},
    "ansible_connection": Option(name="ansible_connection", role="ansible", default="ssh", format="plugin"),
}
"""What is checked of them. Addresses are those of hosts, too."""
NOT_COMPUTED = frozenset(
    {
        *_WORDS,
        "ansible_become",
        "ansible_become_user",
        "ansible_become_method",
        "ansible_python_interpreter",
    }
)
"""Expressions in these may use what only a run knows, such as ``ansible_playbook_python``."""
_OF_ANSIBLE = frozenset(
    {
        *constants.COMMON_CONNECTION_VARS,
        *(name for names in constants.MAGIC_VARIABLE_MAPPING.values() for name in names),
        *(
            "ansible_python_interpreter",
            "ansible_shell_type",
            "ansible_shell_executable",
            "ansible_pipelining",
        ),
        *(
            "ansible_become_flags",
            "ansible_become_exe",
            "ansible_ssh_host_key_checking",
            "ansible_remote_tmp",
        ),
        *("ansible_ssh_retries", "ansible_ssh_timeout", "ansible_ssh_pipelining", "ansible_ssh_use_tty"),
    }
)
"""Variables of Ansible about how a host is reached. One that is nearly called so does nothing."""
_ALIKE = 0.88
"""Of two names, as difflib measures it, from which on one is the other misspelt."""


def misspelt(name: str) -> str:
    """Return the variable of Ansible that a name is nearly, "" where it is one, or is like none."""
    if name in _OF_ANSIBLE:
        return ""
    found = difflib.get_close_matches(name, _OF_ANSIBLE, n=1, cutoff=_ALIKE)
    return found[0] if found else ""
