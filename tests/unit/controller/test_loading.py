# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Loading a controller's configuration into the stand-in: once, again, broken off, after drift."""

from __future__ import annotations

import copy
import types
import typing as t
from collections.abc import Callable, Iterator

import pytest
import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import controller_object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.controller_object import (
    ControllerObjects,
)

from tests.support.controller.kinds import KINDS
from tests.support.controller.server import Controller
from tests.support.controller_site import SECRETS, configuration, project, small, variables_of

Wanted = dict[str, State | None]
ALLOWED = Consent(allowed=True)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret of {name}")


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    with made.serving():
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def wanted(url: str) -> Wanted:
    return dict(states.wanted_states(small(configuration(awx_project_url=url))))


@pytest.fixture(scope="module")
def once(url: str) -> Controller:
    """The stand-in with the small configuration, loaded once."""
    made = Controller()
    with made.serving(), pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, f"secret of {name}")
        load(made, dict(states.wanted_states(small(configuration(awx_project_url=url)))))
    return made


@pytest.fixture
def loaded(once: Controller, controller: Controller) -> Controller:
    """A copy of it."""
    controller.store.copy_from(once.store)
    return controller


def load(
    controller: Controller, wanted: Wanted, consent: Consent | None = None, *, check: bool = False
) -> Outcome:
    """Bring the stand-in to what is wanted, as its administrator."""
    kind = ControllerObjects(Api(controller.url, controller.token(1)), "ironspan", "ironspan")
    return bring(kind, wanted, consent or Consent(), lambda text: None, check=check)


def content(controller: Controller) -> t.Any:
    """Return all that the stand-in has, without numbers."""
    store = controller.store
    titles = {
        (path, number): f"{path}/{store.slug(path, there)}"
        for path, objects in store.objects.items()
        for number, there in objects.items()
    }
    found: dict[str, t.Any] = {}
    for (path, number), title in titles.items():
        numbers = {"id", *KINDS[path].references}
        plain = {key: value for key, value in store.objects[path][number].items() if key not in numbers}
        links = {
            name: sorted(titles[KINDS[path].lists[name], one] for one in others)
            for (owner, owned, name), others in store.links.items()
            if (owner, owned) == (path, number) and others
        }
        found[title] = (plain, links, store.surveys.get((path, number)))
    held = {
        (titles[store.roles[role][:2]], store.roles[role][2], titles[holder])
        for role, holders in store.granted.items()
        for holder in holders
    }
    return found, held


def test_everything_is_loaded_in_one_pass_and_the_second_finds_nothing(
    controller: Controller, url: str
) -> None:
    everything: Wanted = dict(states.wanted_states(configuration(awx_project_url=url)))
    shown = load(controller, everything, check=True)
    assert controller.writes == []
    first = load(controller, everything)
    assert first.problems == []
    assert first.done == shown.done == [f"create {title}" for title in everything]
    writes = len(controller.writes)
    second = load(controller, everything)
    assert (second.done, second.problems) == ([], [])
    assert len(controller.writes) == writes
    # What a plan says of them afterwards is what is found.
    for thing in shown.things:
        found = next(other for other in second.things if other.name == thing.name)
        assert thing.after == found.found.state, thing.name


def test_no_secret_is_shown(controller: Controller, wanted: Wanted) -> None:
    outcome = load(controller, wanted)
    assert "secret of" not in str([thing.as_dict() for thing in outcome.things]) + str(outcome.done)
    kept = controller.store.objects["credentials"].values()
    assert {"secret of IRONSPAN_AWX_SSH_KEY", "secret of IRONSPAN_PKI_KEY"} <= {
        str(value) for one in kept for value in one["inputs"].values()
    }


def the(controller: Controller, path: str, name: str) -> dict[str, t.Any]:
    return next(one for one in controller.store.objects[path].values() if one["name"] == name)


def change_survey(controller: Controller) -> None:
    number = the(controller, "job_templates", "ironspan certs")["id"]
    controller.store.surveys["job_templates", number]["spec"].pop()


def lose_node(controller: Controller) -> None:
    store = controller.store
    node = next(
        n for n in store.objects["workflow_job_template_nodes"].values() if "guard" in n["identifier"]
    )
    store.remove("workflow_job_template_nodes", node)


def add_node(controller: Controller) -> None:
    workflow = the(controller, "workflow_job_templates", "ironspan change workflow")["id"]
    template = the(controller, "job_templates", "ironspan site")["id"]
    body = {"identifier": "mine", "workflow_job_template": workflow, "unified_job_template": template}
    controller.store.create("workflow_job_template_nodes", body)


def unlink(controller: Controller) -> None:
    links = controller.store.links
    next(numbers for (_, _, name), numbers in links.items() if name == "failure_nodes" and numbers).clear()


def hurry(controller: Controller) -> None:
    next(iter(controller.store.objects["workflow_approval_templates"].values()))["timeout"] = 5


def lose_label(controller: Controller) -> None:
    number = the(controller, "job_templates", "ironspan site")["id"]
    controller.store.links["job_templates", number, "labels"].pop()


def lose_right(controller: Controller) -> None:
    role = next(role for role, holders in controller.store.granted.items() if holders)
    controller.store.granted[role].clear()


def prompt(controller: Controller) -> None:
    the(controller, "job_templates", "ironspan site")["ask_limit_on_launch"] = True


def lose_template(controller: Controller) -> None:
    # Its nodes stay and run nothing, its schedule and its roles are gone.
    controller.store.remove("job_templates", the(controller, "job_templates", "ironspan verify"))


def lose_scheduled(controller: Controller) -> None:
    controller.store.remove("job_templates", the(controller, "job_templates", "ironspan certs"))


DRIFT: tuple[tuple[Callable[[Controller], None], tuple[str, ...]], ...] = (
    (change_survey, ("change job template ironspan certs: survey",)),
    (lose_node, ("change workflow ironspan change workflow: nodes",)),
    (add_node, ("change workflow ironspan change workflow: nodes",)),
    (unlink, ("change workflow ironspan change workflow: nodes",)),
    (hurry, ("change workflow ironspan change workflow: nodes",)),
    (lose_label, ("change job template ironspan site: labels",)),
    (lose_right, ("change rights of ironspan ",)),
    (prompt, ("change job template ironspan site: ask_limit_on_launch",)),
    (
        lose_template,
        ("create job template ironspan verify", "change workflow ironspan change workflow: nodes"),
    ),
    (lose_scheduled, ("create job template ironspan certs", "create schedule ironspan certs schedule")),
)


@pytest.mark.parametrize("drift", DRIFT, ids=lambda drift: drift[0].__name__)
def test_what_somebody_changed_by_hand_is_seen_and_put_right(
    loaded: Controller, wanted: Wanted, drift: tuple[Callable[[Controller], None], tuple[str, ...]]
) -> None:
    before = copy.deepcopy(content(loaded))
    drift[0](loaded)
    assert content(loaded) != before
    outcome = load(loaded, wanted)
    assert outcome.problems == []
    for text in drift[1]:
        assert any(step.startswith(text) for step in outcome.done), (text, outcome.done)
    assert content(loaded) == before
    assert load(loaded, wanted).done == []


@pytest.mark.parametrize("percent", [2, 25, 50, 75, 99])
def test_a_run_that_broke_off_anywhere_is_gone_on_with(
    controller: Controller, once: Controller, wanted: Wanted, percent: int
) -> None:
    answer: t.Any = controller.answer
    count = iter(range(10**6))
    at = len(once.writes) * percent // 100

    def breaking(method: str, *rest: t.Any) -> t.Any:
        if method != "GET" and next(count) == at:
            controller.failing.append(("", 503))
        return answer(method, *rest)

    patch = pytest.MonkeyPatch()
    patch.setattr(controller, "answer", breaking)
    first = load(controller, wanted)
    broken, *others = first.problems
    assert "503" in broken
    assert all("not begun" in text for text in others)
    patch.undo()
    assert load(controller, wanted).problems == []
    assert load(controller, wanted).done == []
    assert content(controller) == content(once)


def test_what_is_not_wanted_any_more_is_removed_with_consent_only(loaded: Controller, wanted: Wanted) -> None:
    organization = the(loaded, "organizations", "ironspan")["id"]
    loaded.store.create("teams", {"name": "others", "organization": organization})
    fewer = {title: state for title, state in wanted.items() if "backup drill" not in title}
    for state in fewer.values():
        if state and state["object"] == "rights of":
            t.cast("dict[str, t.Any]", state)["rights"] = [
                right for right in state["rights"] if "backup drill" not in right
            ]
    with pytest.raises(RemoteError, match="these steps need consent: change rights of ironspan operators"):
        load(loaded, fewer)
    assert the(loaded, "job_templates", "ironspan backup drill")
    outcome = load(loaded, fewer, ALLOWED)
    assert outcome.problems == []
    removed = [step for step in outcome.done if step.startswith("remove")]
    assert removed == [
        "remove job template ironspan backup drill",
        "remove schedule ironspan backup drill schedule",
    ]
    notes = [note for thing in outcome.things for note in thing.found.notes]
    assert notes == ["not in the configuration, left alone: team others"]
    assert load(loaded, fewer).done == []


def test_a_right_that_a_team_should_not_have_is_taken_with_consent(
    loaded: Controller, wanted: Wanted
) -> None:
    number = the(loaded, "job_templates", "ironspan site")["id"]
    team = the(loaded, "teams", "ironspan operators")["id"]
    role = next(
        r for r, owner in loaded.store.roles.items() if owner == ("job_templates", number, "execute_role")
    )
    loaded.store.granted[role].add(("teams", team))
    with pytest.raises(RemoteError, match="need consent: change rights of ironspan operators: rights"):
        load(loaded, wanted)
    assert load(loaded, wanted, ALLOWED).problems == []
    assert ("teams", team) not in loaded.store.granted[role]


def test_secrets_are_written_again_on_request(
    loaded: Controller, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRONSPAN_PKI_KEY", "another one")
    assert load(loaded, wanted).done == []
    again = {
        title: {**state, "written": True} if state and states.SECRETS in state else state
        for title, state in wanted.items()
    }
    outcome = load(loaded, again)
    assert "write the secrets of credential ironspan PKI key" in outcome.done
    assert the(loaded, "credentials", "ironspan PKI key")["inputs"] == {"key": "another one"}
    monkeypatch.setenv("IRONSPAN_PKI_KEY", "")
    # A field beside a secret is changed without it.
    the(loaded, "credentials", "ironspan SSH")["inputs"]["username"] = "other"
    assert load(loaded, wanted).problems == []
    inputs = the(loaded, "credentials", "ironspan SSH")["inputs"]
    assert inputs == {"username": "root", "ssh_key_data": "secret of IRONSPAN_AWX_SSH_KEY"}


def test_a_missing_secret_is_named_before_anything_is_made(
    controller: Controller, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IRONSPAN_AWX_SSH_KEY")
    monkeypatch.delenv("PAGER_KEY")
    with pytest.raises(RemoteError) as raised:
        load(controller, wanted)
    assert "IRONSPAN_AWX_SSH_KEY (for credential ironspan SSH), PAGER_KEY (for notification" in str(
        raised.value
    )
    assert controller.writes == []


def test_a_project_that_cannot_be_read_ends_the_run(controller: Controller) -> None:
    unread: Wanted = dict(states.wanted_states(small(configuration(awx_project_url="file:///nowhere"))))
    outcome = load(controller, unread)
    broken, *others = outcome.problems
    assert "could not be read from git (failed); look at its last update" in broken
    assert others and all("not begun" in text for text in others)
    assert controller.store.objects["job_templates"] == {}


@pytest.mark.parametrize(
    ("version", "gateway", "prefix", "says"),
    [
        ("23.9.0", False, "/api/v2/", "has version 23.9.0; upgrade it"),
        ("4.5.2", True, "/api/controller/v2/", "has version 4.5.2; upgrade it"),
        ("24.6.1", False, "/api/v2/", ""),
        ("25.5.1", False, "/api/v2/", ""),
        ("4.6.0", True, "/api/controller/v2/", ""),
        ("4.7.1", True, "/api/controller/v2/", ""),
    ],
)
def test_versions_and_paths_of_controllers(
    wanted: Wanted, version: str, gateway: bool, prefix: str, says: str
) -> None:
    made = Controller(version, prefix, gateway=gateway)
    with made.serving():
        if says:
            with pytest.raises(RemoteError, match=says):
                load(made, wanted)
            assert made.writes == []
        else:
            assert load(made, wanted, check=True).problems == []


def test_a_login_that_is_not_taken(controller: Controller, wanted: Wanted) -> None:
    for token, says in (
        ("expired", "does not take the token: Authentication credentials were not provided"),
        (controller.user("ann"), "the account of the token may not: You do not have permission"),
    ):
        kind = ControllerObjects(Api(controller.url, token), "ironspan", "ironspan")
        try:
            text = "; ".join(bring(kind, wanted, Consent(), lambda text: None).problems)
        except RemoteError as error:
            text = str(error)
        assert says in text


def site_of(variables: dict[str, t.Any]) -> t.Any:
    """Return a site of one worker."""
    host = types.SimpleNamespace(variables=variables)
    return types.SimpleNamespace(hosts={"w1": host}, group=lambda name: [host])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"awx_host": ""}, "where the controller is; write awx_host"),
        ({"awx_project_url": ""}, "where the controller finds the playbooks; write awx_project_url"),
        ({"awx_host": "http://127.0.0.1:9"}, "does not answer: "),
    ],
)
def test_what_the_inventory_lacks(
    changes: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRONSPAN_AWX_TOKEN", "x")
    # A task has what the inventory says, not what the role has by default.
    variables = {"site": site_of(variables_of()), **changes}
    with pytest.raises(RemoteError, match=says):
        compared(controller_object.opened(variables), controller_object.declared(variables, {}))


def test_a_token_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRONSPAN_AWX_TOKEN", raising=False)
    with pytest.raises(RemoteError, match="IRONSPAN_AWX_TOKEN is not set"):
        controller_object.opened({"site": site_of(variables_of()), **variables_of()})


def test_a_question_is_asked_again_when_its_connection_was_closed_and_a_change_is_not(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change may have been made although its answer is lost."""
    api = Api(controller.url, controller.token(1))
    assert api.prefix == "/api/v2/"
    request = api._pool.request
    closed: list[str] = []

    def once_closed(method: str, url: str, **more: t.Any) -> urllib3.BaseHTTPResponse:
        closed.append(method)
        if closed.count(method) == 1:
            raise urllib3.exceptions.ProtocolError("Connection aborted.")
        return request(method, url, **more)

    monkeypatch.setattr(api._pool, "request", once_closed)
    assert list(api.listed("organizations/")) == []
    with pytest.raises(RemoteError, match="does not answer: ProtocolError"):
        api.post("organizations/", {"name": "one"})
    assert closed == ["GET", "GET", "POST"]
