# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs an Ansible module in this process, as a host would."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(
    module: t.Any, capsys: pytest.CaptureFixture[str], check: bool = False, **arguments: t.Any
) -> dict[str, t.Any]:
    """Return the result that a module prints."""
    with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        module.main()
    return dict(json.loads(capsys.readouterr().out))
