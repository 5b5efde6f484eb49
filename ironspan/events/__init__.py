# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-events``: takes alerts from Alertmanager, launches jobs of a controller."""
