# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the EFI partition says of the two slots, and how that changes."""

from __future__ import annotations

import dataclasses
import typing as t

SLOTS = ("a", "b")
BLOCK = "ironspan/slots.env"
"""On the EFI partition: a block of GRUB's environment, which GRUB writes in place and so never grows."""
SIZE, HEAD = 1024, "# GRUB Environment Block\n"
TRIES = 3
REASON = 300
"""Characters of a reason that are kept: two of them have to fit into the block."""


@dataclasses.dataclass(frozen=True)
class State:
    """What the EFI partition says.

    Args:
        good: the slot that passed last; "" where none did.
        trial: the slot on trial; "" for none.
        left: tries that it has left, after the one that runs.
        bad: why a slot failed; "" where it did not, or nobody tried.
    """

    good: str = ""
    trial: str = ""
    left: int = 0
    bad: t.Mapping[str, str] = dataclasses.field(default_factory=lambda: dict.fromkeys(SLOTS, ""))


FIRST = State(trial=SLOTS[0], left=TRIES)
"""A new disk."""


class SlotError(Exception):
    """Something that an operator has to know; the message is for them."""


def rendered(state: State) -> str:
    """Return the block of GRUB's environment, exactly 1024 characters."""
    values = {"good": state.good, "trial": state.trial, "left": str(state.left)}
    values.update({f"bad_{slot}": plain(state.bad.get(slot, "")) for slot in SLOTS})
    text = HEAD + "".join(f"{name}={value}\n" for name, value in values.items())
    return text + "#" * (SIZE - len(text))


def read(block: bytes) -> State:
    """Return what a block says; a value that cannot be counts as missing.

    Raises:
        SlotError: it is no block of GRUB's environment.
    """
    text = block.decode("ascii", "replace")
    if len(block) != SIZE or not text.startswith(HEAD):
        raise SlotError(
            f"{BLOCK} of the EFI partition is no block of GRUB's environment; deploy the server again"
        )
    pairs = (line.partition("=") for line in text[len(HEAD) :].splitlines() if not line.startswith("#"))
    values = {name: value for name, equals, value in pairs if equals}
    good, trial = (values.get(name, "") for name in ("good", "trial"))
    left = values.get("left", "")
    return State(
        good if good in SLOTS else "",
        trial if trial in SLOTS else "",
        int(left) if left in ("1", "2", "3") else 0,
        {slot: plain(values.get(f"bad_{slot}", "")) for slot in SLOTS},
    )


def plain(text: str) -> str:
    """Return a reason as the block can hold it: one line, without what GRUB would read as more."""
    kept = "".join(char if " " <= char <= "~" and char not in "\\$\"'" else " " for char in text)
    return " ".join(kept.split())[:REASON].strip()


def other(slot: str) -> str:
    """Return the other slot."""
    return SLOTS[1 - SLOTS.index(slot)]


def passed(state: State, slot: str) -> State:
    """Return what holds when a slot passed its checks: it is good, and what failed of it is forgotten."""
    trial = "" if state.trial == slot else state.trial
    return State(slot, trial, state.left if trial else 0, {**state.bad, slot: ""})


def failed(state: State, slot: str, problems: t.Mapping[str, str]) -> State:
    """Return what holds when a slot did not pass in time: why is kept, the boot loader counts."""
    reason = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    return dataclasses.replace(state, bad={**state.bad, slot: plain(reason)})


def tried(state: State, slot: str, running: str, tries: int) -> State:
    """Return what holds when a slot shall be tried at the next start.

    Raises:
        SlotError: the way back would lead to a slot that is not known to be good.
    """
    if slot != running and state.good != running:
        raise SlotError(f"slot {running}, which runs, is not known to be good: there would be no way back")
    if slot == running:
        raise SlotError(f"slot {slot} runs; try slot {other(slot)}")
    return State(state.good, slot, tries, {**state.bad, slot: ""})


def told(state: State, slot: str) -> str:
    """Return how it stands, in a sentence."""
    if state.trial == slot:
        text = f"slot {slot} is on trial, tries left after this one: {state.left}"
    elif state.good == slot:
        text = f"slot {slot} is good"
    else:
        text = f"slot {slot} runs and is not known to be good"
    if state.trial and state.trial != slot:
        text += f"; slot {state.trial} is tried at the next start"
    for name in SLOTS:
        if state.bad.get(name):
            text += f"; slot {name} failed: {state.bad[name]}"
    return text
