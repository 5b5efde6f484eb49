# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Settings of sshd after which nobody, or not the account of every run, would come in again."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.ssh_settings import VARIABLE, text_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed

Fault = tuple[str, str, str]
"""Keyword in small letters, what is wrong, what to write instead."""
_KEYS = "publickey"
_NO_SHELL = re.compile(r"(/usr)?/s?bin/(false|true|nologin)|internal-sftp( .*)?|/.*/sftp-server( .*)?")
_AT = re.compile(r"(?:\[([^\]]+)\]|([^:\s]+))(?::[0-9]+)?(?:\s+rdomain\s+\S+)?|([0-9a-fA-F:]+)")
_ANOTHER = "write an address of the host, or 0.0.0.0"


def check_ways_in(draft: Draft) -> None:
    """What would lock the operator out counts from the day on which hosts are hardened."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        settings = host.values.get(VARIABLE)
        if not isinstance(settings, Mapping) or host.values.get("base_sshd") != "hardened":
            continue
        given = {
            str(keyword).lower(): text_of(value)
            for keyword, value in settings.items()
            if not isinstance(value, list | Mapping)  # which is said where values are looked at
        }
        written = {str(keyword).lower(): str(keyword) for keyword in settings}
        for keyword, message, remedy in (*_accounts(host, given), *_sessions(given), *_place(host, given)):
            place = draft.inner_place(host, VARIABLE, written[keyword])
            once.add(place, f"{VARIABLE}.{written[keyword]}", message, remedy)


def check_once(draft: Draft) -> None:
    """A keyword in two spellings is one to sshd, which takes the first."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        settings = host.values.get(VARIABLE)
        seen: dict[str, str] = {}
        for keyword in settings if isinstance(settings, Mapping) else ():
            first = seen.setdefault(str(keyword).lower(), str(keyword))
            if first != str(keyword):
                place = draft.inner_place(host, VARIABLE, str(keyword))
                message = f"is {first} in another spelling, and only one of them counts"
                once.add(place, f"{VARIABLE}.{keyword}", message, "write it once")


def _matches(account: str, patterns: str) -> bool:
    """Tell whether a list of patterns has an account, from wherever it comes."""
    return any(
        fnmatch.fnmatchcase(account, pattern.partition("@")[0])
        for pattern in patterns.replace(",", " ").split()
        if not pattern.startswith("!")
    )


def _accounts(host: HostDraft, given: Mapping[str, str]) -> Iterator[Fault]:
    account = host.values.get("ansible_user")
    if not isinstance(account, str) or not account:
        return
    if "allowusers" in given and "," in given["allowusers"]:
        yield "allowusers", f"{given['allowusers']!r} is one name with commas", "write spaces between names"
    elif "allowusers" in given and not _matches(account, given["allowusers"]):
        message = f"lacks {account}, as whom every run logs in to {host.name}"
        yield "allowusers", message, f"write {account} too"
    names = given.get("denyusers", "").split()
    if account in names:
        message = f"has {account}, as whom every run logs in to {host.name}"
        yield "denyusers", message, "take it out"
    if account == "root" and given.get("permitrootlogin", "").lower() == "no":
        message = f"is no, and every run logs in to {host.name} as root"
        yield "permitrootlogin", message, "write prohibit-password, or another ansible_user"


def _sessions(given: Mapping[str, str]) -> Iterator[Fault]:
    methods = given.get("authenticationmethods", "any").split()
    if not any(way == "any" or set(re.split(r"[,:]", way)) <= {_KEYS, "bind"} for way in methods):
        message = f"{given['authenticationmethods']!r} lets nobody in by a key alone, as every run comes"
        yield "authenticationmethods", message, f"write {_KEYS} as one of the ways"
    if _NO_SHELL.fullmatch(given.get("forcecommand", "")):
        yield "forcecommand", "runs in the place of what every run asks for", "take it out"
    if given.get("chrootdirectory", "none") not in ("none", "/"):
        yield "chrootdirectory", "hides the host from every run", "take it out"
    if given.get("maxsessions") == "0":
        yield "maxsessions", "0 lets nobody do anything", "write 10, the default"
    others = {"authorizedkeyscommand", "trustedusercakeys"} & given.keys()
    if given.get("authorizedkeysfile") == "none" and not others:
        yield "authorizedkeysfile", "is none, so nobody has a key", "write .ssh/authorized_keys"


def _place(host: HostDraft, given: Mapping[str, str]) -> Iterator[Fault]:
    port, reached = given.get("port", ""), host.values.get("ansible_port") or 22
    # Reached at another address, it may be at another port too: whoever translates the one does the other.
    if port.isdigit() and not host.values.get("site_address") and int(port) != reached:
        message = f"is {port}, and {host.name} is reached at port {reached} (ansible_port)"
        yield "port", message, f"write {reached}, or change both at a time when you reach hosts otherwise"
    text = given.get("listenaddress", "")
    found = _AT.fullmatch(text)
    at = next(filter(None, found.groups()), "") if found else ""
    address = parsed(at)
    if address is None:
        if text and (not at or is_taken_for_address(at)):
            yield "listenaddress", f"{text!r} is no address", _ANOTHER
        elif at == "localhost":
            yield "listenaddress", "is the host itself alone", _ANOTHER
        return
    if address.is_loopback:
        yield "listenaddress", f"{address} is the host itself alone", _ANOTHER


CHECKS = (check_ways_in, check_once)
