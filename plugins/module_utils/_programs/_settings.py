# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Settings of programs, read strictly: every problem at once, with what to write instead.

A reader takes what it knows from a ``Section``; what it did not ask for is refused at ``end`` with the
nearest name that is known. Programs that are a single file have this in it, packed ones beside them.
"""

from __future__ import annotations

import difflib
import json
import re
import typing as t

_ABSOLUTE = re.compile(r"/.*")
_NOTHING = re.compile(r"")
_Settings = t.TypeVar("_Settings")


class Unusable(Exception):
    """A settings file cannot be used; ``problems`` has one line for each thing to change."""

    def __init__(self, path: str, problems: t.Sequence[str]) -> None:
        super().__init__(f"{path} cannot be used: {'; '.join(problems)}")
        self.problems = list(problems)


def take(  # noqa: UP047
    data: object, read: t.Callable[[Section], _Settings], problems: t.List[str]
) -> _Settings:
    """Return the settings that a file's content says, of which there are some only if nothing is wrong.

    Args:
        data: the content.
        read: takes every setting from the section that is the whole file; what it leaves is refused.
        problems: where a line is added for each thing to change.
    """
    top = Section.top(data, problems)
    settings = read(top)
    top.end()
    return settings


def settings_in(path: str, read: t.Callable[[Section], _Settings]) -> _Settings:  # noqa: UP047
    """Return the settings in a file of JSON.

    Raises:
        Unusable: it cannot be read, or something in it is wrong; all problems at once.
    """
    problems: t.List[str] = []
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise Unusable(path, [str(error.strerror)]) from error
    except (ValueError, RecursionError) as error:
        raise Unusable(path, [f"it is not JSON ({error})"]) from error
    found = take(data, read, problems)
    if problems:
        raise Unusable(path, problems)
    return found


class Section:
    """One mapping of a file, and where it stands in it.

    A method that finds something wrong adds a line to ``problems`` and returns a value of the right type, so
    that reading goes on.

    Args:
        data: the mapping.
        path: its place in the file, with dots; empty for the whole file.
        problems: where lines are added.
        lost: it is not there or no mapping, which was said already: nothing in it is asked for.
    """

    def __init__(
        self, data: t.Mapping[str, t.Any], path: str, problems: t.List[str], lost: bool = False
    ) -> None:
        self._data = data
        self._path = path
        self._problems = problems
        self._lost = lost
        self._known: t.Set[str] = set()

    @classmethod
    def top(cls, data: object, problems: t.List[str]) -> Section:
        """Return the section that is the whole file."""
        if isinstance(data, t.Mapping):
            return cls(data, "", problems)
        problems.append(f"is {_shown(data)}; write a mapping")
        return cls({}, "", problems, lost=True)

    def text(
        self,
        name: str,
        like: t.Pattern[str],
        write: str,
        default: t.Optional[str] = None,
        other: t.Optional[t.Pattern[str]] = None,
    ) -> str:
        """Return a string that a pattern, or the other one, matches whole; required without a default."""
        value = self._take(name, default, write)
        if isinstance(value, str) and any(p.fullmatch(value) for p in (like, other) if p):
            return value
        self._wrong(name, value, write)
        return ""

    def path(self, name: str, write: str = "an absolute path", default: t.Optional[str] = None) -> str:
        """Return an absolute path; required without a default."""
        return self.text(name, _ABSOLUTE, write, default, _NOTHING if default == "" else None)

    def problem(self, name: str, text: str) -> None:
        """Add what is wrong with a value that alone would be right."""
        self._problems.append(f"{self._at(name)} {text}")

    def texts(self, name: str, *like: t.Pattern[str], write: str) -> t.Tuple[str, ...]:
        """Return a list of at least one string that one of the patterns matches whole."""
        value = self._take(name, None, f'["{write}"]')
        if not isinstance(value, t.Sequence) or isinstance(value, str) or not value:
            self._wrong(name, value, f'["{write}"]')
            return ()
        for number, item in enumerate(value):
            if not isinstance(item, str) or not any(pattern.fullmatch(item) for pattern in like):
                self._wrong(f"{name}[{number}]", item, write)
        return tuple(item for item in value if isinstance(item, str))

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number within bounds."""
        value = self._take(name, default, "")
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self._wrong(name, value, f"a whole number from {least} to {most}")
        return default

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._take(name, default, "")
        if isinstance(value, bool):
            return value
        self._wrong(name, value, "true or false")
        return default

    def choice(self, name: str, values: t.Sequence[str]) -> str:
        """Return one of some words, or nothing when it is another."""
        value = self._take(name, None, " or ".join(values))
        if isinstance(value, str) and value in values:
            return value
        self._wrong(name, value, " or ".join(values))
        return ""

    def section(self, name: str, default: t.Optional[t.Mapping[str, t.Any]] = None) -> Section:
        """Return a mapping below this one; required without a default."""
        value = self._take(name, default, "a mapping")
        if isinstance(value, t.Mapping):
            return Section(value, self._at(name), self._problems)
        self._wrong(name, value, "a mapping")
        return Section({}, self._at(name), self._problems, lost=True)

    def sections(self, name: str, write: str) -> t.List[Section]:
        """Return a list of at least one mapping."""
        value = self._take(name, None, write)
        if not isinstance(value, t.Sequence) or isinstance(value, str) or not value:
            self._wrong(name, value, f"a list of {write}")
            return []
        wrong = [number for number, item in enumerate(value) if not isinstance(item, t.Mapping)]
        for number in wrong:
            self._wrong(f"{name}[{number}]", value[number], "a mapping")
        return [
            Section(item, self._at(f"{name}[{number}]"), self._problems)
            for number, item in enumerate(value)
            if number not in wrong
        ]

    def every(self, names: t.Pattern[str], like: t.Pattern[str], write: str) -> t.Dict[str, str]:
        """Return all entries, whose names match one pattern and whose values, strings, match another."""
        found = {}
        for name, value in self._data.items():
            if names.fullmatch(str(name)) and isinstance(value, str) and like.fullmatch(value):
                found[str(name)] = value
            else:
                self._wrong(str(name), value, write)
        return found

    def numbers(self, least: int, most: int) -> t.Dict[str, int]:
        """Return all entries, whose values are whole numbers within bounds."""
        return {str(name): self.number(str(name), least, least, most) for name in self._data}

    def end(self) -> None:
        """Name what was not asked for."""
        for name in [] if self._lost else self._data:
            if name not in self._known:
                near = difflib.get_close_matches(str(name), sorted(self._known), 1)
                remedy = f"write {near[0]}" if near else f"there are {', '.join(sorted(self._known))}"
                self._problems.append(f"{self._at(str(name))} is not known; {remedy}")

    def _take(self, name: str, default: t.Any, write: str) -> t.Any:
        self._known.add(name)
        if name not in self._data and default is None:
            if not self._lost:
                self._problems.append(f"{self._at(name)} is missing; write {write}")
            return _Missing
        return self._data.get(name, default)

    def _wrong(self, name: str, value: object, write: str) -> None:
        if value is not _Missing:
            self._problems.append(f"{self._at(name)} is {_shown(value)}; write {write}")

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


class _Missing:
    """Stands for a value that is not there, which was said already."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
