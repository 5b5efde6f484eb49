# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether one endpoint reaches another, and by which rule: worked out from data, without a packet."""
