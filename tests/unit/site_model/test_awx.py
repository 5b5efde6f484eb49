# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of its controller of jobs: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, Mutation
from .test_mutations import test_mutation as insist

SAID = """
awx_host: https://awx.example.internal
awx_prefix: example
awx_project_url: https://git.example.internal/site.git
awx_answers:
  ironspan_expected: servers.yml
  ironspan_entries: 100
awx_notifications:
  - {name: hook, type: webhook, url: https://hook.example.internal}
  - {name: chat, type: slack, channels: [ops], secret_variable: SLACK_TOKEN}
awx_schedules:
  - operation: certs
    rrule: DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1
    answers: {ironspan_days: 9}
  - {operation: verify, rrule: DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=2}
"""


def wrong(name: str, old: str, new: str, says: str, at: str = "") -> Mutation:
    """Return a mistake: ``old`` is ``new`` in what is right."""
    assert old in SAID, name
    return Mutation(f"awx: {name}", ((ALL, "", SAID.replace(old, new, 1)),), ALL, at or new, says)


MISTAKES = (
    wrong("misspelt", "awx_prefix:", "awx_prefx:", "unknown variable; write awx_prefix"),
    wrong("no prefix", "awx_prefix: example", 'awx_prefix: ""', "awx_prefix: is empty"),
    wrong("host", "https://awx.example.internal", "awx.example.internal", "is no http or https URL"),
    wrong("answer", "ironspan_expected:", "ironspan_expectd:", "no operation has this argument; write iron"),
    wrong("answer of a run", "ironspan_entries: 100", "ironspan_allow_destructive: true", "is about one run"),
    wrong("value of an answer", "ironspan_entries: 100", "ironspan_entries: 0", "0 is too small; write 1"),
    wrong("type", "type: slack", "type: slac", "'slac' is not one of"),
    wrong("no URL", ", url: https://hook.example.internal", "", "webhook needs it", "name: hook"),
    wrong("no secret", ", secret_variable: SLACK_TOKEN", "", "slack needs it", "name: chat"),
    wrong("twice", "name: chat", "name: hook", "hook is there twice", "type: slack"),
    wrong("operation", "operation: verify", "operation: verfy", "no operation 'verfy'; write verify"),
    wrong("needs an approval", "operation: verify", "operation: site", "site does not run by itself"),
    wrong("operation twice", "operation: verify", "operation: certs", "certs is there twice", "INTERVAL=2"),
    wrong("time", "INTERVAL=2", "COUNT=2", "has no INTERVAL"),
    wrong("answer of a schedule", "ironspan_days: 9", "ironspan_days: -1", "ironspan_days: -1 is too small"),
    wrong("not its answer", "ironspan_days: 9", "ironspan_hosts: a", "ironspan_hosts: no operation has this"),
)  # fmt: skip


def test_what_is_right(example: Example) -> None:
    example.append(ALL, SAID)
    assert example.problems() == []


def test_what_a_job_adds_is_no_mistake(example: Example) -> None:
    example.append(ALL, "awx_job_id: 12\ntower_job_id: 12\n")
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)
