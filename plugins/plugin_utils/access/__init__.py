# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Access for a limited time: people's requests and approvals, and the sealed certificate for emergencies."""
