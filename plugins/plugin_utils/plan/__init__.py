# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans: what a run would do, written down, approved, and then done exactly so."""
