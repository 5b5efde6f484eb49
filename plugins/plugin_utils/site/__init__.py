# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site model: the whole inventory as typed values, checked before any host is contacted.

Import from the modules below this package; nothing is imported here, so that reading one of them stays cheap.
"""
