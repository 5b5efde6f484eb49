# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""This host's own Node, with the kubelet's identity, which may touch no other Node and no taint."""

from __future__ import annotations

import base64
import json
import ssl
import typing as t
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

from ironspan.program.errors import Refused, ServiceError

CONDITION = "GPUHealthy"
EVENTS, SEEN = "ironspan.io/gpu-events", "ironspan.io/gpu-seen"
TIMEOUT_S = 4.0
"""Of one request. A request that is not answered in it is sent again with what is current then."""
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Node:
    """Reads and writes one Node.

    Args:
        kubeconfig: the kubelet's, whose certificate the kubelet renews.
        name: of the Node.
    """

    def __init__(self, kubeconfig: Path, name: str) -> None:
        self._kubeconfig, self._name = kubeconfig, name
        self._api: Api | None = None
        self._made_of: tuple[int, ...] = ()

    def metadata(self) -> dict[str, t.Any]:
        """Return the Node's metadata.

        Raises:
            ServiceError: the API server did not answer, or refused.
        """
        answer = self._request("GET", f"/api/v1/nodes/{self._name}", accept=_METADATA)
        return t.cast("dict[str, t.Any]", json.loads(answer).get("metadata") or {})

    def whole(self) -> dict[str, t.Any]:
        """Return the Node.

        Raises:
            ServiceError: the API server did not answer, or refused.
        """
        return t.cast("dict[str, t.Any]", json.loads(self._request("GET", f"/api/v1/nodes/{self._name}")))

    def conditions(self) -> list[dict[str, t.Any]]:
        """Return the Node's conditions.

        Raises:
            ServiceError: the API server did not answer, or refused.
        """
        return list((self.whole().get("status") or {}).get("conditions") or [])

    def write(self, conditions: list[dict[str, t.Any]], annotations: t.Mapping[str, str]) -> None:
        """Write conditions and annotations in one request; all others stay as they are.

        Raises:
            ServiceError: the API server did not answer, or refused.
        """
        body = {"metadata": {"annotations": dict(annotations)}, "status": {"conditions": conditions}}
        self._request(
            "PATCH",
            f"/api/v1/nodes/{self._name}/status",
            body=body,
            content_type="application/strategic-merge-patch+json",
        )

    def _request(self, method: str, path: str, **more: t.Any) -> bytes:
        try:
            return self._client().request(method, path, timeout=TIMEOUT_S, patience=0, **more)
        except ClusterError as error:
            self._api = None
            raise ServiceError(error.message, error.remedy, retryable=True) from error

    def _client(self) -> Api:
        """Return a client, a new one when the kubelet has a new certificate."""
        try:
            config = yaml.safe_load(self._kubeconfig.read_text(encoding="utf-8"))
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            certificate, key = user["client-certificate"], user["client-key"]
            # Two files that are written within a tick of the kernel's clock have one time.
            stats = [Path(path).stat() for path in (self._kubeconfig, certificate, key)]
            made_of = tuple(value for stat in stats for value in (stat.st_mtime_ns, stat.st_ino))
            if self._api is None or made_of != self._made_of:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                authority = cluster.get("certificate-authority-data")
                if authority:
                    context.load_verify_locations(cadata=base64.b64decode(authority).decode())
                else:
                    context.load_verify_locations(cafile=cluster["certificate-authority"])
                context.load_cert_chain(certificate, key)
                self._api = Api(cluster["server"], context, cluster.get("tls-server-name"), patience=0)
                self._made_of = made_of
            return self._api
        except (OSError, KeyError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
            raise Refused(
                f"{self._kubeconfig} cannot be used: {error}.",
                "The role node writes it; the node has to have joined.",
            ) from error
