# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tools for those who work on ironspan; nothing here is installed."""
