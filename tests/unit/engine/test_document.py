# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents: mistakes are found before anything is touched; equal documents have equal digests."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import canonical_json, digest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import (
    made_folders,
    read_document,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.order import stable_order
from hypothesis import given
from hypothesis import strategies as st

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

FILE = {"kind": "file", "id": "l/a", "path": "/etc/a", "content": ""}
SHA = "0" * 64

MISTAKES = [
    ([{"kind": "fil", "id": "l/a"}], "l/a: there is no resource kind 'fil'", "Did you mean 'file'?"),
    ([{"id": "l/a"}], "l/a: has no kind", ""),
    ([{"kind": "file"}], "resources[0]: has no id", "LAYER/NAME"),
    (["file"], "resources[0]: is not a mapping", ""),
    ([{**FILE, "contnet": ""}], "l/a: kind file has no parameter 'contnet'", "Did you mean 'content'?"),
    ([{"kind": "file", "id": "l/a", "content": ""}], "l/a: kind file needs the parameter 'path'", ""),
    ([{**FILE, "content": 5}], "l/a: content must be text, found 5", ""),
    ([{**FILE, "mode": 644}], "l/a: mode must be text, found 644", ""),
    ([{**FILE, "mode": "rw"}], "l/a: mode must be three or four octal digits", ""),
    ([{**FILE, "mode": "0999"}], "l/a: mode must be three or four octal digits", ""),
    ([{**FILE, "force_replace": 1}], "l/a: force_replace must be true or false, found 1", ""),
    ([{**FILE, "path": "etc/a"}], "l/a: path must be absolute and without '..', found 'etc/a'", ""),
    ([{**FILE, "path": "/etc/../a"}], "l/a: path must be absolute", ""),
    ([{**FILE, "path": "/etc/a/"}], "l/a: path names a folder", ""),
    ([{**FILE, "secret": "s"}], "l/a: needs either content or secret", ""),
    ([{"kind": "file", "id": "l/a", "path": "/a"}], "l/a: needs either content or secret", ""),
    ([FILE, {**FILE, "path": "/etc/b"}], "l/a: this id is used twice", "its own id"),
    ([FILE, {**FILE, "id": "l/b"}], "l/b: /etc/a is also the path of l/a", "once"),
    ([{**FILE, "requires": ["l/other"]}], "l/a: refers to 'l/other', which this document does not have", ""),
    ([{**FILE, "requires": "l/b"}], "l/a: requires must be a list, found 'l/b'", ""),
    ([{**FILE, "requires": [1]}], "l/a: requires must be a list of ids, found [1]", ""),
    ([{**FILE, "requires": ["l/a"]}], "l/a: requires itself: l/a -> l/a", "Drop"),
    (
        [{**FILE, "requires": ["l/b"]}, {**FILE, "id": "l/b", "path": "/b", "requires": ["l/a"]}],
        "requires itself: l/a -> l/b -> l/a",
        "Drop",
    ),
    (
        [{"kind": "absent", "id": "l/x", "path": "/usr"}],
        "/usr is part of the system and is never removed",
        "",
    ),
    ([{"kind": "absent", "id": "l/x", "path": "/var/lib/"}], "/var/lib is part of the system", ""),
    ([{"kind": "symlink", "id": "l/x", "path": "/x", "target": ""}], "l/x: target must not be empty", ""),
    (
        [{"kind": "artifact", "id": "l/x", "path": "/x", "url_path": "x", "sha256": SHA, "size": 1}],
        "l/x: url_path must begin with /",
        "",
    ),
    (
        [{"kind": "artifact", "id": "l/x", "path": "/x", "url_path": "/x", "sha256": "abc", "size": 1}],
        "l/x: sha256 must be 64 hexadecimal digits",
        "",
    ),
    (
        [
            {
                "kind": "artifact",
                "id": "l/x",
                "path": "/x",
                "url_path": "/x",
                "sha256": SHA,
                "size": 1,
                "unpack": "zip",
            }
        ],
        "l/x: unpack must be one of none, tar, found 'zip'",
        "",
    ),
    (
        [
            {
                "kind": "artifact",
                "id": "l/x",
                "path": "/x",
                "url_path": "/x",
                "sha256": SHA,
                "size": 1,
                "strip": -1,
            }
        ],
        "l/x: strip must not be negative",
        "",
    ),
    (
        [{"kind": "hosts_entries", "id": "l/x", "entries": [{"address": "10.0.0", "names": ["a"]}]}],
        "l/x: entries[0].address is no IP address: '10.0.0'",
        "",
    ),
    (
        [{"kind": "hosts_entries", "id": "l/x", "entries": [{"address": "::1", "names": ["a b"]}]}],
        "l/x: entries[0].names has no host name: 'a b'",
        "",
    ),
    (
        [{"kind": "hosts_entries", "id": "l/x", "entries": [{"address": "::1", "names": []}]}],
        "l/x: entries[0].names must be a list of names",
        "",
    ),
    (
        [{"kind": "hosts_entries", "id": "l/x", "entries": [{"names": ["a"]}]}],
        "l/x: entries[0] must be a mapping of address and names",
        "",
    ),
    ([{"kind": "user", "id": "l/x", "name": "Root!"}], "l/x: name is not a valid account name: 'Root!'", ""),
    ([{"kind": "user", "id": "l/x", "name": "a", "uid": -1}], "l/x: uid is out of range: -1", ""),
    ([{"kind": "user", "id": "l/x", "name": "a", "home": "x:y"}], "l/x: home must be an absolute path", ""),
]


@pytest.mark.parametrize(("resources", "message", "remedy"), MISTAKES)
def test_mistakes(sandbox: Sandbox, resources: list[t.Any], message: str, remedy: str) -> None:
    before = sandbox.snapshot()
    result = sandbox.run(document={"schema": 1, "layers": ["l"], "resources": resources})
    assert result["failed"]
    assert message in result["msg"]
    assert remedy in " ".join(problem["remedy"] for problem in result["problems"])
    assert sandbox.snapshot() == before
    assert not (sandbox.root / "var/lib/ironspan").exists()


def test_all_mistakes_at_once(sandbox: Sandbox) -> None:
    result = sandbox.run({**FILE, "mode": "x"}, {"kind": "nothing", "id": "b"}, {"kind": "user", "id": "c"})
    assert [problem["resource"] for problem in result["problems"]] == ["l/a", "l/b", "l/c"]
    assert result["failed_resource"] == "l/a"


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_another_schema_is_refused(sandbox: Sandbox, schema: object) -> None:
    result = sandbox.run(document={"schema": schema, "resources": []})
    assert "schema" in result["msg"]


def test_a_reference_into_a_layer_that_is_left_out_is_no_mistake() -> None:
    raw = {"schema": 1, "layers": ["l"], "resources": [{**FILE, "requires": ["other/thing"]}]}
    assert read_document(raw).resources[0].references == ("other/thing",)
    with pytest.raises(EngineError, match="other/thing"):
        read_document({**raw, "layers": ["l", "other"]})


def test_every_kind_loads_and_answers_to_its_name() -> None:
    for name in _resources.NAMES:
        kind = _resources.load(name)
        assert kind is not None
        assert kind.name == name
    assert _resources.load("os") is None


def test_a_path_follows_the_folder_that_the_document_makes() -> None:
    raw = {
        "schema": 1,
        "resources": [
            {**FILE, "path": "/etc/new/deep/a"},
            {"kind": "directory", "id": "l/folder", "path": "/etc/new/"},
        ],
    }
    document = read_document(raw)
    assert [resource.id for resource in document.resources] == ["l/folder", "l/a"]
    assert document.resources[1].references == ("l/folder",)
    assert made_folders(document) == {"/etc", "/etc/new"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: t.Any) -> t.Any:
    """Return an equal value whose mappings are in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_the_digest_does_not_depend_on_order_or_on_the_way_through_json(value: t.Any) -> None:
    assert digest(shuffled(value)) == digest(value)
    assert digest(json.loads(json.dumps(value))) == digest(value)
    assert digest(json.loads(json.dumps(value, ensure_ascii=False))) == digest(value)
    text = canonical_json(value)
    assert text.isascii()
    assert canonical_json(json.loads(text)) == text


@given(JSON, JSON)
def test_different_values_have_different_digests(one: t.Any, other: t.Any) -> None:
    assert (digest(one) == digest(other)) == (canonical_json(one) == canonical_json(other))


def test_the_digest_is_the_same_for_ever() -> None:
    # Plans that people approved hold digests: changing this changes ENGINE_SCHEMA on purpose.
    assert digest({"b": "ü", "a": [1, True, None]}) == DIGEST


DIGEST = "93077c3dd71c8b2cc7189be6caf11e74e08c71cd51fe53ffcd94b4e49887ffe4"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], dict[str, list[str]]]:
    """Names, and requirements that need not be free of cycles."""
    names = [f"n{number}" for number in range(draw(st.integers(0, 12)))]
    requires = {name: draw(st.lists(st.sampled_from([*names, "unknown"]), max_size=3)) for name in names}
    return names, requires


@given(graphs())
def test_order(graph: tuple[list[str], dict[str, list[str]]]) -> None:
    names, requires = graph
    order, cycle = stable_order(names, requires)
    if cycle:
        assert cycle[0] == cycle[-1]
        assert len(cycle) >= 2
        for number, need in enumerate(cycle[1:]):
            assert need in requires[cycle[number]]
        return
    assert sorted(order) == sorted(names)
    for name in names:
        for need in requires[name]:
            if need != "unknown":
                assert order.index(need) < order.index(name)
    # Stable: what is in order already stays as it is.
    assert stable_order(order, requires)[0] == order


def test_order_keeps_the_list_unless_something_is_required() -> None:
    assert stable_order(["a", "b", "c", "d"], {"b": ["d"]}) == (["a", "d", "b", "c"], [])


def test_order_of_a_very_long_chain() -> None:
    names = [str(number) for number in range(5000)]
    order, cycle = stable_order(names, {str(number): [str(number + 1)] for number in range(4999)})
    assert (order, cycle) == (names[::-1], [])
