# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host of the store as a private root: real etcd, real data, and a stand-in for systemctl that starts it.

As a program it does a host's part of a restore below the root that it is given, which tests can kill.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import steps
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine

STATES = (steps.restored, steps.served, steps.finished)
DATA = "var/lib/etcd/uid"
START_LIMIT = 5
"""Starts that systemd allows; it counts them for ten seconds, the stand-in until they are reset."""
SYSTEMCTL = """\
    #!{python}
    # Starts and stops etcd below this root, with the paths of a host.
    import os, pathlib, signal, subprocess, sys, time
    root = pathlib.Path(__file__).resolve().parents[3]
    pid, log, starts = root / "etcd.pid", root / "etcd.log", root / "etcd.starts"
    drop_in = root / "etc/systemd/system/etcd.service.d/ironspan-restore.conf"

    def alive(number):
        try:
            return pathlib.Path(f"/proc/{{number}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def stop():
        if pid.exists():
            number = int(pid.read_text())
            if alive(number):
                os.kill(number, signal.SIGTERM)
            while alive(number):
                time.sleep(0.01)
            pid.unlink()

    def start():
        if pid.exists() and alive(int(pid.read_text())):
            return
        count = int(starts.read_text()) if starts.exists() else 0
        if count >= {limit}:
            sys.exit("etcd.service: Start request repeated too quickly.")
        starts.write_text(str(count + 1))
        path = "/etc/etcd/etcd.yaml"
        if drop_in.exists():
            path = drop_in.read_text().rpartition("--config-file ")[2].strip()
        text = (root / path[1:]).read_text().replace("/var/lib/etcd", f"{{root}}/var/lib/etcd")
        (root / "running.yaml").write_text(text)
        with log.open("wb") as stream:
            program = [str(root / "usr/local/bin/etcd"), "--config-file", str(root / "running.yaml")]
            process = subprocess.Popen(program, stdout=stream, stderr=stream, start_new_session=True)
        pid.write_text(str(process.pid))
        until = time.monotonic() + 120
        while "ready to serve client requests" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                sys.exit("etcd did not start: " + log.read_text()[-500:])
            time.sleep(0.01)

    for verb in sys.argv[1:2]:
        if verb == "reset-failed":
            starts.unlink(missing_ok=True)
        if verb in ("stop", "restart"):
            stop()
        if verb in ("start", "restart"):
            start()
    """
CONFIGURATION = """\
    name: "az-1"
    data-dir: /var/lib/etcd/uid
    listen-peer-urls: https://127.0.0.2:{peer}
    listen-client-urls: https://127.0.0.2:{client},https://127.0.0.1:{client}
    initial-advertise-peer-urls: https://127.0.0.2:{peer}
    advertise-client-urls: https://127.0.0.2:{client}
    initial-cluster-token: "uid"
    heartbeat-interval: 10
    election-timeout: 100
    unsafe-no-fsync: true
    client-transport-security: &tls
      cert-file: {certificate}
      key-file: {key}
      trusted-ca-file: {certificate}
      client-cert-auth: true
    peer-transport-security: *tls
    initial-cluster: az-1=https://127.0.0.2:{peer}
    initial-cluster-state: new
    """


class RestoredHost:
    """One host below ``root``.

    Args:
        root: its root folder.
        ports: free client and peer port.
    """

    def __init__(self, root: Path, ports: tuple[int, int]) -> None:
        self.root, self.ports = root, ports

    def make(self, programs: t.Mapping[str, Path], pair: tuple[Path, Path]) -> None:
        """Make its files; ``pair`` is a certificate, which trusts itself, and its key."""
        certificate, key = pair
        for folder in ("usr/local/bin", "etc/etcd", DATA, "proc", "etc/systemd/system"):
            (self.root / folder).mkdir(parents=True)
        for name, program in programs.items():
            (self.root / "usr/local/bin" / name).symlink_to(program)
        # Here etcd runs as whoever tests.
        (self.root / "etc/passwd").write_text(f"etcd:x:{os.geteuid()}:{os.getegid()}::/:/bin/false\n")
        systemctl = self.root / "usr/local/bin/systemctl"
        systemctl.write_text(textwrap.dedent(SYSTEMCTL).format(python=sys.executable, limit=START_LIMIT))
        systemctl.chmod(0o755)
        values = {"client": self.ports[0], "peer": self.ports[1], "certificate": certificate, "key": key}
        text = textwrap.dedent(CONFIGURATION).format(**values)
        (self.root / "etc/etcd/etcd.yaml").write_text(text)
        settings = {
            "ENDPOINTS": f"https://127.0.0.1:{self.ports[0]}",
            "CACERT": certificate,
            "CERT": certificate,
            "KEY": key,
        }
        lines = "".join(f"ETCDCTL_{name}={value}\n" for name, value in settings.items())
        (self.root / "etc/etcd/etcdctl.env").write_text(lines)

    def copy(self, root: Path) -> RestoredHost:
        """Return another host with the same files; only one of them can run."""
        shutil.copytree(self.root, root, symlinks=True)
        return RestoredHost(root, self.ports)

    def systemctl(self, verb: str) -> None:
        """Start or stop its etcd, and leave it as one that was started in vain as often as systemd allows."""
        for each in ("reset-failed", verb):
            subprocess.run([self.root / "usr/local/bin/systemctl", each, "etcd.service"], check=True)
        (self.root / "etcd.starts").write_text(str(START_LIMIT))

    def etcdctl(self, *arguments: str, host: str = "127.0.0.1", seconds: int = 60) -> str:
        """Run etcdctl against its etcd; raises CalledProcessError when it does not answer in time."""
        pairs = (line.split("=", 1) for line in (self.root / "etc/etcd/etcdctl.env").read_text().splitlines())
        environment = dict(pairs) | {"ETCDCTL_ENDPOINTS": f"https://{host}:{self.ports[0]}"}
        program = [str(self.root / "usr/local/bin/etcdctl"), f"--command-timeout={seconds}s", *arguments]
        return str(subprocess.check_output(program, env=environment, stderr=subprocess.PIPE, text=True))

    def status(self) -> dict[str, int]:
        """Return the header of its answers: cluster_id, member_id, revision."""
        return dict(json.loads(self.etcdctl("endpoint", "status", "-w", "json"))[0]["Status"]["header"])

    def restore(
        self, arguments: t.Mapping[str, str] | None = None, kill_at: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Do the host's part of a restore in a process of its own, killed at a numbered place if asked."""
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.restored_host",
                str(self.root),
                json.dumps(dict(arguments or {})),
            ],
            env={
                "IRONSPAN_TEST_KILL_AT": str(kill_at),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": ":".join(sys.path),
            },
            capture_output=True,
            text=True,
            check=False,
        )


def main(root: str, arguments: dict[str, str]) -> None:
    """Do all steps; prints how many places a kill could have struck at, and what the steps returned."""
    machine = Machine(root)
    machine.lock()
    given = {
        "point": "latest",
        "source": "auto",
        "keep_cluster": "",
        "pods": False,
        "data": True,
        "force": False,
        "rebuild": False,
        **arguments,
    }
    results = [state(machine, given) for state in STATES]
    print(json.dumps({"places": machine.crash.reached, "results": results}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
