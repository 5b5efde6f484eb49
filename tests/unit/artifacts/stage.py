# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder act on: a small lock file, a stand-in for Go, a faulty file server."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import pathlib
import threading
import typing as t
import urllib.parse
import urllib.request
from collections.abc import Iterator

from ironspan.artifacts import lock, lock_file

GO = r"""#!/bin/sh
# Compiles nothing: what comes out says which package it was. Each call is noted. FAKE_GO_SLOW waits and
# FAKE_GO_FAIL fails, each for packages that have this text in their name. All wait while there is a file
# FAKE_GO_HELD.
echo "$*" >> "$FAKE_GO_LOG"
case "$1 $2" in
"env GOVERSION") echo "${FAKE_GO_VERSION:-go1.27.0}"; exit;;
"env GOTOOLCHAIN") echo "${FAKE_GO_TOOLCHAIN:-local}"; exit;;
"build "*|"test -c") ;;
*) exit 3;;
esac
while [ $# -gt 1 ]; do [ "$1" = -o ] && output=$2; shift; done
case "$1" in *"${FAKE_GO_FAIL:-nothing}"*) echo 'undefined: everything' >&2; exit 1;; esac
case "$1" in *"${FAKE_GO_SLOW:-nothing}"*) sleep "$FAKE_GO_SECONDS" > "$FAKE_GO_LOG.slow" 2>&1;; esac
while [ -e "${FAKE_GO_HELD:-/none}" ]; do sleep 0.05; done
echo 'go: downloading example.org/one v1.0.0' >&2
printf '#!program %s\n' "$1" > "$output"
"""

SMALL = """
schema: 1
components:
  etcd:
    version: "1.0"
    licence: Apache-2.0
    modules: {example.org/etcd: v1.0.0}
    programs: {etcd: example.org/etcd/server, etcdctl: example.org/etcd/ctl}
  runc:
    version: "2.0"
    licence: Apache-2.0
    modules: {example.org/runc: v2.0.0}
    programs: {runc: example.org/runc}
files:
  etcd/1.0:
    licence: Apache-2.0
    url: https://files.example.org/v1.0/etcd-{arch}.tar.gz
    digests: {amd64: null, arm64: null}
    go:
      pack: tar.gz
      members: {"etcd-{arch}/etcd": etcd/etcd, "etcd-{arch}/etcdctl": etcd/etcdctl}
  runc/2.0:
    licence: Apache-2.0
    url: https://files.example.org/v2.0/runc.{machine}
    digests: {amd64: DIGEST, arm64: DIGEST}
    go: {pack: file, program: runc/runc}
  shim-lab/2.0:
    licence: Apache-2.0
    path: /lab.example/shim-{arch}
    only_without_capability: CAP_SYS_RESOURCE
    go: {pack: file, program: runc/runc}
images:
  registry.example.org/team/etcd:v1.0:
    licence: Apache-2.0
    digests: {amd64: null, arm64: null}
    go:
      programs: {/usr/local/bin/etcd: etcd/etcd}
      entrypoint: [/usr/local/bin/etcd]
"""
PUBLISHED = b"published by somebody\n" * 50_000
PUBLISHED_DIGEST = "sha256:" + hashlib.sha256(PUBLISHED).hexdigest()


def small_lock(folder: pathlib.Path, **replaced: str) -> lock.Lock:
    """Write the small lock file to a folder and read it."""
    text = SMALL.replace("DIGEST", PUBLISHED_DIGEST)
    for old, new in replaced.items():
        text = text.replace(old, new)
    path = folder / "artifacts.lock.yml"
    path.write_text(text, encoding="utf-8")
    return lock_file.load(path)


@dataclasses.dataclass
class Server:
    """A file server on loopback, with faults on demand."""

    address: str
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    types: dict[str, str] = dataclasses.field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = dataclasses.field(default_factory=list)
    """Bytes after which the next answers break off, one an answer."""
    statuses: list[int] = dataclasses.field(default_factory=list)
    """Statuses that the next answers have instead of their content."""
    token: str = ""
    """When set, files below /v2/ need it."""
    seen: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """Path and Range header of each request."""

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{self.address}{path}"

    def opener(self, request: urllib.request.Request) -> t.Any:
        """Open a request for any host here instead."""
        parts = urllib.parse.urlsplit(request.full_url)
        moved = urllib.request.Request(
            f"http://{self.address}{parts.path}{'?' + parts.query if parts.query else ''}",
            headers={**request.headers, **request.unredirected_hdrs},
        )
        return urllib.request.urlopen(moved, timeout=120)


class _Handler(http.server.BaseHTTPRequestHandler):
    server_state: t.ClassVar[Server]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        state = self.server_state
        path = urllib.parse.urlsplit(self.path).path
        wanted = self.headers.get("Range", "")
        state.seen.append((path, wanted))
        if state.statuses:
            self.send_error(state.statuses.pop(0))
            return
        if path == "/token":
            self._send(f'{{"token": "{state.token}"}}'.encode(), 200)
            return
        if (
            state.token
            and path.startswith("/v2/")
            and self.headers.get("Authorization") != f"Bearer {state.token}"
        ):
            self.send_response(401)
            self.send_header(
                "WWW-Authenticate", f'Bearer realm="http://{state.address}/token",service="test"'
            )
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = state.files.get(path)
        if content is None:
            self.send_error(404)
        elif wanted and state.ranges:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(content):
                self.send_error(416)
            else:
                self._send(content[begin:], 206)
        else:
            self._send(content, 200)

    def _send(self, content: bytes, status: int) -> None:
        state = self.server_state
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header(
            "Content-Type", state.types.get(self.path.partition("?")[0], "application/octet-stream")
        )
        self.end_headers()
        self.wfile.write(content[: state.cut_after.pop(0)] if state.cut_after else content)


@contextlib.contextmanager
def file_server() -> Iterator[Server]:
    """Run a file server until the block ends."""
    handler = type("Handler", (_Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        state = Server(f"127.0.0.1:{listener.server_port}")
        handler.server_state = state  # type: ignore[attr-defined]
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()
