# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a host's TPM proves what its document wants, before a certificate of its node is signed.

The document is the controller's, the answer the host's. Under ``require`` nothing is signed unless the TPM
that a person has accepted signs, for a nonce of this moment, that the host has booted what was accepted.
Under ``record`` what is found is kept, and what differs is a warning.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import ATTESTATION, read_whole
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import OF_NODES, ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

if t.TYPE_CHECKING:  # they bring `cryptography`, which most executions do not need
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.ask import Policy
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record

PROGRAM = "attest"
REQUIRE = "require"
Run = Callable[[str, dict[str, t.Any]], Mapping[str, t.Any]]
"""Called with a program of the engine and its parameters; returns what the host answered."""


def policy_of(document: Mapping[str, t.Any], asked: Collection[str] | None = None) -> Policy | None:
    """Return what a document says of the host's TPM, None where it asks no TPM.

    Args:
        document: the controller's.
        asked: resources whose certificates the host asks for; all by default.
    """
    for resource in document["resources"]:
        said = resource.get("attestation")
        if said and resource["kind"] in OF_NODES and (asked is None or resource["id"] in asked):
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.ask import Policy

            # A document has the last two only where the inventory says something of them.
            more = (said.get("authorities") or (), said.get("endorsement") or "")
            return Policy(said["mode"], said["pcrs"], said["tcti"], *more)
    return None


class Attestor:
    """Asks one host's TPM.

    Args:
        host: its name.
        run: runs a program there.
        credentials: of the site, whose store has the records.
    """

    def __init__(self, host: str, run: Run, credentials: Credentials) -> None:
        self._host = host
        self._run = run
        self._credentials = credentials

    def __call__(self, document: Mapping[str, t.Any], asked: Collection[str]) -> list[str]:
        """Ask, where the document says so.

        Args:
            document: the host's.
            asked: resources whose certificates the host asks for.

        Returns:
            What differs, under ``record``.

        Raises:
            ExchangeError: under ``require``, the TPM does not prove what was accepted.
        """
        policy = policy_of(document, asked)
        if policy is None:
            return []
        try:
            return [f"{self._host}: {line}" for line in self._judged(policy)]
        except ActionableError as error:
            if policy.mode == REQUIRE:
                raise ExchangeError(error.message, error.remedy or self._remedy()) from None
            return [f"{self._host}: {error}"]

    def ask(self, parameters: dict[str, t.Any]) -> Mapping[str, t.Any]:
        """Return what the host answers for its TPM; of another form it is a failure."""
        return read_whole(self._run(PROGRAM, parameters), ATTESTATION)

    def known(self) -> Record | None:
        """Return what is recorded of the host's TPM, None when nothing is.

        Raises:
            ExchangeError: the store cannot be used.
            AttestationError: the record is damaged.
        """
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import record_from

        text = self._credentials.tpm(self._host)
        return record_from(text) if text else None

    def keep(self, record: Record) -> None:
        """Record it. Raises ExchangeError when the store cannot be used."""
        self._credentials.keep_tpm(self._host, record.text())

    def _judged(self, policy: Policy) -> list[str]:
        """Return what differs under ``record``.

        Raises:
            ActionableError: the TPM proves nothing; under ``require``, something differs or was not accepted.
        """
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import differences

        record = self.known()
        if policy.mode == REQUIRE and (record is None or not record.accepted_by):
            raise ExchangeError("nobody has accepted this host's TPM, and node_attestation is require")
        if record is None:
            record = ask.introduce(policy, self.ask)
            self.keep(record)
            ask.insist_on_maker(record, policy)
            return []
        ask.insist_on_maker(record, policy)
        found = differences(record, ask.measure(record, policy, self.ask))
        if found and policy.mode == REQUIRE:
            raise ExchangeError(
                f"the host booted something else than {record.accepted_by} accepted on {record.time}: "
                + ", ".join(found)
            )
        return found

    def _remedy(self) -> str:
        return (
            f"find out why, see docs/attestation.md; if it is right: ironspan server attest {self._host} "
            "--accept NAME, then run again"
        )
