# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The doctor: what is wrong with a site, and the command that fixes it. Reads only."""
