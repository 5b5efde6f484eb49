# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The look that all pages share, and the frame around each of them.

A page is one file. It loads nothing, runs nothing, and says so in its policy: the only style that counts is
the one whose SHA-256 stands there.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib

from markupsafe import Markup

from ironspan.pages.markup import Content, element

STYLE = pathlib.Path(__file__).with_name("look.css").read_text(encoding="utf-8")


def policy(*scripts: str, more: str = "") -> str:
    """Return a page's content security policy: our style, the scripts that are named, and nothing else.

    Args:
        *scripts: whole texts of scripts that may run; a page that is read needs none.
        more: further directives.
    """
    parts = ["default-src 'none'", f"style-src '{_digest(STYLE)}'"]
    if scripts:
        parts.append(f"script-src {' '.join(f"'{_digest(script)}'" for script in scripts)}")
    parts += ["base-uri 'none'", "form-action 'none'"]
    return "; ".join([*parts, *([more] if more else [])])


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def frame(title: str, *body: Content, script: str = "", more_policy: str = "") -> str:
    """Return a whole page.

    Args:
        title: of its tab.
        *body: header, main and footer.
        script: what may run in it; empty for a page that is only read.
        more_policy: further directives of its policy.
    """
    rules = policy(*([script] if script else []), more=more_policy)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", http_equiv="Content-Security-Policy", content=rules),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    skip = element("a", "Skip to the content", class_="skip", href="#content")
    # The text of a script is ours; escaping would change it.
    run = element("script", Markup(script)) if script else None
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{element("body", skip, *body, run)}\n</html>\n'


def page(kind: str, title: str, badge: Content, lead: Content, content: Content, foot: Content) -> str:
    """Return a page that is read.

    Args:
        kind: what sort of page it is, in two or three words.
        title: its heading.
        badge: what stands beside the heading, None for nothing.
        lead: paragraphs below the heading.
        content: what the page is about.
        foot: paragraphs at the end.
    """
    return frame(
        f"{title} · {kind}",
        element(
            "header",
            element("p", f"ironspan · {kind}", class_="mark"),
            element("div", element("h1", title), badge, class_="title"),
            lead,
        ),
        element("main", content, id="content", tabindex="-1"),
        element("footer", foot) if foot else None,
    )
