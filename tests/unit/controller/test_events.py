# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Alerts and what they launch: the table, what is rendered of it, and what becomes of an alert."""

from __future__ import annotations

import io
import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events, rendered
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from ironspan.events import decide as program
from ironspan.events import settings as program_settings
from ironspan.events.decide import Alert, Past, decide
from ironspan.events.receiver import Receiver, parsed
from ironspan.program.settings import SettingsError
from tests.support.controller_site import HOST, configuration, settings
from tests.support.playbooks import ROOT

GROUPS = {"etcd": ["azure-1", "azure-2", "azure-3"]}
MADE = configuration()
SURVEYS = {
    entry["name"]: entry["survey_spec"]
    for entry in (*MADE["controller_templates"], *MADE["controller_workflows"])
}


def alerts_there_are() -> set[str]:
    found = set()
    for path in (ROOT / "monitoring").glob("*-alerts.yml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            found |= {rule["alert"] for rule in group["rules"]}
    return found


def read(folder: pathlib.Path, **more: t.Any) -> program_settings.Settings:
    path = folder / "events.json"
    path.write_text(json.dumps({**events.program_settings(settings(), HOST, "", GROUPS), **more}))
    return program_settings.load(path)


def test_every_alert_of_ours_launches_something_or_is_left_to_people_for_a_reason() -> None:
    assert alerts_there_are() == set(events.REACTIONS) | set(events.PEOPLE)
    assert not set(events.REACTIONS) & set(events.PEOPLE)
    page = (ROOT / "docs" / "events.md").read_text()
    for name, one in events.REACTIONS.items():
        assert f"| `{name}` | {one.operation.replace('_', ' ')}" in page
    for name, why in events.PEOPLE.items():
        assert f"| `{name}` | {why} |" in page


@pytest.mark.parametrize("alert", events.REACTIONS)
def test_what_an_alert_launches_takes_its_answers_and_never_means_all_hosts(alert: str) -> None:
    one = events.REACTIONS[alert]
    operation = catalogue.OPERATIONS[one.operation]
    template = events.template_of(settings(), one)
    # What cannot be undone waits for a person.
    assert not operation.consent or one.kind == events.WORKFLOW
    questions = {question["variable"]: question for question in SURVEYS[template].get("spec", ())}
    answers = {*events.answers_of(one), *([program.HOSTS] if one.label else [])}
    assert answers <= set(questions)
    needed = {name for name, q in questions.items() if q["required"] and q["default"] in ("", None)}
    assert needed <= answers
    hosts = operation.argument(program.HOSTS)
    if hosts and operation.changes and one.kind == events.WORKFLOW:
        assert one.label and one.group


def test_the_team_of_the_program_launches_what_alerts_launch_and_nothing_else() -> None:
    ours = [entry for entry in MADE["controller_roles"] if entry["teams"] == ["ironspan events"]]
    assert {entry["role"] for entry in ours} == {"execute"}
    names = {name for entry in ours for key in ("job_templates", "workflows") for name in entry.get(key, ())}
    assert names == {events.template_of(settings(), one) for one in events.REACTIONS.values()}


def test_an_alert_that_is_left_alone_is_nowhere() -> None:
    chosen = settings(awx_alerts_left_alone=["EtcdMemberUnhealthy"])
    files = rendered.event_files(chosen, GROUPS, "10.0.0.9", 2397)
    assert not any("EtcdMemberUnhealthy" in text for text in files.values())
    assert ("workflow", "ironspan member replace workflow") not in events.launched(chosen)


def test_without_a_host_that_an_alert_may_name_it_launches_nothing(tmp_path: pathlib.Path) -> None:
    made = events.program_settings(settings(), HOST, "", {"etcd": []})
    assert "EtcdMemberUnhealthy" not in [one["alert"] for one in made["reactions"]]
    assert "EtcdMemberUnhealthy" not in str(events.rulebook(settings(), {"etcd": []}))


def test_the_settings_are_what_the_program_reads(tmp_path: pathlib.Path) -> None:
    chosen = read(tmp_path)
    assert set(chosen.reactions) == set(events.REACTIONS)
    member = chosen.reactions["EtcdMemberUnhealthy"]
    assert (member.kind, member.label, member.hosts) == ("workflow", "member", frozenset(GROUPS["etcd"]))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"listen": {"address": "0.0.0.0", "port": 1}}, "a token crosses no network without TLS"),
        ({"most_per_hour": 0}, "a whole number from 1 to 1000"),
        (
            {
                "reactions": [
                    {"alert": "A", "kind": "job", "template": "x", "cool_down_seconds": 60, "label": "member"}
                ]
            },
            "without a host it would be about all of them",
        ),
        ({"tokens": 1}, "tokens is not known"),
    ],
)
def test_settings_that_are_wrong_are_refused(
    tmp_path: pathlib.Path, more: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        read(tmp_path, **more)


def test_alertmanager_sends_what_launches_something_and_people_are_told_as_before() -> None:
    chosen = settings(awx_alerts_left_alone=["EtcdAlarm"])
    made = events.receiver(chosen, "10.0.0.9", 2400)
    (route,), (to,) = made["route"]["routes"], made["receivers"]
    (matcher,) = route["matchers"]
    expression = matcher.removeprefix('alertname =~ "').removesuffix('"')
    assert set(expression.split("|")) == set(events.REACTIONS) - {"EtcdAlarm"}
    assert route["continue"] is True
    assert (route["receiver"], to["webhook_configs"][0]["url"]) == (
        to["name"],
        "https://10.0.0.9:2400/alerts",
    )


# What becomes of an alert.

NOW = 1e9
MEMBER = Alert("EtcdMemberUnhealthy", True, {"alertname": "EtcdMemberUnhealthy", "member": "azure-1"})
KEY = "EtcdMemberUnhealthy azure-1"
DAY_S = 86400


def outcomes(
    folder: pathlib.Path,
    *alerts: Alert,
    past: dict[str, Past] | None = None,
    ended: dict[str, str] | None = None,
) -> list[str]:
    chosen = read(folder)
    made = decide(alerts, chosen.reactions, past or {}, ended or {}, 6, 3, NOW)
    return [one.outcome for one in made]


@pytest.mark.parametrize(
    ("alert", "past", "status", "outcome"),
    [
        (MEMBER, None, "", program.LAUNCHED),
        (Alert(MEMBER.name, False, MEMBER.labels), None, "", program.RESOLVED),
        (Alert("Else", True, {}), None, "", program.UNKNOWN),
        (Alert(MEMBER.name, True, {}), None, "", program.NO_TARGET),
        (Alert(MEMBER.name, True, {"member": ""}), None, "", program.NO_TARGET),
        (Alert(MEMBER.name, True, {"member": "all"}), None, "", program.NO_TARGET),
        (Alert(MEMBER.name, True, {"member": "azure-1,azure-2"}), None, "", program.NO_TARGET),
        (MEMBER, Past(NOW - DAY_S + 1), "", program.COOLING),
        (MEMBER, Past(NOW - DAY_S), "running", program.UNDER_WAY),
        (MEMBER, Past(NOW - DAY_S), "failed", program.LAUNCHED),
        (MEMBER, Past(NOW + 60), "", program.LAUNCHED),
    ],
)  # fmt: skip
def test_one_alert(
    tmp_path: pathlib.Path, alert: Alert, past: Past | None, status: str, outcome: str
) -> None:
    known = {KEY: past} if past else {}
    assert outcomes(tmp_path, alert, past=known, ended={KEY: status} if status else {}) == [outcome]


def test_the_same_alert_twice_in_a_request_launches_once(tmp_path: pathlib.Path) -> None:
    assert outcomes(tmp_path, MEMBER, MEMBER) == [program.LAUNCHED, program.COOLING]


def test_what_fails_again_and_again_is_tried_once_a_day(tmp_path: pathlib.Path) -> None:
    verify = Alert("RuntimeClassBroken", True, {})
    for age, outcome in ((7200, program.FAILING), (DAY_S, program.LAUNCHED)):
        past = {verify.name: Past(NOW - age, "jobs/1/", failures=2)}
        assert outcomes(tmp_path, verify, past=past, ended={verify.name: "failed"}) == [outcome]
    past = {verify.name: Past(NOW - 7200, "jobs/1/", failures=2)}
    assert outcomes(tmp_path, verify, past=past, ended={verify.name: "successful"}) == [program.LAUNCHED]


@examples(max_examples=40)
@given(
    rounds=st.lists(
        st.tuples(
            st.integers(0, 7200),
            st.lists(st.tuples(st.sampled_from([*events.REACTIONS, "Else"]), st.booleans()), max_size=12),
        ),
        max_size=6,
    )
)
def test_no_sequence_of_alerts_launches_more_than_the_breaker_lets_through(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[int, list[tuple[str, bool]]]]
) -> None:
    chosen = read(tmp_path_factory.mktemp("drawn"))
    past: dict[str, Past] = {}
    launches: list[tuple[float, str]] = []
    now = NOW
    for pause, drawn in rounds:
        now += pause
        alerts = [Alert(name, firing, {"member": "azure-2"}) for name, firing in drawn]
        made = decide(alerts, chosen.reactions, past, {}, chosen.most_per_hour, chosen.most_failures, now)
        assert [one.alert for one in made] == alerts
        for one in made:
            assert (one.launch is not None) == (one.outcome == program.LAUNCHED)
            if one.launch:
                assert one.alert.firing
                assert not one.launch.reaction.label or one.launch.answers[program.HOSTS] == "azure-2"
                past[one.launch.key] = program.following(past.get(one.launch.key), "", now)
                launches.append((now, one.launch.key))
    for at, key in launches:
        assert sum(at - 3600 < other <= at for other, _ in launches) <= chosen.most_per_hour
        cool = chosen.reactions[key.split(" ")[0]].cool_down_s
        assert sum(at - cool < other <= at for other, name in launches if name == key) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "is not JSON"),
        (b"[" * 100000, "is not JSON"),
        (b"[]", "write 'alerts'"),
        (b'{"alerts": [1]}', "no labels"),
        (b'{"alerts": [{"labels": {"a": 1}}]}', "no labels"),
        (b'{"alerts": [{"labels": {}, "status": "odd"}]}', "firing or resolved"),
    ],
)
def test_what_is_no_message_of_alertmanager_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(body)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Watchdog", "Watchdog: unknown"),
        ("a\nINFO EtcdMemberUnhealthy: launched", "a�INFO EtcdMemberUnhealthy: launched: unknown"),
        ("\x1b[2J\u202e$(id) <script>", "�[2J�$(id) <script>: unknown"),
        ("\ud800", "�: unknown"),
        ("EtcdMemberUnhealthy\u200b", "EtcdMemberUnhealthy�: unknown"),
        ("n" * 300, f"{'n' * 200}…: unknown"),
    ],
    ids=["plain", "line", "terminal", "surrogate", "unseen", "long"],
)
def test_a_name_of_an_alert_is_one_line_whatever_is_in_it(
    name: str, told: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "token").write_text("a-token-of-this-test\n")
    chosen = read(tmp_path)

    def take(alerts: t.Sequence[Alert]) -> list[program.Decision]:
        return decide(alerts, chosen.reactions, {}, {}, 6, 3, 0.0)

    body = json.dumps({"alerts": [{"labels": {"alertname": name, "member": "azure-1"}, "status": "firing"}]})
    said: list[str] = []
    asked = {
        "HTTP_AUTHORIZATION": "Bearer a-token-of-this-test",
        "PATH_INFO": "/alerts",
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body.encode()),
    }
    (answer,) = Receiver(take, tmp_path / "token")(asked, lambda status, _: said.append(status))
    assert (said, answer.decode()) == (["200 OK"], f"{told}\n")
