# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the repair controller asks this host to do: reset GPUs, reboot, test them; each once, killed or not.

That it is asked for is an annotation of the Node, which the API server lets only the controller and
administrators write. The id is on disk before anything is done: one that was begun and not finished is
answered as failed and never begun again.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import re
import subprocess
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ironspan.gpud import events
from ironspan.gpud.preflight import pair
from ironspan.gpud.preflight.pair import Pairing
from ironspan.gpud.processes import MPS_UNIT
from ironspan.gpud.store import Store

LOG = logging.getLogger(__name__)
ASKED, DONE = "ironspan.io/gpu-action", "ironspan.io/gpu-action-done"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RESET_S = 300.0
_DETAIL = 200
# As units of their own: the agent's own sandbox has neither the rights nor the devices.
_UNIT = ("systemd-run", "--wait", "--collect", "--quiet", "--pipe")
# An MPS server has the GPUs open. The daemon begins again whatever becomes of the reset and of the agent.
_WITHOUT_MPS = (
    f"--property=ExecStartPre=/usr/bin/systemctl stop {MPS_UNIT}",
    f"--property=ExecStopPost=/usr/bin/systemctl --no-block start {MPS_UNIT}",
)
REBOOT = ("systemd-run", "--collect", "--quiet", "systemctl", "reboot")
_GOES_DOWN: t.Mapping[str, t.Any] = {"ok": True, "detail": "rebooting"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that is asked for.

    Args:
        id: of it.
        do: ``reset``, ``reboot``, ``preflight`` or ``pair``; others are answered as unknown.
        gpu: UUID, empty for all.
        expires: seconds since 1970 after which it is not done any more.
        pairing: for ``pair``, the other node.
    """

    id: str
    do: str
    gpu: str
    expires: float
    pairing: Pairing | None = None


def reset(gpu: str, mps: bool) -> tuple[str, ...]:
    """Return the command that resets GPUs.

    Args:
        gpu: UUID, empty for all.
        mps: the host's GPUs are shared through an MPS daemon, which is stopped meanwhile.
    """
    without = _WITHOUT_MPS if mps else ()
    return (*_UNIT, *without, "nvidia-smi", "--gpu-reset", *(["-i", gpu] if gpu else []))


def read(text: str) -> Asked | None:
    """Return what an annotation asks for; None where it is nothing that could be answered."""
    try:
        data = json.loads(text)
        id, gpu = str(data["id"]), str(data.get("gpu") or "")
        expires = datetime.datetime.fromisoformat(str(data["expires"])).timestamp()
        do = str(data["do"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    if not _ID.fullmatch(id) or (gpu and not _UUID.fullmatch(gpu)):
        return None
    return Asked(id, do, gpu, expires, pair.read(id, data.get("pair")) if do == "pair" else None)


class Actions:
    """Does what is asked for.

    Args:
        store: keeps what was begun, and what became of it.
        boot: which boot this is.
        enabled: whether the site lets this host be reset and rebooted so. Tests change nothing.
        busy: returns which processes use a GPU, of all where it is empty.
        quiet: nothing of ours has a GPU open while it lasts.
        now: seconds since 1970.
        run: runs a program, and raises what ``subprocess.run`` does.
        preflight: begins one, and returns why it did not, empty where it did.
        mps: whether this host's GPUs are shared through an MPS daemon.
        paired: the same of a test with another node.
    """

    def __init__(
        self,
        store: Store,
        boot: str,
        enabled: bool,
        busy: Callable[[str], Sequence[int]],
        quiet: Callable[[], contextlib.AbstractContextManager[object]],
        now: Callable[[], float],
        run: Callable[[Sequence[str]], object] | None = None,
        preflight: Callable[[], str] | None = None,
        mps: bool = False,
        paired: Callable[[Pairing], str] | None = None,
    ) -> None:
        self._store, self._boot, self._enabled = store, boot, enabled
        self._busy, self._quiet, self._now = busy, quiet, now
        self._run, self._preflight, self._mps, self._paired = run or _run, preflight, mps, paired
        self._rebooting = ""
        """What this process began, and nobody has to begin again: a host may take minutes to go down."""

    def answer(self, text: str) -> str:
        """Do what an annotation asks for, once; return the text of the answer, empty for none."""
        asked = read(text) if text else None
        if asked is None:
            return ""
        found = self._store.content.done.get(asked.id)
        if found is None:
            found = self._begin(asked)
        elif found.get("ok") is None and asked.id == self._rebooting:
            found = _GOES_DOWN
        elif found.get("ok") is None:
            # A reboot that came about is done; all else was cut off in the middle.
            rebooted = asked.do == "reboot" and found.get("boot") != self._boot
            detail = "the host has booted" if rebooted else "it was interrupted, and is not begun again"
            found = self._keep(asked, rebooted, detail)
        return json.dumps(
            {"id": asked.id, "ok": bool(found["ok"]), "detail": found["detail"], "boot": self._boot},
            separators=(",", ":"),
        )

    def _begin(self, asked: Asked) -> Mapping[str, t.Any]:
        refusal = self._refusal(asked)
        if refusal:
            return self._keep(asked, False, refusal)
        LOG.warning("asked to %s %s", asked.do, asked.gpu or "(all)")
        self._keep(asked, None, "begun")
        if asked.do == "preflight" and self._preflight is not None:
            why = self._preflight()
            return self._keep(asked, not why, why or "begun")
        if asked.do == "pair" and self._paired is not None and asked.pairing is not None:
            why = self._paired(asked.pairing)
            return self._keep(asked, not why, why or "begun")
        try:
            if asked.do == "reboot":
                self._run(REBOOT)
                # Not done yet: the next boot's agent says that it was.
                self._rebooting = asked.id
                return _GOES_DOWN
            with self._quiet():
                self._run(reset(asked.gpu, self._mps))
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stdout", None) or str(error)
            return self._keep(asked, False, " ".join(str(said).split())[-_DETAIL:])
        self._store.change(lambda old: replace(old, records=events.without_gpu(old.records, asked.gpu)))
        return self._keep(asked, True, "reset")

    def _refusal(self, asked: Asked) -> str:
        tests = {"preflight": self._preflight, "pair": self._paired}
        if asked.do not in ("reset", "reboot") and not tests.get(asked.do):
            return f"this agent cannot {asked.do[:32]!r}"
        if asked.do == "pair" and asked.pairing is None:
            return "the other node cannot be read"
        if not self._enabled and asked.do not in tests:
            return "nvidia_health_actions_enabled is off on this host"
        if self._now() >= asked.expires:
            return "it came too late"
        if asked.gpu and asked.gpu not in self._store.content.gpus:
            return f"{asked.gpu} is no GPU of this host"
        # All pods of a host have one daemon: to stop it for one GPU ends those of the others.
        touched = "" if self._mps else asked.gpu
        if asked.do != "reboot" and (pids := self._busy(touched)):
            return f"processes use it: {', '.join(map(str, pids[:5]))}"
        return ""

    def _keep(self, asked: Asked, ok: bool | None, detail: str) -> Mapping[str, t.Any]:
        what = {"do": asked.do, "ok": ok, "detail": detail, "boot": self._boot}
        self._store.change(lambda old: replace(old, done={**old.done, asked.id: what}))
        return what


def _run(command: Sequence[str]) -> None:
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=RESET_S,
    )  # fmt: skip
