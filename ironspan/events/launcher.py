# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Launches what was decided. It is written down first, so that a kill in between launches nothing twice."""

from __future__ import annotations

import logging
import threading
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import (
    Api,
    ControllerError,
    Refused,
)

from ironspan.events import memory
from ironspan.events.decide import Alert, Decision, Launch, Past, decide, following, with_job
from ironspan.events.settings import JOB, Settings
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
_PATHS: t.Final = {JOB: "job_templates", "workflow": "workflow_job_templates"}


class Unreachable(ProgramError):
    """The controller cannot be asked, and nothing was launched: Alertmanager sends the alert again."""


class Launcher:
    """Turns alerts into launches, one request at a time.

    Args:
        settings: of the program.
        told: called with each decision.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        told: Callable[[Decision], object] = lambda decision: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._told, self._clock = settings, told, clock
        self._lock = threading.Lock()
        self._past = memory.read(settings.state)

    def take(self, alerts: Sequence[Alert]) -> list[Decision]:
        """Launch what is to be launched; return what became of each alert.

        Raises:
            Unreachable: the controller does not answer, or does not have a template; what was launched before
                that stays launched, and is not launched again.
            OSError: what was launched cannot be written down, so nothing more is launched.
        """
        with self._lock:
            now, chosen = self._clock(), self._settings
            api: Api | None = None
            ended: Mapping[str, str] = {}
            decisions = self._decided(alerts, ended, now)
            if any(one.launch for one in decisions):
                api = Api(chosen.host, controller_token(chosen), chosen.ca_file)
                ended = self._ended(api, decisions)
                decisions = self._decided(alerts, ended, now)
            for one in decisions:
                if one.launch and api:
                    self._launch(api, one.launch, ended, now)
                self._told(one)
                LOG.info("%s: %s%s", one.alert.name, one.outcome, f" {one.launch.key}" if one.launch else "")
            return decisions

    def _decided(self, alerts: Sequence[Alert], ended: Mapping[str, str], now: float) -> list[Decision]:
        chosen = self._settings
        return decide(
            alerts, chosen.reactions, self._past, ended, chosen.most_per_hour, chosen.most_failures, now
        )

    def _ended(self, api: Api, decisions: Sequence[Decision]) -> dict[str, str]:
        """Return how the last jobs of what would be launched have ended; one that is deleted is not known."""
        found = {}
        for one in decisions:
            last = self._past.get(one.launch.key) if one.launch else None
            if one.launch and last and last.job:
                try:
                    found[one.launch.key] = str(api.get(last.job).get("status", ""))
                except Refused as error:
                    if error.status != 404:
                        raise _unreachable(error) from error
                except ControllerError as error:
                    raise _unreachable(error) from error
        return found

    def _launch(self, api: Api, launch: Launch, ended: Mapping[str, str], now: float) -> None:
        path = _PATHS[launch.reaction.kind]
        try:
            number = self._number(api, path, launch.reaction.template)
        except ControllerError as error:
            raise _unreachable(error) from error
        last = self._past.get(launch.key)
        self._remember(launch.key, following(last, ended.get(launch.key, ""), now))
        try:
            made = api.post(f"{path}/{number}/launch/", {"extra_vars": dict(launch.answers)})
        except Refused as error:
            # It will be refused again: this counts as a launch that failed, and cools down like one.
            LOG.error("%s: %s", launch.reaction.template, error.message)
            self._remember(launch.key, Past(now, failures=self._past[launch.key].failures + 1))
        except ControllerError as error:
            # It may have been launched. Not to know is no reason to launch it twice.
            LOG.error("%s: %s; it may run", launch.reaction.template, error.message)
        else:
            kind = "jobs" if launch.reaction.kind == JOB else "workflow_jobs"
            # The kind of job that a sliced template becomes is another one.
            kind = "workflow_jobs" if made.get("workflow_job") else kind
            self._remember(launch.key, with_job(self._past[launch.key], f"{kind}/{int(made['id'])}/"))

    def _number(self, api: Api, path: str, name: str) -> int:
        organization = self._settings.organization
        for found in api.listed(f"{path}/", name=name):
            there = (found.get("summary_fields") or {}).get("organization") or {}
            if found.get("name") == name and there.get("name") == organization:
                return int(found["id"])
        raise ControllerError(
            f"the controller shows no template {name!r} of the organization {organization!r}",
            "run ironspan awx configure, and put the account of the token into the team events",
        )

    def _remember(self, key: str, past: Past) -> None:
        self._past[key] = past
        memory.write(self._settings.state, self._past)


def controller_token(settings: Settings) -> str:
    """Return the program's token at the controller, read each time: another one needs no restart.

    Raises:
        Unreachable: there is none.
    """
    try:
        return settings.controller_token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Unreachable(
            f"{error.filename}: {error.strerror}.",
            "Keep a token of the team events with ironspan awx events-account, and run site.yml.",
        ) from error


def _unreachable(error: ControllerError) -> Unreachable:
    return Unreachable(error.message, error.remedy)
