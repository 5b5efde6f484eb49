# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who comes in and what they may do: people from Entra ID, named roles, and a review of rights."""
