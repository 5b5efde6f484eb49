# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The class of every event of a GPU, and what a site says differently."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

UNKNOWN_TO = 255
"""Largest XID that the device plugin is told is harmless though nobody knows it; the catalogue ends below."""
DATA_FILE = Path(__file__).absolute().with_name("policy.yml")
CLASSES = ("A0", "A1", "A2", "A3", "A4", "A5")
SOURCES = ("xid", "sxid", "nvml", "dcgm")
LARGEST_XID, LARGEST_SXID = 1023, 99_999
"""NVIDIA's numbers have three and five digits so far."""


class PolicyError(ValueError):
    """An override is none: what is wrong, what to write, and in which field of it."""

    def __init__(self, message: str, remedy: str, field: str = "event") -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy
        self.field = field


class Event(t.NamedTuple):
    """What a GPU reports: where it comes from, and its number or name there, as text."""

    source: str
    code: str

    def __str__(self) -> str:
        return f"{self.source} {self.code}"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What is done about one event.

    Args:
        action: the class, A0 to A5.
        name: NVIDIA's, empty where there is none.
        nvidia: the catalogue's action, empty where it has none.
        asks: NVML's state that decides beside the class.
        again: class when it comes back after its repair; empty for the same.
        alone: what to do when nothing else came with it.
        why: why the class is not the one of the catalogue's action, or the site's reason.
        by_site: whether the site says so.
    """

    action: str
    name: str = ""
    nvidia: str = ""
    asks: str = ""
    again: str = ""
    alone: str = ""
    why: str = ""
    by_site: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Rules of all events.

    Args:
        catalogue: date of NVIDIA's catalogue that they follow.
        rules: of the events that are known one by one.
        plugin_ignores: XIDs that the device plugin ignores by itself.
    """

    catalogue: str
    rules: Mapping[Event, Rule]
    plugin_ignores: frozenset[int]

    def rule(self, event: Event) -> Rule:
        """Return what is done; what nobody knows is written down and shown, never acted on."""
        return self.rules.get(event) or Rule("A0", why="not known")

    def with_overrides(self, entries: Iterable[Mapping[str, t.Any]]) -> Policy:
        """Return the policy of a site.

        Args:
            entries: each has ``event``, ``class`` and ``reason``.

        Raises:
            PolicyError: one of them is none, or two are about the same event.
        """
        rules, seen = dict(self.rules), set()
        for entry in entries:
            event, rule = self.override(entry)
            if event in seen:
                raise PolicyError(f"{event} is there twice", "write one class for it")
            seen.add(event)
            rules[event] = rule
        return dataclasses.replace(self, rules=rules)

    def override(self, entry: Mapping[str, t.Any]) -> tuple[Event, Rule]:
        """Return the event that an entry is about, and its rule.

        Raises:
            PolicyError: the event, the class or the reason is none.
        """
        event = self.event(str(entry.get("event") or ""))
        action = str(entry.get("class") or "")
        if action not in CLASSES:
            raise PolicyError(f"{action!r} is no class", f"write one of {', '.join(CLASSES)}")
        reason = str(entry.get("reason") or "").strip()
        if not reason or not reason.isprintable():
            raise PolicyError(
                f"{event} has no reason", "write in one line why, with the ticket if there is one", "reason"
            )
        return event, dataclasses.replace(self.rule(event), action=action, why=reason, by_site=True)

    def event(self, text: str) -> Event:
        """Return an event as people write it, such as ``xid 79``.

        Raises:
            PolicyError: there is none like it.
        """
        source, _, code = text.strip().partition(" ")
        code = code.strip()
        if source not in SOURCES or not code:
            raise PolicyError(f"{text!r} is no event", "write for example xid 79, or nvml remap_pending")
        largest = {"xid": LARGEST_XID, "sxid": LARGEST_SXID}.get(source)
        if largest:
            if not (code.isascii() and code.isdigit() and 0 < int(code) <= largest):
                raise PolicyError(f"{code!r} is no number of {source.upper()}s", f"write 1 to {largest}")
            return Event(source, str(int(code)))
        if Event(source, code) not in self.rules:
            known = [each.code for each in self.rules if each.source == source]
            near = difflib.get_close_matches(code, known, n=1)
            raise PolicyError(
                f"{source} has no {code}", f"write {near[0]}" if near else f"write one of {', '.join(known)}"
            )
        return Event(source, code)

    def xids(self) -> dict[int, Rule]:
        """Return the rules of XIDs by their numbers."""
        found = {int(event.code): rule for event, rule in self.rules.items() if event.source == "xid"}
        return dict(sorted(found.items()))

    def classes(self) -> dict[str, str]:
        """Return the class of each event, by its text, for programs that act on it."""
        return {str(event): rule.action for event, rule in self.rules.items()}

    def classes_again(self) -> dict[str, str]:
        """Return the class of events when they come back after their repair, where it is another one."""
        return {str(event): rule.again for event, rule in self.rules.items() if rule.again}

    def health_checks(self, watched: bool = False) -> tuple[str, str]:
        """Return the device plugin's lists of XIDs that follow this policy.

        Args:
            watched: an agent asks the driver which recovery a GPU needs. Then a code that nobody knows takes
                none out of service, as the policy's A0 says; without one the plugin's caution stays.

        Returns:
            ``DP_DISABLE_HEALTHCHECKS``: what does not take a GPU out of service;
            ``DP_ENABLE_HEALTHCHECKS``: what does, although the plugin ignores it. Both with commas.
        """
        xids = self.xids()
        harmless = [code for code, rule in xids.items() if rule.action in ("A0", "A1")]
        if watched:
            harmless = sorted({*harmless, *(set(range(1, UNKNOWN_TO + 1)) - set(xids))})
        serious = [code for code in self.plugin_ignores if code in xids and code not in harmless]
        return ",".join(map(str, harmless)), ",".join(map(str, sorted(serious)))


@functools.lru_cache(maxsize=1)
def data() -> Mapping[str, t.Any]:
    """Return what policy.yml says."""
    return t.cast("Mapping[str, t.Any]", yaml.safe_load(DATA_FILE.read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=1)
def shipped() -> Policy:
    """Return the policy of this release."""
    content = data()
    rules: dict[Event, Rule] = {}
    for code, entry in content["xid"].items():
        values: dict[str, t.Any] = {name: str(value) for name, value in entry.items() if name != "class"}
        rules[Event("xid", str(code))] = Rule(entry["class"], **values)
    for source in SOURCES[1:]:
        for code, action in content[source].items():
            rules[Event(source, str(code))] = Rule(action)
    return Policy(str(content["catalogue"]), rules, frozenset(content["device_plugin"]["ignored"]))
