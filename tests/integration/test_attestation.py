# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real software TPM (swtpm) through the real tpm2-tools: the host's program and the controller's judgement.

It has no firmware that measures, so the test extends PCRs as one would. What is not here is a real TPM's.
"""

from __future__ import annotations

import json
import runpy
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils import _attest, _entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import COLLECTED as NAME
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import NONE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import tpm_accept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from ironspan.artifacts.system.declared import FOLDER
from tests.support.fake_api import NODES, FakeApi
from tests.support.playbooks import recap_of
from tests.support.simulated_nodes import Site, node_api
from tests.support.simulated_site import make_store
from tests.support.software_tpm import Tpm, swtpm
from tests.support.tpm_maker import Maker

ADDRESS = "127.79.0.7"


def run(program: str, parameters: dict[str, t.Any]) -> dict[str, t.Any]:
    """Run a program of the engine, as a host does."""
    return dict(_entry.PROGRAMS[program](parameters, False, False))


@pytest.fixture
def tpm(tmp_path: Path) -> Iterator[Tpm]:
    with swtpm(tmp_path / "tpm") as running:
        yield running


@pytest.fixture
def attestor(tmp_path: Path) -> Attestor:
    key = generate_key_file(tmp_path / "key")
    open_store(tmp_path / "pki", key).ensure_cas()
    return Attestor("rack-1", run, Credentials(str(tmp_path / "pki"), str(key)))


def test_from_the_first_look_to_changed_firmware_and_back(tmp_path: Path, attestor: Attestor) -> None:
    """Nothing measured; accepted, and it joins; new firmware is refused; accepted again. Its TPM stays."""
    with swtpm(tmp_path / "tpm") as tpm:
        with pytest.raises(ActionableError, match="nothing was measured"):
            tpm_accept.look(attestor, tpm.policy, "anna")
        tpm.boot()
        with pytest.raises(ExchangeError, match="nobody has accepted"):
            attestor(tpm.document, ["node/join"])
        first = tpm_accept.look(attestor, tpm.policy, "anna")
        attestor.keep(first.now)
        assert attestor(tpm.document, ["node/join"]) == []
    with swtpm(tmp_path / "tpm") as tpm:
        tpm.boot("1.1")
        with pytest.raises(
            ExchangeError, match=r"than anna accepted on .*: PCR 0 \(firmware\) is \w+ and was \w+;"
        ):
            attestor(tpm.document, ["node/join"])
        seen = tpm_accept.look(attestor, tpm.policy, "boris")
        assert [line[:16] for line in seen.lines] == ["PCR 0 (firmware)"]
        assert (seen.now.endorsement, seen.now.key) == (first.now.endorsement, first.now.key)
        attestor.keep(seen.now)
        assert attestor(tpm.document, ["node/join"]) == []
        tpm.extend(7, "Secure Boot off")
        with pytest.raises(ExchangeError, match=r"than boris accepted on .*: PCR 7"):
            attestor(tpm.document, ["node/join"])


def test_another_machine_with_the_same_software_is_refused(
    tmp_path: Path, tpm: Tpm, attestor: Attestor
) -> None:
    tpm.boot()
    attestor.keep(tpm_accept.look(attestor, tpm.policy, "anna").now)
    with swtpm(tmp_path / "other") as other:
        other.boot()
        with pytest.raises(ExchangeError, match="not signed by the TPM that was recorded"):
            attestor(other.document, ["node/join"])
        seen = tpm_accept.look(attestor, other.policy)
        assert seen.lines[0].startswith("it is another TPM") and len(seen.lines) == 1
    assert attestor(tpm.document, ["node/join"]) == []


def test_the_tpm_that_the_ramdisk_found_is_the_one_that_may_join(
    tmp_path: Path, tpm: Tpm, attestor: Attestor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ramdisk's own collector, the way of its answer through Ironic's data, and two hosts that join."""
    collect = runpy.run_path(str(FOLDER / "agent/usr/local/lib/ironspan/ironspan_tpm.py"))["collect"]

    def inspected(tcti: str) -> str | None:
        monkeypatch.setenv("TPM2TOOLS_TCTI", tcti)
        data: dict[str, t.Any] = {}
        collect(data, None)
        return read_inspection("in band", json.loads(json.dumps({"plugin_data": data}))).tpm

    assert inspected("swtpm:host=127.0.0.1,port=1") == NONE
    policy = tpm.policy._replace(endorsement=inspected(tpm.tcti) or "none")
    tpm.boot()
    assert tpm_accept.look(attestor, policy, "anna").now.endorsement == policy.endorsement
    with swtpm(tmp_path / "other") as other:
        other.boot()
        with pytest.raises(
            ActionableError, match=f"and node_attestation_ek_sha256 says {policy.endorsement}"
        ):
            tpm_accept.look(attestor, policy._replace(tcti=other.tcti), "anna")
    monkeypatch.delenv("TPM2TOOLS_TCTI")
    said: dict[str, t.Any] = {}
    collect.__globals__["DEVICE"] = str(tmp_path / "none")
    collect(said, None)
    assert said == {NAME: {"fault": f"there is no {tmp_path / 'none'}"}}


def test_keys_of_two_tpms_are_not_taken_for_one(tmp_path: Path, tpm: Tpm) -> None:
    """An endorsement key that is known to be good does not make a key of another TPM good."""
    tpm.boot()
    with swtpm(tmp_path / "other") as other:
        other.boot()
        genuine = run("attest", {"tcti": tpm.tcti, "endorsement": True})["attestation"]["ek"]

        def mixed(parameters: dict[str, t.Any]) -> dict[str, t.Any]:
            answer = run("attest", {**parameters, "tcti": other.tcti})
            answer.get("attestation", {}).update(ek=genuine)
            return answer

        with pytest.raises(ActionableError, match="activatecredential ended with"):
            ask.introduce(other.policy, mixed, "anna")


def test_an_rsa_key_is_attested_too(tpm: Tpm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TPM that cannot make the first kind of key is asked for the second, and from then on for that."""
    tpm.boot()
    monkeypatch.setattr(_attest, "SCHEMES", {**_attest.SCHEMES, "ecdsa": "ecc638:ecdsa-sha256:null"})
    record = ask.introduce(tpm.policy, lambda parameters: run("attest", parameters), "anna")
    assert record.algorithm == "rsassa"
    assert ask.measure(record, tpm.policy, lambda parameters: run("attest", parameters)) == record.pcrs


def test_the_certificate_in_a_tpm_is_followed_to_its_maker(tpm: Tpm, attestor: Attestor) -> None:
    """None in it, and another maker's, are refused; what fills the space up behind it does no harm."""
    tpm.boot()
    maker = Maker("a maker")
    policy = tpm.policy._replace(authorities=[maker.pem])
    with pytest.raises(ActionableError, match="no certificate of its endorsement key"):
        tpm_accept.look(attestor, policy, "anna")
    tpm.certify(maker)
    attestor.keep(tpm_accept.look(attestor, policy, "anna").now)
    vouched = {"resources": [{**tpm.document["resources"][0], "attestation": policy._asdict()}]}
    assert attestor(vouched, ["node/join"]) == []
    with pytest.raises(ActionableError, match=r"signed by CN=a maker, and none of"):
        tpm_accept.look(attestor, tpm.policy._replace(authorities=[Maker("another").pem]), "anna")


def test_a_running_host_is_asked_again_with_another_nonce(tpm: Tpm, attestor: Attestor) -> None:
    tpm.boot()
    attestor.keep(tpm_accept.look(attestor, tpm.policy, "anna").now)
    assert tpm_accept.asked(attestor, tpm.policy).settled
    tpm.extend(4, "another boot loader")
    assert not tpm_accept.asked(attestor, tpm.policy).settled
    noted = attestor.known()
    assert noted and noted.found.startswith("PCR 4 (boot loader) is ") and noted.accepted_by == "anna"


@pytest.mark.parametrize(
    ("path", "says"),
    [("/nowhere", "install the package tpm2-tools"), ("", "tpm2 createprimary ended with")],
)
def test_a_host_without_a_tpm_says_so(monkeypatch: pytest.MonkeyPatch, path: str, says: str) -> None:
    if path:
        monkeypatch.setenv("PATH", path)
    answer = run("attest", {"tcti": "swtpm:host=127.0.0.1,port=1", "nonce": "00", "pcrs": [0]})
    assert (answer["failed"], answer["changed"]) == (True, False)
    assert says in answer["msg"]


@pytest.mark.long
def test_through_the_playbooks_a_worker_joins_when_its_tpm_was_accepted(tmp_path: Path, tpm: Tpm) -> None:
    """site.yml refuses it and names the command; that command, with a check before it; site.yml joins it."""
    store = make_store(tmp_path)
    with FakeApi() as free:
        port = free.port
    site = Site(tmp_path / "site", tmp_path, ADDRESS, port)
    inventory = yaml.safe_load((site.folder / "hosts.yml").read_text())
    w1 = inventory["all"]["hosts"]["w1"]
    w1.update(node_attestation="require", node_attestation_tcti=tpm.tcti)
    (site.folder / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
    tpm.boot()
    with node_api(store, site, ADDRESS, port) as api:
        status, output = site.finish()
        assert status != 0
        assert "nobody has accepted this host's TPM" in output and "server attest w1 --accept NAME" in output
        assert api.names(NODES) == ["w2"], "the others are not held up"
        for options, accepted in (((), ""), (("--check",), "anna"), ((), "anna"), ((), "")):
            person = {"ironspan_accept": accepted} if accepted else {}
            site.choose("server_attest", ironspan_hosts="w1", **person)
            status, output = site.finish(*options)
            if accepted:
                assert (status, recap_of(output)["w1"]["changed"]) == (0, 1), output
                assert "w1: nothing is recorded of its TPM; anna accepts it" in output
        assert status == 0 and "w1: its TPM is as anna accepted it on" in output
        site.choose("site")
        status, output = site.finish()
        assert status == 0, output
        assert api.names(NODES) == ["w1", "w2"]
        # All that have a policy, without a name: w2 has none. Nobody accepts them that way.
        site.choose("server_attest")
        status, output = site.finish()
        assert (status, recap_of(output)["w2"]["skipped"]) == (0, 1), output
        tpm.extend(4, "another boot loader")
        status, output = site.finish()
        assert status != 0 and "PCR 4 (boot loader) is" in output
        site.choose("server_attest", ironspan_accept="anna")
        status, output = site.finish()
        assert status != 0 and "nobody accepts TPMs without naming their hosts" in output
        site.choose("server_attest", ironspan_hosts="w2")
        status, output = site.finish()
        assert status != 0 and "node_attestation is off for w2" in output
