# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan as one HTML page, in the look that all pages share."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import Approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import when

from ironspan.cli import plan_view
from ironspan.pages import look, parts
from ironspan.pages.markup import Content, element
from ironspan.pages.words import count

OPEN_HOSTS = 12
"""With more hosts that change than this, they start closed: the summary is what is read first."""


def page(plan: t.Any, approved: Approvals | None = None) -> str:
    """Return a plan as a page.

    Args:
        plan: the plan.
        approved: who approved, None when nobody asked.
    """
    content = plan.content
    cluster = list(plan_view.cluster_items(content["cluster"]))
    remote = list(plan_view.remote_items(content["remote"]))
    return look.page(
        "plan",
        f"Plan for {content['site']['name']}",
        None,
        [
            element("p", element("code", f"{content['operation']}.yml"), class_="soft"),
            element(
                "p", f"Made {when(content['created'])}, expires {when(content['expires'])}", class_="soft"
            ),
            element("p", "Site identity ", element("code", content["site"]["uid"]), class_="soft"),
            element("p", "SHA-256 ", element("code", plan.digest), class_="soft"),
            _approval(approved),
        ],
        [
            parts.facts((what, value) for what, value in plan_view.facts(content)),
            element("p", f"Time: {content['summary']['seconds_source']}.", class_="soft small"),
            [parts.note("warn", warning) for warning in content["warnings"]],
            _steps(content["steps"]),
            _hosts(plan),
            _things("Cluster", "Objects", cluster, _nothing(content["cluster"])),
            _things("Remote things", "Things", remote, "Nothing changes.") if content["remote"] else None,
        ],
        element("p", "A plan holds no secrets. Applied is its file, byte for byte, and nothing else."),
    )


def _nothing(cluster: t.Mapping[str, t.Any]) -> str:
    if cluster["state"] == "compared":
        return "Nothing changes."
    objects = sum(len(items) for items in cluster["objects"].values())
    return f"{objects} objects are applied. They were not compared: {cluster['state']}"


def _approval(approved: Approvals | None) -> Content:
    if approved is None:
        return None
    names = element("p", f"Approved by {', '.join(approved.names) or 'nobody'}")
    return [names, *(parts.note("warn", f"Does not count: {reason}") for reason in approved.void)]


def _steps(steps: t.Sequence[t.Mapping[str, t.Any]]) -> Content:
    return parts.section("Steps", element("ol", *map(_step, steps), class_="steps")) if steps else None


def _step(step: t.Mapping[str, t.Any]) -> Content:
    details = [parts.tag(detail) for detail in plan_view.details_of(step)]
    return element("li", step["what"], details, class_="stop" if step["destructive"] else None)


def _hosts(plan: t.Any) -> Content:
    changing = {host: list(plan_view.items_of(entry)) for host, entry in plan.hosts.items()}
    unchanged = [host for host, items in changing.items() if not items]
    opened = len(changing) - len(unchanged) <= OPEN_HOSTS
    shown = [_host(host, plan.hosts[host], items, opened) for host, items in changing.items() if items]
    if not shown:
        shown = [element("p", "No host changes.", class_="soft card")]
    return parts.section("Hosts", *shown, parts.named("Unchanged", unchanged) if unchanged else None)


def _host(name: str, host: t.Mapping[str, t.Any], items: list[plan_view.Item], opened: bool) -> Content:
    head = [
        name,
        parts.tag(count(len(items), "change"), "new"),
        parts.tag(f"about {plan_view.duration(host['seconds'])}"),
        [parts.tag(f"restarts {unit}", "warn") for unit in host["interrupts"]],
    ]
    return parts.folded(head, map(_item, items), opened=opened)


def _things(title: str, summary: str, items: list[plan_view.Item], nothing: str) -> Content:
    if not items:
        return parts.section(title, element("p", nothing, class_="soft card"))
    return parts.section(title, parts.folded(summary, map(_item, items), opened=True))


def _item(item: plan_view.Item) -> Content:
    head = [
        element("code", item.name),
        parts.tag(item.action, "new"),
        element("span", f"{item.kind}{f', {item.reason}' if item.reason else ''}", class_="reason"),
    ]
    if not item.lines:
        return element("p", *head, class_="item")
    return parts.folded(head, parts.difference((line.sign, line.text) for line in item.lines), class_="item")
