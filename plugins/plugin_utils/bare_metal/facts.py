# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is known of a server as labels of its node: rack, leaf switch, GPU model, NVLink domain.

What was declared counts, for it was compared with what was measured; what nobody declared is taken from the
measurement. A server says that of itself: names are ours, values are bounded, and they are of its node only.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import known_gpus
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection

RACK, LEAF, GPU, NVLINK = (
    "ironspan.io/rack",
    "ironspan.io/leaf-switch",
    "ironspan.io/gpu-model",
    "ironspan.io/nvlink-domain",
)
LABELS: t.Final = (RACK, LEAF, GPU, NVLINK)
_LONGEST = 63
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")


def label_value(text: str) -> str:
    """Return a text as the value of a label can be, "" when nothing of it can."""
    return _OTHERS.sub("-", text).strip("-._")[:_LONGEST].rstrip("-._")


def labels_of(server: ExpectedServer, inspections: Sequence[Inspection] = ()) -> dict[str, str]:
    """Return the labels of a server's node.

    Args:
        server: what was declared.
        inspections: what was measured in it, and compared.
    """
    texts = {
        RACK: server.rack,
        # The leaf of the first cabled port: rails have leaves of their own, and a label has one value.
        LEAF: next((nic.switch for nic in server.nics if nic.switch), "") or _leaf(inspections),
        GPU: server.gpu_model or (_model(inspections) if server.gpu_count != 0 else ""),
        NVLINK: server.nvlink_domain,
    }
    return {name: value for name, text in texts.items() if (value := label_value(text))}


def taken_labels(said: t.Any) -> dict[str, str]:
    """Return the labels among what somebody else kept of them; whatever it is given, it returns."""
    if not isinstance(said, Mapping):
        return {}
    return {
        name: value
        for name in LABELS
        if isinstance(value := said.get(name), str) and _VALUE.fullmatch(value) is not None
    }


def _leaf(inspections: Sequence[Inspection]) -> str:
    heard = (
        port.neighbour for inspection in inspections for port in inspection.ports or () if port.neighbour
    )
    return next((neighbour.switches[0] for neighbour in heard if neighbour.switches), "")


def _model(inspections: Sequence[Inspection]) -> str:
    """Return the model of GPUs that are all of one; servers with several have no such label."""
    models = {
        known.model
        for inspection in inspections
        for gpu in inspection.gpus or ()
        if (known := known_gpus().get(gpu.device))
    }
    return models.pop() if len(models) == 1 else ""
