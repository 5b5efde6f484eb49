# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site's estate in Azure: typed data, addresses, names, the one deployment made of them. Asks nobody."""
