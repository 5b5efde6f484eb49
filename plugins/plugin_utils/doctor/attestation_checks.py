# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TPMs of workers: what nobody has accepted, and what differed when they were asked last. Asks none."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

MODES = ("record", "require")


def attested_hosts(site: Site) -> dict[str, str]:
    """Return the workers whose TPMs count, with what the inventory wants of them."""
    return {
        host.name: host.variables["node_attestation"]
        for host in site.group("nodes")
        if "control_plane" not in host.groups and host.variables.get("node_attestation") in MODES
    }


def read_tpms(session: Session) -> dict[str, str]:
    """Return what is recorded of TPMs: host to the record as JSON, empty when there is none.

    A record that cannot be opened is left out; the store's other files say the same then, to everybody.
    """
    found = {}
    for name in attested_hosts(session.site):
        try:
            found[name] = session.store.tpms.read(name)
        except PkiError:
            continue
    return found


def tpms(evidence: Evidence) -> Iterator[Finding]:
    """Compare what is recorded of TPMs with what the inventory wants."""
    wanted = {
        name: mode for name, mode in attested_hosts(evidence.site).items() if name in evidence.controller.tpms
    }
    if not wanted:
        return
    # Imported late: it brings `cryptography`, and most sites ask no TPM.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import record_from
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError

    strange: list[tuple[str, str]] = []
    differs: list[tuple[str, str]] = []
    unaccepted: list[tuple[str, str]] = []
    for name, mode in wanted.items():
        text = evidence.controller.tpms[name]
        try:
            record = record_from(text) if text else None
        except AttestationError as error:
            strange.append((name, error.message))
            continue
        if record and record.found:
            entry = (name, f"its TPM was asked on {record.asked}: {record.found}")
            (strange if mode == "require" else differs).append(entry)
        elif mode == "require" and not (record and record.accepted_by):
            unaccepted.append(
                (name, "nobody has accepted its TPM, so its node's certificates are not signed")
            )
    yield from together(PROBLEM, strange, _look)
    yield from together(NOTICE, [*differs, *unaccepted], _look)


def _look(hosts: list[str]) -> str:
    return f"ironspan server attest {' '.join(hosts)}; what to do about it is in docs/attestation.md"
