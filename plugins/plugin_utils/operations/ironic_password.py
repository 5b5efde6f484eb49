# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Another password for the site's own Ironic."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

GROUP = "ironic"
_RESTART_S = 60


def steps(context: Context) -> list[Step]:
    """Return the one step: to begin a change, or to finish one that a killed run began.

    Raises:
        OperationError: the site has no Ironic of its own.
    """
    hosts = context.site.group(GROUP)
    if not hosts:
        raise OperationError(
            "the site has no Ironic of its own: its group ironic is empty",
            "change the password where that Ironic is, and in clouds.yaml",
        )
    name = hosts[0].name
    begun = context.session.store.ironic.is_changing()
    what = (
        f"let Ironic on {name} follow to the password that was begun with"
        if begun
        else (f"give Ironic on {name} another password")
    )
    disruption = "it restarts; servers that are being deployed just then fail, and the next run resumes them"
    return [Step("change-password", name, what, disruption=disruption, seconds=_RESTART_S)]
