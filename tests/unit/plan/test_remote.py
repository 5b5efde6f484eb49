# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a plan says of remote things: its shape, its numbers, what people see, and who has to agree."""

from __future__ import annotations

import copy
import json
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import build, check, estimate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import parse, seal
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared

from ironspan.cli.plan_page import page
from ironspan.cli.plan_text import shown
from tests.unit.plan import samples
from tests.unit.remote.fake import Servers, Service

Content = dict[str, t.Any]


def things() -> list[Content]:
    """Return a server to make, one to remove, one that is right, and one that does not answer."""
    service = Service(fail={"find a-4": "the BMC answers 401"})
    state = {"state": "deployed", "image": "debian", "power": "on"}
    for name in ("a-2", "a-3", "a-4"):
        service.servers[name] = {**state, "uid": name}
    wanted = {name: {"image": "debian", "power": "on"} for name in ("a-1", "a-3", "a-4")}
    return [thing.as_dict() for thing in compared(Servers(service), wanted)]


MADE = samples.plan(remote=things())


def test_it_is_counted_and_needs_consent() -> None:
    summary = MADE.content["summary"]
    assert summary["remote_changes"] == 4
    assert summary["seconds"] == samples.plan().content["summary"]["seconds"] + 123
    assert build.needs_consent(MADE.content) and not build.needs_consent(samples.plan().content)
    (consent,) = [text for text in MADE.content["warnings"] if text.startswith("Needs consent")]
    assert "deploy debian on a-1 (its data is gone)" in consent
    assert "delete a-2 (deletes it, its data is gone)" in consent
    assert "Left alone: fake_server a-4: the BMC answers 401." in MADE.content["warnings"]


def test_its_kind_is_one_of_those_that_need_approval() -> None:
    assert "fake_server" in build.kinds_of(MADE.content)
    free = samples.site(
        approvals=1, allowed_signers="x", unapproved_kinds=("file", "systemd_unit", "kubeadm")
    )
    assert check.approvals_needed(MADE, free.plan) == 1
    assert check.approvals_needed(samples.plan(), free.plan) == 0


def test_many_take_as_long_as_one_and_more_than_fifty_twice() -> None:
    (one,) = [thing for thing in things() if thing["name"] == "a-1"]
    assert estimate.of_things([one] * 50) == 123
    assert estimate.of_things([one] * 51) == 246
    assert estimate.of_things([{**one, "steps": []}]) == 0


@pytest.mark.parametrize("show", [shown, page])
def test_people_see_every_step_and_what_it_does(show: Callable[[t.Any], str]) -> None:
    text = show(MADE)
    for words in (
        "fake_server a-1", "1. enrol a-1 (costs 1 server, about 2 s)",
        "2. deploy debian on a-1 (its data is gone, about 2 min)", "image: debian",
        "fake_server a-2", "1. delete a-2 (deletes it, its data is gone, about 5 s)",
        "fake_server a-4", "the BMC answers 401",
    ):  # fmt: skip
        assert words in text, words
    assert "fake_server a-3" not in text, "nothing changes there"


def test_it_is_read_as_it_was_written() -> None:
    assert parse(MADE.data).content["remote"] == json.loads(json.dumps(things()))


def _without(name: str) -> Callable[[Content], object]:
    return lambda thing: thing.pop(name)


def _step(**change: t.Any) -> Callable[[Content], object]:
    return lambda thing: thing["steps"][0].update(change)


@pytest.mark.parametrize(
    "edit",
    [
        *map(_without, ("kind", "name", "identity", "fault", "notes", "steps", "wanted", "found", "after")),
        lambda thing: thing.update(wanted="everything"),
        lambda thing: thing["steps"].append("go"),
        _step(verb=1),
        _step(effects=["nothing"]),
        _step(effects=[["wipes"]]),
        _step(more="x"),
        lambda thing: thing["steps"][0].pop("costs"),
    ],
)
def test_a_plan_of_another_shape_is_refused(edit: Callable[[Content], object]) -> None:
    content = copy.deepcopy(MADE.content)
    edit(content["remote"][0])
    with pytest.raises(PlanError, match=r"not complete: remote\.0"):
        parse(seal(content).data)
