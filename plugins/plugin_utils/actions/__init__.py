# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What action plugins have in common: opening the site, asking hosts, saying errors."""
