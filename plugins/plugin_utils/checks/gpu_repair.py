# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of the repair of GPU nodes can be done: tests and windows are some, limits go together."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

ENABLED, TESTS, WINDOWS = "gpu_repair_enabled", "gpu_repair_tests", "gpu_repair_windows"
MODE, AGENT = "gpu_repair_mode", "nvidia_health_enabled"
AT_ONCE, PER_RACK, OUT = "gpu_repair_most_at_once", "gpu_repair_most_per_rack", "gpu_repair_most_out"
_DAY, _TIME = "(?:mon|tue|wed|thu|fri|sat|sun)", "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
WINDOW = re.compile(f"{_DAY}(?:,{_DAY})* {_TIME}-{_TIME}")
"""As ironspan.gpu_repair.settings reads it; a test compares both."""


def check_repair(draft: Draft) -> None:
    """Judge the variables of the role, each at the line that has it."""
    _check_windows(draft)
    if draft.site_value(ENABLED) and not draft.members("gpu"):
        _problem(draft, ENABLED, "there is no host in the group gpu", "put GPU hosts into it, or turn it off")
    hosts, mode = draft.members("gpu"), draft.site_value(MODE)
    agents = any(host.values.get(AGENT) for host in hosts)
    if draft.site_value(ENABLED) and hosts and not agents and mode in ("gate", "repair"):
        message = f"is {mode}, and no host of the group gpu has the agent: every node would end in triage"
        _problem(draft, MODE, message, f"write {AGENT}: true in group_vars/gpu.yml, or watch here")
    if not any(map(draft.writer, (ENABLED, TESTS, AT_ONCE, PER_RACK, OUT))):
        return
    # Only sites that say something of repairs pay for reading the tests.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import preflight

    tests = draft.site_value(TESTS)
    for index, test in enumerate(tests if isinstance(tests, list) else ()):
        if test not in preflight.tests():
            remedy = f"write some of {', '.join(preflight.tests())}"
            _problem(draft, f"{TESTS}[{index}]", f"{test!r} is no test", remedy)
    if isinstance(tests, list) and not tests:
        _problem(draft, TESTS, "is empty, and nodes would get in untested", "name at least A01")
    numbers = {name: draft.site_value(name) for name in (AT_ONCE, PER_RACK, OUT)}
    if all(isinstance(number, int) and number > 0 for number in numbers.values()):
        for less, more in ((PER_RACK, AT_ONCE), (AT_ONCE, OUT)):
            # Beside a default it counts once repairs are made: the other one may be written by then.
            counts = draft.site_value(ENABLED) or (draft.writer(less) and draft.writer(more))
            if counts and numbers[less] > numbers[more]:
                message = f"{numbers[less]} is more than {more}, which is {numbers[more]}"
                if draft.writer(less) or not draft.writer(more):
                    _problem(draft, less, message, f"write at most {numbers[more]}")
                    continue
                message = f"{numbers[more]} is less than {less}, which is {numbers[less]} by default"
                _problem(
                    draft, more, message, f"write at least {numbers[less]}, or {less}: {numbers[more]} too"
                )


def _check_windows(draft: Draft) -> None:
    """Judge when repairs may be made, also while there are none."""
    windows = draft.site_value(WINDOWS)
    for index, window in enumerate(windows if isinstance(windows, list) else ()):
        begins, _, ends = str(window).rpartition(" ")[2].partition("-")
        if not WINDOW.fullmatch(str(window)) or begins == ends:
            remedy = 'write days and times in UTC, for example "mon,tue 22:00-04:00"'
            if ends == "24:00":
                remedy = "write 00:00 for the end of the day"
            _problem(draft, f"{WINDOWS}[{index}]", f"{window!r} is no window", remedy)


def _problem(draft: Draft, path: str, message: str, remedy: str) -> None:
    variable, _, index = path.partition("[")
    host = draft.writer(variable) or draft.writer(ENABLED)
    place = draft.home()
    if host:
        place = draft.inner_place(host, variable, int(index[:-1])) if index else draft.place(host, variable)
    draft.problems.add(place, path, message, remedy)


CHECKS = (check_repair,)
