# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the bytes that TPMs write: big-endian numbers, and texts with their length before them."""

from __future__ import annotations

import binascii
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

SHA256 = 0x000B
"""TPM_ALG_SHA256: the only digest that is used here, of names, banks and signatures."""
RSA, ECC, NULL = 0x0001, 0x0023, 0x0010
RSASSA, ECDSA = 0x0014, 0x0018
P256 = 0x0003
LONGEST = 16384
"""Bytes of one structure; the longest that is asked for, an RSA key of 4096 bits, has about 600."""


class AttestationError(ActionableError):
    """What a TPM said is not accepted; both parts are clauses without a full stop."""


class Reader:
    """Reads a structure from its beginning to its end.

    Args:
        data: its bytes.
        what: what it is, for messages.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._rest = data
        self._what = what

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises AttestationError when there are fewer."""
        if count > len(self._rest):
            raise self.wrong("it ends too early")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def number(self, size: int) -> int:
        """Return the next number, of so many bytes. Raises AttestationError."""
        return int.from_bytes(self.take(size), "big")

    def sized(self) -> bytes:
        """Return the next bytes that have their length before them. Raises AttestationError."""
        return self.take(self.number(2))

    def expect(self, value: int, size: int, name: str) -> None:
        """Read a number that can only be one. Raises AttestationError."""
        found = self.number(size)
        if found != value:
            raise self.wrong(f"{name} is 0x{found:x} and not 0x{value:x}")

    def end(self) -> None:
        """Insist that nothing is left. Raises AttestationError."""
        if self._rest:
            raise self.wrong(f"{len(self._rest)} bytes follow its end")

    def wrong(self, why: str) -> AttestationError:
        """Return the error that the structure is not what it should be."""
        return AttestationError(f"the TPM's {self._what} is none: {why}")


def from_hex(value: t.Any, what: str) -> bytes:
    """Return the bytes of hexadecimal digits that a host answered.

    Raises:
        AttestationError: they are none, or too many.
    """
    if not isinstance(value, str) or len(value) > 2 * LONGEST:
        raise AttestationError(f"the host answered no {what}")
    try:
        return binascii.unhexlify(value)
    except ValueError:  # binascii's own error, and letters beyond ASCII
        raise AttestationError(f"the {what} that the host answered is not in hexadecimal digits") from None


def with_size(content: bytes) -> bytes:
    """Return bytes with their length before them."""
    return len(content).to_bytes(2, "big") + content
