# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads plain data, field by field, and collects everything that is wrong with it."""

from __future__ import annotations

import typing as t

FIELDS: dict[str, set[str]] = {
    "lock": {"schema", "components", "bases", "environments", "systems", "files", "images"},
    "component": {
        "version", "licence", "modules", "programs", "c_programs", "tests", "replace", "staging", "cgo",
        "libraries", "tags", "ldflags",
    },
    "c_program": {"module", "source", "flags"},
    "base": {"suite", "packages", "licence", "links", "applets", "files"},
    "file": {
        "licence", "url", "path", "digests", "sizes", "only_without_capability", "go", "environment",
        "system", "set",
    },
    "file.go": {"pack", "program", "members", "chart", "values", "namespace", "kube_version", "sha256"},
    "environment": {"module", "packages", "extra", "pythons", "own_versions", "leave_out", "wheels"},
    "wheel": {"sha256", "licence"},
    "system": {
        "kind", "suite", "date", "packages", "files", "units", "python", "wheels", "drop",
        "layout", "like",
    },
    "system.units": {"enable", "disable", "mask"},
    "image": {"licence", "digests", "go", "set"},
    "image.go": {"base", "programs", "sources", "entrypoint", "command", "user"},
}  # fmt: skip


class Fields:
    """Turns plain data into typed values; what is wrong goes to ``problems``."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def problem(self, where: str, text: str) -> None:
        """Note one problem at a place such as ``files.kubelet/1.36.4.url``."""
        self.problems.append(f"{where}: {text}" if where else text)

    def mapping(self, data: t.Any, where: str, kind: str = "") -> dict[str, t.Any]:
        """Return a mapping with text keys; with a kind, only that kind's fields."""
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            self.problem(where, "must be a mapping with text keys")
            return {}
        for key in data:
            if kind and key not in FIELDS[kind]:
                self.problem(where, f"unknown field {key!r}; known: {', '.join(sorted(FIELDS[kind]))}")
        return data

    def strings(self, data: t.Any, where: str) -> dict[str, str]:
        """Return a mapping of text to text."""
        fields = self.mapping(data, where)
        for key, value in fields.items():
            if not isinstance(value, str) or not value:
                self.problem(f"{where}.{key}", f"must be text, not {value!r}")
        return {key: value for key, value in fields.items() if isinstance(value, str) and value}

    def listing(self, data: t.Any, where: str) -> tuple[str, ...]:
        """Return a list of text."""
        if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
            self.problem(where, "must be a list of text")
            return ()
        return tuple(data)

    def text(self, fields: dict[str, t.Any], key: str, where: str, required: bool = True) -> str:
        """Return a text field."""
        value = fields.get(key, None if required else "")
        if not isinstance(value, str) or (required and not value):
            self.problem(f"{where}.{key}", "is missing" if value is None else f"must be text, not {value!r}")
            return ""
        return value

    def flag(self, fields: dict[str, t.Any], key: str, where: str) -> bool:
        """Return a field that is true or false (false when absent)."""
        value = fields.get(key, False)
        if not isinstance(value, bool):
            self.problem(f"{where}.{key}", f"must be true or false, not {value!r}")
            return False
        return value
