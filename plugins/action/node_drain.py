# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes nodes out of service, and puts those back that it took out."""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    insist_on_nodes,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import plan_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import (
    DELETE,
    REFUSE,
    SKIP,
    Outcome,
    Policy,
    drain,
    preview,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.stuck import (
    add_stuck,
    stuck_in,
    stuck_text,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import held_back
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.once import Use
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import plan_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

_PARALLEL = 16
_PATIENCE_SECONDS = 60
_REMOVED = "removed: {}. Take them out of the inventory now; site.yml would make them nodes again."
_NOT_RESET = (
    "not reset, because they did not answer: {}. They make themselves nodes again when they come back: "
    "reset them then (reset.yml), or reinstall them."
)
_NOT_BEGUN = "not begun: as many hosts of its rack got stuck as may be out of service"


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.node_drain``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "default": []},
        "state": {"type": "str", "choices": ["drained", "schedulable", "reported"], "default": "drained"},
        "timeout_s": {"type": "int"},
        "skip_unreachable": {"type": "bool", "default": False},
        "delete_unreachable": {"type": "bool", "default": False},
        "replacing": {"type": "bool", "default": False},
        "force": {"type": "bool", "default": False},
        "removed": {"type": "list", "elements": "str", "default": []},
        "unreached": {"type": "list", "elements": "str", "default": []},
        "on_stuck": {"type": "str", "choices": ["fail", "continue"], "default": "fail"},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Drain, open again, or tell what got stuck."""
        if arguments["state"] == "reported":
            report = _report(stuck_in(RunFolder().path), arguments["removed"], arguments["unreached"])
            for note in report["notes"]:
                self.say(note)
            return report
        insist_on_nodes(arguments["hosts"], {host.name for host in node_hosts(session.site)})
        api = session.api(_PATIENCE_SECONDS)
        if arguments["state"] == "schedulable":
            return self._open(api, arguments["hosts"])
        return self._drain(api, session.site, arguments)

    def _drain(self, api: Api, site: Site, arguments: Result) -> Result:
        names, folder = arguments["hosts"], RunFolder().path
        wave = [site.hosts[name] for name in names]
        # Those that were held back themselves are in service.
        occupying = [name for name, reasons in stuck_in(folder).items() if reasons != [_NOT_BEGUN]]
        held = held_back(wave, site.drain.max_unavailable, occupying, site.group("nodes"))
        new = _new_machines(api) if arguments["replacing"] else set()
        going = [name for name in names if name not in held and name not in new]
        policy = _policy(site, arguments)
        if self._task.check_mode:
            outcomes = [preview(api, name, policy) for name in going]
        else:
            outcomes = drain(api, going, policy, self.say)
        stuck = {
            **{outcome.node: list(outcome.reasons) for outcome in outcomes if outcome.state == "stuck"},
            **{name: [_NOT_BEGUN] for name in held},
        }
        if not self._task.check_mode:
            add_stuck(folder, stuck)
            self._note(api, arguments, [o.node for o in outcomes if o.state == "drained"])
        failed = stuck and arguments["on_stuck"] == "fail" and not self._task.check_mode
        return {
            "changed": any(outcome.evicted or outcome.cordoned for outcome in outcomes),
            "drained": [o.node for o in outcomes if o.state in ("drained", "absent")]
            + [name for name in names if name in new and name not in held],
            "unreachable_nodes": [o.node for o in outcomes if o.state == "unreachable"],
            "stuck": stuck,
            "evicted": {o.node: list(o.evicted) for o in outcomes},
            "msg": "\n".join(_line(outcome) for outcome in outcomes),
            **(_report(stuck) if failed else {}),
        }

    def _note(self, api: Api, arguments: Result, drained: list[str]) -> None:
        """Note which nodes a plan has drained by force, for it works once."""
        if arguments["force"] and plan_file(self._variables):
            Use(api, plan_of_run(self._variables).head()).note(drained)

    def _open(self, api: Api, names: list[str]) -> Result:
        """Uncordon the nodes that a drain cordoned, and name those that somebody else keeps cordoned."""
        nodes = {node["metadata"]["name"]: node for node in api.get("/api/v1/nodes")["items"]}
        ours = [name for name in names if name in nodes and cordon.cordoned_here(nodes[name])]
        if not self._task.check_mode:
            with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
                list(pool.map(lambda name: cordon.uncordon(api, name), ours))
        left = [
            name for name in names if name in nodes and name not in ours and cordon.is_cordoned(nodes[name])
        ]
        kept = f"{', '.join(left)}: closed by somebody else before, so it stays closed"
        return {
            "changed": bool(ours),
            "opened": ours,
            "left_cordoned": left,
            **({"warnings": [kept]} if left else {}),
        }


def _new_machines(api: Api) -> set[str]:
    """Return the nodes whose machine was replaced already, by a run that was cut off."""
    notes = replacements.noted(api)
    found = {name: api.find(cordon.node_path(name)) for name in notes}
    return {name for name, node in found.items() if node is not None and replacements.is_new(notes, node)}


def _policy(site: Site, arguments: Result) -> Policy:
    limit = arguments["timeout_s"] or site.drain.timeout_seconds
    unreachable = SKIP if arguments["skip_unreachable"] else REFUSE
    return Policy(
        seconds(limit, "timeout_s", 1, 86_400),
        site.drain.empty_dir_data,
        arguments["force"],
        DELETE if arguments["delete_unreachable"] else unreachable,
    )


def _report(
    stuck: dict[str, list[str]], removed: t.Sequence[str] = (), unreached: t.Sequence[str] = ()
) -> Result:
    gone = [name for name in removed if name not in stuck]
    notes = [_REMOVED.format(", ".join(gone))] if gone else []
    notes += [_NOT_RESET.format(", ".join(unreached))] if unreached else []
    if not stuck:
        return {"changed": False, "stuck": {}, "notes": notes}
    names = ", ".join(stuck)
    return {
        "failed": True,
        "stuck": stuck,
        "notes": notes,
        "msg": f"Got stuck: {names}. Pods that went stay away; nodes that were cordoned stay cordoned.\n"
        f"{stuck_text(stuck)}\n"
        "Fix that and run the same again; to give up instead: kubectl uncordon NODE.",
    }


def _line(outcome: Outcome) -> str:
    words = {
        "drained": f"drained, {len(outcome.evicted)} evicted",
        "absent": "the cluster has no such node",
        "unreachable": "; ".join(outcome.reasons),
        "stuck": "stuck",
    }
    return f"{outcome.node}: {words[outcome.state]}"
