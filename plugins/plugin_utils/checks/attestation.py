# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TPMs are asked of workers, for at least one PCR, each host has one, and authorities vouch for them."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

MODE, PCRS, TCTI = "node_attestation", "node_attestation_pcrs", "node_attestation_tcti"
AUTHORITIES = "node_attestation_ek_authorities"
DIGEST = "node_attestation_ek_sha256"
_WAY = re.compile(r"device:/dev/[^ ]*tpm[^ ]*|cmd:[^ ]+|(swtpm|mssim|tabrmd|libtpms)(:[^ ]*)?")
"""tss2-tctildr(7)."""


def check_attestation(draft: Draft) -> None:
    """TPMs are asked of hosts that it counts for."""
    for host in draft.hosts.values():
        if host.values.get(MODE) not in ("record", "require"):
            continue
        if "control_plane" in host.groups:
            # It holds the keys of authorities, so nothing is gained by what is not signed for it.
            draft.problems.add(
                draft.place(host, MODE),
                MODE,
                f"{host.name} is a control plane, and only workers are attested",
                "write it for the group nodes, or one inside it",
            )


def check_asked(draft: Draft) -> None:
    """A way that is written leads to a TPM, and PCRs are some, whether they are asked yet or not."""
    for host in draft.hosts.values():
        way, asked = str(host.values.get(TCTI)), host.values.get(MODE) in ("record", "require")
        if (asked or TCTI in host.settings) and not _WAY.fullmatch(way):
            message, remedy = f"{way!r} is no way to a TPM", "write device:/dev/tpmrm0"
            draft.problems.add(draft.place(host, TCTI), TCTI, message, remedy)
        if host.values.get(PCRS) == []:
            draft.problems.add(
                draft.place(host, PCRS), PCRS, "is empty, so a quote says nothing", "write [0, 2, 4, 7]"
            )


def check_one_each(draft: Draft) -> None:
    """No two hosts have the TPM of one endorsement key."""
    owners: dict[str, str] = {}
    once = Once(draft.problems)
    for host in draft.hosts.values():
        digest = str(host.values.get(DIGEST) or "")
        other = owners.setdefault(digest, host.name) if digest else host.name
        if other != host.name:
            message = f"is that of host {other} too, and {host.name} has a TPM of its own"
            once.add(draft.place(host, DIGEST), DIGEST, message, "write it in host_vars, and for one host")


def check_authorities(draft: Draft) -> None:
    """Authorities of makers of TPMs can be read."""
    judged: dict[tuple[str, ...], tuple[str, str] | None] = {}
    for host in draft.hosts.values():
        value = host.values.get(AUTHORITIES)
        if not value or not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            continue
        texts = tuple(value)
        if texts not in judged:
            judged[texts] = _fault_of(texts)
        if fault := judged[texts]:
            draft.problems.add(draft.place(host, AUTHORITIES), AUTHORITIES, *fault)


def _fault_of(texts: tuple[str, ...]) -> tuple[str, str] | None:
    # Imported late: it brings `cryptography`, and most sites name no authority.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import certificate, wire

    try:
        certificate.authorities_in(texts)
    except wire.AttestationError as error:
        return error.message, error.remedy
    return None


CHECKS = (check_attestation, check_asked, check_one_each, check_authorities)
