# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Accounts of a BMC: which there are, what a password has to be like, and another password for one."""

from __future__ import annotations

import dataclasses
import secrets
import string

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import ROOT, Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    PasswordToChange,
    Refused,
    plain,
)

LENGTH = 20
"""Characters of a password: 119 bits. It is also the most that IPMI 2.0 takes, where some BMCs share it."""
LEAST = 8
_SIGNS = "-_"
_LETTERS = string.ascii_letters + string.digits + _SIGNS
_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, _SIGNS)


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """How long a password may be."""

    least: int = LEAST
    most: int = LENGTH


def new_password(policy: Policy = Policy()) -> str:
    """Make a password: letters of every kind, and nothing that a shell or a URL reads in its own way."""
    length = max(policy.least, min(LENGTH, policy.most))
    while True:
        found = "".join(secrets.choice(_LETTERS) for _ in range(length))
        # Begins and ends with a letter or digit: some BMCs cut other signs off there.
        if (
            all(set(found) & set(kind) for kind in _KINDS)
            and found[0] not in _SIGNS
            and found[-1] not in _SIGNS
        ):
            return found


def policy_of(bmc: Bmc) -> Policy:
    """Return what a BMC says of the length of passwords; one that says nothing sensible gets our own.

    Raises:
        Refused: it takes none that is long enough.
        BmcError: it cannot be asked.
    """
    try:
        service = bmc.get(_service(bmc), "say what a password has to be like")
    except PasswordToChange:
        return Policy()
    least, most = service.get("MinPasswordLength"), service.get("MaxPasswordLength")
    policy = Policy(
        least if type(least) is int and LEAST < least <= 128 else LEAST,
        most if type(most) is int and 0 < most < 1024 else LENGTH,
    )
    if policy.most < LEAST:
        raise Refused(f"{bmc.name}: the BMC takes no password of {LEAST} characters or more")
    return policy


def set_password(bmc: Bmc, password: str) -> None:
    """Give the account that is used another password. Whether it took it, is to be tried.

    Raises:
        BmcError: the BMC did not take it, or did not answer; it may have it all the same.
    """
    bmc.patch(_own(bmc), {"Password": password}, "change the password", {password})


def others(bmc: Bmc) -> list[str]:
    """Return the names of other accounts that may log in.

    Raises:
        BmcError: the BMC cannot be asked.
    """
    return sorted(
        plain(one.get("UserName"))
        for one in _accounts(bmc)
        if one.get("UserName") and one.get("UserName") != bmc.login.username and one.get("Enabled", True)
    )


def _own(bmc: Bmc) -> str:
    for one in _accounts(bmc):
        if one.get("UserName") == bmc.login.username:
            return str(one["@odata.id"])
    raise Refused(
        f"{bmc.name}: the BMC does not list the account {bmc.login.username}",
        "name an account that its AccountService has",
    )


def _accounts(bmc: Bmc) -> list[Document]:
    service = bmc.get(_service(bmc), "list its accounts")
    link = service.get("Accounts")
    if not isinstance(link, dict) or not link.get("@odata.id"):
        raise Refused(f"{bmc.name}: the BMC does not list its accounts")
    return bmc.members(str(link["@odata.id"]), "list its accounts")


def _service(bmc: Bmc) -> str:
    link = bmc.root.get("AccountService")
    path = link.get("@odata.id") if isinstance(link, dict) else None
    if not path:
        raise Refused(
            f"{bmc.name}: the BMC has no AccountService: its passwords cannot be changed by Redfish",
            f"update its firmware, or change the password by hand ({ROOT})",
        )
    return str(path)
