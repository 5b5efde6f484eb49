# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What has happened to the GPUs since the boot, and what that means for the Node: values and pure functions.

There are two kinds of events. A *state* is found by a check as long as it lasts, such as a remap that is
pending. An *occurrence*, such as an XID, happened at a time, and stays until the GPU was reset or the host
booted.
"""

from __future__ import annotations

import datetime
import json
import re
import typing as t
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Event, Policy

from ironspan.gpud.checks.base import Finding

UNHEALTHY = ("A2", "A3", "A4")
"""Classes that make the condition False. A5 is a setting that is wrong: it is shown, nothing is drained."""
_WORST = ("A3", "A4", "A2", "A5", "A1", "A0")
SAME_S = 10.0
"""Seconds within which the kernel's log and NVML's events speak of the same XID."""
KEEP_HARMLESS_S = 86400.0
MOST_RECORDS, MOST_HISTORY = 256, 256
ANNOTATION_BYTES = 8000
_DETAIL, _MESSAGE = 160, 512


@dataclass(frozen=True, slots=True)
class Record:
    """One event of one GPU.

    Args:
        event: key of the policy.
        gpu: UUID; empty where it is about the host or nobody knows.
        index: of the GPU in NVML, -1 without one.
        serial: of the GPU.
        since, last: seconds since 1970.
        count: how often it happened; of a state, how often it began.
        boot: the boot in which it happened.
        detail: for people.
        state: whether it is one.
        source: who said it: ``kmsg``, ``nvml``, or the name of a check.
        ignored: the line itself says that nothing is to be done.
        over: since when a state is not found any more, 0 while it is.
    """

    event: str
    gpu: str
    since: float
    last: float
    boot: str
    index: int = -1
    serial: str = ""
    count: int = 1
    detail: str = ""
    state: bool = False
    source: str = ""
    ignored: bool = False
    over: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """By which it is known to be the same."""
        return self.event, self.gpu


Records = Mapping[tuple[str, str], Record]


def action(event: str, policy: Policy) -> str:
    """Return the class of an event, A0 to A5."""
    source, _, code = event.partition(" ")
    return policy.rule(Event(source, code)).action


def occurred(records: Records, new: Record) -> dict[tuple[str, str], Record]:
    """Return the records after something happened.

    The kernel's log and NVML tell of the same XID, each in its time: within ``SAME_S`` seconds the second one
    of another source counts as the first.
    """
    found = dict(records)
    old = found.get(new.key)
    if old is None:
        found[new.key] = new
    elif old.source != new.source and "," not in old.source and abs(new.last - old.last) <= SAME_S:
        # Both have told now: the next one, whoever tells it, is another.
        both = ",".join(sorted((old.source, new.source)))
        detail = max(old.detail, new.detail, key=len)
        found[new.key] = replace(old, source=both, detail=detail, last=max(old.last, new.last))
    else:
        last = max(old.last, new.last)
        found[new.key] = replace(
            old, count=old.count + 1, last=last, source=new.source, detail=new.detail or old.detail
        )
    return bounded(found)


def found(
    records: Records,
    findings: Iterable[tuple[str, Finding]],
    looked: Collection[str],
    now: float,
    boot: str,
    clear_s: float,
) -> dict[tuple[str, str], Record]:
    """Return the records after checks looked.

    Args:
        records: of before.
        findings: what they found, each with the name of its check.
        looked: names of the checks that could look. States of others stay as they are.
        now: seconds since 1970.
        boot: which boot this is.
        clear_s: for how long a state must not be found before it is over.
    """
    after = dict(records)
    current: set[tuple[str, str]] = set()
    for check, finding in findings:
        key = (finding.event, finding.gpu)
        current.add(key)
        old = after.get(key)
        if old is None:
            after[key] = Record(
                finding.event,
                finding.gpu,
                now,
                now,
                boot,
                detail=finding.detail[:_DETAIL],
                state=True,
                source=check,
            )
        elif old.state:
            # Their words may hold a number that moves: when the state began is what counts.
            after[key] = replace(old, over=0.0)
    for key, old in records.items():
        if not old.state or key in current or not (set(old.source.split(",")) & set(looked)):
            continue
        if not old.over:
            old = replace(old, over=now)
            after[key] = old
        if now - old.over >= clear_s:
            del after[key]
    return bounded(after)


def expired(records: Records, policy: Policy, now: float, boot: str) -> dict[tuple[str, str], Record]:
    """Return the records without those of other boots, and without harmless ones that are old."""
    return {
        key: record
        for key, record in records.items()
        if record.boot == boot
        and (record.state or action(record.event, policy) in UNHEALTHY or now - record.last < KEEP_HARMLESS_S)
    }


def without_gpu(records: Records, gpu: str) -> dict[tuple[str, str], Record]:
    """Return the records after a GPU was reset, or all were: what happened before counts no more."""
    return {key: record for key, record in records.items() if record.state or (gpu and record.gpu != gpu)}


def bounded(records: Records) -> dict[tuple[str, str], Record]:
    """Return the latest of too many records."""
    kept = sorted(records.values(), key=lambda record: record.last)[-MOST_RECORDS:]
    return {record.key: record for record in kept}


class Judged(t.NamedTuple):
    """What the Node says.

    Args:
        status: ``True``, ``False`` or ``Unknown``.
        reason: CamelCase, of the worst event.
        message: for people.
        events: text of the annotation.
    """

    status: str
    reason: str
    message: str
    events: str


def judge(records: Iterable[Record], policy: Policy, known: bool) -> Judged:
    """Decide what the Node says of its GPUs.

    Args:
        records: what happened in this boot.
        policy: of the site.
        known: whether NVML was read, or is known not to answer.
    """
    classed = [(action(record.event, policy), record) for record in records if not record.ignored]
    classed.sort(key=lambda pair: (_WORST.index(pair[0]), pair[1].since, pair[1].key))
    bad = [(name, record) for name, record in classed if name in UNHEALTHY]
    listed = annotation(record for _, record in classed)
    if bad:
        words = "; ".join(f"{name} {_told(record)}" for name, record in bad)
        return Judged("False", camel(bad[0][1].event), _short(words, _MESSAGE), listed)
    if not known:
        return Judged("Unknown", "NoReading", "NVML was not read yet", listed)
    return Judged(
        "True", "Healthy", f"{len(classed)} events that need nothing" if classed else "no event", listed
    )


def _told(record: Record) -> str:
    gpu = f", {record.gpu}" if record.gpu else ""
    return f"{record.event}{gpu}: {record.detail}" if record.detail else f"{record.event}{gpu}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def camel(event: str) -> str:
    """Return an event as the reason of a condition: ``nvml remap_pending`` is NvmlRemapPending."""
    words = re.split(r"[^A-Za-z0-9]+", event)
    return "".join(word[:1].upper() + word[1:] for word in words) or "Unknown"


def annotation(records: Iterable[Record]) -> str:
    """Return events as a JSON list of bounded length, the first ones of ``records`` first."""
    parts: list[str] = []
    length = 2
    for record in records:
        shown = {
            "event": record.event,
            "gpu": record.gpu,
            "index": record.index,
            "serial": record.serial,
            "since": rfc3339(record.since),
            "last": rfc3339(record.last),
            "count": record.count,
            "boot": record.boot,
            "detail": record.detail,
        }
        part = json.dumps(shown, separators=(",", ":"))
        length += len(part) + 1
        if length > ANNOTATION_BYTES:
            break
        parts.append(part)
    return f"[{','.join(parts)}]"


def rfc3339(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    at = datetime.datetime.fromtimestamp(max(0.0, seconds), datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def as_data(record: Record) -> dict[str, t.Any]:
    """Return a record as JSON has it."""
    return asdict(record)


def of_data(data: t.Any) -> Record:
    """Return a record that ``as_data`` wrote.

    Raises:
        TypeError, ValueError: it is none.
    """
    record = Record(**data)
    if not isinstance(record.event, str) or not isinstance(record.gpu, str):
        raise ValueError("is no record")
    return replace(record, since=float(record.since), last=float(record.last), count=int(record.count))
