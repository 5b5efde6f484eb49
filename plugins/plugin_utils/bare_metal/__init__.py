# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers from rack to operating system: what is expected, what was measured, and what to do next."""
