# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Arguments that several operations have, with the same meaning in each."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument

HOSTS = Argument(
    name="ironspan_hosts",
    what="the hosts it is about, as the inventory names them",
    type="hosts",
    option="HOST",
)
ALLOW_DESTRUCTIVE = Argument(
    name="ironspan_allow_destructive",
    what="consent to what cannot be undone",
    type="bool",
    default=False,
    of_run=True,
)
CONSENT = f"run it again with -e {ALLOW_DESTRUCTIVE.name}=true (ironspan: --{ALLOW_DESTRUCTIVE.word})"
"""How consent is given, for the end of a remedy."""
PLAN = Argument(name="ironspan_plan", what="the plan to apply, and nothing else", type="file", of_run=True)
SLICE = Argument(
    name="ironspan_slice",
    what="whether this job sees a slice of the inventory, where the controller does not say so",
    type="bool",
    of_run=True,
)
TRY = Argument(
    name="ironspan_try",
    what="how long changes stay without being confirmed, such as 5m; then hosts take them back",
    type="time",
    # As converge/back.py has them; a test compares.
    least=30,
    most=86_400,
)
FORCE_DRAIN = Argument(
    name="ironspan_force_drain",
    what="evict pods without a controller too: nothing starts them again; a plan with it works once",
    type="bool",
    default=False,
)
REPORT = Argument(
    name="ironspan_report",
    what="file on the controller for the whole answer as JSON",
    type="file",
    of_run=True,
)
EVERYTHING = Argument(
    name="ironspan_everything",
    what="also what is usual, and lines that are alike",
    type="bool",
    default=False,
    option="all",
)
EXPECTED = Argument(
    name="ironspan_expected",
    what="file of the servers that are expected, with the addresses of their BMCs",
    type="file",
    required=True,
)
SERVERS = Argument(
    name="ironspan_servers",
    what="servers, as the file calls them (all)",
    type="list",
    default=(),
    option="SERVER",
    all_when_empty=True,
)
EMPTIED = ("drain", "delete-pods")
"""Steps that empty a node."""
LEAVING = (*EMPTIED, "reset", "delete-node")
"""Steps by which a node leaves the cluster."""
EVERYWHERE = (SLICE,)
"""What every run may be told."""


def named(what: str, *, required: bool = False) -> Argument:
    """Return the argument that names hosts, with what it means in one operation."""
    return dataclasses.replace(HOSTS, what=what, required=required)


def changed(argument: Argument, **differences: t.Any) -> Argument:
    """Return an argument with a default or help of one operation's own; its name and type stay."""
    return dataclasses.replace(argument, **differences)
