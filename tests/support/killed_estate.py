# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs that make an estate, in processes of their own that can be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import typing as t
from multiprocessing.process import BaseProcess

from azure.core.pipeline.transport import RequestsTransport

from tests.support.lab_arm import LabArm
from tests.support.lab_estate import run


def deploy_until(arm: LabArm, data: dict[str, t.Any], at: int, answered: bool) -> None:
    """Bring an estate to what is declared, in a process that kills itself on the way.

    Args:
        arm: the emulated resource manager.
        data: what the estate has more than the small one.
        at: the request, from 1.
        answered: whether that request is answered, or not sent.
    """
    send, count = RequestsTransport.send, [0]

    def counted(self: t.Any, request: t.Any, **options: t.Any) -> t.Any:
        count[0] += 1
        if count[0] == at and not answered:
            os.kill(os.getpid(), signal.SIGKILL)
        response = send(self, request, **options)
        if count[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    RequestsTransport.send = counted
    run(arm, **data)


def in_a_process(function: t.Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a function of a module in a process that is forked from one without threads.

    The test's own process has threads, of Azure's SDK among others: a fork of it takes along whatever locks
    they hold, and may wait for one of them for ever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=function, args=arguments)
    process.start()
    return process
