# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The tests that a GPU can be asked to pass, and what each model is known to reach."""

from __future__ import annotations

import functools
import math
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import PolicyError

DATA_FILE = Path(__file__).absolute().with_name("preflight.yml")


@dataclass(frozen=True, slots=True)
class Test:
    """One test.

    Args:
        name: A01 and so on.
        title: what it looks at.
        seconds: how long it measures; ``quick`` where it has to be short, 0 leaves it out.
        deadline: seconds after which it is killed.
        together: whether it runs on all GPUs at once.
        others: whether it needs more than one GPU.
        once: whether it is about all GPUs of the host at once.
    """

    name: str
    title: str
    seconds: float
    quick: float
    deadline: float
    together: bool
    others: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class PairTest:
    """One test of two nodes together.

    Args:
        name: A09 or A10.
        title: what it looks at.
        seconds: how long it measures each way; 0 where it takes as long as it takes.
        deadline: seconds after which it has failed.
    """

    name: str
    title: str
    seconds: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Reference:
    """What GPUs of a model are known to reach.

    Args:
        model: a word of NVML's name of them.
        test: the test's name.
        value: the figure, in ``unit``.
        unit: of it.
        way: how it was measured; empty for every way (a site's figure).
        source: who says so, or the site's reason.
        date: when.
    """

    model: str
    test: str
    value: float
    unit: str = ""
    way: str = ""
    source: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class References:
    """All figures; those of the site come first.

    Args:
        percent: of a figure that has to be reached.
        entries: the figures.
    """

    percent: float
    entries: tuple[Reference, ...]

    def wanted(self, model: str, test: str, way: str) -> tuple[float, Reference] | None:
        """Return what a GPU has to reach, and the reference; None where nothing is known to compare.

        Args:
            model: NVML's name of the GPU, such as ``NVIDIA H200``.
            test: the test's name.
            way: how it was measured.
        """
        words = model.replace("-", " ").lower().split()
        for entry in self.entries:
            fits = entry.model.lower() in (*words, model.lower())
            if fits and entry.test == test and entry.way in ("", way):
                return (entry.value * self.percent / 100, entry) if entry.value else None
        return None

    def with_overrides(self, entries: Iterable[Mapping[str, t.Any]]) -> References:
        """Return the references of a site.

        Args:
            entries: each has ``model``, ``test``, ``value`` and ``reason``.

        Raises:
            PolicyError: one of them is none, or two are about the same.
        """
        own = [override(entry) for entry in entries]
        about = [(entry.model.lower(), entry.test) for entry in own]
        for each in about:
            if about.count(each) > 1:
                message = f"{each[1]} of {each[0]} is there twice"
                raise PolicyError(message, "write one figure for it", "model")
        return References(self.percent, (*own, *self.entries))


def override(entry: Mapping[str, t.Any]) -> Reference:
    """Return a figure of a site.

    Raises:
        PolicyError: its model, test, value or reason is none.
    """
    model, test, value = str(entry.get("model") or "").strip(), str(entry.get("test")), entry.get("value")
    if not model or not model.isprintable():
        raise PolicyError("it has no model", "write a word of the GPU's name, such as H200", "model")
    known = (*tests(), *pair_tests())
    if test not in known:
        raise PolicyError(f"{test!r} is no test", f"write one of {', '.join(known)}", "test")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise PolicyError(f"{test} of {model}: {value!r} is no figure", "write a number, 0 for none", "value")
    reason = str(entry.get("reason") or "").strip()
    if not reason or not reason.isprintable():
        raise PolicyError(f"{test} of {model} has no reason", "write in one line why", "reason")
    return Reference(model, test, float(value), source=reason)


@functools.lru_cache(maxsize=1)
def _data() -> Mapping[str, t.Any]:
    return t.cast("Mapping[str, t.Any]", yaml.safe_load(DATA_FILE.read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=1)
def tests() -> Mapping[str, Test]:
    """Return all tests by their names."""
    return {name: Test(name=name, **entry) for name, entry in _data()["tests"].items()}


@functools.lru_cache(maxsize=1)
def pair_tests() -> Mapping[str, PairTest]:
    """Return all tests of two nodes by their names, in their order."""
    return {name: PairTest(name=name, **entry) for name, entry in _data()["pairs"].items()}


@functools.lru_cache(maxsize=1)
def shipped() -> References:
    """Return the figures of this release."""
    entries = (Reference(**{**entry, "date": str(entry["date"])}) for entry in _data()["references"])
    return References(float(_data()["percent"]), tuple(entries))
