# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small client of the Kubernetes API: JSON in, JSON out, server-side apply, bounded retries.

The generated client library costs 0.8 s of CPU to import, in every forked worker, and wants key files that
live as long as it does. These lines need neither. All writes are by name and can be repeated (apply, delete),
so a request that was lost on the way is simply sent again.
"""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import time
import typing as t
import urllib.parse
from pathlib import Path

import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from urllib3.util import ssl_match_hostname

Object = dict[str, t.Any]
FIELD_MANAGER = "ironspan"
_BUSY = (429, 500, 502, 503, 504)
_LONGEST_PAUSE_SECONDS = 5.0


class Api:
    """One API server (or the load balancer before several).

    Args:
        server: https://HOST:PORT.
        context: trusts the site's authority and shows the client certificate.
        server_name: the name to check in the server's certificate, when it is not the URL's host.
        patience: seconds in which a failing request is sent again before it is given up.
        headers: of every request, such as a token.
    """

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext,
        server_name: str | None = None,
        patience: float = 30,
        headers: t.Mapping[str, str] | None = None,
    ) -> None:
        self.server = server
        self.patience = patience
        self._headers = dict(headers or {})
        names: dict[str, t.Any] = {}
        if server_name:
            names = {"server_hostname": server_name, "assert_hostname": server_name}
        self._pool = urllib3.PoolManager(maxsize=16, ssl_context=context, retries=False, **names)

    @classmethod
    def from_kubeconfig(cls, config: Object, folder: str | Path | None = None, patience: float = 30) -> Api:
        """Make a client from a kubeconfig as ``Store.admin_kubeconfig`` returns it.

        Args:
            config: the kubeconfig.
            folder: where the client's key may be on disk for a moment.
            patience: see the class.
        """
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = client_context(
            _decoded(cluster["certificate-authority-data"]),
            _decoded(user["client-certificate-data"]),
            _decoded(user["client-key-data"]),
            folder,
        )
        return cls(cluster["server"], context, cluster.get("tls-server-name"), patience)

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list."""
        return self._json("GET", path, query=query)

    def find(self, path: str) -> Object | None:
        """Read an object, None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def text(self, path: str, **query: str) -> str:
        """Read something that is not JSON (a health check)."""
        return self.request("GET", path, query=query).decode("utf-8", "replace")

    def apply(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply: own exactly the fields in ``body``, leave all others to their owners.

        Args:
            path: of the object itself, with its name.
            body: what it shall be; ``apiVersion`` and ``kind`` included.
            dry_run: ask the API what would come out and change nothing.

        Returns:
            The object as it is now.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        return self._json("PATCH", path, body, "application/apply-patch+yaml", query)

    def merge(self, path: str, body: Object) -> Object:
        """JSON merge patch; give ``metadata.resourceVersion`` to be refused when someone was faster."""
        return self._json(
            "PATCH", path, body, "application/merge-patch+json", {"fieldManager": FIELD_MANAGER}
        )

    def put(self, path: str, body: Object) -> Object:
        """Replace an object or one of its subresources."""
        return self._json("PUT", path, body, query={"fieldManager": FIELD_MANAGER})

    def delete(self, path: str, body: Object | None = None) -> bool:
        """Delete an object.

        Returns:
            False when there was none.
        """
        try:
            self._json("DELETE", path, body)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _json(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
        query: t.Mapping[str, str] | None = None,
    ) -> Object:
        answer = self.request(method, path, body, content_type, query)
        try:
            return t.cast("Object", json.loads(answer))
        except ValueError as error:
            raise ClusterError(
                f"{self.server} answered {method} {path} with something that is no JSON.",
                "Something else answers in the API server's place: check the load balancer and the address.",
            ) from error

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
        query: t.Mapping[str, str] | None = None,
        timeout: float = 15,
        patience: float | None = None,
        accept: str = "application/json, */*",
        warnings: list[str] | None = None,
    ) -> bytes:
        """Send a request until it is answered or patience is over.

        Args:
            method: HTTP method.
            path: beginning with a slash.
            body: JSON.
            content_type: of the body.
            query: parameters.
            timeout: seconds for one answer.
            patience: seconds for all attempts, the client's own by default.
            accept: the form of the answer.
            warnings: gets what the API server warns of.

        Raises:
            ApiError: the API answered with an error that will not pass by itself.
            ClusterError: it could not be reached, or its certificate is not the site's.
        """
        url = self.server + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        end = time.monotonic() + (self.patience if patience is None else patience)
        for attempt in range(1000):
            pause = min(0.2 * 2**attempt, _LONGEST_PAUSE_SECONDS) * random.uniform(0.8, 1.2)
            try:
                answer = self._pool.request(
                    method,
                    url,
                    body=None if body is None else json.dumps(body).encode(),
                    headers={**self._headers, "Content-Type": content_type, "Accept": accept},
                    timeout=urllib3.Timeout(connect=min(timeout, 10), read=timeout),
                )
            except urllib3.exceptions.HTTPError as error:
                if distrust := _distrust(error):
                    raise ClusterError(
                        f"TLS with {self.server} failed: {_short(error)}.", _remedy_for(distrust)
                    ) from error
                if time.monotonic() + pause > end:
                    raise UnreachableError(
                        f"{self.server} cannot be reached: {_short(error)}.",
                        "Check the load balancer, the link and the API servers (ironspan status).",
                    ) from error
            else:
                if answer.status < 400:
                    if warnings is not None:
                        warnings += _warnings(answer)
                    return bytes(answer.data)
                failure = _failure(answer, f"{method} {path}")
                if not _will_pass(failure) or time.monotonic() + pause > end:
                    raise failure
            time.sleep(pause)
        raise AssertionError("unreachable")


_STRANGER = "It is not this site's API server: check site_api_endpoint, site_api_address and the PKI store."
_NOT_YET, _EXPIRED = 9, 10
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_VALIDITY = {
    _NOT_YET: "This machine's clock is behind, or that of the server was ahead: compare them, and run again.",
    _EXPIRED: "If the clock of this machine is right, renew the certificate: playbooks/certs_renew.yml.",
}


def _remedy_for(distrust: Exception) -> str:
    return _VALIDITY.get(getattr(distrust, "verify_code", 0), _STRANGER)


def _distrust(error: Exception) -> Exception | None:
    """Tell a server that is not ours from one that is not there.

    A load balancer without a living server behind it closes the connection in the middle of the handshake.
    """
    causes = (error, error.__cause__, *error.args)
    kinds = (ssl.SSLCertVerificationError, ssl.CertificateError, ssl_match_hostname.CertificateError)
    return next((cause for cause in causes if isinstance(cause, kinds)), None)


def _warnings(answer: urllib3.BaseHTTPResponse) -> list[str]:
    """Return the texts of the headers ``Warning: 299 - "TEXT"``, also of those that share a line."""
    texts = []
    for header in answer.headers.getlist("Warning"):
        for text in re.findall(r'\b299 \S+ "((?:[^"\\]|\\.)*)"', header):
            texts.append(re.sub(r"\\(.)", r"\1", text))
    return texts


def _will_pass(error: ApiError) -> bool:
    return error.status in _BUSY


def _failure(answer: urllib3.BaseHTTPResponse, request: str) -> ApiError:
    try:
        status = json.loads(answer.data)
        return ApiError(answer.status, str(status.get("reason", "")), str(status.get("message", "")), request)
    except (ValueError, AttributeError):
        text = bytes(answer.data[:200]).decode("utf-8", "replace").strip()
        return ApiError(answer.status, answer.reason or "", text, request)


def _short(error: Exception) -> str:
    """Return urllib3's text without the object that it begins with and without the number of the error."""
    text = re.sub(r"^(<[^>]*>|\w+\([^)]*\)):? ", "", str(error))
    return re.sub(r"\[Errno -?\d+\] ", "", text).rstrip(".")


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
