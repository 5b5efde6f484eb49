# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A collector of Ironic's agent: the endorsement key of the server's TPM, by which it is known for good.

A server without a TPM is inspected like any other one: that there is none is what was measured.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import typing as t

NAME = "ironspan_tpm"
"""What the data is called beside Ironic's own."""
DEVICE = "/dev/tpmrm0"
SECONDS = 120
"""Some TPMs take half a minute for an RSA key."""
LONGEST = 400
"""Characters of what a program says went wrong."""
COMMAND = ("tpm2", "createek", "-Q", "-G", "rsa", "-c", "ek.ctx", "-u", "ek.pub")
"""The same key that the host makes again when it joins (plugins/module_utils/_attest.py)."""


def collect(data: dict[str, t.Any], failures: t.Any) -> None:
    """Add ``ek`` (TPM2B_PUBLIC, hexadecimal) or ``fault``, the reason why there is none.

    Args:
        data: of the inspection.
        failures: what fails an inspection; nothing here does.
    """
    way = os.environ.get("TPM2TOOLS_TCTI", f"device:{DEVICE}")
    if way == f"device:{DEVICE}" and not pathlib.Path(DEVICE).exists():
        data[NAME] = {"fault": f"there is no {DEVICE}"}
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                COMMAND,
                cwd=folder,
                env={**os.environ, "TPM2TOOLS_TCTI": way, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=True,
            )
            data[NAME] = {"ek": (pathlib.Path(folder) / "ek.pub").read_bytes().hex()}
        except subprocess.CalledProcessError as error:
            said = " ".join(error.stdout.decode("utf-8", "replace").split())
            data[NAME] = {"fault": f"tpm2 createek: {said[-LONGEST:] or 'it said nothing'}"}
        except (OSError, subprocess.SubprocessError) as error:
            data[NAME] = {"fault": f"tpm2 createek: {str(error)[:LONGEST]}"}
