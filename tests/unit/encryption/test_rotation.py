# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What forbids a stage: API servers that have not loaded it, secrets that somebody else has written."""

from __future__ import annotations

import functools
import hashlib
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import loaded, rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.stored import Secret
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import UnreachableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    BACK,
    DROP,
    READ,
    RECALL,
    WRITE,
    Encryption,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from tests.support.clock import Clock

TEXT = '{"kind": "EncryptionConfiguration"}\n'
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
METRIC = "apiserver_encryption_config_controller_last_config_info"


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Server:
    """The metrics of an API server."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    def text(self, path: str) -> str:
        """Return the next answer; the last one again and again."""
        assert path == "/metrics"
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "away":
            raise UnreachableError("It cannot be reached.", "Look.")
        return answer


def metric(digest: str) -> str:
    return (
        f'# TYPE {METRIC} gauge\n{METRIC}{{apiserver_id_hash="sha256:{"1" * 64}",hash="sha256:{digest}"}} 1\n'
    )


def servers(*all_answers: t.Sequence[str]) -> loaded.Apis:
    def api(server: Server) -> Api:
        return t.cast("Api", server)

    return {
        f"az-{number}": functools.partial(api, Server(*answers))
        for number, answers in enumerate(all_answers, 1)
    }


def test_every_api_server_says_what_it_has_loaded() -> None:
    apis = servers([metric(DIGEST)], [metric("2" * 64)], ["go_goroutines 3\n"], ["away"])
    reasons = loaded.not_loaded(apis, TEXT)
    assert [reason.split(":")[0] for reason in reasons] == ["az-2", "az-3", "az-4"]
    assert "another encryption configuration" in reasons[0]
    assert "not loaded any" in reasons[1]
    assert "cannot be reached" in reasons[2]


def test_waiting_ends_as_soon_as_all_have_loaded_it(clock: Clock) -> None:
    def sleep(seconds: float) -> None:
        clock.now += seconds

    apis = servers(["away", metric("2" * 64), metric(DIGEST)], [metric(DIGEST)])
    assert loaded.wait(apis, TEXT, clock=clock, sleep=sleep) == []
    before = clock.now
    never = servers([metric("2" * 64)])
    assert len(loaded.wait(never, TEXT, clock=clock, sleep=sleep)) == 1
    assert clock.now - before >= loaded.LONGEST_WAIT_S


A, B = "secretbox-1", "secretbox-2"
READING, WRITING = Encryption((A, B), READ), Encryption((B, A), WRITE)
DROPPING, RECALLED = Encryption((B,), DROP, "", (A,)), Encryption((B, A), RECALL)


@pytest.mark.parametrize(
    ("state", "move", "followers", "alone"),
    [
        (Encryption(), READ, False, ""),
        (Encryption((A,)), READ, False, ""),
        (READING, WRITE, True, ""),
        (READING, BACK, True, A),
        (WRITING, BACK, False, ""),
        (WRITING, DROP, True, B),
        (RECALLED, DROP, True, B),
        (DROPPING, rotation.END, True, ""),
        (Encryption((B,), "", "", (A,)), RECALL, False, ""),
    ],
)
def test_what_is_asked_before_a_move(state: Encryption, move: str, followers: bool, alone: str) -> None:
    asked: list[str] = []

    def missing() -> list[str]:
        asked.append("api servers")
        return []

    def read() -> list[Secret]:
        asked.append("etcd")
        return [Secret("x", "mine", alone), Secret("x", "theirs", "stranger-1")]

    reasons = rotation.refusals(state, move, missing, read)
    assert asked == ["api servers"] * followers + ["etcd"] * bool(alone)
    assert len(reasons) == bool(alone)
    if alone:
        assert reasons == [f"secret x/theirs is stored with stranger-1 still, not with {alone}"]
    if followers:
        assert rotation.refusals(state, move, lambda: ["az-2 has not"], list) == ["az-2 has not"]


@pytest.mark.parametrize("stage", ["", "trust", "Read"])
def test_what_is_no_stage(stage: str) -> None:
    with pytest.raises(OperationError, match="is none of its values"):
        rotation.stage_of({"ironspan_encryption_stage": stage})


def test_the_next_stage_is_the_default() -> None:
    assert rotation.stage_of({}) == rotation.GO_ON
    moves = [rotation.next_move(state) for state in (Encryption(), READING, WRITING, RECALLED, DROPPING)]
    assert moves == [READ, WRITE, DROP, DROP, rotation.END]


def test_many_reasons_are_counted() -> None:
    text = rotation.listed([f"reason {number}" for number in range(30)])
    assert text.endswith("reason 9; and 20 more")
