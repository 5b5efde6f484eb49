# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Works out the steps of a node one after another, each from the state that the ones before it lead to."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states as ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_states import Move
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import (
    ERASE,
    RAMDISK_MIB,
    TRIES,
    Node,
    Wanted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.route import Route, route
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Effect, Step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_POWER_CHANGES = ("rebooting", "soft rebooting", "soft power off")
_WRITES = ("active", "rebuild")
_IN_USE = ("active", "rescue", "rescue failed", "unrescue failed", "service failed", "error", "deploy failed")
"""States in which somebody's operating system is, or may be, on the disks."""


class Hold(Exception):
    """Why nothing is done with a node, and what a person can do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class Journey:
    """The steps of one node.

    Attributes:
        steps: those worked out so far.
    """

    def __init__(self, node: Node, wanted: Wanted) -> None:
        self.steps: list[Step] = []
        self._node = node
        self._wanted = wanted
        self._state = node.state or ""
        self._retired = node.retired
        self._written = False
        self._asked = False

    @property
    def _route(self) -> Route:
        return Route(self._wanted.adopt, self._retired, self._node.automated_clean)

    def go(self) -> None:
        """Work the steps out.

        Raises:
            Hold: there is no way, or a person has to do something first.
        """
        wanted = self._wanted
        if self._node.state is None:
            if wanted.goal == "absent":
                return
            self._ask(Step("enrol", "make it known to Ironic"))
            self._state = "enroll"
        self._settle()
        if wanted.goal == "absent":
            self._leave()
        elif wanted.goal == "retired":
            self._retire()
        else:
            self._chores()
            self._reach(wanted.goal)
        self._switch()

    def _settle(self) -> None:
        """Wait for what goes on by itself, and end what does not go on any more."""
        node, state = self._node, ironic.STATES.get(self._state)
        if state is None:
            near = nearest(self._state, ironic.STATES)
            known = f"; the nearest known one is '{near}'" if near else ""
            raise Hold(
                f"Ironic has a state that is not known, '{quoted(self._state)}'{known}",
                "look at it in Ironic",
            )
        if state.sort == "held":
            raise Hold(state.means, "look at it, then let Ironic go on (unhold) or end (abort)")
        if state.sort in ("moving", "waiting"):
            if not node.conductor_alive:
                raise Hold(
                    f"{state.means}, and no conductor looks after it",
                    "start the conductor; Ironic then says it failed",
                )
            if node.in_state_s <= self._wanted.patience_s:
                self.steps.append(Step("wait", f"wait while {state.means}"))
                self._state = self._end_of(state)
            elif state.sort == "moving":
                remedy = f"look at the conductor's log{explained(node.last_error)}"
                raise Hold(
                    f"{state.means}, for {node.in_state_s} s now, and nothing in Ironic ends this", remedy
                )
            else:
                self._ask(
                    Step("abort", f"end it: {state.means}, and the agent was silent for {node.in_state_s} s")
                )
                self._state = state.failed

    def _end_of(self, state: ironic.State) -> str:
        """Return where a state that ends by itself leads to."""
        if state.then == "available" and (self._node.target == "manageable" or self._retired):
            return "manageable"
        return state.then

    def _leave(self) -> None:
        self._travel(ironic.DELETABLE)
        self._not_protected()
        self._ask(Step("delete", "remove it from Ironic", frozenset({"deletes"})))
        self._state = ""

    def _retire(self) -> None:
        if self._state == "available":
            self._travel(("manageable",))
        if not self._retired:
            self._ask(Step("retire", "mark it as retired"))
            self._retired = True
        self._travel(("manageable",))
        if "clean" not in self._node.done:
            self._clean(self._wanted.clean or ERASE)

    def _chores(self) -> None:
        """Inspect and clean, which Ironic does while a node is manageable."""
        node, wanted = self._node, self._wanted
        inspect = wanted.inspect and "inspect" not in node.done
        clean = bool(wanted.clean) and "clean" not in node.done
        if not inspect and not clean:
            return
        stays = wanted.goal in ("active", "rescue") and not (wanted.deploy and "deploy" not in node.done)
        if self._state in _IN_USE and self._state not in ("error", "deploy failed") and stays:
            what = "inspect" if inspect else "clean"
            raise Hold(
                f"it is in use, and Ironic can {what} it only when it is not",
                f"redeploy it, or do not {what} it",
            )
        self._travel(("manageable",))
        if inspect:
            self._move(ironic.INSPECT)
        if clean:
            self._clean(wanted.clean)

    def _clean(self, steps: tuple[str, ...]) -> None:
        what = f"clean it: {', '.join(quoted(step) for step in steps)}"
        self._move(ironic.CLEAN._replace(wipes=self._erases(steps), what=what))

    def _erases(self, steps: tuple[str, ...]) -> bool:
        erases = ironic.erases(steps)
        if erases and self._wanted.adopt:
            reason = f"what runs on it shall stay, and {', '.join(map(quoted, steps))} may erase it"
            raise Hold(reason, "leave these steps out")
        return erases

    def _reach(self, goal: str) -> None:
        node, wanted = self._node, self._wanted
        deploy = wanted.deploy and "deploy" not in node.done
        if deploy and wanted.adopt:
            raise Hold(
                "what runs on it shall stay, and an operating system shall be written", "want one of the two"
            )
        if goal in ("active", "rescue"):
            self._travel(("active",) if deploy or wanted.service else (goal,))
            if deploy and not self._written:
                self._move(next(move for move in ironic.MOVES["active"] if move.verb == "rebuild"))
            if wanted.service and "service" not in node.done:
                what = f"service it: {', '.join(quoted(step) for step in wanted.service)}"
                wipes = self._erases(wanted.service)
                self._move(ironic.SERVICE._replace(wipes=wipes, what=what))
        self._travel((goal,))

    def _switch(self) -> None:
        power = self._wanted.power
        if power and self._state and power != self._node.power:
            interrupts = power == "power off" and self._state in ("active", "rescue")
            self._not_running(interrupts)
            disruption = "its operating system ends" if interrupts else ""
            self._ask(Step(power.replace(" ", "_"), f"switch its {power}", disruption=disruption))

    def _travel(self, goals: tuple[str, ...]) -> None:
        """Take the way to the nearest of some states that wipes and interrupts least."""
        moves = route(self._state, goals, self._route)
        if moves is None:
            if self._wanted.adopt:
                reason = f"'{self._state}' does not become '{goals[0]}' without wiping"
                remedy = "do not want it adopted, if it may be wiped"
                raise Hold(f"what runs on it shall stay, and {reason}", remedy)
            raise Hold(f"no way leads from '{self._state}' to '{goals[0]}'", "look at it in Ironic")
        for move in moves:
            self._move(move)

    def _move(self, move: Move) -> None:
        """Ask for one move, if nothing is in its way."""
        wipes = self._route.wipes(move)
        if move.verb in (*_WRITES, "deleted"):
            self._not_protected()
        if move.verb == "provide" and self._retired:
            remedy = "take the mark off, if it shall be used again"
            raise Hold("it is marked as retired, and Ironic does not provide it", remedy)
        if move.verb == "deleted" and self._retired and not self._node.automated_clean:
            raise Hold(
                "it shall be retired, and Ironic marks nodes as retired only where it cleans by itself",
                "switch automated_clean on for this node",
            )
        self._not_running(move.interrupts)
        self._fits_ramdisk(move)
        effects: frozenset[Effect] = frozenset({"wipes"} if wipes else ())
        disruption = "its operating system ends" if move.interrupts else ""
        self._ask(Step(move.verb, move.what, effects, disruption=disruption, seconds=60 * move.minutes))
        self._written |= move.verb in _WRITES
        self._state = "manageable" if move.verb == "deleted" and self._retired else move.to

    def _ask(self, step: Step) -> None:
        """Add a step that Ironic is asked for; before the first one, look at what is in the way of all."""
        if not self._asked:
            self._asked = True
            self._nothing_in_the_way()
        self.steps.append(step)

    def _nothing_in_the_way(self) -> None:
        node = self._node
        state = ironic.STATES.get(node.state or "enroll")
        if not node.conductor_alive and node.state is not None:
            raise Hold("no conductor looks after it", "start the conductor, or give its group another one")
        failed = state is not None and (
            state.sort == "failed" or (node.state == "enroll" and bool(node.last_error))
        )
        if failed and state and node.failures >= TRIES:
            what = state.means if state.sort == "failed" else "its BMC was tried"
            raise Hold(
                f"{what} {node.failures} times{explained(node.last_error)}",
                "fix the cause, and run it again",
            )
        if node.maintenance:
            self._end_maintenance()
        if state is not None and state.sort in ("settled", "failed"):
            if node.reserved_by:
                what = f"wait until the conductor {quoted(node.reserved_by)} is done with it"
                self.steps.append(Step("wait", what))
            elif node.power in _POWER_CHANGES:
                self.steps.append(Step("wait", "wait until its power has changed"))

    def _end_maintenance(self) -> None:
        node = self._node
        if node.fault and ironic.FAULTS.get(node.fault) == node.state:
            self.steps.append(
                Step("end_maintenance", f"end its maintenance, which Ironic began for a {node.fault}")
            )
        elif node.fault == "power failure":
            said = explained(node.maintenance_reason or node.last_error)
            raise Hold(
                f"its BMC does not answer{said}",
                "look at the BMC's address, network and credentials; Ironic goes on by itself",
            )
        else:
            reason = f": {quoted(node.maintenance_reason)}" if node.maintenance_reason else ""
            raise Hold(f"it is in maintenance{reason}", "end its maintenance, if it may be touched")

    def _not_protected(self) -> None:
        if self._node.protected:
            raise Hold("it is protected from being taken down", "end its protection, if it may be")

    def _not_running(self, interrupts: bool) -> None:
        if interrupts and self._node.running:
            raise Hold("a node of the cluster runs on it", "drain and remove the node first")

    def _fits_ramdisk(self, move: Move) -> None:
        memory = self._node.memory_mib
        boots = move.verb not in ("manage", "adopt", "unrescue", "abort", "retire") and (
            self._node.automated_clean or move.verb not in ("provide", "deleted")
        )
        if boots and memory is not None and memory < RAMDISK_MIB:
            raise Hold(
                f"it has {memory} MiB of memory, and the agent's ramdisk needs {RAMDISK_MIB}",
                "give it more memory",
            )
