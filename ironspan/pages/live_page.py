# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a browser loads first from ``ironspan serve``: a frame and a script, and nothing of the site.

The script has the key of the address's fragment, which browsers send to nobody, and asks with it for what is
shown. Whatever it gets is made into elements by the browser's parser, which runs nothing: the policy of this
page counts, and allows this one script.
"""

from __future__ import annotations

import pathlib

from ironspan.pages import look
from ironspan.pages.markup import element

SCRIPT = pathlib.Path(__file__).with_name("live.js").read_text(encoding="utf-8")


def page(site: str) -> str:
    """Return the frame.

    Args:
        site: its name, for the tab.
    """
    top = element(
        "nav",
        element("a", "← the site", href="#", id="back", hidden=True),
        element("p", "Loading …", id="state", role="status"),
        class_="top",
        aria_label="Pages",
    )
    nothing = element("main", element("h1", site), id="content", tabindex="-1")
    return look.frame(
        site, top, element("div", nothing, id="shown"), script=SCRIPT, more_policy="connect-src 'self'"
    )


def policy() -> str:
    """Return the policy that goes with it as a header; only there it can refuse to be framed."""
    return look.policy(SCRIPT, more="connect-src 'self'; frame-ancestors 'none'")
