# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site as a page: how it stands, what runs now, and what ran last."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ironspan.pages import look, parts, run_page
from ironspan.pages.evidence import evidence
from ironspan.pages.markup import Content, element
from ironspan.pages.parts import Tone
from ironspan.pages.topology import Side, Tile, Wan, picture
from ironspan.pages.view import Rack, View
from ironspan.pages.words import age, count, moment, took

SOON_DAYS = 30
"""An authority that ends sooner is worth knowing."""
OLD_BACKUP_HOURS = 24
"""A newest snapshot older than this is worth knowing."""
_DAY = 86_400


def page(view: View, *, links: bool = False) -> str:
    """Return the page.

    Args:
        view: what it shows.
        links: whether a server shows it, which has the reports of runs at ``#/run/NAME``.
    """
    return look.page(
        "site",
        view.name,
        parts.badge(*_verdict(view)),
        [
            element("p", "API at ", element("code", f"https://{view.endpoint}"), class_="soft"),
            element("p", f"Asked on {moment(view.now)}", class_="soft"),
        ],
        [
            element("div", running(view.running, view.holder, view.now), id="live"),
            _wrong(view),
            parts.section("Topology", picture(*_sides(view), wan_of(view))),
            _facts(view),
            _dates(view),
            evidence(view.report, "What was asked", opened=False),
            _runs(view, links),
            _elevation(view),
        ],
        element(
            "p", "No host was contacted: the API, the etcd members and this controller's own files were."
        ),
    )


def _verdict(view: View) -> tuple[Tone, str]:
    if view.report is None:
        return "bad", "does not answer"
    return ("ok", "well") if view.report["ok"] else ("bad", "not as the inventory says")


def running(runs: Sequence[Mapping[str, t.Any]], holder: str, now: float) -> Content:
    """Return what goes on: runs from this controller with their phases, others by the lock they hold.

    Args:
        runs: as ``View.running`` has them.
        holder: of the site's lock.
        now: Unix time.
    """
    if not runs:
        words = f"Another run changes this site: {holder}." if holder else ""
        return parts.section("Running now", parts.note("new", words)) if words else None
    return parts.section("Running now", *(_run(run, now) for run in runs))


def _run(run: Mapping[str, t.Any], now: float) -> Content:
    gone = run["state"] == "unfinished"
    seconds = run["seconds"] if gone else max(now - run["started"], 0)
    words = (
        f"cut off after {took(seconds)}: its process is gone. Run it again: {run['again']}"
        if gone
        else f"for {took(seconds)}"
    )
    title = element(
        "p", element("strong", f"{run['playbook']}.yml"), " ", parts.badge(*run_page.VERDICTS[run["state"]])
    )
    head = element("div", title, element("p", words, class_="soft"), class_="card")
    phases = list(run["phases"])
    if phases and not gone:
        # The last word of it may be older than this moment.
        phases[-1] = {**phases[-1], "seconds": max(seconds - phases[-1]["began"], 0)}
    return element("div", head, run_page.timeline(phases, seconds))


def _wrong(view: View) -> Content:
    if view.report is None:
        return parts.section("What is wrong", parts.note("bad", view.error or "Nobody could be asked."))
    problems = [
        f"{check['name']}: {problem}" for check in view.report["checks"] if check["ok"] is False
        for problem in check["problems"]
    ]  # fmt: skip
    shown = [parts.note("bad", each) for each in problems[:50]]
    shown += [
        parts.note("bad" if level == "problem" else "warn", what, f"→ {remedy}")
        for level, what, remedy in view.found
    ]
    if not shown:
        return None
    more = element("p", "→ ironspan doctor says what fixes it") if problems else None
    return parts.section("What is wrong", *shown, more)


def _sides(view: View) -> tuple[Side, Side]:
    sides = []
    for side, title in (("azure", "Azure"), ("on_prem", "On premises")):
        tiles = [
            Tile(each.name, _tone(each.well), (", ".join(each.roles), each.wrong))
            for each in view.servers if each.side == side
        ]  # fmt: skip
        tiles += [_rack(each) for each in view.racks if each.side == side]
        sides.append(Side(title, tiles))
    return sides[0], sides[1]


def _tone(well: bool | None) -> Tone:
    return "idle" if well is None else "ok" if well else "bad"


def _rack(rack: Rack) -> Tile:
    name = rack.name or "workers"
    gpus = count(rack.gpus, "GPU") if rack.gpus else ""
    if rack.ready is None:
        return Tile(name, "idle", (count(rack.nodes, "node"), ""))
    tone: Tone = "ok" if rack.ready == rack.nodes else "warn" if rack.ready else "bad"
    return Tile(name, tone, (f"{rack.ready} of {rack.nodes} Ready", gpus))


def wan_of(view: View) -> Wan:
    """Return the link by what is seen of it from here: the nodes behind it that report."""
    behind = [rack for rack in view.racks if rack.side == "on_prem"]
    nodes = sum(rack.nodes for rack in behind)
    if not nodes:
        return Wan("idle", ("no workers", "behind it"))
    if any(rack.ready is None for rack in behind):
        return Wan("idle", ("not known:", "no answer"))
    ready = sum(rack.ready or 0 for rack in behind)
    tone: Tone = "ok" if ready == nodes else "warn" if ready else "bad"
    return Wan(tone, (f"{ready:,} of {nodes:,} nodes", "behind it report"))


def _facts(view: View) -> Content:
    asked = view.report is not None
    known = asked and all(rack.ready is not None for rack in view.racks)
    nodes = sum(rack.nodes for rack in view.racks)
    ready = sum(rack.ready or 0 for rack in view.racks)
    members = [each for each in view.servers if "etcd" in each.roles]
    newest = [each["newest"] for each in view.backups if each["newest"]]
    first = min(view.authorities.values(), default=None)
    return parts.facts(
        [
            ("workers Ready", f"{ready:,} of {nodes:,}" if known else f"? of {nodes:,}"),
            (
                "etcd members well",
                f"{sum(each.well is True for each in members) if asked else '?'} of {len(members)}",
            ),
            ("GPUs on Ready nodes", f"{sum(rack.gpus for rack in view.racks):,}" if known else "?"),
            ("age of the newest backup", age(view.now - max(newest)) if newest else "not known"),
            ("first authority ends", f"in {age(first - view.now)}" if first else "not known"),
        ]
    )


def _dates(view: View) -> Content:
    return parts.section("Backups and certificates", _backups(view), _authorities(view))


def _backups(view: View) -> Content:
    if view.backups_asked is None:
        return element("p", "Nobody has asked for the backups from this controller yet: ironspan backup list",
                       class_="card soft")  # fmt: skip
    rows = []
    for each in view.backups:
        newest = each["newest"]
        old = newest is None or view.now - newest > OLD_BACKUP_HOURS * 3600
        said = f"{age(view.now - newest)} ago" if newest else "no snapshot"
        rows.append(
            [
                each["store"],
                element(
                    "span", said, parts.tag(f"older than {OLD_BACKUP_HOURS} hours", "warn") if old else None
                ),
            ]
        )
    caption = f"Newest snapshot, as ironspan backup list was told {age(view.now - view.backups_asked)} ago"
    return element("div", parts.table(caption, ["store", "newest snapshot"], rows), class_="card")


def _authorities(view: View) -> Content:
    if not view.authorities:
        return element("p", "There is no PKI store yet; the first run makes it.", class_="card soft")
    rows = []
    for name, ends in sorted(view.authorities.items()):
        left = ends - view.now
        said = age(left) if left > 0 else "ended"
        soon = parts.tag("ironspan plan ca_rotate", "warn") if left < SOON_DAYS * _DAY else None
        rows.append([name, moment(ends), element("span", said, soon)])
    table = parts.table("Certificate authorities; ironspan certs shows the certificates of hosts",
                        ["authority", "ends", "left"], rows)  # fmt: skip
    return element("div", table, class_="card")


def _runs(view: View, links: bool) -> Content:
    if not view.runs:
        return parts.section("Runs", element("p", "No run from this controller yet.", class_="soft card"))
    rows = [
        [
            f"{run['playbook']}.yml",
            moment(run["started"]),
            took(run["seconds"]),
            parts.tag(run_page.VERDICTS[run["state"]][1], run_page.VERDICTS[run["state"]][0]),
            _report(run, links),
        ]
        for run in view.runs
    ]
    table = parts.table(
        "Runs from this controller, newest first", ["what", "when", "time", "end", "report"], rows
    )
    return parts.section("Runs", element("div", table, class_="card"))


def _report(run: Mapping[str, t.Any], links: bool) -> Content:
    path = run["json"].removesuffix(".json")
    if not links:
        return element("code", f"{path}.html")
    whole = f"report of {run['playbook']}.yml, {moment(run['started'])}"
    return element("a", "report", href=f"#/run/{path.rpartition('/')[2]}", aria_label=whole)


def _elevation(view: View) -> Content:
    if view.elevation is None:
        return None
    drawing = element("div", Markup(view.elevation), class_="elevation card", tabindex="0", role="region",
                      aria_label="Racks")  # fmt: skip
    if not view.held:
        return parts.section(
            "Racks", drawing, element("p", "Every server is a host of the inventory.", class_="soft")
        )
    table = parts.table("Servers that are no hosts yet", ["server", "place", "Ironic", "why"], view.held)
    return parts.section("Racks", drawing, element("div", table, class_="card"))
