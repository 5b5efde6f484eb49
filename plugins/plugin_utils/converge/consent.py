# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may have a host reset: who named the site, or the host in an operation that was consented to."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import ALLOW_DESTRUCTIVE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.planned import plan_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of


def insist_on_consent(
    site: str, host: str, consent: str, variables: Mapping[str, t.Any], *, check_mode: bool = False
) -> None:
    """Refuse to reset a host unless that was asked for.

    Checked for every host: a play on localhost that asks first is left out by ``--limit``.

    Args:
        site: name of the site.
        host: name of the host.
        consent: the site's name; or the host's, which counts when destructive steps are allowed in this run,
            or when the plan that is applied has the reset of this host.
        variables: of the task.
        check_mode: nothing is reset, so an operation may show what it would do.

    Raises:
        ExchangeError: neither was given.
    """
    if consent == site or (
        consent == host and (check_mode or _allowed(variables) or _planned(host, variables))
    ):
        return
    raise ExchangeError(
        f"this would take the host out of {site} and delete all that {site} has on it, etcd's data too",
        f"if that is what you want, run it again with -e ironspan_reset_site={site}",
    )


def _allowed(variables: Mapping[str, t.Any]) -> bool:
    return bool(value_of(variables, ALLOW_DESTRUCTIVE.name))


def _planned(host: str, variables: Mapping[str, t.Any]) -> bool:
    planned = plan_for(variables)
    steps = planned.head()["steps"] if planned else ()
    return any((step["action"], step["target"]) == ("reset", host) for step in steps)
