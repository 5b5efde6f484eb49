# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How hosts are reached, and as whom: over SSH, as root in the end, said once."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

BECOME = "ansible_become_method"
WAYS_IN = (
    (
        "ansible_connection",
        ("ssh", "smart", "local"),
        "no way to reach hosts of a site",
        "remove it: it is ssh",
    ),
    (
        BECOME,
        # Those of community.general have kept their short names.
        (
            "sudo",
            "su",
            "doas",
            "dzdo",
            "ksu",
            "machinectl",
            "pbrun",
            "pfexec",
            "pmrun",
            "run0",
            "sesu",
            "sudosu",
        ),
        "no way to become root on Linux",
        "write sudo",
    ),
    ("ansible_shell_type", ("sh", "csh", "fish"), "no shell of hosts of a site", "remove it: it is sh"),
)
"""Variable, what it may be, what anything else is, and what to write instead."""
INTERPRETER = "ansible_python_interpreter"
_OLD_PYTHON = re.compile(r"python(2(\.[0-9]+)?|3\.[0-8])")
LOCAL = ("local", "ansible.builtin.local")
TWICE = {
    "ansible_host": "ansible_ssh_host",
    "ansible_port": "ansible_ssh_port",
    "ansible_user": "ansible_ssh_user",
}
"""Variable -> its former name, which Ansible still reads, and prefers."""
TIMEOUTS = ("ansible_timeout", "ansible_ssh_timeout")
ROOT = "root"


def check_ways_in(draft: Draft) -> None:
    """Hosts are reached by SSH: all that runs on them and counts their answers was written for that."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        for variable, known, what, remedy in WAYS_IN:
            value = host.values.get(variable)
            is_right = (
                not isinstance(value, str)
                or not value
                or value.removeprefix("ansible.builtin.").removeprefix("ansible.posix.") in known
            )
            if not is_right and not (variable == BECOME and "." in str(value)):
                once.add(draft.place(host, variable), variable, f"{value} is {what}", remedy)


def check_connection(draft: Draft) -> None:
    """A host that has an address is reached there, and not taken for the machine that Ansible runs on."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        if (
            host.values.get("ansible_connection") in LOCAL
            and host.values.get("ansible_host")
            and not host.values.get("site_lab")
        ):
            once.add(
                draft.place(host, "ansible_connection"),
                "ansible_connection",
                f"would change the machine that Ansible runs on in the place of {host.name}",
                "remove it: hosts are reached by SSH",
            )


def check_interpreter(draft: Draft) -> None:
    """What runs on hosts was written for Python 3.9 and later."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        written = str(host.values.get(INTERPRETER) or "").removeprefix("/usr/bin/env ")
        message = ""
        if _OLD_PYTHON.fullmatch(written.rpartition("/")[2]):
            message = f"{written} is older than Python 3.9, which hosts need"
        elif written.endswith("/") or ("/" in written and written[0] not in "/~"):
            message = f"{written} is no program that is found from every folder"
        if message:
            once.add(draft.place(host, INTERPRETER), INTERPRETER, message, "write python3, or remove it")


def check_said_once(draft: Draft) -> None:
    """Ansible would take the former name of a variable, and everything else here the present one."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        for variable, former in TWICE.items():
            value, other = host.values.get(variable), host.values.get(former)
            if value is None or other is None or value == other:
                continue
            message = f"is {other} for host {host.name}, and {variable} is {value}; Ansible takes this one"
            once.add(draft.place(host, former), former, message, f"remove it, and write {variable} alone")


def check_root(draft: Draft) -> None:
    """What is done on hosts is root's: the account is root, or becomes root."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        user, becomes = host.values.get("ansible_user"), host.values.get("ansible_become")
        target = host.values.get("ansible_become_user")
        if becomes is False and "ansible_become" in host.settings and user not in (None, "", ROOT):
            path = "ansible_become"
            message, remedy = f"is false, and {user} is not root on host {host.name}", "write true"
        elif becomes and "ansible_become_user" in host.settings and target not in (None, "", ROOT):
            path = "ansible_become_user"
            message, remedy = (
                f"is {target}, and only root may do what is done on hosts",
                "remove it: it is root",
            )
        else:
            continue
        once.add(draft.place(host, path), path, message, remedy)


def check_timeouts(draft: Draft) -> None:
    """SSH takes no time but a whole number of seconds from 1 on."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        for variable in TIMEOUTS:
            value = host.values.get(variable)
            if isinstance(value, int) and value < 1:
                message = f"{value} is no time to wait"
                once.add(draft.place(host, variable), variable, message, "write seconds, such as 15")


CHECKS = (check_ways_in, check_connection, check_interpreter, check_said_once, check_root, check_timeouts)
