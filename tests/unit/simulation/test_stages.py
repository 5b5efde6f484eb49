# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes report as often as the profile of their size says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import profile_for

from tests.support import kwok


def test_heartbeats_are_those_of_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = {"durationMilliseconds": 600_000, "jitterDurationMilliseconds": 610_000}
    for name in (
        "node/fast/node-initialize",
        *(f"pod/fast/pod-{part}" for part in ("ready", "complete", "delete")),
    ):
        (tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text("{spec: {}}")
    heartbeat = tmp_path / "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml"
    heartbeat.parent.mkdir()
    heartbeat.write_text(yaml.safe_dump({"spec": {"delay": delays}}))
    monkeypatch.setattr(kwok, "_folder", lambda: tmp_path)
    *_, found = yaml.safe_load_all(kwok.stages(profile_for(1000)))
    assert found["spec"]["delay"] == {"durationMilliseconds": 150_000, "jitterDurationMilliseconds": 450_000}
