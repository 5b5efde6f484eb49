# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own conformance tests on a cluster of the lab, as it is by default and hardened.

`make conformance` builds what it needs and runs all of it; `make test` runs a few tests of every area, where
it has been built. IRONSPAN_CONFORMANCE names the folder for the logs and reports.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Cluster, lab_cluster
from tests.support import conformance
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab]
CONFORMANCE = r"\[Conformance\]"
PROCESSES = int(os.environ.get("IRONSPAN_CONFORMANCE_PROCESSES", "4"))
HARDENED = {"site_cis_benchmark": True, "base_sshd": "hardened"}
SERIAL_LIMIT, PARALLEL_LIMIT, SMOKE_LIMIT = 7200, 10800, 900


class ConformanceCluster(Cluster):
    """A cluster with the programs that test it."""

    programs: conformance.Programs
    variables: dict[str, object]

    def site(self, *options: str) -> Played:
        """Run site.yml with the settings of the moment."""
        return super().site("-e", json.dumps(getattr(self, "variables", {})), *options)

    def tested(
        self, name: str, focus: str, skip: str = "", processes: int = 1, limit: float = SMOKE_LIMIT
    ) -> None:
        """Run tests, and fail with the names of those that failed."""
        kept = os.environ.get("IRONSPAN_CONFORMANCE")
        folder = (pathlib.Path(kept) if kept else self.folder) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = self.folder / "kubeconfig"
        config.touch(mode=0o600)
        text = self.on("az-1", "cat /etc/kubernetes/admin.conf")
        config.write_text(conformance.kubeconfig(text, self.address("az-1")))
        outcome = conformance.run(self.programs, config, folder, focus, skip, processes, limit)
        print(f"{name}: {outcome.counts()}, see {folder}")
        log = (folder / "e2e.log").read_text(errors="replace")
        assert outcome.tests, log[-4000:]
        assert not outcome.failed(), "\n".join([*outcome.failed(), log[-4000:]])
        assert outcome.status == 0, log[-4000:]


@pytest.fixture(scope="module")
def site() -> Iterator[ConformanceCluster]:
    programs = conformance.find()
    if programs is None:
        pytest.skip("Kubernetes' tests are not built: make conformance")
    with lab_cluster(ConformanceCluster, "conformtest", azure=1, rack=2, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        made.programs = programs
        yield made


def test_a_few_of_every_area(site: ConformanceCluster) -> None:
    site.tested("smoke", conformance.focus_of(conformance.chosen()), processes=PROCESSES)


@pytest.mark.long
@pytest.mark.parametrize("settings", ["default", "hardened"])
def test_all_that_run_beside_others(site: ConformanceCluster, settings: str) -> None:
    configured(site, settings)
    site.tested(f"{settings}-parallel", CONFORMANCE, conformance.SERIAL, PROCESSES, PARALLEL_LIMIT)


@pytest.mark.long
@pytest.mark.parametrize("settings", ["default", "hardened"])
def test_all_that_need_the_cluster_to_themselves(site: ConformanceCluster, settings: str) -> None:
    configured(site, settings)
    serial = rf"{conformance.SERIAL}.*{CONFORMANCE}|{CONFORMANCE}.*{conformance.SERIAL}"
    site.tested(f"{settings}-serial", serial, limit=SERIAL_LIMIT)


def configured(site: ConformanceCluster, settings: str) -> None:
    """Give the cluster the settings."""
    site.variables = HARDENED if settings == "hardened" else {}
    done = site.site()
    assert done.status == 0, done.output[-4000:]
