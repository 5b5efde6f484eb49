# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan net check``: what the network between a site's hosts is like, asked of the hosts."""
