# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Argument specifications and defaults of all roles say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limits import limit_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.resolve import needs_template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    ROLES_FOLDER,
    Option,
    load_specification,
    read_yaml,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value

ROLES = sorted(path.name for path in ROLES_FOLDER.iterdir() if path.is_dir())


def options_of(role: str) -> dict[str, Option]:
    """Return the variables of one role."""
    return {name: option for name, option in load_specification().options.items() if option.role == role}


def test_every_layer_is_a_role() -> None:
    assert set(all_layers().order) <= set(ROLES)
    assert "site" in ROLES


@pytest.mark.parametrize("role", ROLES)
def test_defaults_equal_argument_specs(role: str) -> None:
    defaults = read_yaml(ROLES_FOLDER / role / "defaults" / "main.yml")
    wanted = {name: option.default for name, option in options_of(role).items() if not option.required}
    assert defaults == wanted


@pytest.mark.parametrize("role", ROLES)
def test_variables_carry_the_name_of_their_role(role: str) -> None:
    assert [name for name in options_of(role) if not name.startswith(f"{role}_")] == []


@pytest.mark.parametrize("role", ROLES)
def test_defaults_pass_their_own_checks(role: str) -> None:
    said: list[str] = []
    for name, option in options_of(role).items():
        if option.required or needs_template(option.default):
            continue
        check_value(
            name, option.default, option, name, lambda *what: said.append(" ".join(map(str, what[2:])))
        )
    assert said == []


def test_limits_and_versions_name_variables_that_exist() -> None:
    known, layers = load_specification().options, all_layers()
    assert [name for name in (*layers.limits, *layers.versions) if name not in known] == []


@pytest.mark.parametrize(
    ("name", "span"),
    [("x_port", (1, 65535)), ("x_percent", (0, 100)), ("site_wan_mtu", (1280, 9216)), ("x_name", None)],
)
def test_a_unit_implies_a_range(name: str, span: tuple[int, int] | None) -> None:
    limit = limit_of(name)
    assert (limit and (limit.smallest, limit.largest)) == span


def test_a_role_without_files_has_no_variables(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    specification = load_specification(tmp_path)
    assert (dict(specification.options), dict(specification.defaults)) == ({}, {})
    assert specification.roles == ("empty",)
