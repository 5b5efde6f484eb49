# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Care of a running etcd: what its members need, done by the one agent that has the store's lease."""
