# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report of one run as a page: how it ended, what to do next, and everything that happened."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ironspan.pages import look, parts
from ironspan.pages.evidence import evidence
from ironspan.pages.hosts import Standing, by_rack, standings_of
from ironspan.pages.markup import Content, element
from ironspan.pages.parts import Tone
from ironspan.pages.words import count, moment, took

Run = Mapping[str, t.Any]
"""A run as ``ironspan.cli.run_record`` writes it."""

VERDICTS: Mapping[str, tuple[Tone, str]] = {
    "running": ("new", "running"),
    "done": ("ok", "done"),
    "failed": ("bad", "failed"),
    "refused": ("bad", "refused, nothing was touched"),
    "unfinished": ("bad", "cut off"),
    "hosts": ("warn", "done, but not on all hosts"),
    "interrupted": ("warn", "interrupted"),
}
"""How a run ended, in words."""
TAKEN_BACK = "Everything that this step had changed on the host was taken back."
SLOWEST = 10
IDLE_S = 0.5
FAILURES, LONGEST, LINES = 60, 4000, 20
"""Reasons that are shown, characters of each, lines of what to do about it."""


def page(run: Run) -> str:
    """Return the page.

    Args:
        run: as its JSON has it.
    """
    tone, words = VERDICTS.get(run["state"], ("idle", run["state"]))
    if run["check"] and run["state"] == "done":
        words = "compared, nothing was changed"
    site = f" on {run['site']}" if run["site"] else ""
    standings = standings_of(run)
    return look.page(
        "run report",
        f"{run['playbook']}.yml{site}",
        parts.badge(tone, words),
        [
            element("p", f"{moment(run['started'])}, {took(run['seconds'])}", class_="soft"),
            element("p", element("code", run["again"]), class_="soft"),
        ],
        [
            _next(run),
            _facts(run, standings),
            parts.section("Time line", timeline([counted(phase) for phase in run["phases"]], run["seconds"])),
            by_rack(run["places"], standings),
            _changes(run),
            evidence(run["verify"], "Evidence of verify"),
            _timings(run, standings),
        ],
        [
            element("p", "Log: ", element("code", run["log"])) if run["log"] else "",
            element("p", "The same as data: ", element("code", run["json"])),
            element("p", f"Made by ironspan {run['version']}. Times are UTC."),
        ],
    )


def _facts(run: Run, standings: Mapping[str, Standing]) -> Content:
    well = sum(each.tone in ("ok", "new") for each in standings.values())
    failed = sum(each.tone in ("bad", "warn") for each in standings.values())
    changed = "would change" if run["check"] else "changes"
    return parts.facts(
        [
            ("hosts finished", f"{well:,} of {len(standings):,}"),
            ("hosts with a problem", f"{failed:,}"),
            (changed, f"{run['changes_made']:,}"),
            ("time", took(run["seconds"])),
        ]
    )


def _next(run: Run) -> Content:
    return parts.section("What to do next", *_steps(run))


def _steps(run: Run) -> Iterator[Content]:
    if run["state"] == "running":
        yield element(
            "div",
            element("p", "The run goes on. This page is written again when it ends."),
            class_="card next",
        )
        return
    if run["state"] in ("unfinished", "interrupted"):
        yield _step(
            "The whole run",
            ["It did not come to its end. Any host may be between two states; what it had begun, "
             "it finishes or takes back in the next run."],
            [run["again"], "ironspan doctor"],
        )  # fmt: skip
    alike: dict[tuple[str, ...], list[str]] = {}
    for failure in run["failures"]:
        back = TAKEN_BACK if failure["rolled_back"] else ""
        key = tuple(failure[name] for name in ("why", "phase", "resource", "reason", "remedy"))
        alike.setdefault((*key, back), []).append(failure["host"])
    for (why, phase, resource, reason, remedy, back), hosts in list(alike.items())[:FAILURES]:
        where = f"{why} in phase {phase}{f', resource {resource}' if resource else ''}"
        named = ["the controller" if host == "localhost" else host for host in hosts]
        yield _step(f"{parts.names(named, 8)}: {where}", [reason, back], remedy.splitlines())
    if len(alike) > FAILURES:
        yield parts.note("warn", f"{count(len(alike) - FAILURES, 'more reason')}: the JSON below has all.")
    for line in run["notes"][:FAILURES]:
        yield element("div", element("p", parts.cut(line, LONGEST)), class_="card next")
    if run["state"] == "done":
        words = (
            ["This was a comparison. Run the same without --check to change it."]
            if run["check"] and run["changes_made"]
            else ["Nothing. Whether the cluster works is proven by: ironspan verify"]
            if run["playbook"] == "site" and not run["check"]
            else ["Nothing."]
        )
        yield element("div", *(element("p", each) for each in words), class_="card next")


def _step(title: str, reasons: Sequence[str], remedies: Sequence[str]) -> Content:
    return element(
        "div",
        element("p", title, class_="hosts"),
        [
            element("pre", parts.lines_of(parts.cut(reason, LONGEST)), tabindex="0")
            for reason in reasons
            if reason
        ],
        [element("p", parts.cut(line, LONGEST), class_="do") for line in remedies[:LINES] if line],
        class_="card next wrong",
    )


def timeline(phases: Sequence[Mapping[str, t.Any]], seconds: float) -> Content:
    """Return phases as bars on one scale.

    Args:
        phases: as ``counted`` returns them.
        seconds: of the whole run.
    """
    if not phases:
        return element("p", "No phase began.", class_="soft card")
    whole = max(seconds, 0.001)
    rows = []
    # The last one may have just begun.
    worked = [phase for phase in phases[:-1] if not is_idle(phase)] + list(phases[-1:])
    idle = len(phases) - len(worked)
    for phase in worked:
        begin = min(max(phase["began"] / whole, 0), 1) * 1000
        width = min(max(phase["seconds"] / whole * 1000, 4), 1000)
        bar = element(
            "svg",
            element("rect", class_="track", x=0, y=4, width=1000, height=4),
            element("rect", class_=f"bar-{tone_of(phase)}", x=f"{min(begin, 1000 - width):.0f}", y=0,
                    width=f"{width:.0f}", height=12),
            viewBox="0 0 1000 12", preserveAspectRatio="none", aria_hidden="true",
        )  # fmt: skip
        said = [count(phase["hosts"], "host")] if phase["hosts"] else []
        said += [count(phase["changes"], "change")] if phase["changes"] else []
        said += [f"{phase['failed']:,} failed"] if phase["failed"] else []
        rows.append(
            element(
                "li",
                element("span", phase["name"]),
                bar,
                element("span", took(phase["seconds"]), class_="time"),
                element("span", ", ".join(said), class_="said") if said else None,
            )
        )
    if idle:
        words = f"and {count(idle, 'phase')} in which there was nothing to do"
        rows.append(element("li", element("span", words, class_="said")))
    return element("ol", *rows, class_="phases card")


def is_idle(phase: Mapping[str, t.Any]) -> bool:
    """Tell whether a phase had nothing to do: no host had a part in it, and it took no time."""
    return not phase["hosts"] and not phase["changes"] and not phase["failed"] and phase["seconds"] < IDLE_S


def counted(phase: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a phase with the numbers of its hosts and changes; the controller is no host."""
    hosts = phase["hosts"]
    return {
        **phase,
        "hosts": len(hosts.keys() - {"localhost"}),
        "changes": sum(each["changes"] for each in hosts.values()),
    }


def tone_of(phase: Mapping[str, t.Any]) -> Tone:
    """Return the colour of a phase."""
    if phase["failed"]:
        return "bad"
    return "new" if phase["changes"] else "ok"


def _changes(run: Run) -> Content:
    title = "What would change" if run["check"] else "What changed"
    if not run["changes"]:
        empty = "Nothing would change." if run["check"] else "Nothing was changed."
        return parts.section(title, element("p", empty, class_="soft card"))
    layers: dict[str, list[Mapping[str, t.Any]]] = {}
    for change in run["changes"]:
        layers.setdefault(change["resource"].partition("/")[0], []).append(change)
    groups = [
        parts.folded(
            [layer, parts.tag(count(len(changes), "change"), "new")],
            [_change(change) for change in changes],
            opened=len(run["changes"]) <= SLOWEST,
        )
        for layer, changes in layers.items()
    ]
    left = run["changes_left_out"]
    return parts.section(
        title,
        parts.note("warn", f"{count(left, 'difference')} left out here to keep this page small.")
        if left
        else None,
        groups,
        about="Each change once, with all hosts that it was the same on.",
    )


def _change(change: Mapping[str, t.Any]) -> Content:
    hosts = change["hosts"]
    head = [
        element("code", change["resource"]),
        parts.tag(change["action"], "new"),
        parts.tag(count(len(hosts), "host")),
        element(
            "span", f"{change['kind']}{f', {change["reason"]}' if change['reason'] else ''}", class_="reason"
        ),
    ]
    shown = parts.difference(change["lines"]) if change["lines"] else None
    return parts.folded(head, shown, parts.named("on", hosts), class_="item")


def _timings(run: Run, standings: Mapping[str, Standing]) -> Content:
    phases = [
        [phase["name"], f"{phase['hosts']:,}", f"{phase['changes']:,}", took(phase["seconds"])]
        for phase in map(counted, run["phases"])
        if not is_idle(phase)
    ]  # fmt: skip
    slow = sorted(standings.items(), key=lambda item: -item[1].seconds)[:SLOWEST]
    flush = frozenset({1, 2, 3})
    inside: list[Content] = []
    if phases:
        inside.append(parts.table("Phases", ["phase", "hosts", "changes", "time"], phases, flush))
    if slow and slow[0][1].seconds:
        rows = [[name, took(each.seconds)] for name, each in slow if each.seconds]
        inside.append(parts.table("Hosts that took longest, over all phases", ["host", "time"], rows, flush))
    if not inside:
        return None
    return parts.section(
        "Timings", parts.folded("Phases and hosts", element("div", *inside, class_="inside"))
    )
