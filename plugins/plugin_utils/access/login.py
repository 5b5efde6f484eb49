# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A client of the API with a person's own kubeconfig: certificate, token, or a program that gives a token."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import typing as t
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context

_LOGIN_SECONDS = 300
"""A program that gives a token may wait for somebody to log in with a browser."""


class _Credential(t.NamedTuple):
    certificate_pem: str = ""
    key_pem: str = ""
    token: str = ""


def personal_api(
    kubeconfig: str = "",
    context: str = "",
    folder: Path | None = None,
    environment: t.Mapping[str, str] = os.environ,
) -> Api:
    """Return a client that is who the kubeconfig says.

    Args:
        kubeconfig: the file; by default the first of KUBECONFIG, or ~/.kube/config.
        context: name of the context; the current one by default.
        folder: where a key may be on disk for a moment.
        environment: where KUBECONFIG is looked for.

    Raises:
        ClusterError: the file cannot be used, or its program gives no token.
    """
    named = kubeconfig or environment.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    path = Path(named).expanduser()
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        chosen = _named(config, "context", context or config["current-context"])
        cluster = _named(config, "cluster", chosen["cluster"])
        user = _named(config, "user", chosen["user"])
        credential = _credential(user, path.parent)
        authority = _text(cluster, "certificate-authority", path.parent)
        server, name = str(cluster["server"]), cluster.get("tls-server-name")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        # Not the error's own text: it may quote what is in the file.
        reason = (
            f"{type(error).__name__} {error}" if isinstance(error, OSError | KeyError) else "not understood"
        )
        raise ClusterError(
            f"The kubeconfig {path} cannot be used: {reason}.", "Name another one with --kubeconfig."
        ) from None
    headers = {"Authorization": f"Bearer {credential.token}"} if credential.token else {}
    return Api(server, _tls(authority, credential, folder), name, patience=5, headers=headers)


def _tls(authority: str, credential: _Credential, folder: Path | None) -> ssl.SSLContext:
    if credential.certificate_pem:
        return client_context(authority, credential.certificate_pem, credential.key_pem, folder)
    context = ssl.create_default_context(cadata=authority or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _named(config: Object, kind: str, name: str) -> Object:
    found: Object = {entry["name"]: entry[kind] for entry in config[f"{kind}s"]}[name]
    return found


def _credential(user: Object, folder: Path) -> _Credential:
    if "exec" in user:
        return _from_program(user["exec"])
    if user.get("token"):
        return _Credential(token=str(user["token"]))
    if user.get("tokenFile"):
        return _Credential(token=(folder / user["tokenFile"]).read_text(encoding="utf-8").strip())
    return _Credential(_text(user, "client-certificate", folder), _text(user, "client-key", folder))


def _text(section: Object, name: str, folder: Path) -> str:
    data = section.get(f"{name}-data")
    if data:
        return base64.b64decode(data).decode()
    return (folder / section[name]).read_text(encoding="utf-8") if section.get(name) else ""


def _from_program(given: Object) -> _Credential:
    """Run a credential plugin as kubectl does (client.authentication.k8s.io/v1)."""
    request = {"apiVersion": given["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": True}}
    variables = {entry["name"]: entry["value"] for entry in given.get("env") or ()}
    command = [given["command"], *(given.get("args") or ())]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdout=subprocess.PIPE,
            timeout=_LOGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{command[0]} gave no credential in {_LOGIN_SECONDS} seconds.") from None
    if done.returncode:
        raise ClusterError(f"{command[0]} gave no credential (exit code {done.returncode}).", "Log in again.")
    status = json.loads(done.stdout)["status"]
    return _Credential(
        status.get("clientCertificateData", ""), status.get("clientKeyData", ""), status.get("token", "")
    )
