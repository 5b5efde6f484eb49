# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates of a node are signed only for what the host's TPM proves; the answers are a real swtpm's."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask, keys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record, record_from
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import joins, tpm_accept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor, policy_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    Request,
    exchange,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder

from tests.support.tpm_maker import Maker
from tests.unit.attestation.answers import ANSWERS, PCRS, raw

NONCE = raw("ecdsa", "nonce")
ANSWER = {name: value for name, value in ANSWERS["ecdsa"].items() if name != "nonce"}
JOIN, CLIENT = "node/join", "node/kubelet-client"


def document(mode: str, **more: t.Any) -> dict[str, t.Any]:
    policy = {"mode": mode, "pcrs": list(PCRS), "tcti": "device:/dev/tpmrm0", **more}
    said = {"attestation": policy} if mode else {}
    kinds = {JOIN: "kubeadm", CLIENT: "kubelet_certificate", "node/other": "certificate"}
    resources = [
        {"id": name, "kind": kind, **(said if kind != "certificate" else {})} for name, kind in kinds.items()
    ]
    return {"host": "rack-1", "layers": ["node"], "resources": resources}


class Host:
    """Answers as the host did whose swtpm was recorded."""

    def __init__(self, answer: t.Any = None) -> None:
        self.answer = {"changed": False, "attestation": {**ANSWER, "secret": NONCE.hex()}}
        if answer is not None:
            self.answer = answer
        self.asked: list[dict[str, t.Any]] = []

    def __call__(self, program: str, parameters: dict[str, t.Any]) -> dict[str, t.Any]:
        assert program == "attest"
        self.asked.append(parameters)
        return self.answer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its key."""
    folder = tmp_path_factory.mktemp("store")
    open_store(folder / "pki", generate_key_file(folder / "key")).ensure_cas()
    return folder


@pytest.fixture
def credentials(store: Path, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """A store without records, while the nonce of each question is the one that swtpm was asked with."""
    monkeypatch.setattr(ask, "token_bytes", lambda size: NONCE)
    for path in store.glob("pki/secrets*/tpm-*"):
        path.unlink()
    return Credentials(str(store / "pki"), str(store / "key"))


def policy_with(**more: t.Any) -> ask.Policy:
    """Return the policy ``require`` with more in it."""
    policy = policy_of(document("require", **more))
    assert policy
    return policy


def accept(credentials: Credentials, person: str = "anna", **changes: t.Any) -> Record:
    """Record what the host's TPM says, with changes."""
    attestor = Attestor("rack-1", Host(), credentials)
    policy = policy_of(document("require"))
    assert policy
    record = dataclasses.replace(tpm_accept.look(attestor, policy, person).now, **changes)
    attestor.keep(record)
    return record


def test_no_tpm_is_asked_where_the_document_says_nothing_or_nothing_of_the_node_is_signed(
    credentials: Credentials,
) -> None:
    host = Host()
    attest = Attestor("rack-1", host, credentials)
    assert attest(document(""), [JOIN, CLIENT]) == []
    assert attest(document("require"), ["node/other"]) == []
    assert host.asked == []


@pytest.mark.parametrize("asked", [JOIN, CLIENT])
def test_what_a_person_accepted_gets_certificates(credentials: Credentials, asked: str) -> None:
    accept(credentials)
    host = Host()
    assert Attestor("rack-1", host, credentials)(document("require"), [asked]) == []
    assert host.asked == [
        {"tcti": "device:/dev/tpmrm0", "pcrs": list(PCRS), "algorithm": "ecdsa", "nonce": NONCE.hex()}
    ]


def test_without_an_accepted_record_nothing_is_signed(credentials: Credentials) -> None:
    host = Host()
    attest = Attestor("rack-1", host, credentials)
    for _ in range(2):
        with pytest.raises(ExchangeError, match=r"nobody has accepted .* server attest rack-1 --accept NAME"):
            attest(document("require"), [JOIN])
        accept(credentials, "")  # recorded, in nobody's name
    assert host.asked == []


def test_changed_firmware_is_refused_by_its_pcr(credentials: Credentials) -> None:
    accept(credentials, pcrs={**{number: ANSWER["pcrs"][str(number)] for number in PCRS}, 0: "ab" * 32})
    with pytest.raises(
        ExchangeError, match=r"than anna accepted on .*: PCR 0 \(firmware\) is \w+ and was abab"
    ):
        Attestor("rack-1", Host(), credentials)(document("require"), [JOIN])


def test_another_tpm_is_refused(credentials: Credentials) -> None:
    accept(credentials, key=ANSWERS["rsassa"]["ak"], algorithm="rsassa")
    with pytest.raises(ExchangeError, match="its scheme is 0x18"):
        Attestor("rack-1", Host(), credentials)(document("require"), [JOIN])


def test_an_answer_to_another_question_is_refused(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(credentials)
    monkeypatch.setattr(ask, "token_bytes", lambda size: bytes(size))
    with pytest.raises(ExchangeError, match="answers another question"):
        Attestor("rack-1", Host(), credentials)(document("require"), [JOIN])


BROKEN: list[t.Any] = [
    {"failed": True, "msg": "there is no program tpm2: install the package tpm2-tools"},
    {"unreachable": True, "msg": "no route"},
    {},
    [],
    "attested",
    {"attestation": True},
    {"attestation": {"algorithm": "ecdsa", "ak": ANSWER["ak"]}},
    {"attestation": {**ANSWER, "pcrs": {"0": 1}}},
    {"attestation": {**ANSWER, "signature": "zz"}},
    {"attestation": {**ANSWER, "pcrs": {"2": ANSWER["pcrs"]["2"]}}},
]


@pytest.mark.parametrize("answer", BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("known", [True, False])
def test_a_tpm_that_proves_nothing(credentials: Credentials, answer: t.Any, known: bool) -> None:
    """Refused under require, a warning under record, and never the record."""
    if known:
        accept(credentials)
    before = credentials.tpm("rack-1")
    attest = Attestor("rack-1", Host(answer), credentials)
    with pytest.raises(ExchangeError):
        attest(document("require"), [JOIN])
    [warning] = attest(document("record"), [JOIN])
    assert warning.startswith("rack-1: ")
    assert credentials.tpm("rack-1") == before


def test_the_words_of_a_host_are_one_printable_line(credentials: Credentials) -> None:
    accept(credentials)
    host = Host({"failed": True, "msg": "ERROR:\n  none\x1b[2J\r all is well " + "x" * 9000})
    with pytest.raises(
        ExchangeError, match=r"did not answer: ERROR: none \[2J all is well x+; find out"
    ) as caught:
        Attestor("rack-1", host, credentials)(document("require"), [JOIN])
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_record_keeps_what_it_sees_first_and_warns_of_what_differs(credentials: Credentials) -> None:
    attest = Attestor("rack-1", Host(), credentials)
    for _ in range(2):
        assert attest(document("record"), [JOIN]) == []
        kept = record_from(credentials.tpm("rack-1"))
        assert (kept.accepted_by, kept.pcrs[7]) == ("", ANSWER["pcrs"]["7"])
    attest.keep(dataclasses.replace(kept, pcrs={**kept.pcrs, 7: "00" * 32}))
    [warning] = attest(document("record"), [CLIENT])
    assert warning.startswith("rack-1: PCR 7 (Secure Boot: state and keys) is ")


def test_a_refusal_comes_before_any_signature(credentials: Credentials) -> None:
    request = Request(json.dumps(document("require")), "apply", "", secrets={"join": "yes"})
    asked: list[t.Any] = []

    def execute(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        asked.append(arguments)
        return {"csrs": {JOIN: "CSR"}}

    def sign(*_: t.Any) -> str:
        raise AssertionError("nothing is signed")

    with pytest.raises(ExchangeError, match="nobody has accepted"):
        exchange(request, execute, sign, Attestor("rack-1", Host(), credentials))
    assert len(asked) == 1


@pytest.mark.parametrize(("mode", "signed"), [("require", []), ("record", []), ("", ["rack-1"])])
def test_the_batch_leaves_a_host_with_a_tpm_to_its_own_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, signed: list[str]
) -> None:
    monkeypatch.setattr(joins, "sign_all", lambda *_: {JOIN: "signed"})
    folder = RunFolder(tmp_path / "run")
    notes: t.Any = {"pki_store": "", "pki_key_file": "", "composed": False}
    folder.put([("rack-1", json.dumps(document(mode)), notes)])
    folder.put_join("rack-1", {"requests": {JOIN: "CSR"}})
    assert joins.sign_for_batch(folder, ["rack-1"]) == (signed, {})


def test_a_person_sees_what_differs_before_accepting(credentials: Credentials) -> None:
    attestor = Attestor("rack-1", Host(), credentials)
    policy = policy_of(document("require"))
    assert policy
    seen = tpm_accept.look(attestor, policy)
    assert (tpm_accept.said(seen), seen.settled) == ("nothing is recorded of its TPM", False)
    assert credentials.tpm("rack-1") == "", "looking records nothing"
    accept(credentials, "")
    seen = tpm_accept.look(attestor, policy)
    assert "nobody has accepted it" in tpm_accept.said(seen) and not seen.settled
    record = accept(credentials)
    seen = tpm_accept.look(attestor, policy)
    assert (tpm_accept.said(seen), seen.settled) == (f"its TPM is as anna accepted it on {record.time}", True)
    accept(credentials, endorsement="ab" * 32, pcrs={**record.pcrs, 4: "cd" * 32})
    seen = tpm_accept.look(attestor, policy)
    assert not seen.settled
    assert "it is another TPM" in tpm_accept.said(seen) and "PCR 4 (boot loader)" in tpm_accept.said(seen)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"secret": "00" * 32}, "does not have both of the keys"),
        ({"secret": ""}, "does not have both of the keys"),
        ({"ek": ANSWER["ak"]}, "endorsement key cannot be trusted"),
        ({"quote": ANSWERS["rsassa"]["quote"]}, "not signed by the TPM"),
    ],
)
def test_a_tpm_that_does_not_prove_its_keys_is_not_recorded(
    credentials: Credentials, changes: dict[str, t.Any], why: str
) -> None:
    host = Host({"attestation": {**ANSWER, "secret": NONCE.hex(), **changes}})
    policy = policy_of(document("require"))
    assert policy
    with pytest.raises(ActionableError, match=why):
        tpm_accept.look(Attestor("rack-1", host, credentials), policy, "anna")


EK = keys.endorsement_key(raw("ecdsa", "ek"))
MAKER = Maker("a maker")
VOUCHED = {"attestation": {**ANSWER, "secret": NONCE.hex(), "certificate": MAKER.certify(EK.key).hex()}}


def test_with_authorities_only_a_tpm_that_one_vouches_for_is_accepted_and_joins(
    credentials: Credentials,
) -> None:
    attestor = Attestor("rack-1", Host(), credentials)
    policy = policy_with(authorities=[MAKER.pem])
    with pytest.raises(ActionableError, match="no certificate of its endorsement key"):
        tpm_accept.look(attestor, policy, "anna")
    attestor = Attestor("rack-1", Host(VOUCHED), credentials)
    attestor.keep(tpm_accept.look(attestor, policy, "anna").now)
    assert attestor(document("require", authorities=[MAKER.pem]), [JOIN]) == []
    # What was accepted counts no more once its authority is taken away.
    with pytest.raises(ExchangeError, match="signed by CN=a maker, and none of node_attestation_ek_auth"):
        attestor(document("require", authorities=[Maker("another").pem]), [JOIN])


def test_a_tpm_that_was_accepted_before_authorities_were_written_is_asked_for_its_certificate(
    credentials: Credentials,
) -> None:
    accept(credentials)
    host = Host(VOUCHED)
    with pytest.raises(ExchangeError, match="accept it again if it was accepted by an earlier release"):
        Attestor("rack-1", host, credentials)(document("require", authorities=[MAKER.pem]), [JOIN])
    assert host.asked == []


def test_under_record_a_tpm_that_nobody_vouches_for_is_kept_and_warned_of(credentials: Credentials) -> None:
    attest = Attestor("rack-1", Host(), credentials)
    for _ in range(2):
        [warning] = attest(document("record", authorities=[MAKER.pem]), [JOIN])
        assert "no certificate of its endorsement key" in warning
        assert record_from(credentials.tpm("rack-1")).endorsement == EK.sha256()


def test_a_host_is_expected_to_have_one_tpm(credentials: Credentials) -> None:
    attestor = Attestor("rack-1", Host(), credentials)
    assert tpm_accept.look(attestor, policy_with(endorsement=EK.sha256()), "anna").now
    with pytest.raises(ActionableError, match=f"is {EK.sha256()}, and node_attestation_ek_sha256 says abab"):
        tpm_accept.look(attestor, policy_with(endorsement="ab" * 32), "anna")
    accept(credentials)
    with pytest.raises(ExchangeError, match="compare both with the maker's list"):
        attestor(document("require", endorsement="ab" * 32), [JOIN])


def test_asking_again_notes_what_differs_and_never_touches_what_was_accepted(
    credentials: Credentials,
) -> None:
    attestor = Attestor("rack-1", Host(), credentials)
    assert tpm_accept.asked(attestor, policy_with()).before is None
    assert credentials.tpm("rack-1") == "", "a look records nobody"
    pcrs = {**{number: ANSWER["pcrs"][str(number)] for number in PCRS}, 0: "ab" * 32}
    accepted = accept(credentials, pcrs=pcrs)
    assert not tpm_accept.asked(attestor, policy_with()).settled
    noted = record_from(credentials.tpm("rack-1"))
    assert noted.found.startswith("PCR 0 (firmware) is ") and noted.asked
    assert dataclasses.replace(noted, asked="", found="") == accepted
    silent = Attestor("rack-1", Host({"failed": True, "msg": "no device"}), credentials)
    with pytest.raises(ActionableError):
        tpm_accept.asked(silent, policy_with())
    assert record_from(credentials.tpm("rack-1")).found == "the host's TPM did not answer: no device"
    accept(credentials)
    assert tpm_accept.asked(attestor, policy_with()).settled
    assert record_from(credentials.tpm("rack-1")).found == ""


def test_a_record_of_an_earlier_release_is_read(credentials: Credentials) -> None:
    found = json.loads(accept(credentials).text())
    for name in ("certificate", "asked", "found"):
        found.pop(name)
    assert record_from(json.dumps(found)).accepted_by == "anna"


def test_a_record_is_sealed_for_its_host(credentials: Credentials, store: Path) -> None:
    """Whoever can only write the store's folder puts no other TPM in a host's place."""
    accept(credentials)
    [path] = store.glob("pki/secrets*/tpm-rack-1.sealed")
    assert b"ecdsa" not in path.read_bytes()
    path.with_name("tpm-rack-2.sealed").write_bytes(path.read_bytes())
    with pytest.raises(ExchangeError):
        credentials.tpm("rack-2")
