# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The key that encrypts a store: 32 bytes as base64, in a file nobody else can read or in the environment."""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError

ENVIRONMENT_VARIABLE = "IRONSPAN_PKI_KEY"
KEY_BYTES = 32
"""AES-256: 32 bytes."""
_MAKE_ONE = "Make a key with: python -c 'import base64,os; print(base64.b64encode(os.urandom(32)).decode())'."


def generate_key_file(path: str | Path) -> Path:
    """Make a new random key in a file with mode 0600.

    Args:
        path: where the file shall be; its folder must exist.

    Returns:
        The path.

    Raises:
        PkiError: when something is there already; a key is never overwritten, the store would be lost.
    """
    path = Path(path)
    text = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise PkiError(
            f"{path} exists already.", "Use it, or remove it first if no store is encrypted with it."
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path


def load_key(key_file: str | Path | None, environment: t.Mapping[str, str] | None = None) -> bytes:
    """Read the store's key.

    Args:
        key_file: the file that holds it; None or "" means the environment variable IRONSPAN_PKI_KEY.
        environment: where to look for the variable, the process environment by default.

    Returns:
        32 bytes.

    Raises:
        PkiError: when there is no key, it is malformed, or others can read its file.
    """
    if key_file:
        return _from_file(Path(key_file).expanduser())
    text = (os.environ if environment is None else environment).get(ENVIRONMENT_VARIABLE, "")
    if not text:
        raise PkiError(
            "There is no key for the PKI store.",
            f"Name the key's file in site_pki_key_file, or set {ENVIRONMENT_VARIABLE}. {_MAKE_ONE}",
        )
    return _decode(text, f"The value of {ENVIRONMENT_VARIABLE}")


def _from_file(path: Path) -> bytes:
    try:
        # O_NOFOLLOW is not asked for: secret managers mount keys as links. The checks are on what was opened.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PkiError(f"The PKI key file {path} does not exist.", _MAKE_ONE) from error
    except OSError as error:
        raise PkiError(f"The PKI key file {path} cannot be read: {error.strerror}.") from error
    try:
        _refuse_readable_by_others(path, os.fstat(descriptor))
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return _decode(text.decode("ascii", "replace"), f"The PKI key file {path}")


def _refuse_readable_by_others(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PkiError(f"The PKI key file {path} is not a regular file.")
    if status.st_mode & 0o077:
        raise PkiError(
            f"The PKI key file {path} can be read by others (mode {stat.S_IMODE(status.st_mode):04o}).",
            f"Run: chmod 0600 {path}",
        )
    if status.st_uid not in (0, os.geteuid()):
        raise PkiError(
            f"The PKI key file {path} belongs to user {status.st_uid}, neither you nor root.",
            f"Run: chown {os.geteuid()} {path}",
        )


def _decode(text: str, what: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise PkiError(f"{what} is not {KEY_BYTES} bytes in base64.", _MAKE_ONE)
    return key
