# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where a server differs from what was declared: one sentence for the person in front of the rack."""

from __future__ import annotations

import dataclasses
import typing as t

Kind = t.Literal["wrong server", "missing", "surplus", "differs", "cabling", "not measured", "unreadable"]


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Finding:
    """One difference.

    Args:
        server: name of the server.
        slot: where it is mounted.
        part: which part of it.
        kind: what sort of difference.
        message: what was declared and what was measured.
        remedy: what to do about it.
    """

    server: str
    slot: str
    part: str
    kind: Kind
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.server} ({self.slot}): {self.part}: {self.message}; {self.remedy}"

    def as_dict(self) -> dict[str, str]:
        """Return the finding for a machine-readable report."""
        return dataclasses.asdict(self)
