# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the BMCs of servers something, or switches power and lights; many at a time."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import fleet, questions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import read_factory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.log import MOST
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.power import WANTED
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.bmc``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "ask": {"type": "str", "choices": ["show", "log", "light", "power"], "required": True},
        "expected": {"type": "path", "required": True},
        "servers": {"type": "list", "elements": "str", "default": []},
        "factory": {"type": "path", "default": ""},
        "entries": {"type": "int", "default": MOST},
        "worse_than": {"type": "str", "choices": ["OK", "Warning"]},
        "light": {"type": "str", "choices": ["on", "off"]},
        "power": {"type": "str", "choices": list(WANTED)},
        "allow_destructive": {"type": "bool", "default": False},
        "report": {"type": "path", "default": ""},
    }

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Ask all of them; errors become messages with a remedy."""
        result: Result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        try:
            return {**result, **self._asked(task_vars or {}, arguments)}
        except ActionableError as error:
            return {**result, "failed": True, "msg": str(error)}

    def _asked(self, variables: Result, arguments: Result) -> Result:
        site = site_of_run(variables)
        question = self._question(arguments)
        servers = expected_servers(arguments["expected"], names=arguments["servers"], refusal=BmcError)
        factory = read_factory(arguments["factory"])
        keeper = open_store(site.pki_store, site.pki_key_file or None).bmcs
        places = [fleet.place_of(server, factory) for server in servers]
        answers = fleet.with_each(places, keeper, question)
        report: Result = {}
        lines: list[str] = []
        for place in places:
            answer = answers[place.endpoint.name]
            if isinstance(answer, ActionableError):
                report[place.endpoint.name] = {"error": str(answer)}
                lines.append(f"{place.title}: failed")
            else:
                report[place.endpoint.name] = answer.content
                lines += [f"{place.title}: {line}" for line in answer.lines]
        for line in lines:
            Display().display(f"  {line}")
        write_report(arguments["report"], report)
        problems = [entry["error"] for entry in report.values() if "error" in entry]
        changed = any(entry.get("changed", False) for entry in report.values())
        failed = {"failed": True, "msg": "\n".join(problems)} if problems else {}
        return {"changed": changed, "report": report, "text": "\n".join(lines), **failed}

    def _question(self, arguments: Result) -> Callable[[Bmc], questions.Answer]:
        """Return what is asked of each BMC.

        Raises:
            BmcError: it needs consent and has none.
        """
        ask, check = arguments["ask"], bool(self._task.check_mode)
        if ask == "power":
            wanted = arguments["power"]
            questions.insist_on_consent(wanted, allowed=arguments["allow_destructive"] or check)
            return functools.partial(questions.power, wanted=wanted, check=check)
        if ask == "light":
            return functools.partial(questions.light, on=arguments["light"] == "on", check=check)
        if ask == "log":
            worse_than = arguments["worse_than"] or ""
            return functools.partial(questions.log, most=arguments["entries"], worse_than=worse_than)
        return questions.show
