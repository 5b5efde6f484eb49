# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tests that a GPU passes before pods get it: ``run`` starts each in a process of its own (``one``)."""
