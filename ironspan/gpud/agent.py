# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Brings together what NVML, the kernel's log and the checks say, and what the Node says of it."""

from __future__ import annotations

import json
import logging
import threading
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import messages
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Event

from ironspan.gpud import events, kmsg
from ironspan.gpud.checks.base import Context, Finding, Gpu, Past
from ironspan.gpud.events import Judged, Record
from ironspan.gpud.processes import there
from ironspan.gpud.settings import Settings
from ironspan.gpud.store import REQUEST, Content, Store
from ironspan.gpud.watch import Hung, Line

LOG = logging.getLogger(__name__)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MISMATCH = 18
_START_S = 30.0
"""Seconds in which NVML may be starting: nothing is said of the GPUs before."""
_SEEN = ("index", "serial", "name", "pci")


def pci_key(address: str) -> str:
    """Return an address of PCI in one form: NVML writes more of it than the kernel's log."""
    parts = address.lower().split(".")[0].split(":")
    try:
        domain, bus, slot = (int(part, 16) for part in parts)
    except ValueError:
        return address.lower()
    return f"{domain:04x}:{bus:02x}:{slot:02x}"


def boot_id() -> str:
    """Return which boot this is."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def run_checks(chosen: Settings, context: Context) -> list[tuple[str, Finding]]:
    """Return what the checks find, each with its name. One that fails finds nothing, and is told."""
    found: list[tuple[str, Finding]] = []
    for check in chosen.checks:
        try:
            found += [(check.name, finding) for finding in check.find(context, chosen.limits[check.name])]
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            LOG.error("check %s could not read what NVML said: %r", check.name, error)
    return found


class Agent:
    """Knows how the GPUs are.

    Args:
        chosen: the settings.
        boot: which boot this is.
        changed: called when the Node may have to say something else.
        used: returns UUIDs of GPUs that pods have, None where nobody knows.
    """

    def __init__(
        self,
        chosen: Settings,
        boot: str,
        changed: Callable[[], object] = lambda: None,
        used: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self._chosen, self._boot, self._changed, self._used = chosen, boot, changed, used
        self.store = Store(chosen.state, boot)
        self.reading: Mapping[str, t.Any] = {}
        self._past = Past()
        self._host: Mapping[str, t.Any] = {}
        self._known = False
        self._failing_since = 0.0
        self._started = time.monotonic()
        self._lock = threading.Lock()

    # -- what comes in --

    def heard(self, line: Line) -> None:
        """Take a line of the process that asks NVML."""
        if "reading" in line:
            self._failing_since = 0.0
            self._read(line["reading"])
        elif "xid" in line:
            self._occurred(f"xid {int(line['xid'])}", str(line.get("gpu") or ""), "nvml", time.time())
        elif "failed" in line:
            self._failed(int(line["failed"]), str(line.get("text") or ""))

    def failing_s(self) -> float:
        """Return for how many seconds NVML has not started."""
        return time.monotonic() - self._failing_since if self._failing_since else 0.0

    def hung(self, error: Hung) -> None:
        """Take that a call of NVML does not return."""
        gpus = [
            str(gpu.get("uuid") or "")
            for gpu in self.reading.get("gpus", ())
            if gpu.get("index") == error.gpu
        ]
        finding = Finding("nvml hung", gpus[0] if gpus else "", f"{error.call} does not return")
        self._known = True
        self._found([("H02", finding)], ["H02"])

    def log(self, lines: Sequence[kmsg.Line], position: kmsg.Position) -> None:
        """Take lines of the kernel's log, and where it was read to after them, in one write."""
        told = [(message, line) for line in lines if (message := messages.parse(line.text)) is not None]

        def after(content: Content) -> Content:
            records = content.records
            for message, line in told:
                records = events.occurred(records, self._record(message, line, content))
            return replace(content, records=records, log=dict(position))

        for _, line in told:
            LOG.warning("kernel: %s", line.text[:300])
        self._change(after)

    def _record(self, message: messages.Message, line: kmsg.Line, content: Content) -> Record:
        """Return a line of the log as a record."""
        policy = self._chosen.policy
        rule = messages.rule_of(message, policy)
        event, detail = str(message.event), line.text.partition("): ")[2] or line.text
        if message.event.source == "sxid" and Event(*message.event) not in policy.rules:
            # NVSwitch says itself how bad it is; the policy knows both words.
            event = "sxid fatal" if message.fatal else "sxid non-fatal"
        uuid = next(
            (
                uuid
                for uuid, known in content.gpus.items()
                if pci_key(str(known.get("pci"))) == pci_key(message.pci)
            ),
            "",
        )
        ignored = rule.action == "A0" and events.action(event, policy) != "A0"
        plain = "".join(letter if letter.isprintable() else "?" for letter in detail)
        record = Record(event, uuid, line.at, line.at, self._boot, source="kmsg", ignored=ignored)
        return self._known_of(
            replace(record, detail=plain[:160] if uuid else f"{message.pci}: {plain}"[:160]), content
        )

    def _occurred(self, event: str, uuid: str, source: str, now: float) -> None:
        def after(content: Content) -> Content:
            record = Record(event, uuid, now, now, self._boot, source=source)
            return replace(content, records=events.occurred(content.records, self._known_of(record, content)))

        LOG.warning("NVML: %s of %s", event, uuid or "a GPU")
        self._change(after)

    def _known_of(self, record: Record, content: Content) -> Record:
        known = content.gpus.get(record.gpu) or {}
        return replace(record, index=int(known.get("index", -1)), serial=str(known.get("serial") or ""))

    def _failed(self, code: int, text: str) -> None:
        self._failing_since = self._failing_since or time.monotonic()
        event = "nvml versions_differ" if code == _MISMATCH else "nvml gpu_missing"
        if code != _MISMATCH and self._chosen.expected.count == 0:
            self._found([], ["H01", "H02"])
            return
        self._known = True
        self._found([("H01", Finding(event, "", f"NVML does not start: {text}"))], ["H01"])

    def _read(self, reading: Mapping[str, t.Any]) -> None:
        self._host = reading.get("host") or self._host
        with self._lock:
            self.reading = reading
        content = self.store.content
        # One that is lost when NVML starts has no UUID: it is the one of this number.
        by_index = {known.get("index"): {"uuid": uuid} for uuid, known in content.gpus.items()}
        gpus = [Gpu({**by_index.get(each.get("index"), {}), **each}) for each in reading.get("gpus", ())]
        seen = {
            gpu.uuid: {name: gpu.get(name) for name in _SEEN} | {"memory_mib": (gpu.get("memory") or [0])[0]}
            for gpu in gpus
            if gpu.uuid and not gpu.lost
        }
        if any(content.gpus.get(uuid) != known for uuid, known in seen.items()):
            content = self._change(lambda old: replace(old, gpus={**old.gpus, **seen}))
        context = Context(
            gpus,
            reading.get("system") or {},
            self._host,
            self._chosen.expected,
            frozenset(content.gpus),
            self._past,
            time.monotonic(),
            bool(reading.get("slow")),
            self._used(),
        )
        self._known = True
        looked = [check.name for check in self._chosen.checks]
        self._found(run_checks(self._chosen, context), looked)

    def _found(self, findings: Sequence[tuple[str, Finding]], looked: Sequence[str]) -> None:
        now = time.time()
        on = [(name, finding) for name, finding in findings if name not in self._chosen.off]

        def after(content: Content) -> Content:
            records = events.found(content.records, on, looked, now, self._boot, self._chosen.clear_s)
            records = {
                key: record if record.index >= 0 or not record.gpu else self._known_of(record, content)
                for key, record in records.items()
            }
            for key, record in records.items():
                if key not in content.records:
                    LOG.warning("check %s: %s %s: %s", record.source, record.event, record.gpu, record.detail)
            return replace(content, records=events.expired(records, self._chosen.policy, now, self._boot))

        self._change(after)

    def _change(self, how: Callable[[Content], Content]) -> Content:
        before = self.store.content
        content = self.store.change(how)
        if content.records is not before.records or content.gpus is not before.gpus:
            self._changed()
        return content

    def take_request(self) -> None:
        """Do what an operator asked for, and only then take the request away.

        Raises:
            OSError: it cannot be read or taken away.
        """
        path = self._chosen.state / REQUEST
        try:
            asked = json.loads(path.read_bytes())
            gpu = str(asked.get("gpu") or "")
        except FileNotFoundError:
            return
        except (ValueError, AttributeError):
            LOG.warning("%s is no request", path)
        else:
            self._change(lambda old: replace(old, records=events.without_gpu(old.records, gpu)))
            LOG.info("forgot what happened to %s", gpu or "all GPUs")
        path.unlink(missing_ok=True)

    def processes(self, gpu: str) -> list[int]:
        """Return the processes that used a GPU when it was read last and have not ended.

        Args:
            gpu: its UUID, empty for all.
        """
        found = [Gpu(values) for values in self.reading.get("gpus", ())]
        pids = [pid for each in found if gpu in ("", each.uuid) for pid, _ in each.get("processes") or []]
        return list(filter(there, pids))

    # -- what goes out --

    def judged(self) -> Judged:
        """Return what the Node says of its GPUs now."""
        return events.judge(self.store.content.records.values(), self._chosen.policy, self._known)

    @property
    def driver(self) -> str:
        """Version of the driver, empty while it is not known."""
        return str((self.reading.get("system") or {}).get("driver") or "")

    @property
    def in_use(self) -> bool:
        """Whether a pod or a process has a GPU, as far as anybody knows."""
        return bool(self._used()) or bool(self.processes(""))

    @property
    def starting(self) -> bool:
        """Whether nothing can be said yet."""
        return not self._known and time.monotonic() - self._started <= _START_S

    def seen(self) -> str:
        """Return the text of the annotation that names the GPUs."""
        gpus = [
            {
                "index": known.get("index"),
                "uuid": uuid,
                "serial": known.get("serial"),
                "model": known.get("name"),
                "memory_mib": known.get("memory_mib"),
                "pci": known.get("pci"),
            }
            for uuid, known in self.store.content.gpus.items()
        ]
        gpus.sort(key=lambda gpu: int(t.cast("int", gpu["index"]) or 0))
        return json.dumps({"boot": self._boot, "driver": self.driver, "gpus": gpus}, separators=(",", ":"))

    def follow_log(self, ended: Callable[[], bool], seconds: float) -> None:
        """Read the kernel's log for some seconds, or until ``ended``.

        Raises:
            OSError: it cannot be read.
        """
        until = time.monotonic() + seconds

        def over() -> bool:
            return ended() or time.monotonic() >= until

        # Lines name GPUs by their addresses, which NVML tells; the kernel keeps them so long.
        while self.starting and not self.store.content.gpus and not over():
            time.sleep(0.1)
        for lines, position in kmsg.read(self._chosen.kmsg, self.store.content.log, over):
            self.log(lines, position)
