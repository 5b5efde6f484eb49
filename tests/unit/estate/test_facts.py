# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is paid for and needed, computed by hand here."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.facts import facts, needs

from .conftest import made

H100 = {"name": "burst", "size": "Standard_ND96isr_H100_v5", "most": 4, "groups": ["nodes", "gpu"]}


def test_quota_of_the_small_estate() -> None:
    found = needs(made())
    # 3 and 3 machines of 4 vCPUs; pools and public addresses: none.
    assert found["Microsoft.Compute", "cores"] == 24
    assert found["Microsoft.Compute", "standardDSv5Family"] == 24
    assert found["Microsoft.Network", "NetworkInterfaces"] == 6
    assert ("Microsoft.Network", "PublicIPAddresses") not in found


def test_pools_count_as_large_as_they_may_be() -> None:
    found = needs(made(azure_pools=[H100]))
    assert found["Microsoft.Compute", "standardNDSH100v5Family"] == 4 * 96
    assert found["Microsoft.Compute", "cores"] == 24 + 4 * 96
    spot = needs(made(azure_pools=[{**H100, "spot": True}]))
    assert spot["Microsoft.Compute", "lowPriorityCores"] == 4 * 96
    assert spot["Microsoft.Compute", "cores"] == 24
    assert ("Microsoft.Compute", "standardNDSH100v5Family") not in spot


def test_ways_out_have_the_public_addresses() -> None:
    nat = made(azure_outbound={"kind": "nat", "addresses": 3})
    assert needs(nat)["Microsoft.Network", "PublicIPAddresses"] == 3


def test_routes_to_pods_are_counted_with_pools_at_their_largest() -> None:
    native = {"site_cni": "cilium", "cilium_routing": "native"}
    lines = facts(made(azure_pools=[{**H100, "pods": "routed"}], **native))
    assert "routes to pods: 0 now, 7 of 400 at most" in lines
    assert not [one for one in facts(made(azure_pools=[H100])) if one.startswith("routes")]


def test_facts_say_what_is_paid_for() -> None:
    lines = facts(made(azure_pools=[{**H100, "count": 1}]))
    assert "6 x Standard_D4s_v5: 24 vCPUs, 96 GiB of memory" in lines
    assert "3 x disk of etcd, Premium SSD v2, 64 GiB, 3000 operations/s, 125 MB/s" in lines
    assert "pool burst: 1 now, at most 4 x Standard_ND96isr_H100_v5: 384 vCPUs, 32 GPUs" in lines
    assert "subnet control 10.20.0.0/24: 7 of 251 addresses" in lines
    assert "quota Microsoft.Compute standardNDSH100v5Family: 384" in lines


def test_local_disks_are_said_to_lose_their_data() -> None:
    sets = [{"name": "etcd", "count": 3, "size": "Standard_D4ads_v6", "disk": {"kind": "local_nvme"}}]
    lines = facts(made(azure_machines=sets))
    assert any(line.startswith("3 x etcd on the machine's own NVMe disk") for line in lines)
