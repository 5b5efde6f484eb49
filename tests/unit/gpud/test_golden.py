# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What real cards said, recorded with ``ironspan-gpud dump``: what is well drains no node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from ironspan.gpud import events
from ironspan.gpud.agent import run_checks
from ironspan.gpud.checks.base import Context, Expected, Gpu
from ironspan.gpud.settings import READINGS, Settings

RECORDED = sorted((Path(__file__).parent / "golden").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_real_card_that_is_well_drains_nothing(path: Path) -> None:
    reading = json.loads(path.read_text())["reading"]
    gpus = [Gpu(values) for values in reading["gpus"]]
    assert gpus
    for gpu, values in zip(gpus, reading["gpus"], strict=True):
        assert set(READINGS) <= set(values)
        assert not gpu.errors()
        assert gpu.uuid.startswith("GPU-0000")
        assert "1650" not in str(values["serial"])
    context = Context(gpus, reading["system"], reading["host"], Expected(count=len(gpus)))
    found = run_checks(Settings(), context)
    policy = shipped()
    assert [each for each in found if events.action(each[1].event, policy) in events.UNHEALTHY] == []
