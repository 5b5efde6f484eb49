# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulated resource manager of a whole estate: resources, deployments, stacks and what they answer."""
