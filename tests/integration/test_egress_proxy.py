# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The forward proxy with the real squid on loopback: what it lets through, and what it cuts off."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import types
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Proxied
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

from ironspan.lab.ports import free_port

from .loopback_cluster import address_on_loopback

LATER, EARLIER = 4_102_444_800, 1_000_000_000
DEADLINE = 120.0
GREETING = b"here is the server\n"
RESET = "cut off"


def squid() -> tuple[list[str], str]:
    """Return how squid is called, and what an unpacked package needs in its configuration.

    ``IRONSPAN_TEST_SQUID`` names a folder into which squid-openssl and what it depends on are unpacked.
    """
    folder = os.environ.get("IRONSPAN_TEST_SQUID", "")
    if folder:
        library = f"LD_LIBRARY_PATH={folder}/usr/lib/x86_64-linux-gnu"
        lines = [
            f"unlinkd_program {folder}/usr/lib/squid/unlinkd",
            f"sslcrtd_program {folder}/usr/lib/squid/security_file_certgen",
            f"logfile_daemon {folder}/usr/lib/squid/log_file_daemon",
            f"icon_directory {folder}/usr/share/squid/icons",
            f"error_directory {folder}/usr/share/squid-langpack/templates",
            f"mime_table {folder}/usr/share/squid/mime.conf",
        ]
        return ["env", library, f"{folder}/usr/sbin/squid"], "\n".join(lines) + "\n"
    found = shutil.which("squid") or "/usr/sbin/squid"
    if (
        not pathlib.Path(found).exists()
        or b"openssl" not in subprocess.run([found, "-v"], capture_output=True).stdout
    ):
        pytest.skip("this test needs squid: apt-get install squid-openssl")
    return [found], ""


class Proxy:
    """A running squid, a server that it may lead to, and a client."""

    def __init__(self, folder: pathlib.Path, network: str) -> None:
        self.folder, self.server = folder, f"{network}.1"
        folder.chmod(0o777)
        self.port, self.open_port = free_port("127.0.0.1"), free_port(self.server)
        self._certificate()
        self._listener = socket.create_server((self.server, self.open_port))
        threading.Thread(target=self._serve, daemon=True).start()
        self.start()

    def _certificate(self) -> None:
        key, certificate = self.folder / "key", self.folder / "crt"
        named = ["-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate)]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subprocess.run(["openssl", "req", "-x509", *kind, *named], check=True, capture_output=True)
        (self.folder / "proxy.pem").write_text(key.read_text() + certificate.read_text())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(accepted,), daemon=True).start()

    def _answer(self, accepted: socket.socket) -> None:
        with accepted:
            try:
                wrapped = self._context.wrap_socket(accepted, server_side=True)
                wrapped.sendall(GREETING)
                wrapped.recv(1)
            except OSError:
                return

    def start(self) -> None:
        """Write the configuration as a host gets it, but for its folders, and start squid."""
        ports = (str(self.open_port),)
        site = types.SimpleNamespace(
            pod_cidr="10.244.0.0/16",
            pod_networks=["10.244.0.0/16"],
            service_cidr="10.96.0.0/16",
            hosts={"az-1": types.SimpleNamespace(address="10.98.0.11")},
            egress=Egress(
                proxied=(
                    Proxied("good.example.com", ports, LATER, "a", "one name"),
                    Proxied("*.wide.example.com", ports, LATER, "a", "all below"),
                    Proxied("over.example.com", ports, EARLIER, "a", "has ended"),
                    Proxied("metadata.example.com", ports, LATER, "a", "led astray"),
                    Proxied("plane.example.com", ports, LATER, "a", "led astray"),
                )
            ),
        )
        host = types.SimpleNamespace(name="proxy-1", address="127.0.0.1")
        templates = Templates(ROLES_FOLDER)

        def rendered(name: str) -> str:
            text = templates.get(f"egress_proxy/templates/{name}").render(
                site=site, host=host, egress_proxy_port=self.port, egress_proxy_clients=["127.0.0.1"]
            )
            for path in ("/var/lib/ironspan-egress-proxy", "/run/ironspan-egress-proxy", "/var/log/squid"):
                text = text.replace(path, str(self.folder))
            return str(text)

        allowed = subprocess.run(
            ["sh", "-c", rendered("allowed.sh.j2")],
            input=rendered("allow.j2"), capture_output=True, text=True, check=True,
        )  # fmt: skip
        (self.folder / "allow.conf").write_text(allowed.stdout)
        names = "good over bad sub.wide plane"
        known = [f"{self.server} " + " ".join(f"{name}.example.com" for name in names.split()[:-1])]
        known += ["169.254.169.254 metadata.example.com", "10.98.0.11 plane.example.com"]
        (self.folder / "hosts").write_text("\n".join(known) + "\n")
        program, more = squid()
        config = self.folder / "squid.conf"
        config.write_text(
            f"{more}hosts_file {self.folder}/hosts\ncache_log stdio:{self.folder}/cache.log\n"
            f"coredump_dir {self.folder}\n" + rendered("squid.conf.j2")
        )
        argv = [*program, "-N", "-n", f"ironspan{self.port}", "-f", str(config)]
        with (self.folder / "squid.log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        until = time.monotonic() + DEADLINE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "squid.log").read_text()[-1000:]
                assert time.monotonic() < until
                time.sleep(0.05)

    def ask(self, name: str, hello: str | None = "", port: int = 0, method: str = "CONNECT") -> str:
        """Ask for a name; returns what the server says, or how it ended.

        Args:
            name: for CONNECT.
            hello: the name in TLS, the same by default; None speaks no TLS.
            port: the server's by default.
            method: of the request.
        """
        target = f"{name}:{port or self.open_port}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), DEADLINE) as ours:
                ours.sendall(f"{method} {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                answer = ours.recv(4096).split(b"\r\n")[0].decode()
                if " 200 " not in answer:
                    return answer or RESET
                if hello is None:
                    ours.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    return ours.recv(4096).decode() or RESET
                client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
                with client.wrap_socket(ours, server_hostname=hello or name) as wrapped:
                    return wrapped.recv(4096).decode()
        except (ConnectionError, ssl.SSLError):
            return RESET

    def close(self) -> None:
        """End everything."""
        # squid removes its memory from /dev/shm when it ends by itself.
        self.process.terminate()
        self.process.wait(DEADLINE)
        self._listener.close()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    squid()
    # squid gives root up, and writes here: pytest's own folders are closed to it.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isq-", dir="/tmp"))
    try:
        with address_on_loopback() as network:
            made = Proxy(folder, network)
            try:
                yield made
            finally:
                made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", ["good.example.com", "sub.wide.example.com"])
def test_names_of_the_list_pass(proxy: Proxy, name: str) -> None:
    assert proxy.ask(name) == GREETING.decode()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("bad.example.com", {}),
        ("over.example.com", {}),
        ("good.example.com", {"port": 22}),
        ("good.example.com", {"hello": "bad.example.com"}),
        ("sub.wide.example.com", {"hello": "good.example.com"}),
        ("bad.example.com", {"hello": "good.example.com"}),
        ("metadata.example.com", {}),
        ("plane.example.com", {}),
        ("wide.example.com.evil.example.org", {}),
    ],
)
def test_everything_else_is_cut_off(proxy: Proxy, name: str, more: dict[str, t.Any]) -> None:
    assert proxy.ask(name, **more) == RESET


def test_an_address_is_no_name(proxy: Proxy) -> None:
    assert proxy.ask(proxy.server, "good.example.com") == RESET


def test_what_is_no_tls_does_not_pass(proxy: Proxy) -> None:
    assert GREETING.decode() not in proxy.ask("good.example.com", None)


def test_only_connect_is_known(proxy: Proxy) -> None:
    assert " 403 " in proxy.ask("http://good.example.com", method="GET")
