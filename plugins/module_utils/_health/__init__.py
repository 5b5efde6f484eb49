# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How a host is: all answers of one execution. Nothing is changed on the host."""

from __future__ import annotations

import concurrent.futures
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._health import (
    certificates,
    egress,
    local,
    network,
    paths,
)

Answer = t.Dict[str, t.Any]
CHANGES_SHOWN = 20


def probes(wanted: t.Mapping[str, t.Any]) -> Answer:
    """Ask the network what the controller wants to know, all at the same time.

    Args:
        wanted: ``peers`` (a list of name, address and mtu in bytes), ``dns`` (server and name), ``api`` (host
            and port); for the check of the network also ``paths`` (peers to send echoes to), ``pods`` (peers'
            ends of the tunnel) and ``names`` (more of what ``dns`` is); ``resolve``, names that the host's
            own resolver is asked for; what is missing is not asked.

    Returns:
        ``mtu`` (a list), ``dns`` and ``api``, those that were asked; ``paths``, ``pods``, ``names`` and
        ``here``, this host's own routes and tables, where there are paths; ``resolved``, by name.
    """
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        peers = [pool.submit(network.path_mtu, peer, int(peer["mtu"])) for peer in wanted.get("peers") or ()]
        dns, api = wanted.get("dns"), wanted.get("api")
        named = pool.submit(network.resolve, dns["server"], dns["name"]) if dns else None
        dialled = pool.submit(network.connect_time, api["host"], int(api["port"])) if api else None
        tunnels = [pool.submit(network.path_mtu, peer, int(peer["mtu"])) for peer in wanted.get("pods") or ()]
        asked = wanted.get("names") or ()
        names = [pool.submit(network.resolve, name["server"], name["name"]) for name in asked]
        answer: Answer = {"mtu": [peer.result() for peer in peers]} if peers else {}
        if "paths" in wanted:
            # After what is above has ended, or is waiting: echoes measure times.
            answer["pods"] = [tunnel.result() for tunnel in tunnels]
            answer["names"] = [name.result() for name in names]
            answer["paths"] = list(pool.map(paths.round_trips, wanted["paths"]))
            answer["here"] = paths.look()
        if wanted.get("resolve"):
            looked = pool.map(network.addresses_of, wanted["resolve"])
            answer["resolved"] = dict(zip(wanted["resolve"], looked))
        if named:
            answer["dns"] = named.result()
        if dialled:
            answer["api"] = dialled.result()
    return answer


def drift(document: t.Optional[t.Mapping[str, t.Any]], root: str) -> Answer:
    """Compare the host with its document; what comes back is short, however much differs.

    Args:
        document: the desired state, None when the controller has none.
        root: the host's root folder.
    """
    if not document:
        return {}
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run

    try:
        result = run({"document": document, "mode": "assess", "root": root}, check_mode=True)
    except Exception as error:
        # A journal or state that somebody broke must not hide the disks and the certificates.
        return {"error": f"{type(error).__name__}: {error}"}
    if result.get("failed"):
        return {"error": str(result.get("msg", ""))}
    changes = result["changes"]
    return {
        "changes": [
            {name: change[name] for name in ("resource", "kind", "action", "reason")}
            for change in changes[:CHANGES_SHOWN]
        ],
        "count": len(changes),
        "pending": result["pending"][:CHANGES_SHOWN],
        "verdicts": [verdict for verdict in result.get("verdicts") or () if not verdict["ok"]],
        "plan": result.get("plan", ""),
        "digest": result["digest"],
        "fingerprint": result["fingerprint"],
    }


def look(params: t.Mapping[str, t.Any]) -> Answer:
    """Return everything.

    Args:
        params: the module's parameters: ``document``, ``probes``, ``units`` and ``root``.
    """
    root = params.get("root") or "/"
    # First of all: the controller compares it with its own clock around this execution.
    answer: Answer = {"time_unix": time.time()}
    began = time.monotonic()
    answer.update(local.collect(root, params.get("units") or ()))
    answer["certificates"] = certificates.collect(root)
    answer["egress"] = egress.collect() if root == "/" else {}
    answer["network"] = probes(params.get("probes") or {})
    answer["drift"] = drift(params.get("document"), root)
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer
