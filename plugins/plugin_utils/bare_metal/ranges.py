# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ranges in a value: ``rack-[1-40]``, ``gpu-[01-18]``, ``[1-35/2]``, ``r[1,3,5-9]``."""

from __future__ import annotations

import itertools
import re

MOST = 1000
"""Values that one range, or the ranges of one value together, may stand for."""
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_PART = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6})(?:/([0-9]{1,6}))?)?")


class RangeError(Exception):
    """A range that cannot be read: what is wrong, and what to write."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def expanded(text: str) -> list[str]:
    """Return what a value with ranges stands for, in order; the last range counts fastest.

    Numbers keep leading zeros: ``[01-10]`` is 01, 02, ... 10.

    Args:
        text: the value; without a range it stands for itself.

    Raises:
        RangeError: brackets that hold no range, a range that goes backwards, or too many values.
    """
    if "[" not in text:
        return [text]
    pieces = _RANGE.split(text)
    if any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise RangeError("a bracket has no partner", "write a range as [1-40]")
    ranges = [_numbers(piece) for piece in pieces[1::2]]
    total = 1
    for numbers in ranges:
        total *= len(numbers)
    if total > MOST:
        raise RangeError(f"stands for {total} values", f"write at most {MOST} in one line")
    fixed = pieces[::2]
    return [
        fixed[0] + "".join(number + piece for number, piece in zip(chosen, fixed[1:], strict=True))
        for chosen in itertools.product(*ranges)
    ]


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise RangeError(
                f"[{text}] is not a range", "write a range as [1-40], [01-18], [1-35/2] or [1,3,5-9]"
            )
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if int(last) < int(first) or step == 0:
            raise RangeError(
                f"[{text}] has no values", "write the smaller number first, and a step of 1 or more"
            )
        width = len(first) if first.startswith("0") else 0
        count = (int(last) - int(first)) // step + 1
        if len(found) + count > MOST:
            raise RangeError(
                f"[{text}] stands for more than {MOST} values", f"write at most {MOST} in one line"
            )
        found += [str(number).zfill(width) for number in range(int(first), int(last) + 1, step)]
    return found
