# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the inventory says of a site, as far as verify checks it."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke


class ExpectedNode(t.NamedTuple):
    """What the inventory says of one node.

    ``version`` is that of its kubelet, without the v; ``side`` is the end of the link it is on.
    """

    name: str
    address: str
    version: str
    control_plane: bool
    gvisor: bool
    side: str = ""


class Expected(t.NamedTuple):
    """What the inventory says of the site, as far as it is checked here.

    ``etcd`` is member name -> address; ``etcd_version`` "" accepts any, as long as it is the same everywhere.
    """

    site: str
    kubernetes_version: str
    cluster_domain: str
    nodes: Sequence[ExpectedNode]
    etcd: dict[str, str]
    etcd_version: str = ""
    image: str = smoke.IMAGE
