# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Only operations that contact nobody but the named hosts leave out the documents of the others."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.scope import rendered_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from tests.unit.operations.test_workers import WORKERS, site


@pytest.mark.parametrize(
    ("operation", "named", "expected"),
    [
        ("", "w1", None),
        ("site", "w1", None),
        ("node_add", "", None),
        ("node_add", "w2,w1", ["w2", "w1"]),
        ("node_remove", ["w1"], ["w1"]),
        ("node_replace", "w1", ["w1"]),
        ("member_replace", "cp", None),
    ],
)
def test_whose_documents_are_needed(operation: str, named: t.Any, expected: list[str] | None) -> None:
    assert rendered_hosts(operation, site(*WORKERS), {"ironspan_hosts": named}) == expected


def test_an_unknown_host_is_refused_before_anything_is_rendered() -> None:
    with pytest.raises(OperationError, match="w9"):
        rendered_hosts("node_add", site(*WORKERS), {"ironspan_hosts": "w9"})
