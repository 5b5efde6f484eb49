# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A vendor's shipping list, read by a mapping."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import (
    Source,
    load_expected,
    read_expected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.mapping import Mapping, read_mapping
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import Findings
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = json.loads((Path(__file__).parent / "refused.json").read_text())["mapping"]
MAPPING = """\
encoding: cp1252
delimiter: semicolon
header_line: 3
columns:
  name: {template: "gpu-{Rack}-{Unit}", lower: true}
  bmc_address: {column: BMC IP}
  rack: {template: "rack-{Rack}"}
  position: {column: Unit, number: true}
  height: {value: 8}
  serial: Chassis  S/N
  model: {column: Product, values: {HGX-8: HGX H100, "HGX-8L": HGX H100}}
  gpu_model: {column: Product, values: {HGX-8: H100, "HGX-8L": H100}}
  gpu_count: {value: 8}
  memory_gib: {column: Memory, number: true, multiply: 1024}
  nic1_mac: {column: MAC 1}
"""
LIST = """\
Lieferschein;4711;Gr\u00fc\u00dfe
;;
Rack;Unit;Chassis S/N;Product;Memory;MAC 1;MAC 2;BMC IP;Price
1;U1;sn1;HGX-8;2 TB DDR5;5C-25-73-00-00-01;x;10.20.1.11;=1+1
1;U9;sn2;HGX-8;2 TB DDR5;5C-25-73-00-00-02;x;10.20.1.12;"200.000,00"
"""


def mapping(text: str = MAPPING) -> Mapping:
    found = Findings("vendor.yml")
    read = read_mapping(text.encode(), found)
    assert read is not None, list(map(str, found))
    return read


def problems(text: str, data: str = LIST) -> list[str]:
    """Return the problems of a mapping, or of a list that is read with it."""
    found = Findings("vendor.yml")
    read = read_mapping(text.encode(), found)
    if read is None:
        return list(map(str, found))
    return list(map(str, read_expected([Source("list.csv", data.encode("cp1252"), read)]).problems))


def test_a_shipping_list_is_read() -> None:
    read = read_expected([Source("list.csv", LIST.encode("cp1252"), mapping())])
    assert list(map(str, read.problems)) == []
    first, second = read.servers
    assert (first.name, first.slot, first.serial, first.memory_gib) == (
        "gpu-1-u1",
        "rack-1 U1-8",
        "SN1",
        2048,
    )
    assert (first.gpu_count, first.gpu_model, first.nics[0].mac) == (8, "H100", "5c:25:73:00:00:01")
    assert (second.slot, second.origin.line, second.origin.file) == ("rack-1 U9-16", 5, "list.csv")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_wrong_is_said_where_it_stands(case: dict[str, str]) -> None:
    assert case["replace"] in MAPPING
    assert case["problem"] in problems(MAPPING.replace(case["replace"], case["by"], 1))


def test_a_column_that_is_needed_and_there_twice_is_refused() -> None:
    assert problems(MAPPING, LIST.replace("MAC 2", "MAC 1"))[0] == (
        "list.csv:3:44: MAC 1: the column is there twice; keep one of them"
    )


def test_a_line_without_a_value_that_is_required_is_refused() -> None:
    assert problems(MAPPING, LIST.replace("10.20.1.12", "")) == [
        "list.csv:5:1: bmc_address: is not there; write the server's bmc_address"
    ]


def test_a_mapping_that_cannot_be_read_ends_it(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(LIST.encode("cp1252"))
    read = load_expected([tmp_path / "list.csv"], tmp_path / "none.yml")
    assert (len(read.servers), len(read.problems)) == (0, 1)
    (tmp_path / "vendor.yml").write_text(MAPPING)
    assert len(load_expected([tmp_path / "list.csv"], tmp_path / "vendor.yml").servers) == 2


_texts = st.text(st.sampled_from([*"abS/{}1 \\;,\"'\n", "\u00e9"]), max_size=8)
_rules = st.recursive(
    _texts | st.integers() | st.none(),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["column", "value", "template", "values", "number", "multiply", "a"]),
            inner,
            max_size=3,
        )
        | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["serial", "name", "nic1_mac", "x"]) | _texts, _rules, max_size=4), _texts
)
@settings(max_examples=150, deadline=None)
def test_any_mapping_and_list_are_taken_or_refused(columns: dict[str, t.Any], data: str) -> None:
    found = Findings("vendor.yml")
    read = read_mapping(json.dumps({"columns": columns}).encode(), found)
    assert (read is None) == bool(len(found))
    headings = [heading.replace('"', '""') for heading in read.headings] if read else []
    text = ",".join(f'"{heading}"' for heading in headings) + "\n" + data
    result = read_expected([Source("list.csv", text.encode(), read)])
    assert all(str(problem).isprintable() for problem in (*found, *result.problems))
