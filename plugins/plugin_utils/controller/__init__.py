# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A controller of jobs (AWX, Ascender, automation controller): its configuration, and its API.

The configuration is made from the catalogue of operations and the site, in the data shape of the
community's roles. Only ``api`` speaks to a controller; ``reading`` and ``writing`` use it.
"""
