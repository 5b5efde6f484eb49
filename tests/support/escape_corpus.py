# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The escape corpus: requests that try to leave the sandbox or the policy, kept as data in ``escapes/``."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import yaml

from tests.support.admission_cases import C0, GOOD, Object

FOLDER = pathlib.Path(__file__).with_name("escapes")


@dataclasses.dataclass(frozen=True)
class Escape:
    """One attempt, and what stops it.

    Args:
        name: what it tries.
        namespace: where.
        changes: of a good pod, by path.
        container: an ephemeral container for a good pod.
        who: ``researcher`` (RBAC allows everything) or ``editor``.
        request: method and path, for what is no pod.
        body: of the request.
        rule: the admission rule that must refuse it.
        refusal: what the API server itself must say.
        becomes: values by path in what is made of it, where it is taken.
    """

    name: str
    namespace: str = "jobs"
    changes: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    container: Object = dataclasses.field(default_factory=dict)
    who: str = "researcher"
    request: str = ""
    body: Object | None = None
    rule: str = ""
    refusal: str = ""
    becomes: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.rule, self.refusal, self.becomes))) != 1:
            raise ValueError(f"{self.name}: one of rule, refusal and becomes says what stops it")

    def __str__(self) -> str:
        return self.name


def read(name: str) -> list[Escape]:
    """Return the attempts of one file of the corpus."""
    entries = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return [_escape(entry) for entry in entries]


def _escape(entry: Object) -> Escape:
    fields = _written_out(entry)
    if "as" in fields:
        fields["who"] = fields.pop("as")
    changes = {
        f"{C0}{path.removeprefix('C')}" if path.startswith("C.") else path: value
        for path, value in fields.pop("changes", {}).items()
    }
    return Escape(changes=changes, **fields)


def _written_out(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _written_out(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_written_out(inner) for inner in value]
    return GOOD if value == "GOOD" else value


PODS, DEBUG, REQUESTS = read("pods"), read("debug"), read("requests")
