# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How secrets are stored: which providers API servers have, and the stage of a change (pki/encryption.py)."""

from __future__ import annotations

import hashlib
import re
import typing as t
from collections.abc import Mapping

IDENTITY, SECRETBOX, KMS = "identity", "secretbox", "kms"
"""Kinds of providers as the API server calls them; ``identity`` stores secrets in clear."""
READ, WRITE, DROP, BACK, RECALL = "read", "write", "drop", "back", "recall"
MOVES = (READ, WRITE, DROP, BACK, RECALL)
NEXT: Mapping[str, str] = {"": READ, READ: WRITE, WRITE: DROP, RECALL: DROP}
"""The stage after each; ``drop`` ends when all API servers were seen to have followed."""
_NAME = re.compile(rf"{IDENTITY}|({SECRETBOX}|{KMS})-[1-9][0-9]*")


class Encryption(t.NamedTuple):
    """How secrets are stored.

    Args:
        providers: names of what API servers read with; the first one writes. ``identity``, or a kind and the
            number of its key: ``secretbox-2``.
        stage: "", or the stage that was entered last.
        since: when it was entered, ISO 8601.
        former: what was written with once and is dropped: a restored backup may need it.
    """

    providers: tuple[str, ...] = (IDENTITY,)
    stage: str = ""
    since: str = ""
    former: tuple[str, ...] = ()

    @property
    def used(self) -> bool:
        """Whether anything but clear text was ever written or read."""
        return self != Encryption()

    @property
    def needs_plugin(self) -> bool:
        """Whether control planes need the program that asks a vault."""
        return any(kind_of(name) == KMS for name in self.providers)

    @property
    def writes(self) -> str:
        """The provider that writes."""
        return self.providers[0]

    @property
    def secret_name(self) -> str:
        """What documents call the configuration of API servers; another one has another name."""
        return f"encryption-{hashlib.sha256(' '.join(self.providers).encode()).hexdigest()[:16]}"

    @property
    def known(self) -> tuple[str, ...]:
        """Every provider that this site has had."""
        return (*self.providers, *self.former)

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as store.json has it."""
        return {**self._asdict(), "providers": list(self.providers), "former": list(self.former)}


def kind_of(provider: str) -> str:
    """Return the kind of a provider: ``secretbox`` of ``secretbox-2``."""
    return provider.partition("-")[0]


def named(kind: str, number: int) -> str:
    """Return the name of a provider; clear text has no number."""
    return kind if kind == IDENTITY else f"{kind}-{number}"


def parsed(content: t.Any) -> Encryption:
    """Read what ``as_dict`` wrote; None is a site that was never encrypted.

    Raises:
        ValueError: it is something else.
    """
    if content is None:
        return Encryption()
    state = Encryption(
        tuple(content["providers"]), content["stage"], str(content["since"]), tuple(content["former"])
    )
    if not state.providers or not all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in state.known
    ):
        raise ValueError("no such provider")
    if len(set(state.known)) != len(state.known) or state.stage not in ("", READ, WRITE, DROP, RECALL):
        raise ValueError("no such stage")
    return state


def begun(kind: str) -> Encryption:
    """Return how a site begins that has no secrets yet."""
    return Encryption((named(kind, 1),))
