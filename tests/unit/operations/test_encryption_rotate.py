# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a plan says of a stage of the encryption of secrets."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.encryption_rotate import steps
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    DROP,
    READ,
    RECALL,
    WRITE,
    Encryption,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

A, B, CLEAR = "secretbox-1", "secretbox-2", "identity"
CHANGED = Encryption((B,), "", "", (A,))


def step(state: Encryption, stage: str, wish: str = "secretbox") -> Step:
    """Return the one step of a run."""
    host = types.SimpleNamespace(variables={"control_plane_secrets_encryption": wish})
    store = types.SimpleNamespace(encryption=types.SimpleNamespace(state=lambda: state))
    context = types.SimpleNamespace(
        arguments={"ironspan_encryption_stage": stage} if stage else {},
        session=types.SimpleNamespace(store=store),
        site=types.SimpleNamespace(group=lambda name: [host] * 3),
    )
    (found,) = steps(t.cast("t.Any", context))
    return found


@pytest.mark.parametrize(
    ("state", "stage", "wish", "action", "what", "restarts"),
    [
        (Encryption(), "read", "secretbox", READ, "let 3 API servers read what secretbox-1 writes", True),
        (
            Encryption((A,)),
            "read",
            "secretbox",
            READ,
            "let 3 API servers read what secretbox-2 writes",
            False,
        ),
        (Encryption((A,)), "read", "key_vault", READ, "let 3 API servers read what kms-1 writes", True),
        (Encryption((A,)), "read", "none", READ, "let 3 API servers read what identity writes", False),
        (Encryption((CLEAR, A), READ), "write", "secretbox", WRITE, "write secrets with secretbox-1", False),
        (Encryption((CLEAR, A), READ), "", "secretbox", READ, "read what secretbox-1 writes", False),
        (Encryption((A, "kms-1"), WRITE), "drop", "secretbox", DROP, "read with secretbox-1 only", True),
        (
            Encryption((A, CLEAR), WRITE),
            "back",
            "secretbox",
            "back",
            "write secrets with identity again",
            False,
        ),
        (CHANGED, "recall", "secretbox", RECALL, "let 3 API servers read what secretbox-1 wrote", False),
        (CHANGED, "rewrite", "secretbox", "rewrite", "rewrite all secrets with secretbox-2", False),
    ],
)
def test_stages(state: Encryption, stage: str, wish: str, action: str, what: str, restarts: bool) -> None:
    found = step(state, stage, wish)
    assert found.action == f"encryption-{action}"
    assert what in found.what
    assert bool(found.disruption) is restarts
    assert found.arithmetic.startswith(f"now: {state.writes} writes")


@pytest.mark.parametrize(
    ("state", "stage", "wish", "message"),
    [
        (Encryption(), "", "secretbox", "not being changed"),
        (Encryption(), "read", "none", "in clear already"),
        (Encryption(), "write", "secretbox", "in no stage"),
        (Encryption(), "rotate", "secretbox", "ironspan_encryption_stage: 'rotate' is none of its values"),
        (Encryption(("kms-1",)), "read", "key_vault", "encrypted by kms-1 already"),
    ],
)
def test_what_is_refused(state: Encryption, stage: str, wish: str, message: str) -> None:
    with pytest.raises(OperationError, match=message):
        step(state, stage, wish)
