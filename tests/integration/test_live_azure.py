# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An estate in a real subscription: made, found right, changed, deleted. docs/azure-live.md has its costs.

It was never run by those who wrote it. test_live_azure_path.py goes the same way in the emulated Azure.
"""

from __future__ import annotations

import pytest

from tests.support import live_azure

pytestmark = pytest.mark.live_azure


def test_an_estate_goes_round() -> None:
    with live_azure.made().standing() as live:
        live.goes_the_whole_way()
