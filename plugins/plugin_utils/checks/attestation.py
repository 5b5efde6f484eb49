# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TPMs are asked of workers, for at least one PCR, and vouched for by authorities that are some."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

MODE, PCRS, TCTI = "node_attestation", "node_attestation_pcrs", "node_attestation_tcti"
AUTHORITIES = "node_attestation_ek_authorities"
_WAY = re.compile(r"device:/[^ ]+|(swtpm|mssim|tabrmd|cmd|libtpms)(:[^ ]*)?")
"""tss2-tctildr(7)."""


def check_attestation(draft: Draft) -> None:
    """What is asked of a TPM is something, and of a host that it counts for."""
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
        way = str(host.values.get(TCTI))
        if not _WAY.fullmatch(way):
            message, remedy = f"{way!r} is no way to a TPM", "write device:/dev/tpmrm0"
            draft.problems.add(draft.place(host, TCTI), TCTI, message, remedy)
        if host.values.get(PCRS) == []:
            draft.problems.add(
                draft.place(host, PCRS), PCRS, "is empty, so a quote says nothing", "write [0, 2, 4, 7]"
            )


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


CHECKS = (check_attestation, check_authorities)
