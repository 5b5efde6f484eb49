# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is made of Ironic's answers; its real API is asked in tests/integration/test_ironic.py."""

from __future__ import annotations

import json
import re
import socket
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_api, ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import REMEDY
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Goal, Node, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import way
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

LOCKED = "Node 1 is locked by host c1, please retry after the current operation is completed."
NO_WORKER = "Requested action cannot be performed due to lack of free conductor workers."


class Answer:
    """An answer as keystoneauth1 gives it."""

    def __init__(self, status: int, body: t.Any = None) -> None:
        self.status_code = status
        self.text = "" if body is None else json.dumps(body)
        self.content = self.text.encode()

    def json(self) -> t.Any:
        return json.loads(self.text)


def refusal(status: int, said: str) -> Answer:
    """Return a refusal: Ironic puts JSON into JSON."""
    return Answer(status, {"error_message": json.dumps({"faultcode": "Client", "faultstring": said})})


class Session:
    """Answers each request in turn, and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.bodies: list[t.Any] = []
        self.now = 0.0

    def request(self, path: str, method: str, **options: t.Any) -> Answer:
        assert options["status_code_retries"] == 0
        assert options["raise_exc"] is False
        assert bool(options["connect_retries"]) == (method == "GET")
        self.asked.append(f"{method} {path.split('?')[0]}")
        self.bodies.append(options.get("json"))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def api(self) -> IronicApi:
        return IronicApi(self, lambda: self.now, self.sleep)


def entry(**values: t.Any) -> dict[str, t.Any]:
    return {"uuid": "u1", "name": "gpu-1", "provision_state": "manageable", **values}


def test_nodes_are_listed_page_by_page() -> None:
    session = Session(
        Answer(200, {"nodes": [entry(properties={"memory_mb": "2048"})], "next": "http://x/y/v1/nodes?marker=u1&limit=1"}),
        Answer(200, {"nodes": [entry(uuid="u2", name=None, automated_clean=False)]}),
    )  # fmt: skip
    assert session.api().nodes() == {
        "gpu-1": ("u1", Node("manageable", memory_mib=2048)),
        "u2": ("u2", Node("manageable", automated_clean=False)),
    }
    assert session.asked == ["GET /nodes", "GET /nodes"]


def test_conductors_are_those_that_are_alive() -> None:
    listed = [{"hostname": "c1", "alive": True}, {"hostname": "c2", "alive": False}]
    assert Session(Answer(200, {"conductors": listed})).api().conductors() == {"c1"}


@pytest.mark.parametrize(("status", "said"), [(409, LOCKED), (503, NO_WORKER)])
def test_what_is_busy_is_asked_again_until_it_is_too_long(status: int, said: str) -> None:
    session = Session(refusal(status, said), refusal(status, said), Answer(202))
    session.api().take("u1", "manage")
    assert (session.asked, session.now) == (["PUT /nodes/u1/states/provision"] * 3, 2.0)
    session = Session(refusal(status, said))
    with pytest.raises(RemoteError, match=f"Ironic refused PUT .*{said[:20]}"):
        session.api().take("u1", "manage")
    assert session.now <= ironic_api.BUSY_S + 1


def test_what_will_not_change_is_refused_at_once() -> None:
    session = Session(refusal(409, "A node with name gpu-1 already exists."))
    with pytest.raises(RemoteError, match="already exists"):
        session.api().take("u1", "manage")
    assert (len(session.asked), session.now) == (1, 0.0)


def test_an_answer_that_is_no_json_is_repeated_as_it_is() -> None:
    answer = Answer(502)
    answer.text = "<html>Bad\nGateway</html>"
    with pytest.raises(RemoteError, match=r"<html>Bad Gateway</html>"):
        Session(answer).api().conductors()


def test_what_is_known_is_looked_up_and_not_created() -> None:
    session = Session(Answer(200, {"uuid": "u1"}), Answer(200, {"ports": [{"node_uuid": "u1"}]}))
    assert session.api().enrol("gpu-1", {"driver": "redfish"}, ["5c:25:73:00:00:01"]) == "u1"
    assert session.asked == ["GET /nodes/gpu-1", "GET /ports"]
    session = Session(Answer(404), Answer(201, {"uuid": "u9"}), Answer(200, {"ports": []}), Answer(201, {}))
    assert session.api().enrol("gpu-1", {"driver": "redfish"}, ["5c:25:73:00:00:01"]) == "u9"
    assert session.bodies[1] == {"driver": "redfish", "name": "gpu-1"}
    assert session.bodies[3] == {"node_uuid": "u9", "address": "5c:25:73:00:00:01"}


def test_waiting_says_what_goes_on_and_ends() -> None:
    session = Session(
        *(
            Answer(200, entry(provision_state=state))
            for state in ("cleaning", "clean wait", "clean wait", "available")
        )
    )
    said: list[str] = []
    assert session.api().settled("u1", said.append, 60).state == "available"
    assert said == ["it is cleaned", "its agent cleans it"]
    session = Session(Answer(200, entry(provision_state="deploying", last_error="fuser")))
    with pytest.raises(RemoteError, match="is written, for longer than 60 s: the agent's ramdisk"):
        session.api().settled("u1", said.append, 60)


def test_who_was_not_let_run_asks_once_more() -> None:
    class Stalled(Session):
        def request(self, path: str, method: str, **options: t.Any) -> Answer:
            self.now += 3600
            return super().request(path, method, **options)

    session = Stalled(*(Answer(200, entry(provision_state=state)) for state in ("deploying", "active")))
    assert session.api().settled("u1", lambda what: None, 60).state == "active"


def test_every_step_of_a_way_is_one_that_can_be_taken() -> None:
    """But for enrolling and waiting, which have calls of their own."""
    goals: tuple[Goal, ...] = t.get_args(Goal)
    verbs = set()
    for state in (None, *ironic_states.STATES):
        fault = next((fault for fault, ends in ironic_states.FAULTS.items() if ends == state), "")
        node = Node(state, maintenance=bool(fault), fault=fault, in_state_s=4000)
        for goal in goals:
            for adopt in (False, True):
                found = way(node, Wanted(goal, inspect=True, adopt=adopt, power="power on"))
                verbs |= {step.verb for step in found.steps}
    assert {"inspect", "abort", "adopt", "delete", "retire", "end_maintenance", "power_on"} <= verbs
    for verb in verbs - {"enrol", "wait"}:
        session = Session(Answer(202))
        session.api().take("u1", verb)
        assert len(session.asked) == 1
    with pytest.raises(RemoteError, match="no step 'paint' is known"):
        Session(Answer(202)).api().take("u1", "paint")


def test_a_refused_login_says_what_brings_the_sites_own_ironic_to_it() -> None:
    session = Session(refusal(401, "Incorrect username or password"))
    api = IronicApi(session, lambda: session.now, session.sleep, REMEDY)
    with pytest.raises(RemoteError, match=r"HTTP 401.*ansible-playbook playbooks/site\.yml --limit ironic"):
        api.nodes()
    with pytest.raises(RemoteError) as refused:
        IronicApi(Session(refusal(400, "no such field")), remedy=REMEDY).nodes()
    assert REMEDY not in str(refused.value)


def test_one_that_takes_connections_and_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a limit of ours there is none: a run hung for good."""
    monkeypatch.setattr(ironic_api, "WAITS_S", (0.2, 0.2))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        login = {"endpoint": url, "username": "ironspan", "password": "of-this-test"}
        with pytest.raises(RemoteError, match=f"Ironic does not answer.*{re.escape(REMEDY)}"):
            ironic_api.connected(
                auth_type="http_basic", auth=login, baremetal_endpoint_override=url, remedy=REMEDY
            ).conductors()
