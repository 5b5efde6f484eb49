# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From the driver's library to pods: the real device plugin, nvidia-ctk, containerd and kubelet.

What stands in for a driver: gpu_lab.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from tests.integration.conftest import lab_cluster
from tests.integration.gpu_lab import DESCRIBED, DEVICE, HOST, KUBECTL, PLUGIN, Gpus, openable, until
from tests.support import nvml

pytestmark = [pytest.mark.lab, pytest.mark.long]
GPUS = 8


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    with lab_cluster(Gpus, "gputest", azure=1, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-4000:]
        made.state = nvml.State(tmp_path_factory.mktemp("gpus") / "state", "h100", GPUS)
        yield made


def test_without_a_driver_nothing_is_offered_and_nothing_fails(site: Gpus) -> None:
    assert site.gpus() == (0, 0)
    assert site.on(HOST, f"systemctl is-active {PLUGIN} {DESCRIBED}").split() == ["active", "active"]
    site.assert_settled()


def test_the_kubelet_offers_gpus_as_soon_as_there_is_a_driver(site: Gpus) -> None:
    site.load_driver()
    until(site.gpus, (GPUS, GPUS))


def test_a_pod_gets_the_gpu_that_it_asks_for(site: Gpus) -> None:
    site.start("one")
    site.start("two", gpus=2)
    assert len(openable(site, "one")) == 1
    assert len(openable(site, "two")) == 2
    assert not set(openable(site, "one")) & set(openable(site, "two"))
    assert "libnvidia-ml.so" in site.inside("one", "cat /proc/mounts")
    path = f"/api/v1/nodes/{HOST}/proxy/configz"
    kubelet = json.loads(site.on("az-1", f"{KUBECTL} get --raw {path}"))["kubeletconfig"]
    assert (kubelet["topologyManagerPolicy"], kubelet["topologyManagerScope"]) == ("best-effort", "pod")


def test_a_daemon_reload_takes_no_gpu_away(site: Gpus) -> None:
    before = openable(site, "two")
    assert len(before) == 2
    # It is the device cgroup that lets them: what the pod was not given it cannot open.
    assert "not permitted" in site.inside("two", "mknod /tmp/other c 10 234; exec 3</tmp/other")
    link = site.on(HOST, f"readlink /dev/char/{DEVICE}")
    assert link.startswith("../nvidia")
    status = site.kubectl("get", "pod", "two")["status"]["containerStatuses"][0]
    scope = f"cri-containerd-{status['containerID'].removeprefix('containerd://')}.scope"
    # A changed property has systemd apply all of a scope's again.
    again = f"systemctl set-property --runtime {scope} 'DeviceAllow=/dev/null rw'"
    site.on(HOST, f"systemctl daemon-reload; {again}; systemctl daemon-reload")
    assert openable(site, "two") == before


def test_what_is_the_applications_fault_costs_no_gpu_and_what_is_not_does(site: Gpus) -> None:
    policy = shipped()
    harmless = [code for code, rule in policy.xids().items() if rule.action in ("A0", "A1")]
    otherwise = [code for code in harmless if code not in policy.plugin_ignores]
    assert policy.xids()[109].action in ("A2", "A3")
    assert 109 in policy.plugin_ignores
    # The plugin reads events in their order: with the last one withdrawn it has passed over the others.
    for code in otherwise:
        site.state.xid(0, code)
    for gpu, code in ((1, 31), (2, 109), (3, 79)):
        site.state.xid(gpu, code)
    site.show()
    until(site.gpus, (GPUS, GPUS - 2))
    withdrawn = site.on(HOST, f"journalctl -u {PLUGIN} -o cat | grep 'marked unhealthy'")
    assert [uuid for uuid in map(site.state.uuid, range(GPUS)) if uuid in withdrawn] == [
        site.state.uuid(2),
        site.state.uuid(3),
    ]
    # A pod that runs goes on.
    assert len(openable(site, "two")) == 2


def test_gpus_come_back_by_a_reload_and_outlive_the_kubelet(site: Gpus) -> None:
    site.on(HOST, f"systemctl reload {PLUGIN}")
    until(site.gpus, (GPUS, GPUS))
    site.on(HOST, "systemctl restart kubelet")
    until(lambda: "Registered" in site.on(HOST, f"journalctl -u {PLUGIN} -o cat -n 20", check=False), True)
    until(site.gpus, (GPUS, GPUS))
    assert len(openable(site, "two")) == 2


def test_a_second_run_changes_nothing(site: Gpus) -> None:
    site.assert_settled()


def test_off_it_is_removed(site: Gpus) -> None:
    played = site.site("-e", json.dumps({"nvidia_device_plugin_enabled": False}))
    assert played.status == 0, played.output[-4000:]
    until(lambda: site.gpus()[1], 0)
    left = site.on(
        HOST, f"ls /usr/local/bin/nvidia-device-plugin /etc/systemd/system/{PLUGIN}.service", check=False
    )
    assert left == ""
    assert len(openable(site, "two")) == 2
