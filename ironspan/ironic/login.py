# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lines of the file that Ironic's http_basic reads."""

from __future__ import annotations

import importlib

COST = 5
"""Of bcrypt. Ironic pays it with each request; the site's password is 256 random bits and needs none."""


def hashed(user: str, password: bytes, cost: int = COST) -> str:
    """Return the line of a user, with a newline.

    Args:
        user: without a colon.
        password: 1 to 72 bytes, all that bcrypt reads.
        cost: of bcrypt, 4 to 31.
    """
    bcrypt = importlib.import_module("bcrypt")
    return f"{user}:{bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()}\n"
