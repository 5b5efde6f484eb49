# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The display on a terminal. Only a terminal loads its library, which takes half of the time of `--help`."""

from __future__ import annotations

import collections.abc
import typing as t

import rich.console
import rich.live
import rich.markup
import rich.spinner
import rich.table

MARKS = {"done": "[green]✓[/]", "skip": "[dim]-[/]", "fail": "[red]✗[/]"}
Row = tuple[str, str, float]
"""What is worked on, a few words more, and for how many seconds."""


class Live:
    """Running steps at the bottom, what has ended above.

    Args:
        stream: a terminal.
        rows: returns what is worked on now.
    """

    def __init__(self, stream: t.TextIO, rows: collections.abc.Callable[[], list[Row]]) -> None:
        self._rows = rows
        self._rich = rich.console.Console(file=stream, highlight=False, force_terminal=True)
        self._area: rich.live.Live | None = None

    def start(self) -> None:
        """Show the area of running steps."""
        self._area = rich.live.Live(
            console=self._rich, get_renderable=self._table, refresh_per_second=4, transient=True
        )
        self._area.start()

    def stop(self) -> None:
        """Remove it."""
        if self._area is not None:
            self._area.stop()
            self._area = None

    def ended(self, name: str, state: str, detail: str, seconds: str) -> None:
        """Show a step that ended."""
        tail = f"  [dim]{rich.markup.escape(detail)}[/]" if detail else ""
        spent = f"  [dim]{seconds}[/]" if seconds else ""
        self._rich.print(f"{MARKS.get(state, state)} {rich.markup.escape(name)}{tail}{spent}")

    def phase(self, name: str) -> None:
        """Show that a phase begins."""
        self._rich.print(f"[bold]{rich.markup.escape(name)}[/]")

    def note(self, text: str) -> None:
        """Show a line of text. The terminal wraps it: a command in it can be copied in one piece."""
        self._rich.print(text, markup=False, soft_wrap=True)

    def _table(self) -> rich.table.Table:
        table = rich.table.Table.grid(padding=(0, 1))
        for name, detail, seconds in self._rows():
            table.add_row(
                rich.spinner.Spinner("dots", style="cyan"),
                rich.markup.escape(name),
                f"[dim]{rich.markup.escape(detail)}[/]",
                f"[dim]{seconds:.0f} s[/]",
            )
        return table
