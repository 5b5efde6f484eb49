# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in Ironic's own entry of a server (``extra``), for the next run and for inventories.

There it is lost with the server only, and every controller sees the same. Whoever may write to Ironic may
write it, so what comes back is checked like anything else that a service says.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import (
    ExpectedServer,
    Origin,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.facts import labels_of, taken_labels
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import NONE, taken_tpm

COMPARED, DEPLOYED, ERASED = "ironspan_compared", "ironspan_deployed", "ironspan_erased"
FIELDS = ("extra", "provision_updated_at", "inspection_finished_at")
"""Fields of a node that ``Record.of`` reads."""


class Compared(t.NamedTuple):
    """A comparison that ended well.

    Args:
        digest: of what was declared then.
        labels: of the node, from what was declared and measured.
        tpm: SHA-256 of the endorsement key that was measured; "" where no TPM answered, or nobody asked.
    """

    digest: str
    labels: Mapping[str, str]
    tpm: str = NONE


class Deployed(t.NamedTuple):
    """An operating system that was asked for.

    Args:
        address: its static address, without a prefix.
        place: rack and lowest unit that the server had then, which decide about its address.
        image: SHA-256 of the image.
        inspected: whether the server had to be compared before.
        before: when Ironic had last changed the server's state, by Ironic's clock. While that has not moved
            on, Ironic never heard of it: the run was killed before it asked.
    """

    address: str
    place: str
    image: str
    inspected: bool
    before: str


class Record(t.NamedTuple):
    """What is recorded of a server.

    Args:
        compared: its last comparison that ended well.
        deployed: its operating system.
        erased: the clean steps that have erased it since.
        differed: whether its last inspection was compared, and differs from what was declared.
    """

    compared: Compared | None = None
    deployed: Deployed | None = None
    erased: tuple[str, ...] = ()
    differed: bool = False

    @classmethod
    def of(cls, entry: Mapping[str, t.Any]) -> Record:
        """Return what a node has; whatever it is given, it returns.

        Args:
            entry: of a node, with ``FIELDS``.
        """
        extra = entry.get("extra")
        extra = extra if isinstance(extra, Mapping) else {}
        erased = extra.get(ERASED)
        steps = tuple(map(str, erased)) if isinstance(erased, list) else ()
        compared = extra.get(COMPARED)
        failed = compared.get("differed") if isinstance(compared, Mapping) else None
        differed = failed is not None and failed == entry.get("inspection_finished_at")
        return cls(_compared(compared), _deployed(extra.get(DEPLOYED), entry), steps, differed)


def digest_of(server: ExpectedServer) -> str:
    """Return the digest of what was declared of a server.

    Where it is written does not matter, and neither does firmware: another baseline is brought to servers
    that run, and takes none of them out of the inventory meanwhile. A TPM that is declared later is asked
    when its host joins.
    """
    plain = dataclasses.asdict(dataclasses.replace(server, origin=Origin("", 0, 0), firmware=()))
    del plain["tpm_ek_sha256"]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def place_of(server: ExpectedServer) -> str:
    """Return rack and lowest unit, by which a server gets its address."""
    return f"{server.rack} U{server.position}"


def compared_fields(server: ExpectedServer, inspections: Sequence[Inspection]) -> dict[str, t.Any]:
    """Return what ``IronicApi.change`` is given once a server was compared and is what was declared."""
    compared = compared_of(server, inspections)
    return {f"extra/{COMPARED}": compared._asdict()}


def compared_of(
    server: ExpectedServer, inspections: Sequence[Inspection] = (), known: Compared | None = None
) -> Compared:
    """Return a comparison that ends well.

    Args:
        server: what was declared.
        inspections: what was measured; nothing yet where it is foreseen.
        known: the comparison before this one, where it is foreseen.
    """
    foreseen = server.tpm_ek_sha256 or (known.tpm if known else NONE)
    tpm = next((one.tpm for one in inspections if one.tpm), NONE if inspections else foreseen)
    return Compared(digest_of(server), labels_of(server, inspections), tpm)


def differed_fields(inspected_at: str) -> dict[str, t.Any]:
    """Return what ``IronicApi.change`` is given when a server differs: that inspection counts no more.

    Args:
        inspected_at: when it was inspected, as Ironic writes it.
    """
    return {f"extra/{COMPARED}": {"differed": inspected_at}}


def deployed_fields(deployed: Deployed) -> dict[str, t.Any]:
    """Return what ``IronicApi.change`` is given before an operating system is asked for."""
    return {f"extra/{DEPLOYED}": deployed._asdict(), f"extra/{ERASED}": []}


def erased_fields(steps: Sequence[str]) -> dict[str, t.Any]:
    """Return what ``IronicApi.change`` is given once a server was erased, and the proof is kept."""
    return {f"extra/{ERASED}": list(steps)}


def _compared(said: t.Any) -> Compared | None:
    if not isinstance(said, Mapping) or "digest" not in said:
        return None
    return Compared(str(said.get("digest")), taken_labels(said.get("labels")), taken_tpm(said.get("tpm")))


def _deployed(said: t.Any, entry: Mapping[str, t.Any]) -> Deployed | None:
    """Return the system that runs; None when Ironic was never asked for it."""
    if not isinstance(said, Mapping):
        return None
    before = str(said.get("before") or "")
    try:
        address = str(ipaddress.ip_address(str(said.get("address"))))
    except ValueError:
        return None
    if before == str(entry.get("provision_updated_at") or ""):
        return None
    place, image = str(said.get("place") or ""), str(said.get("image") or "")
    return Deployed(address, place, image, said.get("inspected") is not False, before)
