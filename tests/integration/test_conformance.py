# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own conformance tests on a cluster of the lab, as it is by default and hardened.

`make conformance` builds what it needs and runs all of it; where it has been built, test_cluster.py runs a
few tests of every area on its own cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration import conformance_cases
from tests.integration.conformance_cases import tested
from tests.integration.conftest import Cluster, lab_cluster
from tests.support import conformance
from tests.support.playbooks import Played

pytestmark = [pytest.mark.lab, pytest.mark.long]
CONFORMANCE = r"\[Conformance\]"
HARDENED = {"site_cis_benchmark": True, "base_sshd": "hardened"}
SERIAL_LIMIT, PARALLEL_LIMIT = 7200, 10800


class ConformanceCluster(Cluster):
    """A cluster whose settings change."""

    variables: dict[str, object]

    def site(self, *options: str) -> Played:
        """Run site.yml with the settings of the moment."""
        return super().site("-e", json.dumps(getattr(self, "variables", {})), *options)


@pytest.fixture(scope="module")
def site() -> Iterator[ConformanceCluster]:
    conformance_cases.programs()
    with lab_cluster(ConformanceCluster, "conformtest", azure=1, rack=2, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        yield made


# In short: test_cluster.py::test_a_few_conformance_tests_of_every_area_pass, on the cluster that is there.
def test_a_few_of_every_area(site: ConformanceCluster) -> None:
    conformance_cases.a_few_of_every_area(site)


@pytest.mark.parametrize("settings", ["default", "hardened"])
def test_all_that_run_beside_others(site: ConformanceCluster, settings: str) -> None:
    configured(site, settings)
    name = f"{settings}-parallel"
    tested(site, name, CONFORMANCE, conformance.SERIAL, conformance_cases.PROCESSES, PARALLEL_LIMIT)


@pytest.mark.parametrize("settings", ["default", "hardened"])
def test_all_that_need_the_cluster_to_themselves(site: ConformanceCluster, settings: str) -> None:
    configured(site, settings)
    serial = rf"{conformance.SERIAL}.*{CONFORMANCE}|{CONFORMANCE}.*{conformance.SERIAL}"
    tested(site, f"{settings}-serial", serial, limit=SERIAL_LIMIT)


def configured(site: ConformanceCluster, settings: str) -> None:
    """Give the cluster the settings."""
    site.variables = HARDENED if settings == "hardened" else {}
    done = site.site()
    assert done.status == 0, done.output[-4000:]
