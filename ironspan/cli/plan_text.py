# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan on a terminal."""

from __future__ import annotations

import io
import typing as t

import rich.console
import rich.text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import Approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import when

from ironspan.cli import plan_view

STYLES = {"+": "green", "-": "red", "@": "cyan", "!": "bold red", " ": ""}
_CONTROL = dict.fromkeys([*range(32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}") | {9: "    "}


def clean(text: str) -> str:
    """Return a text that cannot drive the terminal: what is on a host may hold anything."""
    return text.translate(_CONTROL)


def shown(plan: t.Any, approved: Approvals | None = None, colour: bool = False) -> str:
    """Return a plan as text.

    Args:
        plan: the plan.
        approved: who approved, None when nobody asked.
        colour: with the terminal's colours.
    """
    stream = io.StringIO()
    console = rich.console.Console(
        file=stream, highlight=False, force_terminal=colour, no_color=not colour, width=10_000, soft_wrap=True
    )

    def put(text: str, style: str = "") -> None:
        console.print(rich.text.Text(clean(text), style=style))

    content = plan.content
    put(f"Plan {plan.digest}", "bold")
    put(f"{content['operation']}.yml on site {content['site']['name']} ({content['site']['uid']})")
    put(f"made {when(content['created'])}, expires {when(content['expires'])}")
    if approved is not None:
        put(f"approved by {', '.join(approved.names) or 'nobody'}")
        for reason in approved.void:
            put(f"does not count: {reason}", "yellow")
    put("")
    for name, value in plan_view.facts(content):
        put(f"  {value:>10}  {name}")
    put(f"  (time: {content['summary']['seconds_source']})", "dim")
    for warning in content["warnings"]:
        put(f"! {warning}", "yellow")
    for number, step in enumerate(content["steps"], 1):
        put(f"{number:>3}. {step['what']}", "bold red" if step["destructive"] else "bold")
        for detail in plan_view.details_of(step):
            put(f"     {detail}")
    unchanged = []
    for name, host in plan.hosts.items():
        items = list(plan_view.items_of(host))
        if not items:
            unchanged.append(name)
            continue
        put("")
        put(f"{name}: {len(items)} changes, about {plan_view.duration(host['seconds'])}", "bold")
        if host["interrupts"]:
            put(f"  restarts {', '.join(host['interrupts'])}", "yellow")
        _items(put, items)
    cluster = list(plan_view.cluster_items(content["cluster"]))
    if cluster:
        put("")
        put("the cluster", "bold")
        _items(put, cluster)
    remote = list(plan_view.remote_items(content["remote"]))
    if remote:
        put("")
        put("remote things", "bold")
        _items(put, remote)
    if unchanged:
        put("")
        put(f"unchanged: {', '.join(unchanged)}")
    return stream.getvalue()


def _items(put: t.Callable[[str, str], None], items: list[plan_view.Item]) -> None:
    for item in items:
        reason = f" ({item.reason})" if item.reason else ""
        put(f"  {item.action:<8}{item.name}{reason}", "")
        for line in item.lines:
            put(f"          {line.sign} {line.text}", STYLES.get(line.sign, ""))
