# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host's answer to a module of ours, read once: every field has its type, what is unknown is left out.

A host that somebody has taken over answers what he likes. What does not have the module's form fails that
host, with one line. What Ansible itself would obey in a result is not taken over: facts that become variables
of the host and win over the inventory's, hosts and groups to add, orders that begin with _ansible_.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

LONGEST_TEXT = 4 << 20
"""Characters of one text: a diff holds a whole file."""
MOST_ENTRIES = 20_000
"""Of one list or mapping. A document has some hundred resources."""
DEEPEST = 12
LARGEST = 16 << 20
"""Characters of all texts together."""
_NUMBER_RANGE = 1e15
_A_DAY = 86_400


class _WrongError(Exception):
    """A field is not what the module answers; the text says which."""


@dataclasses.dataclass
class _Budget:
    left: int = LARGEST


Reader = Callable[[str, t.Any, _Budget], t.Any]


def _text(where: str, value: t.Any, budget: _Budget) -> str:
    if not isinstance(value, str):
        raise _WrongError(f"{where} is no text")
    budget.left -= len(value)
    if len(value) > LONGEST_TEXT or budget.left < 0:
        raise _WrongError(f"{where} is too long")
    # Not a lone surrogate: it could be written nowhere.
    return value.encode("utf-8", "replace").decode("utf-8")


def _flag(where: str, value: t.Any, budget: _Budget) -> bool:
    if not isinstance(value, bool):
        raise _WrongError(f"{where} is neither true nor false")
    return value


def _number(where: str, value: t.Any, budget: _Budget) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongError(f"{where} is no number")
    if not math.isfinite(value) or abs(value) > _NUMBER_RANGE:
        raise _WrongError(f"{where} is out of range")
    return value


def _anything(where: str, value: t.Any, budget: _Budget, depth: int = 0) -> t.Any:
    """Read plain data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(where, value, budget)
    if isinstance(value, int | float):
        return _number(where, value, budget)
    if depth > DEEPEST:
        raise _WrongError(f"{where} is nested too deeply")
    if isinstance(value, Mapping):
        _insist_on_few(where, value, budget)
        return {
            _text(where, key, budget): _anything(where, each, budget, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        _insist_on_few(where, value, budget)
        return [_anything(where, each, budget, depth + 1) for each in value]
    raise _WrongError(f"{where} is no plain data")


def _insist_on_few(where: str, value: t.Sized, budget: _Budget) -> None:
    budget.left -= len(value)
    if len(value) > MOST_ENTRIES or budget.left < 0:
        raise _WrongError(f"{where} has too many entries")


def _maybe(read: Reader) -> Reader:
    return lambda where, value, budget: None if value is None else read(where, value, budget)


def _list(read: Reader) -> Reader:
    def reader(where: str, value: t.Any, budget: _Budget) -> list[t.Any]:
        if not isinstance(value, list | tuple):
            raise _WrongError(f"{where} is no list")
        _insist_on_few(where, value, budget)
        return [read(f"{where}.{number}", each, budget) for number, each in enumerate(value)]

    return reader


def _mapping(read: Reader) -> Reader:
    def reader(where: str, value: t.Any, budget: _Budget) -> dict[str, t.Any]:
        if not isinstance(value, Mapping):
            raise _WrongError(f"{where} is no mapping")
        _insist_on_few(where, value, budget)
        names = {key: _text(where, key, budget) for key in value}
        return {name: read(f"{where}.{name}", value[key], budget) for key, name in names.items()}

    return reader


def _record(needed: Mapping[str, Reader], known: Mapping[str, Reader], others: bool = False) -> Reader:
    """Return a reader of a mapping with fields; ``others`` keeps those that are not known."""

    def reader(where: str, value: t.Any, budget: _Budget) -> dict[str, t.Any]:
        plain = _mapping(_anything if others else lambda _, each, __: each)(where, value, budget)
        for name in needed:
            if name not in plain:
                raise _WrongError(f"{where} has no {name}")
        fields = {**needed, **known}
        read = {name: each for name, each in plain.items() if others and name not in fields}
        for name, field in fields.items():
            if name in plain:
                read[name] = field(f"{where}.{name}", plain[name], budget)
        return read

    return reader


_DATA = _mapping(_anything)
_CHANGED = _record(
    {"resource": _text, "kind": _text, "action": _text},
    {"before": _maybe(_DATA), "after": _maybe(_DATA), "reason": _text},
)


def _change(where: str, value: t.Any, budget: _Budget) -> dict[str, t.Any]:
    read = _CHANGED(where, value, budget)
    sides = {side: read.get(side) or {} for side in ("before", "after")}
    return {**read, **sides, "reason": read.get("reason", "")}


_PENDING = _record({"resource": _text, "needs": _text}, {})
_VERDICT = _record({"check": _text, "ok": _flag, "found": _anything, "wanted": _anything}, {"remedy": _text})


def _digest(where: str, value: t.Any, budget: _Budget) -> str:
    """Read what becomes part of a file's name in the run's folder."""
    if not re.fullmatch(r"[0-9A-Za-z]{0,64}", _text(where, value, budget)):
        raise _WrongError(f"{where} is no digest")
    return str(value)


def _moment(where: str, value: t.Any, budget: _Budget) -> int:
    """Read a time, of which the latest decides who goes back: none that is still to come."""
    if not 0 <= _number(where, value, budget) <= time.time() + _A_DAY:
        raise _WrongError(f"{where} is no time that has been")
    return int(value)


_RELEASE = _record({}, {"digest": _digest, "time": _moment})
_ROLLBACK = _record(
    {
        "undoes": _RELEASE,
        "left": _list(_record({"resource": _text, "why": _text}, {})),
        "removed_layers": _list(_text),
        "replaced_artifacts": _list(_record({"resource": _text, "from": _text, "to": _text}, {})),
    },
    {},
    others=True,
)
_DOCUMENT = _record(
    {
        "site": _text,
        "host": _text,
        "layers": _list(_text),
        "resources": _list(_record({"id": _text, "kind": _text}, {}, others=True)),
    },
    {"rollback": _record({"undoes": _RELEASE}, {}, others=True), "fitness": _DATA},
    others=True,
)
FIELDS: Mapping[str, Reader] = {
    "changed": _flag,
    "failed": _flag,
    "resumed": _flag,
    "msg": _text,
    "remedy": _text,
    "failed_resource": _text,
    "digest": _text,
    "fingerprint": _text,
    "plan": _text,
    "rolled_back": _list(_text),
    "changes": _list(_change),
    "pending": _list(_PENDING),
    "csrs": _mapping(_text),
    "verdicts": _list(_VERDICT),
    "facts": _record({}, {"time_unix": _number, "python": _text}, others=True),
    "timings": _mapping(_number),
    "diff": _list(_DATA),
    "document": _DOCUMENT,
    "rollback": _ROLLBACK,
    "revisions": _list(_DATA),
    "reports": _list(_DATA),
    "trial": _DATA,
    "module_stdout": _text,
    "module_stderr": _text,
    "rc": _number,
}
"""What the module answers, and what Ansible says of a module that did not run."""
OF_ANSIBLE = ("unreachable", "exception", "warnings", "deprecations")
"""What Ansible's own code adds on the controller."""
CERTIFICATES: Mapping[str, Reader] = {
    "certificates": _list(_record({"path": _text, "field": _text, "pem": _text}, {})),
    "unreadable": _list(_text),
    "written": _mapping(_number),
    "started": _mapping(_number),
    "public_keys": _text,
}
"""What the module ``certificates`` answers."""
HEALTH: Mapping[str, Reader] = {
    "health": _record({"seconds": _number, "time_unix": _number}, {}, others=True)
}
"""What the module ``host_health`` answers; what else is in it, its readers judge (``doctor/misfits.py``)."""
ATTESTATION: Mapping[str, Reader] = {
    "attestation": _record(
        {"algorithm": _text, "ak": _text},
        {
            "quote": _text,
            "signature": _text,
            "pcrs": _mapping(_text),
            "ek": _text,
            "certificate": _text,
            "secret": _text,
        },
    )
}
"""What the program ``attest`` answers; what it means, ``plugin_utils/attestation`` judges."""
_OF_ANY_MODULE = ("changed", "failed", "msg", "module_stdout", "module_stderr", "rc")
NEEDED = {
    "assess": ("changes", "pending", "facts", "digest", "fingerprint"),
    "rollback": ("changes", "pending", "facts", "digest", "fingerprint", "document", "rollback"),
}
"""By mode, what a result that is not a failure has."""


def read_whole(answer: t.Any, form: Mapping[str, Reader]) -> dict[str, t.Any]:
    """Return the answer of a module that always answers all of its fields, as ``read`` does.

    Args:
        answer: whatever came back.
        form: ``CERTIFICATES``, ``HEALTH`` or ``ATTESTATION``.
    """
    return _read(answer, {**{name: FIELDS[name] for name in _OF_ANY_MODULE}, **form}, tuple(form))


def read(answer: t.Any, mode: str = "") -> dict[str, t.Any]:
    """Return a host's answer to ``converge`` as it may be used.

    Args:
        answer: whatever came back.
        mode: what was asked of the module; tells what has to be there.

    Returns:
        Its known fields, each with its type; a failure when it has another form.
    """
    return _read(answer, FIELDS, NEEDED.get(mode, ()))


def _read(answer: t.Any, form: Mapping[str, Reader], needed: Sequence[str]) -> dict[str, t.Any]:
    try:
        if not isinstance(answer, Mapping):
            raise _WrongError("it is no mapping")
        found = {name: answer[name] for name in OF_ANSIBLE if name in answer}
        budget = _Budget()
        for name, field in form.items():
            if answer.get(name) is not None:
                found[name] = field(name, answer[name], budget)
        settled = found.get("failed") or found.get("unreachable")
        missing = [name for name in needed if name not in found]
        if missing and not settled:
            raise _WrongError(f"it has no {missing[0]}")
    except (_WrongError, RecursionError) as wrong:
        text = str(wrong) if isinstance(wrong, _WrongError) else "it is nested too deeply"
        return {
            "failed": True,
            "changed": False,
            "msg": "This host's answer does not have the module's form, and nothing was taken from it: "
            f"{text[:200]}. Look into what runs there: only ironspan's own module answers here.",
        }
    return found
