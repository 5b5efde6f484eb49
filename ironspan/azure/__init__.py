# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Services of Azure, as programs on hosts use them: who the program is, the way there, what they answer."""
