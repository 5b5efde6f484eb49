# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller's memory of a node as the text of an annotation."""

from __future__ import annotations

import datetime
import json
import typing as t

from ironspan.gpu_repair.model import Record, State, Try

HISTORY, EVIDENCE, TRIES, MET = 20, 8, 8, 64
"""How many of each are kept."""
TEXT = 300
"""Characters of one text: nodes say some of them."""


def dumps(record: Record) -> str:
    """Return a record as JSON, times in words, nothing that is empty."""
    content: dict[str, t.Any] = {
        "state": str(record.state),
        "since": moment(record.since),
        "reason": clean(record.reason),
        "evidence": [clean(line) for line in record.evidence[:EVIDENCE]],
        "expires": moment(record.expires),
        "aim": record.aim,
        "gpu": record.gpu,
        "asked": record.asked,
        "boot": record.boot,
        "cordoned": record.cordoned,
        "served": record.served,
        "tests": record.tests,
        "met": dict(list(record.met.items())[:MET]),
        "serials": list(record.serials),
        "tries": [
            {"do": each.do, "at": moment(each.at), "events": list(each.events)[:EVIDENCE]}
            for each in record.tries[-TRIES:]
        ],
        "released": record.released,
        "tested": moment(record.tested),
        "history": [[moment(at), state, clean(why)] for at, state, why in record.history[-HISTORY:]],
    }
    return json.dumps({name: value for name, value in content.items() if value}, separators=(",", ":"))


def loads(text: str) -> Record:
    """Return the record that a text is.

    Raises:
        ValueError: it is none.
    """
    try:
        content = json.loads(text)
        return Record(
            State(content["state"]),
            seconds(content["since"]),
            reason=str(content.get("reason", "")),
            evidence=_texts(content.get("evidence", [])),
            expires=seconds(content.get("expires", "")),
            aim=str(content.get("aim", "")),
            gpu=str(content.get("gpu", "")),
            asked=str(content.get("asked", "")),
            boot=str(content.get("boot", "")),
            cordoned=content.get("cordoned") is True,
            served=content.get("served") is True,
            tests=float(content.get("tests", 0)),
            met={str(name): str(value) for name, value in content.get("met", {}).items()},
            serials=_texts(content.get("serials", [])),
            tries=tuple(
                Try(str(each["do"]), seconds(each["at"]), _texts(each.get("events", [])))
                for each in content.get("tries", [])
            ),
            released=str(content.get("released", "")),
            tested=seconds(content.get("tested", "")),
            history=tuple(
                (seconds(at), str(state), str(why)) for at, state, why in content.get("history", [])
            ),
        )
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no record of a repair ({error!r})") from error


def moment(time: float) -> str:
    """Return a time as RFC 3339 to the second, empty for 0."""
    if not time:
        return ""
    return f"{datetime.datetime.fromtimestamp(time, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


def seconds(text: t.Any) -> float:
    """Return a time in seconds since the epoch, 0 for an empty one. Raises ValueError."""
    if not text:
        return 0.0
    read = datetime.datetime.fromisoformat(str(text))
    return (read if read.tzinfo else read.replace(tzinfo=datetime.UTC)).timestamp()


def clean(text: str) -> str:
    """Return what a node says without what a terminal obeys, and not more of it than fits."""
    text = text[: TEXT + 1]
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= TEXT else text[: TEXT - 3] + "..."


def _texts(values: t.Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
