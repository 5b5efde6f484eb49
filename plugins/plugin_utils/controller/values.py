# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values that are no plain text in rendered configuration: secrets, and text with braces."""

from __future__ import annotations


class Secret(str):
    """The name of the environment variable that holds a secret. The secret itself is never rendered."""

    __slots__ = ()


class Literal(str):
    """A text with braces that the controller reads, and Ansible must not."""

    __slots__ = ()
