# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of expected servers: what is taken, and what is refused with line, column and remedy."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import inventory, schema, write
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import (
    Source,
    read_expected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.mapping import read_mapping
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import Findings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import racks

CASES = json.loads((Path(__file__).parent / "refused.json").read_text())
HEADING = "name,bmc_address,rack,position,height,serial,nic1_mac,nic1_switch,nic1_port,gpu_model,gpu_count"
LINE = "gpu-1,10.20.1.11,rack-1,1,8,SN1,5c:25:73:00:00:01,leaf-1,Ethernet1/1,H100,8"


def table(*lines: str, heading: str = HEADING) -> list[str]:
    """Return the problems of a table, each as people see it."""
    return problems(Source("racks.csv", "\n".join((heading, *lines)).encode()))


def problems(*sources: Source) -> list[str]:
    return [str(problem) for problem in read_expected(sources).problems]


def changed(**cells: str) -> str:
    """Return LINE with other values in some columns."""
    row = dict(zip(HEADING.split(","), LINE.split(","), strict=True)) | cells
    return ",".join(row.values())


@given(st.lists(racks.servers(), min_size=1, max_size=4, unique_by=lambda one: one.name))
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_is_written_is_read_back(servers: list[ExpectedServer]) -> None:
    for file, data in (("racks.csv", write.as_csv(servers)), ("racks.yml", write.as_yaml(servers))):
        read = read_expected([Source(file, data)])
        assert list(read.servers) == servers
        # Any two servers may have the same place, address or MAC; nothing else is wrong with what we write.
        assert all(
            ", and so has " in problem.message or problem.message.endswith(" twice")
            for problem in read.problems
        )


@given(st.lists(racks.servers(), min_size=1, max_size=3))
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_cell_that_is_written_is_a_formula(servers: list[ExpectedServer]) -> None:
    for row in csv.reader(io.StringIO(write.as_csv(servers).decode())):
        assert not [cell for cell in row if cell[:1] in tuple("=+-@\t\r")]


@given(st.binary(max_size=400), st.sampled_from(["x.csv", "x.yml", "x.json", "x.doc"]))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_taken_or_refused(data: bytes, file: str) -> None:
    read = read_expected([Source(file, data)])
    assert not read.servers or file != "x.doc"


_odd = st.text(
    st.sampled_from([*"abc019:;,\"'\n\r\t[]{}=-/ ", "\u00e9", "\u202e", "\x07", "\ufeff"]), max_size=12
)


@given(st.lists(st.lists(_odd, max_size=13), max_size=4), st.booleans())
@settings(max_examples=120, deadline=None)
def test_any_cells_are_taken_or_refused(rows: list[list[str]], raw: bool) -> None:
    text = io.StringIO(newline="")
    if raw:
        text.write("\n".join(",".join(row) for row in rows))
    else:
        csv.writer(text).writerows(rows)
    read = read_expected([Source("x.csv", f"{HEADING}\n{text.getvalue()}".encode())])
    for problem in read.problems:
        assert problem.message and problem.remedy
        assert str(problem).isprintable()


@given(
    st.recursive(
        st.none() | st.integers() | _odd,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["servers", "defaults", "name", "nics", "disks", "firmware", "mac", "rack", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
@settings(max_examples=120, deadline=None)
def test_any_tree_is_taken_or_refused(content: object) -> None:
    for wrapped in (content, {"servers": content}, {"servers": [content]}):
        read = read_expected([Source("x.yml", yaml.safe_dump(wrapped).encode())])
        assert all(
            problem.message and problem.remedy and str(problem).isprintable() for problem in read.problems
        )


@pytest.mark.parametrize("case", CASES["cells"], ids=str)
def test_a_wrong_value_is_refused_where_it_stands(case: dict[str, t.Any]) -> None:
    assert table(changed(**case["cells"])) == [case["problem"]]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"name": "1001"}, "is an address to every resolver"),
        ({"bmc_address": "169.254.1.1"}, "is not the address of one machine"),
        ({"bmc_address": "255.255.255.255"}, "is not the address of one machine"),
        ({"serial": "0000"}, "says that there is none"),
        ({"serial": "Default"}, "says that there is none"),
        ({"gpu_count": "0"}, "is 0, and gpu_model names one"),
        ({"group": "gpuu"}, "write gpu"),
        ({"group": "etcd"}, "is no group for servers in racks"),
        ({"group": "all"}, "is no group for servers in racks"),
        ({"nic1_speed_gbit": "401"}, "no link has 401 Gbit/s; write for example 400"),
        ({"name": "gpu"}, "'gpu' is a group of the inventory"),
        ({"name": "all"}, "'all' is a group of the inventory"),
        ({"bmc_address": "127.0.0.1"}, "is the machine that Ansible runs on"),
        ({"bmc_address": "::1"}, "is the machine that Ansible runs on"),
        ({"bmc_address": "LocalHost"}, "is the machine that Ansible runs on"),
        ({"bmc_address": "240.0.0.1"}, "is not the address of one machine"),
        ({"serial": "0123456789"}, "says that there is none"),
        ({"group": "rack_b"}, "is another rack's, and its own makes the group rack_1; leave it out"),
    ],
)
def test_a_value_that_no_server_has(cells: dict[str, str], says: str) -> None:
    heading = f"{HEADING},group,nic1_speed_gbit"
    row = {
        **dict(zip(HEADING.split(","), LINE.split(","), strict=True)),
        "group": "gpu",
        "nic1_speed_gbit": "400",
    }
    assert table(",".join(row.values()), heading=heading) == []
    (problem,) = table(",".join((row | cells).values()), heading=heading)
    assert says in problem


@pytest.mark.parametrize(
    ("columns", "cells", "says"),
    [
        ("firmware_bois", "1", "no column 'firmware_bois' is known; write firmware_bios"),
        ("firmware_mbc", "1", "no column 'firmware_mbc' is known; write firmware_bmc"),
        (
            "nic1_name,nic2_name,nic2_mac",
            "a,a,5c:25:73:00:00:02",
            "nic2_name: is the name of nic1 too; give each port a name of its own",
        ),
    ],
)
def test_columns_that_cannot_be(columns: str, cells: str, says: str) -> None:
    (problem,) = table(f"{LINE},{cells}", heading=f"{HEADING},{columns}")
    assert says in problem


def test_a_component_in_another_order_is_refused_in_a_list_too() -> None:
    text = (
        "servers: [{name: a, bmc_address: 10.0.0.1, rack: r, position: 1, firmware: {bois: '1', bmc2: '2'}}]"
    )
    (problem,) = problems(Source("racks.yml", text.encode()))
    assert "firmware.bois: no component is called so; write bios" in problem


@pytest.mark.parametrize("data", [HEADING.encode(), b"servers: []"])
def test_a_file_without_a_server(data: bytes) -> None:
    file = "racks.csv" if data.startswith(b"name") else "racks.yml"
    (problem,) = problems(Source(file, data))
    assert problem.startswith(f"{file}: there is no server in it")


@pytest.mark.parametrize("case", CASES["headings"], ids=str)
def test_a_wrong_heading_is_refused(case: dict[str, t.Any]) -> None:
    assert case["problem"] in table(LINE, heading=HEADING.replace(case["replace"], case["by"]))


def test_all_problems_come_at_once_and_in_order() -> None:
    found = table(changed(name="GPU 1", position="x", nic1_mac="1"), changed(serial="a b"), "x,,,")
    assert [text.split(": ")[:2] for text in found] == [
        ["racks.csv:2:1", "name"],
        ["racks.csv:2:25", "position"],
        ["racks.csv:2:33", "nic1_mac"],
        ["racks.csv:3:29", "serial"],
        ["racks.csv:4:1", "bmc_address"],
        ["racks.csv:4:1", "position"],
        ["racks.csv:4:1", "rack"],
    ]


def test_a_file_with_very_many_problems_names_the_first_and_counts_the_others() -> None:
    found = table(*["x"] * 5000)
    assert len(found) == 1001
    assert found[-1] == "racks.csv: 14000 more problems; correct these first"


@pytest.mark.parametrize("case", CASES["second"], ids=str)
def test_what_two_servers_cannot_both_have_is_refused_across_files(case: dict[str, t.Any]) -> None:
    first = Source("racks.csv", f"{HEADING}\n{LINE}\n".encode())
    second = Source("more.csv", f"{HEADING}\n{changed(**case['cells'])}\n".encode())
    assert case["problem"] in problems(first, second)


def test_servers_one_above_the_other_are_no_duplicates() -> None:
    above = changed(
        name="b",
        bmc_address="10.20.1.12",
        position="9",
        serial="SN2",
        nic1_mac="5c2573000002",
        nic1_port="Ethernet1/2",
    )
    assert not table(LINE, above)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (
            {"nic1_port": "Eth1/1", "nic1_switch": "LEAF-1"},
            "b has switch port LEAF-1 Eth1/1, and so has gpu-1",
        ),
        ({"rack": "Rack.1"}, "b has the group rack_1 by rack Rack.1, and so has gpu-1"),
    ],
)
def test_what_is_the_same_in_other_words(cells: dict[str, str], says: str) -> None:
    other = {"name": "b", "bmc_address": "10.20.1.12", "position": "9", "serial": "SN2"}
    other |= {"nic1_mac": "5c2573000002", "nic1_port": "Ethernet1/2"}
    (problem,) = table(LINE, changed(**(other | cells)))
    assert says in problem


def test_one_port_twice_in_a_server_is_refused() -> None:
    found = table(f"{LINE},5c:25:73:00:00:01", heading=f"{HEADING},nic2_mac")
    assert found == ["racks.csv:2:1: mac: gpu-1 has mac 5c:25:73:00:00:01 twice; correct one of them"]


@pytest.mark.parametrize(
    "data",
    [
        f"{HEADING}\r\n{LINE}\r\n".encode(),
        f"{HEADING}\n{LINE}".encode("utf-8-sig"),
        f"{HEADING}\n{LINE}".replace(",", "\t").encode("utf-16"),
        f"{HEADING}\n{LINE}".replace(",", ";").encode(),
        f"sep=;\r\n{HEADING}\r\n{LINE}\r\n".replace(",", ";").encode(),
        f"{HEADING}\r{LINE}\r".encode(),
        f"# racks\n\n{HEADING.upper()}\n\n,,,\n# {LINE}\n{LINE}\n".encode(),
        "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in (HEADING, LINE)).encode(),
        f"{HEADING},model\n{LINE},\"DGX \"\"H100\"\", 8U\"".replace("gpu-1,", " gpu-1\u00a0,").encode(),
    ],
    ids=["crlf", "bom", "utf-16 tabs", "semicolons", "sep", "cr", "comments", "quoted", "quotes"],
)  # fmt: skip
def test_files_of_spreadsheets_are_read(data: bytes) -> None:
    read = read_expected([Source("racks.csv", data)])
    assert [str(problem) for problem in read.problems] == []
    (server,) = read.servers
    assert (server.name, server.slot, server.serial) == ("gpu-1", "rack-1 U1-8", "SN1")
    assert server.nics[0].port == "Ethernet1/1"
    assert server.model in ("", 'DGX "H100", 8U')


@pytest.mark.parametrize("case", CASES["bytes"], ids=str)
def test_what_is_no_table_is_refused(case: dict[str, t.Any]) -> None:
    assert problems(Source("racks.csv", case["bytes"].encode("latin-1"))) == [case["problem"]]


def test_a_file_of_another_kind_is_refused() -> None:
    assert problems(Source("racks.xlsx", b"PK")) == [
        "racks.xlsx: nothing is known of files that end with '.xlsx'; "
        "save it as one of .csv, .tsv, .txt, .yml, .yaml, .json"
    ]


def test_lines_after_a_cell_with_line_breaks_keep_their_numbers() -> None:
    found = table(f'{LINE},"a\r\nb\nc"', changed(name="X"), heading=f"{HEADING},model")
    assert [text.split(": ")[0] for text in found] == ["racks.csv:2:77", "racks.csv:5:1"]


def test_a_line_with_ranges_is_many_servers() -> None:
    heading = "name,bmc_address,rack,position,height,nic1_mac"
    read = read_expected(
        [
            Source(
                "racks.csv",
                f"{heading}\ngpu-[01-40],10.20.[1-40].10,rack-[1-40],10,8,\nn-[1-2]-[1-3],10.9.0.[1-6],r,[1-11/2],2,\n".encode(),
            )
        ]
    )
    assert not read.problems
    assert [server.name for server in read.servers[:2]] == ["gpu-01", "gpu-02"]
    assert (read.servers[39].name, read.servers[39].bmc_address, read.servers[39].rack) == (
        "gpu-40",
        "10.20.40.10",
        "rack-40",
    )
    assert [(server.name, server.position) for server in read.servers[40:]] == [
        ("n-1-1", 1), ("n-1-2", 3), ("n-1-3", 5), ("n-2-1", 7), ("n-2-2", 9), ("n-2-3", 11),
    ]  # fmt: skip


YAML = """\
defaults:
  rack: rack-1
  height: 8
  gpu_model: h100 sxm5-80gb
  gpu_count: 8
  disks:
    - {count: 8, size_gb: 3840, kind: NVMe}
servers:
  - name: gpu-1
    bmc_address: 10.20.1.11
    position: 1
    serial: 0012
    nics:
      - {mac: 5c:25:73:00:00:01, switch: leaf-1, port: Ethernet1/1, speed_gbit: 400}
      - mac: 12:34:56:78:90:12
    firmware: {bios: 1.10, bmc: "24.09"}
  - name: gpu-2
    bmc_address: fd00::0001
    position: 9
    disks:
      - {count: 2, size_gb: 960}
"""


def test_yaml_is_read_as_it_is_written() -> None:
    read = read_expected([Source("racks.yml", YAML.encode())])
    assert not read.problems
    first, second = read.servers
    assert (first.serial, first.firmware) == ("0012", (("bios", "1.10"), ("bmc", "24.09")))
    assert [nic.mac for nic in first.nics] == ["5c:25:73:00:00:01", "12:34:56:78:90:12"]
    assert first.gpu_model == "H100 SXM5 80GB"
    assert [str(disks) for disks in (*first.disks, *second.disks)] == ["8 x 3840 GB nvme", "2 x 960 GB"]
    assert (second.bmc_address, second.height, second.origin.line) == ("fd00::1", 8, 17)


@pytest.mark.parametrize("case", CASES["yaml"], ids=str)
def test_wrong_yaml_is_refused_where_it_stands(case: dict[str, t.Any]) -> None:
    text = case["text"] if "text" in case else YAML.replace(case["replace"], case["by"])
    assert text != YAML
    assert case["problem"] in problems(Source("racks.yml", text.encode()))


def test_yaml_of_very_many_levels_is_refused() -> None:
    found = problems(Source("racks.yml", b"servers: " + b"[" * 50_000))
    assert found == ["racks.yml:1:109: more than 100 levels; write servers: and a list below it"]


def test_too_many_servers_are_refused_before_they_fill_the_memory() -> None:
    lines = ["a[1-1000],10.0.0.1,r,1,1"] * 30
    read = read_expected(
        [Source("x.csv", "\n".join(("name,bmc_address,rack,position,height", *lines)).encode())]
    )
    assert not read.servers
    assert "x.csv: more than 20000 servers; give another run the rest" in [str(one) for one in read.problems]


def test_files_are_read_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADING}\n{LINE}\n")
    read = inventory.load_expected([tmp_path / "a.csv", tmp_path / "missing.csv"])
    assert [server.name for server in read.servers] == ["gpu-1"]
    with contextlib.chdir(tmp_path):
        assert [str(problem) for problem in read.problems] == [
            "missing.csv: cannot be read: No such file or directory; "
            "name a file that is there and that you may read"
        ]


def test_the_nearest_key_is_one_that_is_read() -> None:
    for wrong in ("Rack Name", "NIC 4 MAC", "gpumodel", "disk0_kind", "bios firmware", "-", "\u0663"):
        near = schema.nearest_key(wrong)
        assert near is None or schema.reader_of(near) is not None


def test_the_examples_of_the_documentation_are_read() -> None:
    text = (Path(__file__).parents[3] / "docs/bare-metal-inventory.md").read_text()
    blocks = re.findall(r"^```(csv|yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    table, listing = (Source(f"x.{kind}", block.encode()) for kind, block in blocks[:2])
    assert [str(problem) for problem in read_expected([table]).problems] == []
    assert [str(problem) for problem in read_expected([listing]).problems] == []
    found = Findings("vendor.yml")
    mapping = read_mapping(blocks[2][1].encode(), found)
    assert [str(problem) for problem in found] == []
    assert mapping is not None
    line = "1;U9;sn2;HGX-8;2 TB DDR5;5C-25-73-00-00-02;10.20.1.12"
    data = f"a\n\nRack;Unit;Chassis S/N;Product;Memory;MAC 1;BMC IP\n{line}\n".encode()
    (server,) = read_expected([Source("list.csv", data, mapping)]).servers
    assert (server.name, server.slot, server.memory_gib) == ("gpu-1-u9", "rack-1 U9-16", 2048)


def test_every_key_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs/bare-metal-inventory.md").read_text()
    keys = [
        *schema.PLAIN,
        *(f"nic1_{field}" for field in schema.NIC),
        *(f"disk1_{field}" for field in schema.DISK),
    ]
    assert not [key for key in keys if f"`{key}`" not in text]
