# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The one error that callers of the PKI see."""

from __future__ import annotations


class PkiError(Exception):
    """Something about the store, its key or a certificate request is not acceptable.

    Args:
        message: what is wrong, in one sentence; never holds a secret.
        remedy: what the operator can do about it, in one sentence.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
