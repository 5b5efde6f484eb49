# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A dictionary inside a variable of the inventory, and where each of its fields is written."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One dictionary of the inventory, and where it is written."""

    draft: Draft
    host: HostDraft
    path: str
    value: Mapping[str, t.Any]
    written: t.Any

    def text(self, name: str) -> str:
        """Return a field, empty when it is not there or no text."""
        value = self.value.get(name)
        return value if isinstance(value, str) else ""

    def has(self, name: str) -> bool:
        """Tell whether a field says something; what was refused as it is written counts, and was named."""
        if isinstance(self.written, Mapping) and self.value.get(name) is None:
            return bool(self.written.get(name))
        return bool(self.value.get(name))

    def problem(self, name: str, message: str, remedy: str) -> None:
        """Add a problem of a field, at the line where it is written."""
        place: Place | None = None
        if isinstance(self.written, Mapping):
            place = next((place_of(key) for key in self.written if str(key) == name), None)
        place = place or place_of(self.written)
        variable = self.path.partition("[")[0].partition(".")[0]
        self.draft.problems.add(
            place or self.draft.place(self.host, variable), f"{self.path}.{name}", message, remedy
        )

    def inner(self, name: str) -> Entry | None:
        """Return a field that is a dictionary itself."""
        value = self.value.get(name)
        written = self.written.get(name) if isinstance(self.written, Mapping) else None
        if not isinstance(value, Mapping):
            return None
        return Entry(self.draft, self.host, f"{self.path}.{name}", value, written)


def entries(draft: Draft, variable: str) -> Iterator[Entry]:
    """Return the dictionaries of a list of the whole site; what is of another type is left out."""
    host, values = draft.writer(variable), draft.site_value(variable)
    if host is None or not isinstance(values, list):
        return
    written = host.settings[variable].value
    for index, value in enumerate(values):
        if isinstance(value, Mapping):
            # An expression that came to nothing leaves the default in its place, which is another list.
            item = written[index] if isinstance(written, list) and index < len(written) else None
            yield Entry(draft, host, f"{variable}[{index}]", value, item)
