# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the program, as the role ``events`` writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.program import settings
from ironspan.program.listen import Listen, listen
from ironspan.program.settings import Section

DEFAULT_PATH = Path("/etc/ironspan/events.json")
JOB, WORKFLOW = "job", "workflow"
_HOST = re.compile(r"https?://[^\s/@]+(/[^\s]*)?")
_LINE, _WORD = re.compile(r"[^\x00-\x1f\x7f]{1,512}"), re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?"
_HOSTS, _NOTHING = re.compile(f"{_NAME}(?:,{_NAME})*"), re.compile("")
_LOOPBACK = ("127.0.0.1", "::1")
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Reaction:
    """What an alert launches.

    Args:
        alert: its name.
        kind: ``job`` or ``workflow``.
        template: name in the controller.
        cool_down_s: seconds in which the same alert about the same host launches nothing again.
        answers: of its survey.
        label: of the alert that names the host that it is about; empty for the whole site.
        hosts: that it may name.
    """

    alert: str
    kind: str
    template: str
    cool_down_s: int
    answers: Mapping[str, str]
    label: str = ""
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Settings:
    """What the site says.

    Args:
        host: URL of the controller.
        ca_file: of the authority of its certificate, or "".
        controller_token_file: token of an account of the team ``events``.
        organization: of the templates.
        listen: where alerts are taken.
        token_file: bearer tokens that Alertmanager may show, one a line: two while they are rotated.
        state: file of what was launched.
        most_per_hour: launches of all alerts.
        most_failures: launches for one alert that fail in a row, after which it launches once a day at most.
        metrics: where they are served.
        reactions: by the name of the alert.
    """

    host: str
    ca_file: str
    controller_token_file: Path
    organization: str
    listen: Listen
    token_file: Path
    state: Path
    most_per_hour: int
    most_failures: int
    metrics: Listen
    reactions: Mapping[str, Reaction]


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read and check the settings file. Raises SettingsError with all that is wrong."""
    return settings.checked(settings.load(path, "awx"), path, _read)


def _read(top: Section) -> Settings:
    controller = top.section("controller")
    at = top.section("listen")
    found = Settings(
        host=controller.text("host", _HOST, "the URL of the controller"),
        ca_file=controller.path("ca_file", default=""),
        controller_token_file=Path(controller.path("token_file")),
        organization=top.text("organization", _LINE, "its name"),
        listen=listen(at, 2397),
        token_file=Path(top.path("token_file")),
        state=Path(top.path("state")),
        most_per_hour=top.number("most_per_hour", 6, 1, 1000),
        most_failures=top.number("most_failures", 3, 1, 100),
        metrics=listen(top.section("metrics", default={}), 2398),
        reactions={one.alert: one for one in map(_reaction, top.sections("reactions", "reactions"))},
    )
    controller.end()
    if not found.listen.certificate and found.listen.address not in _LOOPBACK:
        at.problem("certificate", "is missing: a token crosses no network without TLS; write it, and key")
    return found


def _reaction(section: Section) -> Reaction:
    found = Reaction(
        alert=section.text("alert", _WORD, "the name of an alert"),
        kind=section.choice("kind", (JOB, WORKFLOW)),
        template=section.text("template", _LINE, "its name in the controller"),
        cool_down_s=section.number("cool_down_seconds", 3600, 60, 30 * _DAY_S),
        answers=section.section("answers", default={}).every(_WORD, _LINE, "a text"),
        label=section.text("label", _WORD, "a label of the alert", "", _NOTHING),
        hosts=frozenset(
            filter(None, section.text("hosts", _HOSTS, "hosts with commas", "", _NOTHING).split(","))
        ),
    )
    if bool(found.label) != bool(found.hosts):
        section.problem("label", "and hosts go together: without a host it would be about all of them")
    section.end()
    return found
