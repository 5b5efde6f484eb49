# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster in the lab whose secrets are encrypted: its stages, its database, and who can read what."""

from __future__ import annotations

import base64
import collections
import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.store import Store

from tests.integration.conftest import Cluster
from tests.support.playbooks import BIN, ROOT, Played, play
from tests.support.simulated_site import RUN, kill_all

SECRETS = "/api/v1/namespaces/default/secrets"
ETCD = "set -a; . /etc/etcd/etcdctl.env; "
MEMBER = "/var/lib/etcd/*/member"
CONTROL_PLANES = ("az-1", "az-2")
PATIENCE_S = 300.0


def secret(name: str, text: str) -> Object:
    """Return a secret."""
    data = {"text": base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def text_of(found: Object) -> str:
    """Return what is in a secret that ``secret`` has made."""
    return base64.b64decode(found["data"]["text"]).decode()


class EncryptedSite(Cluster):
    """The cluster, its PKI store, and what the inventory is to say."""

    wish: Mapping[str, t.Any] = {"control_plane_secrets_encryption": "none"}

    @property
    def store(self) -> Store:
        """Return the PKI store as it is at this moment."""
        return open_store(self.lab.folder / "pki", self.lab.folder / "pki.key")

    def api(self, host: str, break_glass: bool = False) -> Api:
        """Return a client of one API server, past the load balancer; one of system:masters to break glass."""
        config = self.store.admin_kubeconfig("api.lab.internal:8443", 1, break_glass=break_glass)
        cluster = config["clusters"][0]["cluster"]
        cluster["server"] = f"https://{self.address(host)}:6443"
        cluster.pop("tls-server-name", None)
        return Api.from_kubeconfig(config, None, patience=5)

    def make(self, name: str, text: str, host: str = "az-1") -> None:
        """Make a secret through an API server."""
        self.api(host).apply(f"{SECRETS}/{name}", secret(name, text))

    def make_many(self, count: int, text: str) -> None:
        """Make so many secrets that rewriting them takes several at a time and can be interrupted."""
        head = "apiVersion: v1\\nkind: Secret\\nmetadata: {name: many-%s}"
        item = f"{head}\\nstringData: {{text: {text}}}\\n---\\n"
        every = f"for number in $(seq {count}); do printf '{item}' $number; done"
        self.on("az-1", f"({every}) | kubectl --kubeconfig /etc/kubernetes/admin.conf create -f - >/dev/null")

    def text(self, name: str, host: str) -> str:
        """Return what an API server says is in a secret."""
        return text_of(self.api(host).get(f"{SECRETS}/{name}"))

    def site(self, *options: str) -> Played:
        """Run site.yml with what the inventory is to say."""
        return super().site("-e", json.dumps(self.wish), *options)

    def rotate(self, stage: str, status: int = 0, **wish: t.Any) -> Played:
        """Run a stage; ``wish`` changes what the inventory says from now on."""
        self.wish = {**self.wish, **wish}
        asked = json.dumps({**self.wish, "ironspan_encryption_stage": stage})
        played = play("encryption_rotate", self.inventory, self.folder, "-e", asked)
        assert played.status == status, played.output
        return played

    def change(self, **wish: t.Any) -> None:
        """Go through all stages."""
        for stage in ("read", "write", "drop"):
            played = self.rotate(stage, **wish)
        assert "the change is complete" in played.output, played.output

    def settled(self) -> None:
        """Insist that another run of site.yml finds nothing to do."""
        played = self.site()
        assert played.status == 0 and played.changed == {}, played.output

    def kill(self, stage: str, reached: Callable[[str], bool], *, everything: bool = True) -> str:
        """Run a stage and kill it with SIGKILL; return what it has said.

        Args:
            stage: the stage.
            reached: whether it is to be killed now, from what it has said.
            everything: also the processes that it has started here; otherwise they go on without it.
        """
        asked = json.dumps({**self.wish, "ironspan_encryption_stage": stage})
        log = self.folder / "killed.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                [
                    *(str(BIN / "ansible-playbook"), "-i", str(self.inventory)),
                    *("playbooks/encryption_rotate.yml", "-e", asked),
                ],
                cwd=ROOT,
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={
                    **os.environ,
                    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                    "ANSIBLE_NOCOLOR": "1",
                    "PYTHONUNBUFFERED": "1",
                    RUN: self.folder.name,
                },
            )
        end = time.monotonic() + PATIENCE_S
        while not reached(log.read_text()):
            assert process.poll() is None, f"ended before it was to be killed: {log.read_text()}"
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        assert process.poll() is None, f"ended before it was to be killed: {log.read_text()}"
        process.send_signal(signal.SIGKILL)
        process.wait()
        if everything:
            self.end_runs()
        return log.read_text()

    def end_runs(self) -> None:
        """End whatever killed runs have left here."""
        kill_all(self.folder.name)

    def stored(self) -> collections.Counter[str]:
        """Count secrets by what their raw values in etcd begin with, as etcdctl reads them."""
        answer = self.on("az-1", f"{ETCD} etcdctl get /registry/secrets/ --prefix -w json")
        values = (base64.b64decode(pair["value"]) for pair in json.loads(answer)["kvs"])
        return collections.Counter(_mark(value) for value in values)

    def raw(self, name: str) -> bytes:
        """Return the raw value of a secret in etcd."""
        answer = self.on("az-1", f"{ETCD} etcdctl get /registry/secrets/default/{name} -w json")
        return base64.b64decode(json.loads(answer)["kvs"][0]["value"])

    def found(self, text: str, file: str = "snap/db") -> int:
        """Return how often files of the member have a text."""
        return int(self.on("az-1", f"cat {MEMBER}/{file} | grep -a -o -F '{text}' | wc -l"))

    def compact(self) -> None:
        """Let etcd forget what is past; its pages keep their content until they are used again."""
        revision = "etcdctl endpoint status -w json | grep -o '\"revision\":[0-9]*' | cut -d: -f2"
        self.on("az-1", f"{ETCD} etcdctl compact --physical $({revision})")

    def defragment(self) -> None:
        """Let etcd write its database again."""
        self.on("az-1", f"{ETCD} etcdctl defrag")

    def restart_api(self, host: str) -> None:
        """Kill a host's API server, which its kubelet starts again; return when it is ready."""
        before = self.started(host)
        self.on(host, "kill -9 $(pgrep -x kube-apiserver)")
        self.wait(lambda: self.started(host) not in ("", before) and self.ready(host))

    def started(self, host: str) -> str:
        """Return the process of a host's API server, and when it was started."""
        return self.on(host, "stat -c '%n %Y' /proc/$(pgrep -x kube-apiserver)", check=False)

    def ready(self, host: str) -> bool:
        """Tell whether a host's API server is ready."""
        with contextlib.suppress(ClusterError):
            return self.api(host).text("/readyz") == "ok"
        return False

    def wait(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ClusterError):
                if condition():
                    return
            assert time.monotonic() < end, "it does not come to hold"
            time.sleep(1)


def _mark(value: bytes) -> str:
    """Return the provider that a raw value names, or how it begins."""
    parts = value[:80].split(b":")
    return parts[4].decode() if parts[:2] == [b"k8s", b"enc"] else value[:3].decode("ascii", "replace")


class Readers:
    """Writes through each API server and reads through the others, while a block runs.

    Not being answered is no failure, as API servers restart; an answer other than what was written is.
    """

    def __init__(self, site: EncryptedSite) -> None:
        self._site = site
        self._end = threading.Event()
        self.read: collections.Counter[tuple[str, str]] = collections.Counter()
        self.wrong: list[str] = []
        self._threads = [
            threading.Thread(target=self._go, args=pair, daemon=True)
            for pair in itertools.permutations(CONTROL_PLANES, 2)
        ]

    def _go(self, writer: str, reader: str) -> None:
        apis = {host: self._site.api(host) for host in (writer, reader)}
        for number in itertools.count():
            if self._end.wait(0.5):
                return
            name, text = f"from-{writer}", f"{writer}-{number}"
            try:
                apis[writer].apply(f"{SECRETS}/{name}", secret(name, text))
                found = text_of(apis[reader].get(f"{SECRETS}/{name}"))
            except ApiError as error:
                if error.status not in (401, 403, 429, 503, 504):
                    self.wrong.append(f"{writer} to {reader}: {error}")
                continue
            except ClusterError:
                continue
            self.read[writer, reader] += 1
            if found != text:
                self.wrong.append(f"{reader} has {found!r} where {writer} wrote {text!r}")

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)


@contextlib.contextmanager
def reading(site: EncryptedSite) -> Iterator[Readers]:
    """Read and write all the time; insist that everybody could read everything."""
    with Readers(site) as readers:
        yield readers
    assert readers.wrong == []
    assert len(readers.read) == 2 and min(readers.read.values()) > 5, readers.read
