# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The probe's script under a plain shell, with stand-ins for the programs that need a cluster network."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke_run

SCRIPT = Path(smoke_run.__file__).with_name("probe.sh")
NSLOOKUP = """#!/bin/sh
# As busybox prints it: the name server first, then the answers.
echo "Server:\t\t10.96.0.10"
echo "Address:\t10.96.0.10:53"
echo
addresses=$(grep "^$2 " "$ZONE" | cut -d' ' -f2-)
[ -n "$addresses" ] || { echo "** server can't find $2: NXDOMAIN"; exit 1; }
for address in $addresses; do printf 'Name:\t%s\nAddress: %s\n' "$2" "$address"; done
"""
WGET = """#!/bin/sh
for url; do :; done
address=${url#http://}; address=${address%%:*}
grep "^$address " "$ZONE" | cut -d' ' -f2- | grep . && exit 0
exit 1
"""
ZONE = """kubernetes.default.svc.cluster.local. 10.96.0.1
workers.space.svc.cluster.local. 10.96.0.9
peers-0.space.svc.cluster.local. 10.244.0.4 10.244.1.4
peers-1.space.svc.cluster.local. 10.244.1.5
10.96.0.9 runc-0001
10.244.0.4 runc-0000
10.244.1.4 runc-0001
10.244.1.5 gvisor-0002
"""


def probe(
    tmp_path: Path, zone: str, dmesg: str = "", peers: int = 3, deadline: int = 0
) -> tuple[int, dict[str, str]]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("nslookup", NSLOOKUP), ("wget", WGET), ("dmesg", f"#!/bin/sh\necho '{dmesg}'\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "zone").write_text(zone)
    (tmp_path / "version").write_text("Linux version 6.18.0 (x) #1\n")
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "ZONE": str(tmp_path / "zone"),
        "KERNEL_FILE": str(tmp_path / "version"),
        "RESULT_FILE": str(tmp_path / "result"),
        "DEADLINE": str(deadline),
        "PORT": "8080",
        "CLUSTER_NAME": "kubernetes.default.svc.cluster.local.",
        "SERVICE_NAME": "workers.space.svc.cluster.local.",
        "SERVICE_ADDRESS": "10.96.0.9",
        "PEER_GROUPS": "peers-0.space.svc.cluster.local. peers-1.space.svc.cluster.local.",
        "PEERS": str(peers),
    }
    done = subprocess.run(["sh", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert not done.stderr
    text = (tmp_path / "result").read_text()
    assert text == done.stdout
    return done.returncode, dict(line.split("=", 1) for line in text.splitlines())


def test_all_well(tmp_path: Path) -> None:
    status, found = probe(tmp_path, ZONE)
    assert status == 0
    assert found == {
        "sandbox": "",
        "kernel": "Linux version 6.18.0 (x) #1",
        "dns_cluster": "10.96.0.1",
        "dns_service": "10.96.0.9",
        "service": "runc-0001",
        "peers": "3/3",
        "known": "3",
        "failed": "0",
        "unreached": "",
    }


def test_gvisor_shows_itself(tmp_path: Path) -> None:
    _, found = probe(tmp_path, ZONE, dmesg="[    0.000000] Starting gVisor...")
    assert found["sandbox"] == "[    0.000000] Starting gVisor..."


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        ("kubernetes.default", {"dns_cluster": "", "dns_service": "10.96.0.9"}),
        ("workers.space", {"dns_service": "", "service": "runc-0001"}),
        ("10.96.0.9 runc", {"service": "", "dns_service": "10.96.0.9"}),
        ("peers-1.space", {"known": "2", "peers": "2/3", "unreached": ""}),
        ("10.244.1.5 gvisor", {"known": "3", "peers": "2/3", "unreached": "10.244.1.5"}),
        ("10.244", {"known": "3", "peers": "0/3", "unreached": "10.244.0.4 10.244.1.4 10.244.1.5"}),
    ],
)
def test_what_fails_is_named_and_the_rest_still_tried(
    tmp_path: Path, without: str, expected: dict[str, str]
) -> None:
    zone = "".join(line + "\n" for line in ZONE.splitlines() if not line.startswith(without))
    status, found = probe(tmp_path, zone)
    assert status == 1
    assert found["failed"] == "1"
    assert {name: found[name] for name in expected} == expected


def test_service_name_with_another_address_is_refused(tmp_path: Path) -> None:
    status, found = probe(
        tmp_path,
        ZONE.replace(
            "workers.space.svc.cluster.local. 10.96.0.9", "workers.space.svc.cluster.local. 10.96.0.7"
        ),
    )
    assert status == 1
    assert found["dns_service"] == "10.96.0.7"


def test_tries_until_the_deadline(tmp_path: Path) -> None:
    # A peer more than DNS will ever name.
    status, found = probe(tmp_path, ZONE, peers=4, deadline=2)
    assert (status, found["known"]) == (1, "3")
