# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From events to exit codes and summaries."""

from __future__ import annotations

import typing as t

import pytest

from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run, failures_of

CONVERGE = "ironspan.hybrid.converge"


def play(name: str) -> dict[str, t.Any]:
    return {"event": "playbook_on_play_start", "event_data": {"name": name}}


def result(
    kind: str, host: str, res: dict[str, t.Any], action: str = CONVERGE, **more: t.Any
) -> dict[str, t.Any]:
    data = {"host": host, "task": "Converge", "resolved_action": action, "res": res, **more}
    return {"event": f"runner_on_{kind}", "event_data": data}


def stats(*hosts: str) -> dict[str, t.Any]:
    return {"event": "playbook_on_stats", "event_data": {"processed": dict.fromkeys(hosts, 1)}}


def run_of(*events: dict[str, t.Any]) -> Run:
    run = Run(clock=lambda: 0.0)
    for event in events:
        run.take(event)
    return run


UNFIT = {
    "msg": "unfit",
    "verdicts": [{"check": "memory", "ok": False, "found": 1, "wanted": 2, "remedy": "add"}],
}
BROKEN = {
    "msg": "no space",
    "failed_resource": "etcd/binary",
    "remedy": "free some",
    "rolled_back": ["etcd/binary"],
}

ENDINGS = [
    ("all well", [result("ok", "a", {"changed": False})], 0, False, Exit.OK),
    ("a change failed", [result("failed", "a", BROKEN)], 2, False, Exit.FAILED),
    ("unfit", [result("failed", "a", UNFIT)], 2, False, Exit.HOSTS),
    ("unreachable", [result("unreachable", "a", {"msg": "timed out"})], 4, False, Exit.HOSTS),
    (
        "a failed change outranks a host that is down",
        [result("unreachable", "a", {"msg": "x"}), result("failed", "b", BROKEN)],
        2,
        False,
        Exit.FAILED,
    ),
    (
        "refused input",
        [result("failed", "localhost", {"msg": "x"}, "ironspan.hybrid.validate")],
        2,
        False,
        Exit.BAD_INPUT,
    ),
    (
        "a host's program refused",
        [result("failed", "a", {"msg": "verify: there is no such snapshot", "refused": True})],
        2,
        False,
        Exit.BAD_INPUT,
    ),
    (
        "one refused, another failed",
        [result("failed", "a", {"msg": "x", "refused": True}), result("failed", "b", BROKEN)],
        2,
        False,
        Exit.FAILED,
    ),
    ("an ignored failure is none", [result("failed", "a", BROKEN, ignore_errors=True)], 0, False, Exit.OK),
    ("interrupted", [result("failed", "a", BROKEN)], 99, True, Exit.INTERRUPTED),
]


@pytest.mark.parametrize(
    ("events", "status", "interrupted", "code"), [row[1:] for row in ENDINGS], ids=[r[0] for r in ENDINGS]
)
def test_exit_codes(events: list[dict[str, t.Any]], status: int, interrupted: bool, code: Exit) -> None:
    run = run_of(play("assess"), *events, stats("a", "b"))
    assert run.exit_code(status, interrupted) == code


def test_a_run_that_never_began_is_bad_input() -> None:
    assert run_of().exit_code(4) == Exit.BAD_INPUT


def test_a_run_that_ansible_gave_up_without_a_failed_host_is_a_failure() -> None:
    assert run_of(play("assess"), stats("a")).exit_code(1) == Exit.FAILED


@pytest.mark.parametrize("status", [None, 1, 250], ids=["a signal", "an error", "a fault of Ansible's"])
def test_a_run_whose_end_was_never_seen_says_so(status: int | None) -> None:
    run = Run(clock=lambda: 0.0, again="ironspan apply -i here")
    changed = {"changed": True, "changes": [{}, {}]}
    for event in (play("Workers"), result("ok", "a", changed), result("failed", "b", BROKEN)):
        run.take(event)
    assert int(run.exit_code(status)) == 3
    text = "\n".join(run.summary())
    assert "finished" not in text
    assert text.startswith("the end of this run was never seen: ansible-playbook was killed")
    assert "(phase Workers)\n    2 hosts answered until then, 2 changes" in text
    assert "-> ironspan apply -i here " in text
    assert "b: failed in phase Workers" in text
    assert run.as_dict()["finished"] is False


def test_ansible_killed_before_the_first_phase_has_not_refused_anything() -> None:
    run = run_of()
    assert run.exit_code(None) == Exit.UNFINISHED
    assert run.summary()[0].startswith("the end of this run was never seen")


def test_an_interrupted_run_does_not_say_that_it_finished() -> None:
    run = run_of(play("prepare"), result("ok", "a", {"changed": True}))
    assert run.exit_code(99, interrupted=True) == Exit.INTERRUPTED
    lines = run.summary()
    assert lines[0] == "interrupted before the end (phase prepare)"
    assert lines[1].startswith("    1 hosts answered until then, 1 changes")


def test_one_that_ended_is_not_cut_off_by_a_late_ctrl_c() -> None:
    run = run_of(play("prepare"), result("ok", "a", {}), stats("a"))
    assert run.exit_code(0, interrupted=True) == Exit.INTERRUPTED
    assert run.summary()[0].startswith("1 of 1 hosts finished")


def test_summary_names_host_resource_reason_remedy_and_who_finished() -> None:
    run = run_of(
        play("prepare"),
        result("ok", "a", {"changed": True, "changes": [{}, {}, {}]}),
        result("failed", "b", BROKEN),
        result("unreachable", "c", {"msg": "timed out"}),
        stats("a", "b", "c"),
    )
    text = "\n".join(run.summary())
    assert text.startswith("1 of 3 hosts finished, 3 changes")
    for part in (
        "finished: a",
        "b: failed in phase prepare",
        "etcd/binary",
        "no space",
        "-> free some",
        "rolled back",
    ):
        assert part in text
    assert "c: unreachable in phase prepare" in text
    assert "check that the host is up" in text


def test_every_verdict_of_an_unfit_host_is_listed() -> None:
    verdicts = [
        {"check": name, "ok": name == "kernel", "found": 1, "wanted": 2, "remedy": f"fix {name}"}
        for name in ("kernel", "memory", "swap")
    ]
    run = run_of(play("assess"), result("failed", "a", {"msg": "unfit", "verdicts": verdicts}), stats("a"))
    assert [failure.reason.split(":")[0] for failure in run.failures] == ["memory", "swap"]
    assert "-> fix swap" in "\n".join(run.summary())


def test_hosts_that_got_stuck_are_named_although_the_controller_says_it() -> None:
    stuck = {"r1": ["pod a is held", "pod b is held"], "r2": ["pod c is held"]}
    report = result("failed", "localhost", {"msg": "Not drained", "stuck": stuck, "notes": ["removed: r3."]})
    done = [result("ok", "r1", {}), result("ok", "r3", {})]
    run = run_of(play("Remove"), *done, play("Report"), report, stats("r1", "r3"))
    text = "\n".join(run.summary())
    assert text.startswith("1 of 3 hosts finished")
    assert "finished: r3\nremoved: r3." in text
    assert "r1: failed in phase Report" in text
    assert "    pod b is held" in text
    assert "kubectl uncordon r2" in text
    assert run.exit_code(2) == Exit.FAILED


def test_notes_of_a_run_that_went_well_are_shown() -> None:
    run = run_of(play("Report"), result("ok", "localhost", {"notes": ["removed: r3."]}))
    assert run.summary()[-1] == "removed: r3."


def test_an_interrupted_run_still_counts_the_hosts_it_reached() -> None:
    run = run_of(play("prepare"), result("ok", "a", {"changed": True}))
    assert run.summary()[0].startswith("1 of 1 hosts finished, 1 changes")


def test_changes_are_counted_per_phase_and_host() -> None:
    run = run_of(
        play("prepare"),
        result("ok", "a", {"changed": True, "changes": [{}, {}]}),
        result("ok", "a", {"changed": True}, "ansible.builtin.copy"),
        result("ok", "b", {"changed": False, "changes": []}),
        play("verify"),
        stats("a", "b"),
    )
    assert [(phase["name"], phase["changes"]) for phase in run.as_dict()["phases"]] == [
        ("prepare", {"a": 3, "b": 0}),
        ("verify", {}),
    ]


def test_hosts_whose_turn_never_came_are_not_finished() -> None:
    due = {"changed": False, "groups": ["__ironspan_pending"]}
    run = run_of(
        play("Compare"),
        *(result("ok", name, due) for name in ("az-1", "rack-1", "rack-2")),
        result("ok", "az-2", {"changed": False, "groups": []}),
        play("Control planes, one by one"),
        result("ok", "az-1", {"changed": True, "changes": [1, 2]}),
        play("Nodes, wave after wave"),
        result("ok", "rack-1", {"changed": True, "changes": [1]}),
        result("failed", "rack-1", BROKEN),
        stats("az-1", "az-2", "rack-1", "rack-2"),
    )
    lines = run.summary()
    assert lines[0].startswith("2 of 4 hosts finished")
    assert lines[1] == "finished: az-1, az-2"
    assert lines[2] == "not begun: rack-2; they were compared, and have something to do"


def test_a_host_that_anothers_failure_stopped_half_way_is_not_finished() -> None:
    changes = [{"resource": "base/sysctl"}, {"resource": "containerd/unit"}]
    due = {
        "changed": False,
        "groups": ["__ironspan_pending"],
        "changes": changes,
        "pending": [{"resource": "node/kubeadm", "needs": "join"}],
    }
    prepared = {"changed": True, "changes": changes, "layers": ["base", "containerd", "node"]}
    run = run_of(
        play("Compare"),
        *(result("ok", name, due) for name in ("rack-1", "rack-2", "rack-3", "rack-4")),
        play("Prepare"),
        # The layer is asked for, and its join waits still.
        result("ok", "rack-1", {**prepared, "pending": due["pending"]}),
        result("ok", "rack-2", {**prepared, "layers": ["base"]}),
        result("ok", "rack-3", prepared),
        result("failed", "rack-4", BROKEN),
        stats("rack-1", "rack-2", "rack-3", "rack-4"),
    )
    lines = run.summary()
    assert lines[0].startswith("1 of 4 hosts finished")
    assert lines[1] == "finished: rack-3"
    assert lines[2] == (
        "begun, and not finished: rack-1 (node), rack-2 (containerd, node); run the same again"
    )


def test_without_a_failure_a_comparison_alone_is_the_end() -> None:
    due = {"changed": False, "groups": ["__ironspan_pending"]}
    run = run_of(play("Compare"), result("ok", "a", due), stats("a"))
    assert run.summary() == ["1 of 1 hosts finished, 0 changes, 0.0 s"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"msg": "a"}, "a"),
        ({"msg": "", "reason": "b"}, "b"),
        ({"msg": " \n", "censored": "c"}, "c"),
        ({"module_stderr": "d"}, "d"),
        ({"stdout": "x" * 9000 + "the end"}, "the end"),
        ({"exception": "Traceback: e"}, "Traceback: e"),
        ({"results": [{"failed": False, "msg": "f"}, {"failed": True, "msg": "g"}]}, "g"),
        ({"results": [{"failed": True}], "rc": 3}, "the task 'Task' failed and said nothing else than"),
        ({}, "the task 'Task' failed and said nothing else than {"),
        ({"msg": 0, "results": ["odd", None]}, "failed and said nothing else"),
    ],
)
def test_a_failure_always_has_a_reason(said: dict[str, t.Any], reason: str) -> None:
    """Whatever a task answered, the report never says that it has no reason."""
    (failure,) = failures_of(said, "w1", "nodes", "Task")
    assert reason in failure.reason
    assert len(failure.reason) < 2200
