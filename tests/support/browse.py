# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Opens pages in Chromium and says what it saw; runs in the environment of tools/browser.py.

Standard input has the work as JSON: ``axe`` and ``shots`` (paths), and ``visits``, each with ``name``,
``url`` and ``size``; optionally ``wait`` (a selector), ``touch`` (a file that is touched then), ``then`` (a
text that appears after that) and ``click`` (selectors, each with one to wait for). Standard output has one
answer a visit.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import typing as t

SIZES: dict[str, tuple[int, int, str]] = {
    "phone": (390, 844, "dark"),
    "tablet": (820, 1180, "light"),
    "desk": (1440, 900, "light"),
    "night": (1440, 900, "dark"),
}
LEVELS = ("serious", "critical")
PATIENCE_MS = 60_000


def visit(browser: t.Any, work: dict[str, t.Any], one: dict[str, t.Any]) -> dict[str, t.Any]:
    """Open one page in one size."""
    width, height, scheme = SIZES[one["size"]]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(one["url"])
    if one.get("wait"):
        page.wait_for_selector(one["wait"], state="attached")
    if one.get("touch"):
        pathlib.Path(one["touch"]).touch()
    if one.get("then"):
        page.wait_for_selector(f"text={one['then']}")
    for target, after in one.get("click", ()):
        page.click(target)
        page.wait_for_selector(after, state="attached")
    times = "[performance.timing.loadEventEnd - performance.timing.responseEnd, document.body.innerText]"
    milliseconds, text = page.evaluate(times)
    page.keyboard.press("Tab")
    answer = {
        "requests": requests,
        "errors": list(errors),
        "milliseconds": milliseconds,
        "text": text,
        "overflow": page.evaluate("document.documentElement.scrollWidth - innerWidth"),
        "first": page.evaluate("document.activeElement.className"),
        "opened": _opens_by_key(page),
        "marked": page.evaluate("window.marked === undefined"),
    }
    page.screenshot(
        path=str(pathlib.Path(work["shots"]) / f"{one['name']}-{one['size']}.png"), full_page=True
    )
    page.evaluate(pathlib.Path(work["axe"]).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    answer["hinders"] = [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in LEVELS
    ]
    context.close()
    return answer


def _opens_by_key(page: t.Any) -> bool | None:
    """Press Enter on the first thing that is folded; None where nothing is."""
    folded = page.query_selector("details:not([open]) > summary")
    if folded is None:
        return None
    folded.focus()
    page.keyboard.press("Enter")
    return bool(folded.evaluate("each => each.parentElement.open"))


def main() -> None:
    """Do the work."""
    work = json.load(sys.stdin)
    # Not in the environment that types are checked in.
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=work["chromium"], args=["--no-sandbox"])
        json.dump([visit(browser, work, one) for one in work["visits"]], sys.stdout)
        browser.close()


if __name__ == "__main__":
    main()
