# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The continuous log: from etcd's watch to durable frames in the store.

Three threads, each in one file, hand records on through two bounded queues:

    etcd -> Reader (watch.py) -> Inbox -> Flusher (flusher.py) -> Outbox -> Sender (sender.py) -> store
                                                                    |
                                                               Spool (disk)

A full queue makes the thread before it wait, up to etcd, which keeps the history. pipeline.py joins them.
"""
