# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keywords of sshd that there are, with values that sshd reads: with any other it does not start again."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

VARIABLE = "base_sshd_settings"
_SWITCHES = [
    "AllowAgentForwarding",
    "DisableForwarding",
    "ExposeAuthInfo",
    "GSSAPIAuthentication",
    "GSSAPICleanupCredentials",
    "GSSAPIKeyExchange",
    "GSSAPIStoreCredentialsOnRekey",
    "GSSAPIStrictAcceptorCheck",
    "HostbasedAuthentication",
    "HostbasedUsesNameFromPacketOnly",
    "KbdInteractiveAuthentication",
    "KerberosAuthentication",
    "KerberosGetAFSToken",
    "KerberosOrLocalPasswd",
    "KerberosTicketCleanup",
    "PasswordAuthentication",
    "PermitEmptyPasswords",
    "PermitTTY",
    "PermitUserRC",
    "PrintLastLog",
    "PrintMotd",
    "PubkeyAuthentication",
    "StreamLocalBindUnlink",
    "StrictModes",
    "TCPKeepAlive",
    "UseDNS",
    "UsePAM",
]
_NUMBERS = {
    "Port": (1, 65535), "MaxAuthTries": (1, 1000), "MaxSessions": (0, 100_000),
    "ClientAliveCountMax": (0, 100_000), "RequiredRSASize": (1024, 16384), "X11DisplayOffset": (0, 65535),
}  # fmt: skip
_CHOICES = {
    "AddressFamily": "any inet inet6",
    "AllowStreamLocalForwarding": "yes no all local remote",
    "AllowTcpForwarding": "yes no all local remote",
    "Compression": "yes no delayed",
    "FingerprintHash": "md5 sha256",
    "GatewayPorts": "yes no clientspecified",
    "IgnoreRhosts": "yes no shosts-only",
    "IgnoreUserKnownHosts": "yes no",
    "LogLevel": "QUIET FATAL ERROR INFO VERBOSE DEBUG DEBUG1 DEBUG2 DEBUG3",
    "PermitRootLogin": "yes no prohibit-password without-password forced-commands-only",
    "PermitTunnel": "yes no ethernet point-to-point",
    "X11Forwarding": "yes no",
    "X11UseLocalhost": "yes no",
}
ALGORITHMS = Path(__file__).absolute().with_name("ssh_algorithms.yml")
_LISTS = {
    "Ciphers": "ciphers",
    "MACs": "macs",
    "KexAlgorithms": "kex",
    "HostKeyAlgorithms": "keys",
    "PubkeyAcceptedAlgorithms": "keys",
    "HostbasedAcceptedAlgorithms": "keys",
    "CASignatureAlgorithms": "keys",
}
"""Keyword -> which names of ``ALGORITHMS`` it takes."""
_FORMS = {
    "MaxStartups": (r"[1-9][0-9]*(:(100|[1-9][0-9]?):[1-9][0-9]*)?", "10:30:100, its default"),
    "StreamLocalBindMask": (r"0?[0-7]{3}", "three octal digits, such as 0177"),
    "PermitUserEnvironment": (r"yes|no|true|false|[A-Z_*?,]+", "no, yes, or names"),
    "RekeyLimit": (r"(default|[0-9]+[KMG]?)(\s+(none|[0-9]+[smhdw]?))?", "for example '1G 1h'"),
    "SyslogFacility": (r"daemon|user|auth|authpriv|local[0-7]", "AUTH, or LOCAL0 to LOCAL7"),
    "Subsystem": (r"[A-Za-z0-9_-]+\s+\S.*", "a name and its command, such as 'sftp internal-sftp'"),
    "AllowUsers": (r"\S.*", "names with spaces between"),
    "AllowGroups": (r"\S.*", "names with spaces between"),
}
"""Keyword -> pattern of its value, and what to write instead."""
_TIMES = ("ClientAliveInterval", "LoginGraceTime", "UnusedConnectionTimeout")
_TEXTS = [
    "AcceptEnv",
    "AllowGroups",
    "AllowUsers",
    "AuthenticationMethods",
    "AuthorizedKeysCommand",
    "AuthorizedKeysCommandUser",
    "AuthorizedKeysFile",
    "AuthorizedPrincipalsCommand",
    "AuthorizedPrincipalsCommandUser",
    "AuthorizedPrincipalsFile",
    "Banner",
    "CASignatureAlgorithms",
    "ChannelTimeout",
    "ChrootDirectory",
    "Ciphers",
    "DebianBanner",
    "DenyGroups",
    "DenyUsers",
    "ForceCommand",
    "GSSAPIKexAlgorithms",
    "HostCertificate",
    "HostKey",
    "HostKeyAgent",
    "HostKeyAlgorithms",
    "HostbasedAcceptedAlgorithms",
    "IPQoS",
    "KexAlgorithms",
    "ListenAddress",
    "LogVerbose",
    "MACs",
    "MaxStartups",
    "ModuliFile",
    "PerSourceMaxStartups",
    "PerSourceNetBlockSize",
    "PerSourcePenalties",
    "PerSourcePenaltyExemptList",
    "PermitListen",
    "PermitOpen",
    "PermitUserEnvironment",
    "PidFile",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAuthOptions",
    "RDomain",
    "RefuseConnection",
    "RekeyLimit",
    "RevokedKeys",
    "SecurityKeyProvider",
    "SetEnv",
    "StreamLocalBindMask",
    "Subsystem",
    "SyslogFacility",
    "TrustedUserCAKeys",
    "VersionAddendum",
    "XAuthLocation",
]
KEYWORDS = {name.lower(): name for name in (*_SWITCHES, *_NUMBERS, *_CHOICES, *_TIMES, *_TEXTS)}
"""sshd_config(5) of OpenSSH 9.2 to 10.0, with what Debian adds. Case does not count there."""
_PARTS = ("match", "include")
_TIME = re.compile(r"none|([0-9]+[smhdwSMHDW]?)+", re.ASCII)


def fault(keyword: str, value: str) -> tuple[str, str] | None:
    """Return what is wrong with a keyword and its value, and what to write; None where nothing is.

    Args:
        keyword: as somebody wrote it.
        value: as text.
    """
    if keyword.lower() in _PARTS:
        return "is no setting: it says for whom, or where, what follows counts", "take it out"
    name = KEYWORDS.get(keyword.lower())
    if name is None:
        near = nearest(keyword.lower(), KEYWORDS)
        return "is no keyword of sshd_config(5)", f"write {KEYWORDS[near]}" if near else "take it out"
    if name in _SWITCHES or name in _CHOICES:
        words = _CHOICES.get(name, "yes no").split()
        known = {word.lower() for word in words}
        return None if value.lower() in known else (f"is {value!r}", f"write {' or '.join(words)}")
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        is_one = value.isascii() and value.isdigit() and least <= int(value) <= most
        return None if is_one else (f"is {value!r}", f"write a number from {least} to {most}")
    if name in _TIMES and not _TIME.fullmatch(value):
        return f"is {value!r}", "write seconds, or for example 2m"
    if name in _LISTS:
        return _of_list(name, value)
    if name in _FORMS and not re.fullmatch(_FORMS[name][0], value, re.ASCII | re.IGNORECASE):
        return f"is {value!r}", f"write {_FORMS[name][1]}"
    return None


def _of_list(name: str, value: str) -> tuple[str, str] | None:
    """Judge names of algorithms, with commas between; in front +, - or ^ changes the default."""
    if value in ("", "none") or " " in value.strip():
        return f"is {value!r}", "write names with commas and without spaces between"
    known = _algorithms()[_LISTS[name]]
    for word in value.lstrip("+-^").split(","):
        # A pattern takes what is there.
        if word not in known and not set(word) & set("*?!") and not word.startswith("gss-"):
            near = nearest(word, known)
            return f"sshd knows no {word}", f"write {near}" if near else "take it out"
    return None


@functools.lru_cache(maxsize=1)
def _algorithms() -> Mapping[str, list[str]]:
    return t.cast(Mapping[str, list[str]], read_yaml(ALGORITHMS))


def text_of(value: object) -> str:
    """Return what sshd reads of a value: YAML's own yes and no are true and false."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def check_keywords(draft: Draft) -> None:
    """Each dictionary is judged once, hardened or not: it counts from the day on which hosts are."""
    looked_at = set()
    for host in draft.hosts.values():
        settings = host.values.get(VARIABLE)
        if not isinstance(settings, Mapping) or id(settings) in looked_at:
            continue
        looked_at.add(id(settings))
        for keyword, value in settings.items():
            if value is None or isinstance(value, list | Mapping):
                found: tuple[str, str] | None = ("is no text", "write one text, as sshd_config(5) has it")
            else:
                found = fault(str(keyword), text_of(value))
            if found:
                place = draft.inner_place(host, VARIABLE, str(keyword))
                draft.problems.add(place, f"{VARIABLE}.{keyword}", *found)


CHECKS = (check_keywords,)
