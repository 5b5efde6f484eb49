# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TPMs are asked of workers, for at least one PCR."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

MODE, PCRS = "node_attestation", "node_attestation_pcrs"


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
        if host.values.get(PCRS) == []:
            draft.problems.add(
                draft.place(host, PCRS), PCRS, "is empty, so a quote says nothing", "write [0, 2, 4, 7]"
            )


CHECKS = (check_attestation,)
