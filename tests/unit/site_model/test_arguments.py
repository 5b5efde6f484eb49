# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for, held against what operations declare."""

from __future__ import annotations

import typing as t

import pytest
from ansible import context
from ansible.utils.context_objects import CLIArgs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import argument_values, arguments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place
from hypothesis import given
from hypothesis import strategies as st

from tests.support.playbooks import ROOT

PLAYBOOKS = str(ROOT / "playbooks")


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., None]:
    """Let this process be an ansible-playbook that was started with certain playbooks."""

    def play(*playbooks: str) -> None:
        monkeypatch.setattr(context, "CLIARGS", CLIArgs({"args": playbooks}))

    return play


def refused(given: dict[str, t.Any], **inventory: t.Any) -> list[str]:
    found = arguments.problems_of_run(given, {**inventory, **given})
    assert {problem.file for problem in found} <= {"<command line>"}
    return [str(problem).partition(": ")[2] for problem in found]


@pytest.mark.parametrize(
    ("playbook", "given", "problems"),
    [
        ("site", {}, []),
        ("site", {"ironspan_plan": "x.plan", "base_dns": "1", "user_tri": 1, "__ironspan_purpose": "x"}, []),
        (
            "try",
            {"ironspan_tri": "5m", "ironspan_try": "5m"},
            ["ironspan_tri: unknown argument of try; write ironspan_try"],
        ),
        (
            "site",
            {"ironspan_tri": "5m"},
            [
                "ironspan_tri: unknown argument of site; leave it out; did you mean "
                "ironspan_try? it is for rollback, try"
            ],
        ),
        (
            "site",
            {"ironspan_try": "5m"},
            ["ironspan_try: unknown argument of site; leave it out; it is for rollback, try"],
        ),
        (
            "rollback",
            {"ironspan_hosts": "w1", "ironspan_too": "ab12"},
            ["ironspan_too: unknown argument of rollback; write ironspan_digest"],
        ),
        ("rollback", {"ironspan_hosts": "w1", "ironspan_to": "ab12"}, []),
        ("rollback", {"ironspan_hosts": "w1", "ironspan_digest": "ab12"}, []),
        (
            "rollback",
            {"ironspan_hosts": "w1", "ironspan_digest": "ab12", "ironspan_to": "cd34"},
            ["ironspan_to: the old name of ironspan_digest, which is given too; leave the old one out"],
        ),
        (
            "node_remove",
            {"ironspan_force_drain": "yess"},
            [
                "ironspan_force_drain: 'yess' is neither true nor false; write true or false",
                "ironspan_hosts: node_remove needs it; write -e ironspan_hosts=..., the workers that leave",
            ],
        ),
        (
            "ca_rotate",
            {"ironspan_authority": "etdc", "ironspan_stage": "later"},
            [
                "ironspan_authority: 'etdc' is none of its values; "
                "write etcd; one of etcd, kubernetes, front-proxy, service-account",
                "ironspan_stage: 'later' is none of its values; write one of next, trust, issue, drop, back",
            ],
        ),
        (
            "etcd_restore",
            {"ironspan_point": "yesterday"},
            [
                "ironspan_point: 'yesterday' is not of its form; write latest, "
                "time:2026-11-22T02:00:00Z or revision:123456"
            ],
        ),
        (
            "upgrade",
            {"ironspan_snapshots_kept": "0"},
            ["ironspan_snapshots_kept: 0 is too small; write 1 or more"],
        ),
        (
            "upgrade",
            {"ironspan_snapshots_kept": "\u0663"},
            ["ironspan_snapshots_kept: '\u0663' is no whole number; write one in digits"],
        ),
        (
            "upgrade",
            {"ironspan_snapshots_kept": "1_0"},
            ["ironspan_snapshots_kept: '1_0' is no whole number; write one in digits"],
        ),
        (
            "upgrade",
            {"ironspan_snapshots_kept": "two"},
            ["ironspan_snapshots_kept: 'two' is no whole number; write one in digits"],
        ),
        ("plan", {"ironspan_planned": "node_remove", "ironspan_hosts": "w1", "ironspan_plan_file": "x"}, []),
        (
            "plan",
            {"ironspan_planned": "node_remove", "ironspan_hosts": "w1", "ironspan_planed": "x"},
            ["ironspan_planed: unknown argument of plan and node_remove; write ironspan_planned"],
        ),
        (
            "plan",
            {"ironspan_authority": "etcd"},
            ["ironspan_authority: unknown argument of plan; leave it out; it is for ca_rotate"],
        ),
    ],
)
def test_arguments_of_a_run(
    playbook: str, given: dict[str, t.Any], problems: list[str], playing: t.Callable[..., None]
) -> None:
    playing(f"{PLAYBOOKS}/{playbook}.yml")
    assert refused(given) == problems
    playing(f"ironspan.hybrid.{playbook}")
    assert refused(given) == problems


def test_what_is_needed_may_stand_in_the_inventory(playing: t.Callable[..., None]) -> None:
    playing(f"{PLAYBOOKS}/node_remove.yml")
    assert refused({}, ironspan_hosts="w1") == []


def test_playbooks_of_others_take_what_any_operation_takes(playing: t.Callable[..., None]) -> None:
    for playbooks in (("/home/me/site.yml",), (f"{PLAYBOOKS}/site.yml", "mine.yml"), ()):
        playing(*playbooks)
        assert refused({"ironspan_try": "5m", "ironspan_stage": "trust"}) == []
        assert refused({"ironspan_tri": "5m"}) == ["ironspan_tri: unknown argument; write ironspan_try"]


def test_a_job_of_a_workflow_passes_over_what_is_for_others(playing: t.Callable[..., None]) -> None:
    playing(f"{PLAYBOOKS}/verify.yml")
    # The controller hands the answers of a workflow's survey to all of its jobs.
    asked = {"ironspan_servers": "a", "ironspan_allow_destructive": "true"}
    assert len(refused(asked)) == 2
    job = {**asked, "awx_workflow_job_id": 7}
    assert refused(job) == []
    (said,) = arguments.warnings_of_run(job)
    assert said.endswith("other jobs of this workflow: ironspan_allow_destructive, ironspan_servers.")
    # What no operation has is a mistake there, too.
    assert refused({**job, "ironspan_servrs": "a"}) != []
    playing(f"{PLAYBOOKS}/bmc_show.yml")
    wrong = refused({"ironspan_servers": {"a": 1}, "awx_workflow_job_id": 7, "ironspan_expected": "x"})
    assert [text.partition(";")[0] for text in wrong] == ["ironspan_servers: \"{'a': 1}\" is no list"]


def test_old_names_are_told(playing: t.Callable[..., None]) -> None:
    playing(f"{PLAYBOOKS}/reset.yml")
    assert arguments.warnings_of_run({"reset_consent": "small"}) == [
        "reset_consent is called ironspan_reset_site now; the old name works until the next release"
    ]
    assert arguments.value_of({"reset_consent": "small"}, "ironspan_reset_site") == "small"
    playing(f"{PLAYBOOKS}/net_policy.yml")
    assert arguments.warnings_of_run({"ironspan_to": "web/a:80"}) == [], "there it is the name"
    old = catalogue.OPERATIONS["rollback"]
    assert arguments.renamed({"ironspan_to": "ab12", "base_x": 1}, old) == {"ironspan_digest": "ab12"}


def test_every_name_has_one_meaning() -> None:
    """The same type, values and old name wherever it is declared; the help may say more."""
    seen: dict[str, tuple[object, ...]] = {}
    for operation in catalogue.OPERATIONS.values():
        names = [entry.name for entry in operation.arguments]
        assert len(names) == len(set(names)), operation.name
        for entry in operation.arguments:
            assert entry.name.startswith("ironspan_")
            meaning = (entry.type, entry.choices, entry.pattern, entry.default, entry.secret, entry.formerly)
            assert seen.setdefault(entry.name, meaning) == meaning, f"{operation.name}: {entry.name}"


def test_defaults_are_values_that_would_be_taken() -> None:
    for operation in catalogue.OPERATIONS.values():
        for entry in operation.arguments:
            assert argument_values.wrong_value(entry, entry.default) is None, (
                f"{operation.name}: {entry.name}"
            )
            assert not (entry.required and entry.default), f"{operation.name}: {entry.name}"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()),
    st.dictionaries(st.text(), st.text()), st.binary(),
)  # fmt: skip


def test_a_list_of_just_so_many_words() -> None:
    can = catalogue.arguments()["ironspan_can"]
    for right in (["create", "pods/exec"], "create, pods/exec", [], None):
        assert argument_values.wrong_value(can, right) is None
    wrong = argument_values.wrong_value(can, ["create"])
    assert wrong == ("\"['create']\" is not of its form", "write VERB and RESOURCE")


@given(st.sampled_from(list(catalogue.arguments().values())), VALUES)
def test_a_value_is_refused_or_can_be_read(argument: Argument, value: t.Any) -> None:
    if argument_values.wrong_value(argument, value) is None and not (isinstance(value, str) and "{" in value):
        arguments.value_of({argument.name: value}, argument.name)


@given(st.dictionaries(st.text().map(lambda text: f"ironspan_{text}"), VALUES, max_size=4))
def test_any_variables_are_judged(given: dict[str, t.Any]) -> None:
    known = catalogue.arguments()
    found = {
        problem.path
        for problem in arguments.problems_in(
            given, catalogue.OPERATIONS.values(), lambda key, value: Place("x", 0)
        )
    }
    assert {name for name in given if name not in known} - {"ironspan_force", "ironspan_stage"} <= found


def test_a_secret_is_not_shown() -> None:
    secret = Argument(name="ironspan_pin", what="a number", type="int", secret=True)
    operation = Operation(name="x", summary="x", arguments=(secret,))
    found = list(arguments.problems_in({"ironspan_pin": "hush"}, [operation], lambda *_: Place("x", 1)))
    assert found
    assert "hush" not in str(found)
