# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts the site together: reads an inventory, runs every check on it, and makes the typed site."""
