# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Client TLS with a key that is on disk only while OpenSSL reads it."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path


def client_context(
    authority_pem: str, certificate_pem: str, key_pem: str, folder: str | Path | None = None
) -> ssl.SSLContext:
    """Return a context that trusts one authority and shows one client certificate.

    Python can load a key from a file only. The file is 0600 in a 0700 folder and gone when this returns.

    Args:
        authority_pem: who signs the server's certificate.
        certificate_pem: the client's certificate.
        key_pem: its key.
        folder: where the file may be for a moment; the system's temporary folder by default.

    Returns:
        A context for TLS 1.2 and later that checks the server's name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority_pem)
    if folder is not None:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="client-", dir=folder) as private:
        pair = Path(private) / "pair.pem"
        descriptor = os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(certificate_pem + key_pem)
        context.load_cert_chain(pair)
    return context
