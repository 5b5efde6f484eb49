# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which instances a GPU can be divided into, and where each of them goes (Multi-Instance GPU, MIG)."""

from __future__ import annotations

import collections
import functools
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

DATA_FILE = Path(__file__).absolute().with_name("mig.yml")
COMPUTE, MEMORY = 7, 8
"""Slices of every GPU that is known."""
OTHERS = "others"
"""In a host's layout: all GPUs that it does not name. The program on hosts calls them so."""

Layout = dict[str, list[str]]
"""Index of a GPU, or OTHERS -> its instances as PROFILE:START."""


class _Profile(t.NamedTuple):
    """One kind of instances on one card."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]
    most: int


@functools.lru_cache(maxsize=1)
def _cards() -> Mapping[str, Mapping[str, Mapping[str, _Profile]]]:
    data = yaml.safe_load(DATA_FILE.read_text(encoding="utf-8"))
    kinds = list(data["kinds"].values())
    return {
        model: {
            card: {
                name: _Profile(name, kind["compute"], kind["memory"], tuple(kind["starts"]), kind["most"])
                for name, kind in zip(names, kinds, strict=True)
            }
            for card, names in cards.items()
        }
        for model, cards in data["models"].items()
    }


def models() -> tuple[str, ...]:
    """Return the GPUs that can be divided, as far as they are known."""
    return tuple(_cards())


def largest_gb(model: str) -> int:
    """Return how many GB the largest card of a GPU has; 0 where that is not known."""
    return max((int(card.split()[0]) for card in _cards().get(model, ())), default=0)


def fitting(instances: Sequence[str]) -> tuple[str, ...]:
    """Return the GPUs that can be divided so.

    Args:
        instances: as for ``placed``.
    """

    def fits(model: str) -> bool:
        try:
            placed(model, instances)
        except Rejected:
            return False
        return True

    return tuple(filter(fits, models()))


def placed(model: str, instances: Sequence[str]) -> list[str]:
    """Return where instances go on one GPU.

    Args:
        model: the GPU, such as ``H100``.
        instances: names of their profiles, such as ``3g.40gb``, in any order.

    Returns:
        ``PROFILE:START`` of each, in the order of their places.

    Raises:
        Rejected: the model is not known, has no such profile, or they do not fit beside each other. The
            remedy says what is possible.
    """
    if model not in _cards():
        raise Rejected(f"how {model} can be divided is not known", f"known are {', '.join(_cards())}")
    problems = []
    for card, profiles in _cards()[model].items():
        unknown = sorted({name for name in instances if name not in profiles})
        if unknown:
            problems.append(f"{model} with {card} has no {', '.join(unknown)}")
            continue
        found = _fit([profiles[name] for name in instances])
        if found is not None:
            return [f"{profile.name}:{start}" for start, profile in sorted(found.items())]
        counted = collections.Counter(instances)
        listed = ", ".join(f"{number} of {name}" for name, number in counted.items())
        problems.insert(0, f"{listed} do not fit on one {model} with {card}")
    raise Rejected(problems[0] if "fit" in problems[0] else "; ".join(problems), possible(model))


def possible(model: str) -> str:
    """Return what a GPU can be divided into, for people: how many of each profile there may be."""
    cards = [
        f"{card}: {', '.join(f'{profile.name} ({profile.most})' for profile in profiles.values())}"
        for card, profiles in _cards()[model].items()
    ]
    return (
        f"one {model} takes so many of a kind, or several kinds with at most {COMPUTE} slices for computing "
        f"and {MEMORY} of memory together; {'; '.join(cards)}"
    )


def _fit(wanted: Sequence[_Profile]) -> dict[int, _Profile] | None:
    """Return starts of the instances, the largest first; None where there is no way to place all."""
    counted = collections.Counter(profile.name for profile in wanted)
    if any(counted[profile.name] > profile.most for profile in wanted):
        return None
    if sum(profile.compute for profile in wanted) > COMPUTE:
        return None
    order = sorted(wanted, key=lambda profile: (-profile.memory, -profile.compute, profile.name))
    return _place(order, {}, frozenset())


def _place(
    left: Sequence[_Profile], at: dict[int, _Profile], taken: frozenset[int]
) -> dict[int, _Profile] | None:
    if not left:
        return at
    profile, *others = left
    # From the end: the first places are those that most kinds can have.
    for start in reversed(profile.starts):
        slices = frozenset(range(start, start + profile.memory))
        if not slices & taken:
            found = _place(others, {**at, start: profile}, taken | slices)
            if found is not None:
                return found
    return None


def layout(model: str, entries: Sequence[Mapping[str, t.Any]]) -> Layout:
    """Return a host's layout from the entries that have its name.

    Args:
        model: the host's GPUs.
        entries: each with ``instances``, and ``gpus``, the indexes that it is about; without them all others.

    Raises:
        Rejected: as ``placed``, or two entries are about the same GPU.
    """
    found: Layout = {}
    for entry in entries:
        where = placed(model, entry["instances"])
        for index in [str(number) for number in entry.get("gpus") or ()] or [OTHERS]:
            if index in found:
                of = "all other GPUs" if index == OTHERS else f"GPU {index}"
                raise Rejected(f"{of} is divided twice", "write one entry for it")
            found[index] = where
    return found


def strategy(found: Layout) -> str:
    """Return how the device plugin is to offer them: ``single``, ``mixed``, or ``none`` for whole GPUs.

    With ``single`` instances are offered as ``nvidia.com/gpu``, for which all GPUs must be divided, and
    into the same profile.
    """
    if not any(found.values()):
        return "none"
    profiles = {instance.rpartition(":")[0] for instances in found.values() for instance in instances}
    whole = OTHERS not in found or not all(found.values())
    return "mixed" if whole or len(profiles) > 1 else "single"
