# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The watches that every node has, in a process of their own: one on its pods, and flannel's on all nodes.

It reads its settings as JSON from its input, says ``ready`` when all watches are open, and reads what comes
until its input ends. It understands nothing of that: decoding would cost more than the API server's sending.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import typing as t
from collections.abc import Iterator

from tests.support.playbooks import ROOT
from tests.support.simulation.nodes import NODES, name

_PROTOBUF = "application/vnd.kubernetes.protobuf;stream=watch"
"""What kubelets and flannel ask for."""
_OPENING = 20
"""Connections that are made at the same time."""
_CHUNK = 2**18


@contextlib.contextmanager
def watching(settings: dict[str, t.Any]) -> Iterator[int]:
    """Keep watches open while the body runs.

    Args:
        settings: address, port, server_name, ca, certificate and key (paths), nodes (how many watch all
            nodes) and pods (how many watch the pods of one node).

    Yields:
        The process that reads them.
    """
    command = [sys.executable, "-m", "tests.support.simulation.watchers"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(settings) + "\n")
            child.stdin.flush()
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("the watches could not be opened")
            yield child.pid
            if child.poll() is not None:
                raise RuntimeError("a watch could not be opened again before the simulation ended")
        finally:
            child.stdin.close()


async def _open(
    settings: dict[str, t.Any], context: ssl.SSLContext, path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(
        settings["address"],
        settings["port"],
        ssl=context,
        server_hostname=settings["server_name"],
        limit=_CHUNK,
    )
    lines = [f"GET {path} HTTP/1.1", f"Host: {settings['server_name']}", f"Accept: {_PROTOBUF}", "", ""]
    writer.write("\r\n".join(lines).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(head.decode())
    return reader, writer


async def _keep(
    settings: dict[str, t.Any],
    context: ssl.SSLContext,
    path: str,
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Read a watch, and open it again when the API server ended it, as it does if one reads too slowly.

    A kubelet would go on from what it saw last; this one has not understood that and is sent everything.
    """
    while True:
        reader, writer = streams
        while await reader.read(_CHUNK):
            pass
        writer.close()
        streams = await _open(settings, context, path)


async def _main() -> None:
    settings = json.loads(sys.stdin.readline())
    context = ssl.create_default_context(cafile=settings["ca"])
    context.load_cert_chain(settings["certificate"], settings["key"])
    query = "watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=7200"
    paths = [f"{NODES}?{query}"] * settings["nodes"]
    paths += [
        f"/api/v1/pods?{query}&fieldSelector=spec.nodeName%3D{name(n)}" for n in range(settings["pods"])
    ]
    opened = []
    for start in range(0, len(paths), _OPENING):
        opening = [_open(settings, context, path) for path in paths[start : start + _OPENING]]
        opened += await asyncio.gather(*opening)
    print("ready", flush=True)
    end = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    jobs = [
        asyncio.ensure_future(_keep(settings, context, path, streams))
        for path, streams in zip(paths, opened, strict=True)
    ]
    await asyncio.wait([end, *jobs], return_when=asyncio.FIRST_COMPLETED)
    for job in jobs:
        job.cancel()
    if not end.done():
        # The thread that reads the input would be waited for.
        os._exit(1)


if __name__ == "__main__":
    asyncio.run(_main())
