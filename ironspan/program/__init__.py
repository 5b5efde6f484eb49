# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What every program that ironspan puts on hosts has in common."""
