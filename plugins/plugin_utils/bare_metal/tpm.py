# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The TPM that was found in a server at its inspection, told by its endorsement key.

Whose key it is nobody has proved then: the ramdisk only says it. The host proves it when it joins
(``plugin_utils.attestation``), and is refused when its TPM is another one than was found here.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.taken import Taker

COLLECTED = "ironspan_tpm"
"""What the collector of our ramdisk (``ironspan_tpm.py`` there) leaves in Ironic's ``plugin_data``."""
VARIABLE = "node_attestation_ek_sha256"
"""Of a host: the only TPM that it may have."""
NONE = ""
"""No TPM answered."""
DIGEST = re.compile(r"[0-9a-f]{64}")


def read_tpm(plugins: Mapping[str, t.Any], taker: Taker) -> str | None:
    """Return the SHA-256 of an endorsement key, as makers' lists have it.

    Args:
        plugins: ``plugin_data`` of an inspection.
        taker: notes what cannot be read.

    Returns:
        Hexadecimal digits; NONE where no TPM answered; None where nobody asked, or the answer is no key.
    """
    said = taker.part(plugins, COLLECTED, COLLECTED)
    if said.get("ek") is None:
        return NONE if "fault" in said else None
    # Imported late: they bring `cryptography`, which most runs need for nothing else.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import keys, wire

    try:
        return keys.endorsement_key(wire.from_hex(said["ek"], "endorsement key")).sha256()
    except wire.AttestationError:
        taker.note(f"{COLLECTED}.ek")
        return None


def taken_tpm(said: t.Any) -> str:
    """Return the digest that somebody else kept of a TPM; NONE for anything else."""
    return said if isinstance(said, str) and DIGEST.fullmatch(said) else NONE
