# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A BMC that somebody else has answers with anything: it fails by its own name, and no other does."""

from __future__ import annotations

import io
import json
import typing as t
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import requests
import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import (
    accounts,
    connection,
    light,
    log,
    power,
    protocols,
    questions,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError
from requests.adapters import HTTPAdapter

from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.servers import InMemory
from tests.unit.redfish.conftest import bmc_of, state

ASKED: dict[str, Callable[[Bmc], object]] = {
    "show": questions.show,
    "log": log.entries,
    "accounts": accounts.others,
    "policy": accounts.policy_of,
    "light": light.light,
    "power": power.read_power,
    "services": protocols.enabled,
    "password": lambda bmc: accounts.set_password(bmc, "Another-password-0"),
}


class Answers:
    """What a BMC says: what the lab's says, but for one field wherever it stands."""

    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept
        self.whole: Callable[[str, bytes], bytes] = lambda path, found: found

    def send(self, request: requests.PreparedRequest) -> requests.Response:
        path = urlsplit(str(request.url)).path.rstrip("/")
        found = self._kept.get(path)
        answer = requests.Response()
        answer.request, answer.url = request, str(request.url)
        answer.status_code = 404 if found is None else 200
        body = self.whole(path, found) if found is not None and request.method == "GET" else b"{}"
        answer.raw = urllib3.HTTPResponse(io.BytesIO(body), preload_content=False)
        return answer


def kept(front: Front) -> dict[str, bytes]:
    """Return every resource of a BMC by its path."""
    found: dict[str, bytes] = {}
    with bmc_of(front) as bmc:
        left = ["/redfish/v1"]
        while left:
            path = left.pop()
            if path in found:
                continue
            try:
                document = bmc.get(path)
            except BmcError:
                continue
            found[path] = json.dumps(document).encode()
            left += [str(one).rstrip("/") for key, one in _fields(document) if key == "@odata.id"]
    return found


def _fields(node: t.Any) -> Iterator[tuple[str, t.Any]]:
    for value in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
        yield from _fields(value)
    if isinstance(node, dict):
        yield from node.items()


def put(node: t.Any, key: str, value: t.Any) -> t.Any:
    """Return a document with another value wherever a field of this name stands."""
    if isinstance(node, list):
        return [put(one, key, value) for one in node]
    if isinstance(node, dict):
        return {name: value if name == key else put(one, key, value) for name, one in node.items()}
    return node


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(tmp_path_factory.mktemp("bmc"), state(), InMemory()).running() as running:
        yield running


@pytest.fixture(scope="module")
def said(front: Front) -> dict[str, bytes]:
    return kept(front)


@pytest.fixture
def answers(front: Front, said: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the lab's BMC says, without the network between: sushy and requests are the real ones."""
    made = Answers(said)
    sha256 = front.sha256
    monkeypatch.setattr(connection, "shown_certificate", lambda *_: (sha256, b""))
    monkeypatch.setattr(HTTPAdapter, "send", lambda adapter, request, **_: made.send(request))
    return made


def attacked(front: Front, name: str) -> str:
    """Ask a BMC; return what was wrong with it, "" for nothing. Anything but its own failure goes through."""
    try:
        with bmc_of(front) as bmc:
            ASKED[name](bmc)
    except BmcError as error:
        assert "gpu-1" in str(error)
        return str(error)
    return ""


def test_an_honest_bmc_is_read(front: Front, answers: Answers) -> None:
    assert [attacked(front, name) for name in ASKED] == [""] * len(ASKED)


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"a":' * 200_000, b"{" * 10, b"[]", b"null", b"7", b"\xff\xfe", b"", b"1" * 10_000],
    ids=lambda body: body[:6].decode("latin-1"),
)
@pytest.mark.parametrize(
    ("path", "name"),
    [("/redfish/v1", "show"), ("/redfish/v1/Systems/1", "power"), ("/redfish/v1/AccountService", "password")],
)
def test_a_body_of_any_kind_is_that_bmcs_failure(
    body: bytes, path: str, name: str, front: Front, answers: Answers
) -> None:
    answers.whole = lambda asked, found: body if asked == path else found
    assert attacked(front, name)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("@odata.id", "https://[", "show"),
        ("@odata.id", "https://gpu:99999/", "show"),
        ("@odata.id", "file:///etc/passwd", "log"),
        ("@odata.id", 7, "show"),
        ("Accounts", {"@odata.id": "//[/"}, "accounts"),
        ("Members", 7, "log"),
        ("Members", {"a": 1}, "accounts"),
        ("Links", [1], "power"),
        ("Chassis", 7, "power"),
        ("ManagedBy", True, "services"),
        ("Created", "0001-01-01T00:00:00+14:00", "log"),
        ("Created", "9999-12-31T23:59:59-14:00", "log"),
        ("Message", {"a": ["\ud800"]}, "log"),
        ("Severity", ["OK"], "log"),
        ("PowerControl", [[], 7, {"PowerConsumedWatts": 10**400}], "power"),
        ("MinPasswordLength", 10**400, "policy"),
        ("SerialNumber", [[[]]], "show"),
        ("PowerState", {}, "show"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_field_of_any_kind_is_that_bmcs_affair(
    field: str, value: t.Any, name: str, front: Front, answers: Answers
) -> None:
    """Read as something, or refused by name; no other BMC of the same run is left unasked for it."""
    answers.whole = lambda _, found: json.dumps(put(json.loads(found), field, value)).encode()
    attacked(front, name)


@pytest.mark.parametrize("watts", [-1e9, 10**400, 1e300, True, "90", None], ids=lambda watts: str(watts)[:6])
def test_what_is_no_reading_of_watts_makes_up_for_nothing(
    watts: t.Any, front: Front, answers: Answers
) -> None:
    answers.whole = lambda _, found: json.dumps(
        put(json.loads(found), "PowerControl", [{"PowerConsumedWatts": watts}, {"PowerConsumedWatts": 900}])
    ).encode()
    with bmc_of(front) as bmc:
        reading = power.read_power(bmc)
    assert (reading.watts, reading.proves("Off")) == (900, False)
