# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of converge: what is sent to a host, and what becomes of its answer."""
