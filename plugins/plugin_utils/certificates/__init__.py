# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The certificates of all hosts: what they are, when they end, and whether an authority may be changed."""
