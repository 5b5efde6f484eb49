# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keywords of sshd that there are, with values that sshd reads: with any other it does not start again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

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
        # YAML's own yes and no are true and false.
        known = {word.lower() for word in words} | {"true", "false"}
        return None if value.lower() in known else (f"is {value!r}", f"write {' or '.join(words)}")
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        is_one = value.isascii() and value.isdigit() and least <= int(value) <= most
        return None if is_one else (f"is {value!r}", f"write a number from {least} to {most}")
    if name in _TIMES and not _TIME.fullmatch(value):
        return f"is {value!r}", "write seconds, or for example 2m"
    return None


def check_keywords(draft: Draft) -> None:
    """Each dictionary is judged once, hardened or not: it counts from the day on which hosts are."""
    looked_at = set()
    for host in draft.hosts.values():
        settings = host.values.get(VARIABLE)
        if not isinstance(settings, Mapping) or id(settings) in looked_at:
            continue
        looked_at.add(id(settings))
        for keyword, value in settings.items():
            found = fault(str(keyword), str(value))
            if found:
                place = draft.inner_place(host, VARIABLE, str(keyword))
                draft.problems.add(place, f"{VARIABLE}.{keyword}", *found)


CHECKS = (check_keywords,)
