# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All pages in a real Chromium: three sizes, light and dark, by keys, and axe looks for what hinders people.

Screenshots are left in build/pages: whether a page is beautiful, only people see.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import socket
import subprocess
import threading
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.cli.outcome import Exit
from ironspan.cli.page_server import PageServer
from ironspan.cli.plan_page import page as plan_page
from ironspan.pages import run_page, site_page
from tests.support import browse, runs, sites
from tests.unit.plan import samples
from tools import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())]
SILENT = dataclasses.replace(
    sites.view(2),
    report=None,
    error="connection refused",
    running=(),
    runs=(),
    backups_asked=None,
    authorities={},
)
Answer = dict[str, t.Any]


def visited(visits: list[dict[str, t.Any]]) -> list[Answer]:
    """Return what the browser says of pages."""
    shots = ROOT / "build" / "pages"
    shots.mkdir(parents=True, exist_ok=True)
    work = {
        "axe": str(browser.axe()),
        "shots": str(shots),
        "chromium": str(browser.CHROMIUM),
        "visits": visits,
    }
    done = subprocess.run(
        [str(browser.python()), browse.__file__],
        input=json.dumps(work),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return t.cast("list[Answer]", json.loads(done.stdout))


def insist(answer: Answer, urls: set[str], moved: bool = False) -> None:
    """Insist that a page asks nobody else, runs without errors, fits, and hinders nobody.

    Args:
        answer: of the browser.
        urls: that it may ask for.
        moved: whether links were followed in it; until then the first key leads to the content.
    """
    assert set(answer["requests"]) <= urls
    assert answer["errors"] == []
    assert answer["overflow"] <= 0
    assert moved or answer["first"] == "skip"
    assert answer["opened"] is not False
    assert answer["hinders"] == []


def test_pages_that_are_read(tmp_path: pathlib.Path) -> None:
    pages = {
        "run": run_page.page(runs.recorded(tmp_path, 12).record(Exit.FAILED)),
        "run-well": run_page.page({**runs.recorded(tmp_path, 4, 0).record(Exit.OK), "failures": []}),
        "run-1000": run_page.page(runs.recorded(tmp_path, 1000).record(Exit.FAILED)),
        "plan": plan_page(samples.plan()),
        "site": site_page.page(sites.view(7)),
        "site-90": site_page.page(sites.view(90)),
        "site-silent": site_page.page(SILENT),
    }
    visits = []
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text)
        url = (tmp_path / f"{name}.html").as_uri()
        visits += [{"name": name, "url": url, "size": size} for size in browse.SIZES]
    for visit, answer in zip(visits, visited(visits), strict=True):
        print(f"{visit['name']} {visit['size']}: {answer['milliseconds']} ms")
        insist(answer, {visit["url"]})


def test_the_policy_holds_and_the_check_sees_what_hinders(tmp_path: pathlib.Path) -> None:
    """Markup that should never get there does nothing; and a fault is found, or the others mean nothing."""
    file = tmp_path / "wild.html"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        image = f'<img src="http://127.0.0.1:{listening.getsockname()[1]}/x">'
        wild = f"<script>window.marked = 1</script>{image}<style>body {{ display: none }}</style>"
        file.write_text(site_page.page(sites.view(1)).replace("</main>", f"{wild}</main>"))
        (answer,) = visited([{"name": "wild", "url": file.as_uri(), "size": "desk"}])
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert answer["marked"] and "Topology" in answer["text"]
    assert sum("Content Security Policy" in error for error in answer["errors"]) == 3
    assert any(each.startswith("image-alt") for each in answer["hinders"])


class Source:
    """A site whose run goes on as soon as a file is there."""

    name = "north"

    def __init__(self, file: pathlib.Path) -> None:
        self.file = file

    def site(self) -> str:
        return site_page.page(sites.view(3), links=True)

    def run(self, name: str) -> str | None:
        return run_page.page(runs.recorded(pathlib.Path("/nowhere"), 3).record(Exit.FAILED))

    def live(self) -> str:
        return "<p>The next phase.</p>" if self.file.exists() else "<p>The first phase.</p>"

    def ended(self) -> str:
        return ""


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[PageServer]:
    with PageServer("127.0.0.1", 0, Source(tmp_path / "next")) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_the_server_shows_the_site_follows_a_run_and_opens_its_report(
    server: PageServer, tmp_path: pathlib.Path
) -> None:
    base = server.url.partition("#")[0]
    visits: list[dict[str, t.Any]] = [
        {"name": "serve", "url": server.url, "size": "desk", "wait": "text=The first phase.",
         "touch": str(tmp_path / "next"), "then": "The next phase."},
        {"name": "serve-run", "url": server.url, "size": "phone", "wait": "#live",
         "click": [["#shown td a >> nth=0", "text=What to do next"]]},
        {"name": "serve-back", "url": server.url, "size": "tablet", "wait": "#live",
         "click": [["#shown td a >> nth=0", "text=What to do next"], ["#back", "#live"]]},
    ]  # fmt: skip
    urls = {base, f"{base}site", f"{base}events", f"{base}run/apply-20270115T080000.000000Z"}
    answers = visited(visits)
    for visit, answer in zip(visits, answers, strict=True):
        insist(answer, urls, moved="click" in visit)


def test_without_its_key_the_page_says_what_is_missing(server: PageServer) -> None:
    base = server.url.partition("#")[0]
    (answer,) = visited([{"name": "serve-locked", "url": base, "size": "desk", "then": "The key is missing"}])
    assert "Topology" not in answer["text"] and answer["hinders"] == []
