# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's own Ironic: whether it answers, and servers that need a person."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_states import STATES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import (
    BRING_UP,
    endpoint,
    is_known,
    login_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
    names,
    operation,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError


def ask_ironic(session: Session) -> Content:
    """Return what the site's own Ironic says, ``error`` for why it does not; empty where there is none.

    Args:
        session: the site and its PKI store.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected

    site = session.site
    if not endpoint(site):
        return {}
    try:
        if not is_known(site):
            return {"error": "it was not brought up yet"}
        changing = session.store.ironic.is_changing()
        api = connected(**login_of({"site": site}))
        conductors, nodes = sorted(api.conductors()), api.nodes()
    except (RemoteError, PkiError) as error:
        return {"error": str(error).rstrip(".")}
    return {
        "conductors": conductors,
        "changing": changing,
        "servers": {
            name: {"state": node.state, "maintenance": node.maintenance, "reason": node.maintenance_reason}
            for name, (_, node) in nodes.items()
        },
    }


def ironic(evidence: Evidence) -> Iterator[Finding]:
    """Whether Ironic works, and servers on which nothing goes on before somebody looks."""
    said = evidence.ironic
    if not said:
        return
    if error := said.get("error"):
        yield Finding(PROBLEM, f"the site's Ironic: {error}", f"bring it to what the site says: {BRING_UP}")
        return
    if not said["conductors"]:
        yield Finding(PROBLEM, "no conductor of the site's Ironic is alive: nothing can be done with servers",
                      "read its journal: journalctl -u ironspan-ironic on its host")  # fmt: skip
    if said["changing"]:
        what = "a change of Ironic's password was begun and not proven"
        yield Finding(NOTICE, what, operation(evidence.site, "ironic_password"))
    servers: t.Mapping[str, Content] = said["servers"]
    kept = [name for name, server in servers.items() if server["maintenance"]]
    failed: dict[str, list[str]] = {}
    for name, server in servers.items():
        state = STATES.get(str(server["state"]))
        if state is not None and state.sort == "failed" and name not in kept:
            failed.setdefault(str(server["state"]), []).append(name)
    if kept:
        reasons = sorted({quoted(servers[name]["reason"]) for name in kept if servers[name]["reason"]})
        why = f" ({'; '.join(reasons[:3])})" if reasons else ""
        yield Finding(NOTICE, f"servers in maintenance in Ironic: {names(kept)}{why}",
                      "fix the cause and end their maintenance, or retire them")  # fmt: skip
    for state_name, stuck in failed.items():
        yield Finding(NOTICE, f"servers in '{state_name}' in Ironic: {names(stuck)}",
                      "run bare_metal.yml again: it says why, and goes on with them")  # fmt: skip
