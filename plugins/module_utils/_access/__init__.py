# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs that run on control planes, each a file of its own; no module imports them."""
