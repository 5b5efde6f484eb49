# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the controller asks of the Kubernetes API and of etcd, in batches. Nothing here contacts a host."""
