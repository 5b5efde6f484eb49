# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The host's part of a restore of etcd. Each step may be killed, and is finished by running it again."""
