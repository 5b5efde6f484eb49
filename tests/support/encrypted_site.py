# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster in the lab whose secrets are encrypted: its stages, its database, and who can read what."""

from __future__ import annotations

import base64
import collections
import contextlib
import itertools
import json
import threading
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.store import Store

from tests.integration.conftest import Cluster
from tests.support.playbooks import Played, play

SECRETS = "/api/v1/namespaces/default/secrets"
ETCD = "set -a; . /etc/etcd/etcdctl.env; "
MEMBER = "/var/lib/etcd/*/member"
CONTROL_PLANES = ("az-1", "az-2")


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

    def api(self, host: str) -> Api:
        """Return a client of one API server, past the load balancer."""
        config = self.store.admin_kubeconfig("api.lab.internal:8443", 1)
        cluster = config["clusters"][0]["cluster"]
        cluster["server"] = f"https://{self.address(host)}:6443"
        cluster.pop("tls-server-name", None)
        return Api.from_kubeconfig(config, None, patience=5)

    def make(self, name: str, text: str, host: str = "az-1") -> None:
        """Make a secret through an API server."""
        self.api(host).apply(f"{SECRETS}/{name}", secret(name, text))

    def text(self, name: str, host: str) -> str:
        """Return what an API server says is in a secret."""
        return text_of(self.api(host).get(f"{SECRETS}/{name}"))

    def site(self, *options: str) -> Played:
        """Run site.yml with what the inventory is to say."""
        return super().site("-e", json.dumps(self.wish), *options)

    def rotate(self, stage: str) -> Played:
        """Run a stage."""
        asked = json.dumps({**self.wish, "ironspan_stage": stage})
        played = play("encryption_rotate", self.inventory, self.folder, "-e", asked)
        assert played.status == 0, played.output
        return played

    def settled(self) -> None:
        """Insist that another run of site.yml finds nothing to do."""
        played = self.site()
        assert played.status == 0 and played.changed == {}, played.output

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
        """Let etcd write its database anew."""
        self.on("az-1", f"{ETCD} etcdctl defrag")


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
