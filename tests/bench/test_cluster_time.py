# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""site.yml against a hand-written kubeadm script, on the same two hosts, in the same run."""

from __future__ import annotations

import pathlib

import pytest

from ironspan.lab import Lab
from tests.bench import raw_kubeadm
from tests.bench.table import Table
from tests.support.playbooks import play

RATIO = 1.3
ROUNDS = 4
"""At most: other work slows one side or the other."""

pytestmark = pytest.mark.lab


def site_seconds(lab: Lab, folder: pathlib.Path) -> tuple[float, str]:
    played = play("site", lab.inventory_path, folder)
    assert played.status == 0, played.output
    return played.seconds, played.output


def test_site_takes_little_longer_than_kubeadm_by_hand(table: Table, tmp_path: pathlib.Path) -> None:
    raw: list[float] = []
    site: list[float] = []
    for _ in range(ROUNDS):
        for seconds, build in ((raw, raw_kubeadm.run), (site, lambda lab: site_seconds(lab, tmp_path))):
            lab = Lab("bench")
            try:
                lab.up(azure=1, rack=1, azure_services=False)
                seconds.append(build(lab)[0])
            finally:
                lab.down()
        if min(site) <= RATIO * min(raw):
            break
    table.note(
        "A cluster of two hosts",
        "kubeadm by hand, as a script",
        f"{min(raw):.1f} s",
        "booted hosts, warm mirror",
    )
    table.note(
        "A cluster of two hosts", "site.yml", f"{min(site):.1f} s", "validation and verification included"
    )
    table.add("A cluster of two hosts", "site.yml / kubeadm by hand", min(site) / min(raw), RATIO)
    table.check()
