# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The user-space WAN link between the two routers."""
