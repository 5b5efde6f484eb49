# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report of a run: what stands in it, how large it gets, and that hosts cannot write markup into it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.cli import run_record
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run
from ironspan.pages import look, parts, run_page
from tests.support import runs
from tests.support.pages import read

FOLDER = Path("/nowhere")
HOSTILE = "</pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"' onclick=x {{7*7}}"


def record(hosts: int = 12, code: Exit = Exit.FAILED, **more: t.Any) -> dict[str, t.Any]:
    """Return a run as its JSON has it, after a way through JSON."""
    whole: dict[str, t.Any] = json.loads(json.dumps(runs.recorded(FOLDER, hosts, **more).record(code)))
    return whole


ELEMENTS = read(run_page.page(record())).tags | {"span"}
"""Of a page of harmless hosts."""


def test_the_page_has_phases_hosts_changes_evidence_timings_and_what_to_do() -> None:
    found = read(run_page.page(record())).text
    for words in (
        "site.yml on north", "failed", "ironspan apply -i inventories/north", "15 January 2027, 08:00:00 UTC",
        "Prepare hosts that differ", "8 hosts, 40 changes, 3 failed",
        "rack-01-gpu-02, rack-01-gpu-03, rack-01-gpu-04: failed", "resource containerd/binary",
        run_page.TAKEN_BACK, "free some space below /opt", "the controller: failed in phase Verify",
        "On premises", "rack-01", "3 failed, 3 unreachable or unfit", "containerd/config",
        "+ max_concurrent_downloads = 6", "- mode: 0600", "2 of 3 pods get answers", "containerd://2.3.7",
        "Hosts that took longest", "apply-20270115T080000.000000Z.log",
    ):  # fmt: skip
        assert words in found, words


def test_a_change_that_is_the_same_on_many_hosts_stands_there_once() -> None:
    changes = record(200)["changes"]
    assert len(changes) == 5 and {len(change["hosts"]) for change in changes} == {196}


@pytest.mark.parametrize(
    ("code", "check", "broken", "words"),
    [
        (Exit.OK, False, 0, "ironspan verify"),
        (Exit.OK, True, 0, "Run the same without --check"),
        (Exit.UNFINISHED, False, 0, "It did not come to its end"),
        (Exit.INTERRUPTED, False, 0, "ironspan doctor"),
        (Exit.HOSTS, False, 1, "check that the host is up"),
    ],
)
def test_what_to_do_next(code: Exit, check: bool, broken: int, words: str) -> None:
    whole = {**record(12, code, broken=broken, check=check)}
    if not broken:
        whole["failures"] = []
    found = read(run_page.page(whole)).text
    assert words in found.partition("What to do next")[2].partition("Time line")[0]


def test_phases_with_nothing_to_do_are_counted_and_the_one_that_has_just_begun_is_shown() -> None:
    def phase(name: str, seconds: float, hosts: int = 0, failed: int = 0) -> dict[str, t.Any]:
        return {"name": name, "began": 0, "seconds": seconds, "hosts": hosts, "changes": 0, "failed": failed}

    phases = [phase("A", 0.1, hosts=1), phase("B", 0.1), phase("C", 9), phase("D", 0, failed=1)]
    shown = str(run_page.timeline([*phases, phase("E", 0), phase("F", 0)], 10))
    assert [name for name in "ABCDEF" if f"<span>{name}</span>" in shown] == ["A", "C", "D", "F"]
    assert "and 2 phases in which there was nothing to do" in shown
    assert "No phase began." in str(run_page.timeline([], 0))


def test_a_run_that_was_refused_at_once_has_a_page_too(tmp_path: Path) -> None:
    recorder = run_record.Recorder(Run(clock=runs.Clock()), "site", [], tmp_path / "apply-1.log")
    found = read(run_page.page(recorder.record(Exit.BAD_INPUT))).text
    for words in (
        "refused, nothing was touched",
        "No phase began.",
        "No host had a part",
        "Nothing was changed.",
    ):
        assert words in found


@settings(max_examples=12, deadline=None)
@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)))
def test_what_hosts_say_is_text(words: str) -> None:
    """No element is there that a page of harmless hosts has not."""
    wild = read(run_page.page(record(9, text=words)))
    assert wild.tags <= ELEMENTS
    assert "alert(1)" not in "".join(str(value) for name, value in wild.attributes if name != "aria-label")


def _texts(node: t.Any, at: tuple[t.Any, ...] = ()) -> Iterator[tuple[t.Any, ...]]:
    """Yield where texts of a record are; the name of a field of a mapping ends with None."""
    if isinstance(node, str):
        yield at
    for key, value in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        yield from _texts(value, (*at, key))
        if isinstance(key, str):
            yield (*at, key, None)


def test_no_text_of_a_record_is_markup_wherever_it_stands() -> None:
    """Names of hosts, racks, phases and checks too, each in its turn; fields that are ours may be missed."""
    plain, tried, shown = record(4), set(), 0
    for at in list(_texts(plain)):
        shape = tuple("" if isinstance(step, int) else step for step in at)
        if shape in tried:
            continue
        tried.add(shape)
        whole = json.loads(json.dumps(plain))
        node = whole
        for step in at[:-2] if at[-1] is None else at[:-1]:
            node = node[step]
        if at[-1] is None:
            node[HOSTILE] = node.pop(at[-2])
        else:
            node[at[-1]] = HOSTILE
        try:
            found = read(run_page.page(whole))
        except (KeyError, TypeError, ValueError):
            continue  # a field of ours is gone: there is no page, and `ironspan` writes no such record
        shown += 1
        assert found.tags <= ELEMENTS, at
        assert "alert(1)" not in "".join(str(v) for name, v in found.attributes if name != "aria-label"), at
    assert shown > 30


def test_only_this_style_may_be_used_and_nothing_may_run() -> None:
    page = run_page.page(record())
    (policy,) = re.findall(r'Security-Policy" content="([^"]*)"', page)
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#39;sha256-{digest}&#39;" in policy and "default-src &#39;none&#39;" in policy
    assert "script-src" not in policy and "unsafe" not in policy
    assert "url(" not in look.STYLE and "@import" not in look.STYLE


def test_hosts_have_the_marks_of_their_tones_from_the_style() -> None:
    """An element of its own for each mark made the page of 1,000 hosts slow to open."""
    style = re.findall(
        r'li\.(\w+)::before \{ content: "(.) " / ""; \}',
        Path(look.__file__).with_name("look.css").read_text(),
    )
    assert dict(style) == parts.MARKS
    assert str(parts.cell("bad", "gpu-1", "(2)")) == '<li class="bad">gpu-1 (2)</li>'


def test_a_run_of_1000_hosts_stays_small_and_folded(tmp_path: Path) -> None:
    recorder = runs.recorded(tmp_path, 1000)
    path = Path(recorder.finish(Exit.FAILED))
    assert path.stat().st_size <= 3_000_000 and path.stat().st_mode & 0o777 == 0o600
    page = path.read_text()
    assert all(f"rack-25-gpu-{number:02}" in page for number in range(1, 41))
    # Only the rack and the check with a problem are open, and the layers of few changes.
    assert page.count("<details") > 25 and page.count(" open>") == 5


def test_hosts_that_all_differ_do_not_make_it_large() -> None:
    """Every host with another text: the page says how many differences it leaves out."""
    run = Run(clock=runs.Clock())
    recorder = run_record.Recorder(run, "site", [], FOLDER / "apply-1.log")
    run.take(runs.play("Prepare"))
    for number, name in enumerate(runs.names(200)):
        event = runs.said("ok", name, runs.applied("x" * 12000 + str(number)))
        run.take(event)
        recorder.take(event)
    whole = recorder.record(Exit.OK)
    page = run_page.page(whole)
    assert len(page) <= 3_000_000 and whole["changes_left_out"]
    assert "left out here" in read(page).text
