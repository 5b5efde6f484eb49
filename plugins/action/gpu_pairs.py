# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lets idle GPU nodes test each other in pairs, and finds out which one is bad where a pair fails."""

from __future__ import annotations

import itertools
import json
import time
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle, pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.pairs import Outcome, Pair
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.preflight import pair_tests
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import boot_of

_LOOK_S = 5.0
_TRIES = 3
"""Times that a request is written: a node's status changes every few seconds."""


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.gpu_pairs``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "most": {"type": "int", "required": True},
        "days": {"type": "int", "required": True},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Choose pairs, let them test each other, and write down who is bad."""
        site = session.site
        hosts = {host.name: host for host in site.group("gpu") if self.is_about(host.name, site)}
        notes: list[str] = []

        def tell(line: str) -> None:
            notes.append(line)
            self.say(line)

        if not hosts:
            tell("no host of this run is in the group gpu")
            return {"changed": False, "tested": [], "bad": {}, "left": {}, "notes": notes}
        api, now = session.api(), time.time()
        racks = {name: host.rack for name, host in hosts.items()}
        nodes, pods = (api.get(f"/api/v1/{what}")["items"] for what in ("nodes", "pods"))
        choice = pairs.choose(racks, nodes, pods, days=arguments["days"], now=now)
        for name, why in sorted(choice.left.items()):
            tell(f"{name}: not tested: {why}")
        if self._task.check_mode:
            for pair in choice.pairs:
                tell(f"{pair.first} and {pair.second}: would test each other")
            told = [" and ".join(pair) for pair in choice.pairs]
            return {"changed": bool(told), "tested": told, "bad": {}, "left": choice.left, "notes": notes}
        runner = _Runner(api, hosts, tell, arguments["most"])
        settled = pairs.settle(choice, runner.run)
        _write(api, settled, now, tell)
        for pair, why in settled.unsettled.items():
            tell(f"{pair.first} and {pair.second}: failed, and which one it was is not known: {why}")
        result = {
            "changed": bool(settled.outcomes),
            "tested": [f"{' and '.join(pair)}: {_word(made)}" for pair, made in settled.outcomes.items()],
            "bad": settled.bad,
            "left": choice.left,
            "notes": notes,
        }
        if settled.bad or settled.unsettled:
            failed = [f"{name}: {why}" for name, why in settled.bad.items()]
            failed += [f"{' and '.join(pair)}: {why}" for pair, why in settled.unsettled.items()]
            result |= {"failed": True, "msg": "\n".join(failed)}
        return result


class _Runner:
    """Asks pairs of nodes, some at a time, and waits for what they say."""

    def __init__(
        self, api: t.Any, hosts: Mapping[str, t.Any], say: t.Callable[[str], object], most: int
    ) -> None:
        self._api, self._hosts, self._say, self._most = api, hosts, say, most

    def run(self, asked: Sequence[Pair]) -> dict[Pair, Outcome]:
        """Let pairs test each other; return how it went."""
        found: dict[Pair, Outcome] = {}
        for some in itertools.batched(asked, self._most):
            found |= self._some(some)
        return found

    def _some(self, asked: Iterable[Pair]) -> dict[Pair, Outcome]:
        waiting: dict[Pair, str] = {}
        found: dict[Pair, Outcome] = {}
        for pair in asked:
            told = pairs.actions(pair, *self._place(pair), time.time())
            why = next(filter(None, (self._ask(name, told[name]) for name in pair)), "")
            if why:
                found[pair] = Outcome(None, why)
            else:
                waiting[pair] = str(json.loads(told[pair.first])["id"])
                self._say(f"{pair.first} and {pair.second}: test each other")
        longest = pairs.ANSWER_S + sum(test.deadline for test in pair_tests().values())
        end = time.monotonic() + longest
        while waiting and time.monotonic() < end:
            time.sleep(_LOOK_S)
            for pair, id in list(waiting.items()):
                nodes = {name: self._api.get(f"/api/v1/nodes/{name}") for name in pair}
                wanted = self._hosts[pair.first].variables["gpu_policy_pair_tests"]
                made = pairs.outcome(pair, id, nodes, wanted)
                if made is not None:
                    del waiting[pair]
                    found[pair] = made
                    self._say(f"{pair.first} and {pair.second}: {_word(made)}")
        late = Outcome(None, f"no answer within {longest:g} s")
        return found | dict.fromkeys(waiting, late)

    def _place(self, pair: Pair) -> tuple[str, int]:
        host = self._hosts[pair.first]
        return host.address, host.variables["nvidia_health_pairs_port"]

    def _ask(self, name: str, text: str) -> str:
        """Write a request on a node that is still idle; return why it was not written, empty where it was."""
        for _ in range(_TRIES):
            node = self._api.get(f"/api/v1/nodes/{name}")
            selector = f"fieldSelector=spec.nodeName%3D{name}"
            pods = self._api.get(f"/api/v1/pods?{selector}")["items"]
            why = idle.reason(node, any(map(idle.works, pods)), time.time())
            if why not in ("", idle.TAINTED):
                return f"{name}: {why}"
            if idle.write(self._api, name, node["metadata"]["resourceVersion"], text):
                return ""
        return f"{name}: something else changes it all the time"


def _word(made: Outcome) -> str:
    return f"{ {True: 'well', False: 'failed', None: 'not tested'}[made.well] }: {made.why}".rstrip(": ")


def _write(api: t.Any, settled: pairs.Settled, now: float, tell: t.Callable[[str], object]) -> None:
    """Tell the repair controller who is bad, and take back what was said of nodes that are well now."""
    well = {name for pair, made in settled.outcomes.items() if made.well for name in pair}
    for name in sorted({name for pair in settled.outcomes for name in pair}):
        node = api.get(f"/api/v1/nodes/{name}")
        before = (node["metadata"].get("annotations") or {}).get(pairs.VERDICT)
        text = before
        if name in settled.bad:
            text = pairs.events(settled.bad[name], boot_of(node), now)
            tell(f"{name}: bad: {settled.bad[name]}")
        elif name in well:
            text = None
        if text != before:
            body = {"metadata": {"annotations": {pairs.VERDICT: text}}}
            api.merge(f"/api/v1/nodes/{name}", body)
