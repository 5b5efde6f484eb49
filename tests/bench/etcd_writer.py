# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes to etcd at a steady rate and notes when each write was acknowledged: see ``main``."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
import typing as t
from pathlib import Path

import grpc

from ironspan.backup.etcd import rpc_pb2 as rpc

KEYS = 5000
IN_FLIGHT = 500


def main() -> int:
    """Run: ``ENDPOINTS RATE EACH SECONDS SIZE RESULT``.

    RATE transactions a second of EACH puts of SIZE bytes, to the ENDPOINTS (ADDRESS:PORT,...) in turn, as an
    API server's client does. RESULT gets the revision of every one that was acknowledged, when (the machine's
    monotonic clock), and after how many seconds. SIGTERM ends it earlier.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    endpoints, result = sys.argv[1], Path(sys.argv[6])
    rate, each, seconds, size = (float(argument) for argument in sys.argv[2:6])
    channel = grpc.insecure_channel(f"ipv4:{endpoints}", options=[("grpc.lb_policy_name", "round_robin")])
    call: t.Any = channel.unary_unary(
        "/etcdserverpb.KV/Txn",
        request_serializer=rpc.TxnRequest.SerializeToString,
        response_deserializer=rpc.TxnResponse.FromString,
    )
    acknowledged: list[tuple[int, float, float]] = []
    slots = threading.Semaphore(IN_FLIGHT)

    def note(sent: float, answer: t.Any) -> None:
        at = time.monotonic()
        slots.release()
        acknowledged.append((answer.result().header.revision, at, at - sent))

    noise = os.urandom(int(size) + KEYS)
    began, number = time.monotonic(), 0
    while not stop.is_set() and (now := time.monotonic() - began) < seconds:
        while number < now * rate:
            slots.acquire()
            puts = [
                rpc.PutRequest(
                    key=b"/registry/pods/default/%05d" % ((number * int(each) + at) % KEYS),
                    value=noise[(number + at) % KEYS :][: int(size)],
                )
                for at in range(int(each))
            ]
            request = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts])
            call.future(request).add_done_callback(functools.partial(note, time.monotonic()))
            number += 1
        time.sleep(0.002)
    while len(acknowledged) < number:
        time.sleep(0.01)
    result.write_text(json.dumps(sorted(acknowledged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
