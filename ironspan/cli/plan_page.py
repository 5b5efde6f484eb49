# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan as one HTML page: nothing to load, nothing to run, good on paper and in the dark."""

from __future__ import annotations

import html
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import Approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import when

from ironspan.cli import plan_view

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #59636e; --line: #d5dbe1; --page: #f6f7f9;
  --card: #fff; --plus: #dafbe1; --plus-text: #116329; --minus: #ffebe9; --minus-text: #a40e26;
  --warn: #fff4d6; --warn-text: #6b4a00; --mark: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --soft: #9aa5b1; --line: #333c46;
  --page: #12161b; --card: #1a2027; --plus: #12301c; --plus-text: #7ee2a0; --minus: #3a1517;
  --minus-text: #ff9ca3; --warn: #35290c; --warn-text: #f3cf7a; --mark: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .75rem; }
p { margin: .25rem 0; }
.soft { color: var(--soft); }
code, pre { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 .5rem; padding: 0; }
.facts div, details.host { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.facts div { padding: .75rem 1rem; }
.facts dd { margin: 0; font-size: 1.5rem; font-weight: 600; }
.facts dt { color: var(--soft); font-size: .85rem; }
.warn { background: var(--warn); color: var(--warn-text); border-radius: 8px; margin: .5rem 0;
  padding: .6rem 1rem; }
details.host { margin: .6rem 0; }
summary { cursor: pointer; padding: .6rem 1rem; }
details.host > summary { font-weight: 600; }
ol.steps { background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: 0;
  padding: .5rem 1rem .5rem 3rem; }
ol.steps li { padding: .25rem 0; }
ol.steps li.stop { color: var(--minus-text); }
details.item { border-top: 1px solid var(--line); }
details.item > summary { padding-left: 2rem; }
details.item > pre { margin: 0 1rem .75rem 2rem; }
p.item { border-top: 1px solid var(--line); margin: 0; padding: .6rem 1rem .6rem 3.1rem; }
.tag { border: 1px solid var(--line); border-radius: 1em; color: var(--mark); font-size: .8rem;
  font-weight: 400; margin-left: .5rem; padding: .05rem .6rem; white-space: nowrap; }
.tag.stop { color: var(--warn-text); background: var(--warn); border-color: transparent; }
.reason { color: var(--soft); font-size: .9rem; margin-left: .5rem; }
pre { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; padding: 0; }
pre span { display: block; min-height: 1.45em; padding: 0 .75rem; white-space: pre-wrap; }
.plus { background: var(--plus); color: var(--plus-text); }
.minus { background: var(--minus); color: var(--minus-text); }
.place { color: var(--soft); }
@media print { body { background: #fff; font-size: 10pt; } main { max-width: none; padding: 0; }
  details.host, .facts div { break-inside: avoid-page; } summary { list-style: none; }
  details::details-content { content-visibility: visible; height: auto; }
  .plus, .minus, .warn { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
CLASSES = {"+": "plus", "-": "minus", "@": "place", "!": "minus", " ": ""}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
OPEN_HOSTS = 12
"""With more hosts that change than this, they start closed: the summary is what is read first."""


def page(plan: t.Any, approved: Approvals | None = None) -> str:
    """Return a plan as a page.

    Args:
        plan: the plan.
        approved: who approved, None when nobody asked.
    """
    content = plan.content
    name = _text(content["site"]["name"])
    changing = {host: list(plan_view.items_of(entry)) for host, entry in plan.hosts.items()}
    unchanged = [host for host, items in changing.items() if not items]
    opened = len(changing) - len(unchanged) <= OPEN_HOSTS
    parts = [
        f"<h1>Plan for {name}</h1>",
        f'<p class="soft"><code>{_text(content["operation"])}.yml</code>, made {when(content["created"])}, '
        f"expires {when(content['expires'])}, "
        f"site identity <code>{_text(content['site']['uid'])}</code></p>",
        f'<p class="soft">SHA-256 <code>{_text(plan.digest)}</code></p>',
        _approval(approved),
        '<dl class="facts">',
        *(
            f"<div><dd>{_text(value)}</dd><dt>{_text(what)}</dt></div>"
            for what, value in plan_view.facts(content)
        ),
        "</dl>",
        f'<p class="soft">Time: {_text(content["summary"]["seconds_source"])}.</p>',
        *(f'<p class="warn">{_text(warning)}</p>' for warning in content["warnings"]),
        *_steps(content["steps"]),
        "<h2>Hosts</h2>",
        *(_host(host, plan.hosts[host], items, opened) for host, items in changing.items() if items),
    ]
    if unchanged:
        parts.append(f'<p class="soft">Unchanged: {_text(", ".join(unchanged))}</p>')
    parts.append("<h2>Cluster</h2>")
    cluster = list(plan_view.cluster_items(content["cluster"]))
    parts += (
        [f'<details class="host" open><summary>Objects</summary>{_items(cluster)}</details>']
        if cluster
        else [f'<p class="soft">{_text(_nothing(content["cluster"]))}</p>']
    )
    if content["remote"]:
        remote = list(plan_view.remote_items(content["remote"]))
        parts += ["<h2>Remote things</h2>"] + (
            [f'<details class="host" open><summary>Things</summary>{_items(remote)}</details>']
            if remote
            else ['<p class="soft">Nothing changes.</p>']
        )
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Nothing is loaded and nothing runs, whatever a value may hold.
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>Plan for {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _nothing(cluster: t.Mapping[str, t.Any]) -> str:
    if cluster["state"] == "compared":
        return "Nothing changes."
    objects = sum(len(items) for items in cluster["objects"].values())
    return f"{objects} objects are applied. They were not compared: {cluster['state']}"


def _approval(approved: Approvals | None) -> str:
    if approved is None:
        return ""
    void = "".join(f'<p class="warn">Does not count: {_text(reason)}</p>' for reason in approved.void)
    return f"<p>Approved by {_text(', '.join(approved.names) or 'nobody')}</p>{void}"


def _steps(steps: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    if not steps:
        return []
    return ["<h2>Steps</h2>", '<ol class="steps">', *map(_step, steps), "</ol>"]


def _step(step: t.Mapping[str, t.Any]) -> str:
    details = "".join(f'<span class="tag">{_text(detail)}</span>' for detail in plan_view.details_of(step))
    style = ' class="stop"' if step["destructive"] else ""
    return f"<li{style}>{_text(step['what'])}{details}</li>"


def _host(name: str, host: t.Mapping[str, t.Any], items: list[plan_view.Item], opened: bool) -> str:
    tags = [f'<span class="tag">{len(items)} changes</span>']
    tags.append(f'<span class="tag">about {plan_view.duration(host["seconds"])}</span>')
    tags += [f'<span class="tag stop">restarts {_text(unit)}</span>' for unit in host["interrupts"]]
    return (
        f'<details class="host"{" open" if opened else ""}><summary>{_text(name)}{"".join(tags)}</summary>'
        f"{_items(items)}</details>"
    )


def _items(items: list[plan_view.Item]) -> str:
    return "".join(_item(item) for item in items)


def _item(item: plan_view.Item) -> str:
    head = (
        f'<code>{_text(item.name)}</code><span class="tag">{_text(item.action)}</span>'
        f'<span class="reason">{_text(item.kind)}{", " + _text(item.reason) if item.reason else ""}</span>'
    )
    if not item.lines:
        return f'<p class="item">{head}</p>'
    lines = "".join(
        f'<span class="{CLASSES.get(line.sign, "")}">{_text(line.sign)} {_text(line.text)}</span>'
        for line in item.lines
    )
    return f'<details class="item"><summary>{head}</summary><pre>{lines}</pre></details>'
