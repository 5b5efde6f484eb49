# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Has a kube-apiserver read everything from a restored etcd: what it cannot decode, no hash would find.

It serves on loopback to this process only, with a token of its own. What it writes when it starts goes to the
scratch etcd, which is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ironspan.backup.rebuild.scratch import Scratch, ScratchError, tail

START_SECONDS = 180.0
PAGE = 500
RESOURCES = {
    "/registry/namespaces": "/api/v1/namespaces",
    "/registry/minions": "/api/v1/nodes",
    "/registry/pods": "/api/v1/pods",
    "/registry/secrets": "/api/v1/secrets",
    "/registry/configmaps": "/api/v1/configmaps",
    "/registry/serviceaccounts": "/api/v1/serviceaccounts",
    "/registry/deployments": "/apis/apps/v1/deployments",
    "/registry/daemonsets": "/apis/apps/v1/daemonsets",
}
"""Where etcd has what, and where the API shows it: kinds of which an API server alone removes none."""


def read_all(scratch: Scratch, program: Path, counts: t.Mapping[str, int]) -> list[str]:
    """Start an API server on a scratch etcd and read the objects of the common kinds.

    Args:
        scratch: with etcd running.
        program: kube-apiserver, or a script that adds flags to it, such as the encryption configuration.
        counts: keys by top-level prefix that were there before the API server was started.

    Returns:
        What cannot be read, and what is missing.

    Raises:
        ScratchError: the API server does not get ready.
    """
    folder = scratch.folder / "apiserver"
    folder.mkdir(mode=0o700)
    token, log = secrets.token_hex(16), folder / "apiserver.log"
    with held_port() as port, log.open("wb") as output:
        process = subprocess.Popen(
            scratch.limited([str(program), *_flags(folder, scratch.endpoint, token, port)]),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            api = _Api(port, token)
            _wait(api, process, log)
            found = (_read(api, path, counts.get(prefix, 0)) for prefix, path in RESOURCES.items())
            return [problem for problem in found if problem]
        finally:
            process.kill()
            process.wait()


def _flags(folder: Path, endpoint: str, token: str, port: int) -> list[str]:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    private, tokens = folder / "sa.key", folder / "tokens.csv"
    for path, content in ((private, key), (tokens, f'{token},drill,drill,"system:masters"\n'.encode())):
        path.touch(0o600)
        path.write_bytes(content)
    return [
        f"--etcd-servers={endpoint}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing=true",
        f"--cert-dir={folder}",
        f"--token-auth-file={tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://drill.invalid",
        f"--service-account-key-file={private}",
        f"--service-account-signing-key-file={private}",
        "--enable-aggregator-routing=false",
        "--profiling=false",
    ]


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Hold a port at which only programs of this user can listen, and only those that share it.

    Nobody else gets it before the API server does, nor the token that is sent there; socket(7) on
    SO_REUSEPORT.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


class _Api:
    def __init__(self, port: int, token: str) -> None:
        self._base = f"https://127.0.0.1:{port}"
        self._token = token
        # It makes its certificate when it starts; nobody else can listen at a port that is held.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        handler = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)

    def get(self, path: str) -> t.Any:
        """Return the JSON, or the text, of a path."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        request = urllib.request.Request(self._base + path, headers=headers)
        with self._opener.open(request, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body.startswith(b"{") else body.decode()


def _wait(api: _Api, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if api.get("/readyz") == "ok":
                return
        ended = process.poll()
        if ended is not None or time.monotonic() > end:
            what = f"ends with {ended}" if ended is not None else f"is not ready in {START_SECONDS:.0f} s"
            raise ScratchError(f"The API server on the restored data {what}: {tail(log)}")
        time.sleep(0.2)


def _read(api: _Api, path: str, least: int) -> str:
    """Read every object of a kind; returns what is wrong."""
    number, more = 0, ""
    try:
        while True:
            page = api.get(f"{path}?limit={PAGE}&continue={more}")
            number += len(page["items"])
            more = page["metadata"].get("continue", "")
            if not more:
                break
    except urllib.error.HTTPError as error:
        reason = error.read().decode(errors="replace")[:500]
        return f"the API server cannot read {path}: {error.code} {reason}"
    except OSError as error:
        return f"the API server does not answer for {path}: {error}"
    return "" if number >= least else f"the API server shows {number} of {path}, and etcd has {least}"
