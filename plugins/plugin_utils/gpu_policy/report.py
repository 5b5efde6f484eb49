# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The policy beside NVIDIA's catalogue and what the device plugin does by itself."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Policy, Rule, data

HEADINGS = ("EVENT", "NAME", "NVIDIA", "CLASS", "DEVICE PLUGIN", "REMARK")
_DRAINS = ("A2", "A3", "A4")


def _remark(rule: Rule, plugin: str) -> str:
    words = []
    if rule.by_site:
        words.append(f"the site: {rule.why}")
    elif rule.why:
        words.append(rule.why)
    if plugin == "ignored" and rule.action in _DRAINS:
        words.append("the plugin goes on handing this GPU out")
    if plugin == "unhealthy" and rule.action in ("A0", "A1"):
        words.append("the plugin takes the GPU out of service for it")
    words += [f"NVML's {rule.asks} decides"] * bool(rule.asks) + [f"again: {rule.again}"] * bool(rule.again)
    return "; ".join([*words, *([f"alone: {rule.alone}"] if rule.alone else [])])


def rows(policy: Policy, differences: bool = False) -> list[dict[str, str]]:
    """Return a row for each event that is known one by one.

    Args:
        policy: of the site.
        differences: only those about which the site, the policy and the device plugin do not agree.
    """
    found = []
    for event, rule in policy.rules.items():
        plugin = ""
        if event.source == "xid":
            plugin = "ignored" if int(event.code) in policy.plugin_ignores else "unhealthy"
        agreed = not plugin or (plugin == "unhealthy") == (rule.action in _DRAINS)
        if differences and agreed and not rule.by_site:
            continue
        values = (str(event), rule.name, rule.nvidia, rule.action, plugin, _remark(rule, plugin))
        found.append(dict(zip(HEADINGS, values, strict=True)))
    return found


def report(policy: Policy, differences: bool = False) -> dict[str, t.Any]:
    """Return everything for a machine: catalogue's date, classes, rows, and the plugin's lists."""
    disabled, enabled = policy.health_checks()
    return {
        "catalogue": policy.catalogue,
        "classes": dict(data()["classes"]),
        "device_plugin": {
            "version": str(data()["device_plugin"]["version"]),
            "DP_DISABLE_HEALTHCHECKS": disabled,
            "DP_ENABLE_HEALTHCHECKS": enabled,
        },
        "events": rows(policy, differences),
    }


def page(found: t.Mapping[str, t.Any]) -> str:
    """Return the report as people read it.

    Args:
        found: what ``report`` returned.
    """
    table = [dict(zip(HEADINGS, HEADINGS, strict=True)), *found["events"]]
    widths = {name: max(len(row[name]) for row in table) for name in HEADINGS[:-1]}
    lines = [
        "  ".join([*(row[name].ljust(width) for name, width in widths.items()), row[HEADINGS[-1]]]).rstrip()
        for row in table
    ]
    classes = [f"{name}  {meaning}" for name, meaning in found["classes"].items()]
    plugin = found["device_plugin"]
    variables = [f"{name}={value}" for name, value in plugin.items() if name != "version"]
    after = f"To have the device plugin ({plugin['version']}) do the same:"
    return "\n".join(
        [*lines, "", f"NVIDIA's catalogue of {found['catalogue']}", *classes, "", after, *variables, ""]
    )
