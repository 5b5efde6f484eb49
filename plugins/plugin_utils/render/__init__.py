# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Desired-state documents: the templates of the roles rendered for every host of a site."""
