# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What runs Kubernetes' own tests: programs made of tests, names, reports."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest
import yaml

from ironspan.artifacts import cache, gobuild, lock_file
from tests.support import conformance

REPORT = """\
<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed"/>
<testcase name="[It] [sig-a] one [Conformance]" status="passed"/>
<testcase name="[It] [sig-a] two [Conformance]" status="failed"><failure>no</failure></testcase>
<testcase name="[It] [sig-a] three [Conformance]" status="timedout"/>
<testcase name="[It] [sig-b] four" status="skipped"/>
</testsuite></testsuites>
"""


def test_a_report_says_what_became_of_each_test_that_was_run() -> None:
    outcome = conformance.Outcome(1, conformance.read(REPORT), pathlib.Path("/x"))
    assert outcome.counts() == {"passed": 1, "failed": 1, "timedout": 1}
    assert outcome.failed() == ["[sig-a] three [Conformance]", "[sig-a] two [Conformance]"]


def test_names_are_taken_as_they_are() -> None:
    names = ["[sig-a] one (x|y) [Conformance]", "[sig-b] two."]
    focus = re.compile(conformance.focus_of(names))
    assert focus.search(f"Kubernetes e2e suite {names[0]}")
    assert focus.search(names[1])
    assert not focus.search("Kubernetes e2e suite [sig-b] twoo")
    assert not focus.search(f"Kubernetes e2e suite {names[1]} and more")


def test_the_few_are_conformance_tests_of_every_area() -> None:
    names = conformance.chosen()
    assert 30 <= len(set(names)) == len(names) <= 50
    assert all(name.endswith("[Conformance]") and conformance.SERIAL not in name for name in names)
    assert len({name.partition("]")[0] for name in names}) >= 6


def test_an_api_server_is_reached_by_address_and_checked_by_name() -> None:
    cluster = {"cluster": {"server": "https://api.lab.internal:8443", "certificate-authority-data": "x"}}
    text = conformance.kubeconfig(yaml.safe_dump({"clusters": [cluster], "users": []}), "10.98.0.11", 6443)
    (one,) = yaml.safe_load(text)["clusters"]
    assert one["cluster"] == {
        "server": "https://10.98.0.11:6443",
        "tls-server-name": "api.lab.internal",
        "certificate-authority-data": "x",
    }


def test_it_is_a_set_of_its_own_and_has_kubernetes_version() -> None:
    here = lock_file.load()
    assert not any(item.set_name == conformance.NAME for item in here.needed())
    assert here.components[conformance.NAME].version == here.components["kubernetes"].version
    assert here.components[conformance.NAME].ldflags == here.components["kubernetes"].ldflags


def test_tests_are_compiled_by_go_test(place: cache.Cache, go_log: pathlib.Path) -> None:
    here = lock_file.load()
    component = here.components[conformance.NAME]
    builder = gobuild.Builder(here, place, "amd64")
    assert builder.program(f"{conformance.NAME}/e2e.test", lambda _: None).exists()
    assert builder.program(f"{conformance.NAME}/agnhost", lambda _: None).exists()
    calls = go_log.read_text().splitlines()
    assert [line for line in calls if "test -c" in line and line.endswith(component.tests["e2e.test"])]
    assert [line for line in calls if "build" in line and line.endswith(component.programs["agnhost"])]


@pytest.mark.parametrize("name", ["kubernetes", "etcd"])
def test_recipes_of_components_without_tests_stay(name: str) -> None:
    component = lock_file.load().components[name]
    assert gobuild.recipe(component) != gobuild.recipe(dataclasses.replace(component, tests={"x": "y"}))
    fields = dataclasses.asdict(component)
    assert fields["tests"] == {}
