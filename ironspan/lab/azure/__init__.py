# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azure as the lab emulates it: a blob store with its policies, identities and faults."""
