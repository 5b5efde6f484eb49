# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A person looks at what a host's TPM says, and accepts it; what a look has found is kept for the doctor."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record, differences
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor


class Seen(t.NamedTuple):
    """What was seen of a host's TPM.

    Args:
        now: the TPM, and what it has measured.
        before: what is recorded, None when nothing is.
        lines: how the two differ, a clause each.
    """

    now: Record
    before: Record | None
    lines: list[str]

    @property
    def settled(self) -> bool:
        """Whether it is what somebody has accepted."""
        return bool(self.before and self.before.accepted_by and not self.lines)


def look(attestor: Attestor, policy: ask.Policy, accepted_by: str = "") -> Seen:
    """Return what a host's TPM says now, beside what is recorded. Nothing is recorded.

    Args:
        attestor: asks the host.
        policy: of its document.
        accepted_by: who accepts it, empty for nobody.

    Raises:
        ActionableError: the host has no TPM, it proves nothing, or no authority of the site vouches for it.
    """
    before = attestor.known()
    now = ask.introduce(policy, attestor.ask, accepted_by)
    ask.insist_on_maker(now, policy)
    lines = []
    if before:
        if now.endorsement != before.endorsement:
            lines.append(f"it is another TPM: {now.endorsement[:16]}, and was {before.endorsement[:16]}")
        elif now.key != before.key:
            lines.append("its attestation key is another one")
        lines += differences(before, now.pcrs)
    return Seen(now, before, lines)


def asked(attestor: Attestor, policy: ask.Policy) -> Seen:
    """Look, and note beside the record what was found, or why the TPM proves nothing.

    Args:
        attestor: asks the host.
        policy: of its document.

    Raises:
        ActionableError: as ``look`` does. That is noted too.
    """
    try:
        seen = look(attestor, policy)
    except AttestationError as error:
        _note(attestor, attestor.known(), error.message)
        raise
    _note(attestor, seen.before, ", ".join(seen.lines))
    return seen


def _note(attestor: Attestor, record: Record | None, found: str) -> None:
    if record:
        attestor.keep(dataclasses.replace(record, asked=ask.now(), found=found))


def said(seen: Seen) -> str:
    """Return in one line how it stands."""
    if seen.before is None:
        return "nothing is recorded of its TPM"
    if seen.lines:
        return f"its TPM differs from what was recorded on {seen.before.time}: {', '.join(seen.lines)}"
    if not seen.before.accepted_by:
        return f"its TPM is as it was recorded on {seen.before.time}, and nobody has accepted it"
    return f"its TPM is as {seen.before.accepted_by} accepted it on {seen.before.time}"
