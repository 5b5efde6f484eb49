# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may speak to the peer port of real members, and the way of a running cluster to that, one by one."""

from __future__ import annotations

import http.client
import types
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_cluster import EtcdCluster
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import PEER_NAME

from tests.support.etcd_members import find_etcd

from .loopback_cluster import Control, running

pytestmark = pytest.mark.lab


@pytest.fixture(params=["3.6.14", "3.7.3"])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Control]:
    """Three members as sites had them before: any certificate of the authority opens the peer port."""
    programs = find_etcd(tmp_path / "bin", ("etcd",), request.param)
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, tmp_path, members=3)) as started:
        for name in started.members:
            started.start_etcd(name)
        started.wait(lambda: not well(started))
        yield started


def well(control: Control) -> list[str]:
    """Return what is wrong with the members."""
    members = etcd.ask_members(control.members, control.etcd_context())
    return [problem for problem in etcd.problems(members, "3.6.14") if "version" not in problem]


def hosts(control: Control) -> list[t.Any]:
    """Return the members as the inventory has them."""
    variables = {"etcd_client_port": control.etcd_port}
    return [
        types.SimpleNamespace(name=name, address=address, variables=variables)
        for name, address in control.members.items()
    ]


def write(control: Control, name: str) -> None:
    """Write by way of one member, which takes a quorum; an election is waited for."""

    def written() -> bool:
        address = (control.members[name], control.etcd_port)
        connection = http.client.HTTPSConnection(*address, timeout=10, context=control.etcd_context())
        try:
            return bool(etcd._call(connection, "POST", "/v3/kv/put", {"key": "YQ==", "value": "Yg=="}))
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()

    control.wait(written)


def peer_port(control: Control, name: str, profile: str) -> bool:
    """Tell whether a certificate of a client, made by the store, is let in at the peer port."""
    pair = control.store.client_pair(profile, "kube-apiserver-etcd-client")
    authority = control.store.ca("etcd").certificate_pem
    context: t.Any = client_context(authority, pair.certificate_pem, pair.key_pem, control.folder / "tmp")
    address = (control.members[name], control.peer_port)
    connection = http.client.HTTPSConnection(*address, timeout=10, context=context)
    try:
        connection.request("GET", "/members")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_a_client_s_certificate_is_none_of_a_peer(three: Control) -> None:
    names = list(three.members)
    profiles = ("etcd-client", "apiserver-etcd-client")
    assert all(peer_port(three, name, profile) for name in names for profile in profiles)

    # First every member gets its certificate, which a running one reads; playbooks/etcd.yml looks at them.
    site = types.SimpleNamespace(group=lambda name: hosts(three))
    ours: t.Any = types.SimpleNamespace(site=site, etcd_context=three.etcd_context)
    for number, name in enumerate(names):
        assert EtcdCluster(ours).without_name(PEER_NAME) == names[number:]
        three.make_certificate(name, PEER_NAME)
        write(three, name)
    assert EtcdCluster(ours).without_name(PEER_NAME) == []
    # Then one after the other restarts and asks for the name.
    three.etcd_flags = (f"--peer-cert-allowed-hostname={PEER_NAME}",)
    for name in names:
        three.stop(name)
        for other in names:
            if other != name:
                write(three, other)
        three.start_etcd(name)
        three.wait(lambda: not well(three))
        write(three, name)
        assert not any(peer_port(three, name, profile) for profile in profiles)
    assert not any(peer_port(three, name, profile) for name in names for profile in profiles)

    # A certificate without the name, as of a member that was away all the time, comes in only with a new one.
    three.stop(names[0])
    three.make_certificate(names[0])
    three.start_etcd(names[0])
    for name in names[1:]:
        write(three, name)
    assert well(three)
    three.make_certificate(names[0], PEER_NAME)
    three.wait(lambda: not well(three))
