# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The plugin as a gRPC service on a socket that only root can reach."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from ironspan.kms.metrics import Metrics
from ironspan.kms.plugin import PROBE_S, Plugin, Wrapped
from ironspan.kms.protocol import MESSAGES, METHODS, SERVICE, VERSION
from ironspan.program.errors import KeyMissing, ProgramError, ServiceError
from ironspan.program.service import Step, repeating

LOG = logging.getLogger(__name__)
SEALED = "sealed.ironspan.io"
"""Annotation that is stored with every secret; API servers want a domain's name."""
_WORKERS = 8
_STOP_S = 5.0
_LATE_PROBES = 5


def handlers(plugin: Plugin, metrics: Metrics) -> grpc.GenericRpcHandler:
    """Return the service's methods for gRPC."""

    def status(request: t.Any) -> t.Any:
        healthz, key_id = plugin.status()
        return MESSAGES["StatusResponse"](version=VERSION, healthz=healthz, key_id=key_id)

    def encrypt(request: t.Any) -> t.Any:
        wrapped = plugin.encrypt(request.plaintext)
        annotations = {SEALED: wrapped.sealed} if wrapped.sealed else {}
        return MESSAGES["EncryptResponse"](
            ciphertext=wrapped.ciphertext, key_id=wrapped.key_id, annotations=annotations
        )

    def decrypt(request: t.Any) -> t.Any:
        sealed = request.annotations.get(SEALED, b"")
        seed = plugin.decrypt(Wrapped(request.ciphertext, request.key_id, sealed))
        return MESSAGES["DecryptResponse"](plaintext=seed)

    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(name, method, metrics),
            request_deserializer=MESSAGES[f"{name}Request"].FromString,
            response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
        )
        for name, method in zip(METHODS, (status, encrypt, decrypt), strict=True)
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _answering(
    name: str, method: Callable[[t.Any], t.Any], metrics: Metrics
) -> Callable[[t.Any, grpc.ServicerContext], t.Any]:
    def answer(request: t.Any, context: grpc.ServicerContext) -> t.Any:
        try:
            answered = method(request)
            metrics.requests.labels(name, "ok").inc()
            return answered
        except ProgramError as error:
            metrics.requests.labels(name, "failed").inc()
            # Its text names keys and vaults, never what was sent.
            LOG.warning("%s %s: %s", name, getattr(request, "uid", ""), error)
            context.abort(_code(error), str(error))

    return answer


def _code(error: ProgramError) -> grpc.StatusCode:
    if isinstance(error, KeyMissing):
        return grpc.StatusCode.FAILED_PRECONDITION
    retryable = isinstance(error, ServiceError) and error.retryable
    return grpc.StatusCode.UNAVAILABLE if retryable else grpc.StatusCode.INTERNAL


@contextlib.contextmanager
def serving(
    plugin: Plugin, socket: Path, probe_s: float = PROBE_S, metrics: Metrics | None = None
) -> Iterator[None]:
    """Serve, and ask the vault every so often, until the block ends.

    Args:
        plugin: what answers.
        socket: the path to listen at, in a folder that only its owner can enter.
        probe_s: seconds between questions to the vault.
        metrics: count requests and failures.
    """
    metrics = metrics or Metrics()
    pool = concurrent.futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="kms")
    server = grpc.server(pool, handlers=[handlers(plugin, metrics)])
    mask = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{socket}")
    finally:
        os.umask(mask)
    server.start()
    # Only now: what is known is answered at once, whatever becomes of the first question.
    try:
        with repeating(metrics, Step("probe", plugin.probe, probe_s, _LATE_PROBES * probe_s)):
            yield
    finally:
        server.stop(_STOP_S).wait()
        pool.shutdown()
