# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""apt and dpkg as the kinds of packages use them: what is installed, and runs that ask nobody."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
OPTIONS = [
    "-y",
    "-o", "Dpkg::Options::=--force-confdef",
    "-o", "Dpkg::Options::=--force-confold",
    # Wait for unattended upgrades to let go of the lock instead of failing.
    "-o", "DPkg::Lock::Timeout=300",
]  # fmt: skip
GONE = ("", "n", "c")
"""States without the package's files: unknown, not installed, only its configuration left."""
HALF = ("U", "F", "H", "W", "t")
"""States in the middle: unpacked, half configured, half installed, triggers awaited or pending."""
TIMEOUT = 1800.0
"""Seconds for one apt-get: a slow mirror and a held lock both fit."""
_PLANNED = re.compile(r"^(Inst|Remv) (\S+)(?: \[(\S+)\])?(?: \((\S+) )?", re.MULTILINE)


class Planned(t.NamedTuple):
    """One package of ``apt-get --simulate``: its version now and then, empty for none."""

    name: str
    before: str
    after: str


def parse_listing(text: str) -> t.Dict[str, t.Tuple[str, str]]:
    """Read ``dpkg-query -W`` lines of name, state abbreviation and version, separated by tabs.

    Args:
        text: its output.

    Returns:
        name -> (state such as "ii", version). The state's letters are: wanted, present (i installed, c only
        configuration files, U and F half way), and an error flag.
    """
    packages: t.Dict[str, t.Tuple[str, str]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3:
            packages[parts[0]] = (parts[1].strip(), parts[2])
    return packages


def parse_simulation(text: str) -> t.List[Planned]:
    """Read what ``apt-get --simulate`` would install and remove; a name has no architecture here."""
    return [
        Planned(name.partition(":")[0], before, after if verb == "Inst" else "")
        for verb, name, before, after in _PLANNED.findall(text)
    ]


def installed(host: Host) -> t.Dict[str, t.Tuple[str, str]]:
    """Return dpkg's list, read once an execution; see ``parse_listing``."""

    def listing() -> t.Dict[str, t.Tuple[str, str]]:
        form = "${Package}\t${db:Status-Abbrev}\t${Version}\n"
        return parse_listing(host.run(["dpkg-query", "-W", f"-f={form}"])[1])

    packages: t.Dict[str, t.Tuple[str, str]] = host.cached("dpkg-query", listing)
    return packages


def forget(host: Host) -> None:
    """Have dpkg's list read again."""
    host.forget_cached("dpkg-query")


def go_on(host: Host) -> None:
    """Configure what an installation left half way that was cut off: it blocks every later one."""
    if any(state[1:2] in HALF for state, _ in installed(host).values()):
        argv = ["dpkg", "--configure", "-a", "--force-confold"]
        # What is only half unpacked stays so; apt unpacks it again.
        host.run(argv, check=False, env=ENVIRONMENT, timeout=TIMEOUT)
        forget(host)


def run(host: Host, *words: str, check: bool = True, timeout: float = TIMEOUT) -> t.Tuple[int, str, str]:
    """Run ``apt-get`` with these words, without questions and without what packages only recommend."""
    verb, rest = words[0], words[1:]
    argv = ["apt-get", verb, "-q", "--no-install-recommends", *OPTIONS, *rest]
    return host.run(argv, check=check, env=ENVIRONMENT, timeout=timeout)


def update(host: Host) -> None:
    """Fetch the lists of the host's sources; one that does not answer is no reason to stop."""
    host.run(["apt-get", "update", "-q"], check=False, env=ENVIRONMENT, timeout=TIMEOUT)


def choices(host: Host, words: t.Sequence[str]) -> t.Iterator[t.List[str]]:
    """Yield what apt may be asked for where one package is left to it, in each version that there is.

    apt takes its newest version, also where that insists on another version of a package that is named
    exactly. Precompiled kernel modules do so, whose version is not the driver's.

    Args:
        host: the host; its lists of packages are there.
        words: names, with ``=VERSION`` or without.
    """
    for place, word in enumerate(words):
        if "=" in word or word.endswith("-"):
            continue
        _, text, _ = host.run(["apt-cache", "madison", word], check=False, env=ENVIRONMENT)
        rows = [[part.strip() for part in line.split("|")] for line in text.splitlines()]
        for version in dict.fromkeys(row[1] for row in rows if len(row) == 3 and row[0] == word):
            yield [*words[:place], f"{word}={version}", *words[place + 1 :]]


def last_error(text: str) -> str:
    """Return what apt-get said last, its errors first."""
    lines = text.strip().splitlines()
    errors = [line[3:] for line in lines if line.startswith("E: ")]
    return (errors or lines[-1:] or ["no reason given"])[0]
