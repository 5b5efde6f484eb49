# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A control plane with as many nodes as one likes, played by kwok: ``python -m tests.support.simulation``."""
