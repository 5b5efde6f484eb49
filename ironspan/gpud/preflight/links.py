# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Copies between GPUs, and NCCL."""

from __future__ import annotations

import ctypes as c
import struct
import typing as t

from ironspan.gpud.preflight import kernels
from ironspan.gpud.preflight.blas import Measured, load
from ironspan.gpud.preflight.cuda import Cuda, CudaError

_ENABLED_ALREADY = 704
_FLOAT, _SUM = 7, 0
"""ncclFloat32, ncclSum."""


def to_others(cuda: Cuda, size: int, seconds: float) -> Measured:
    """Copy from the first GPU to each other one that it reaches directly; the slowest counts.

    Args:
        cuda: the first GPU.
        size: bytes.
        seconds: how long to measure, altogether.
    """
    count = cuda.count()
    if count < 2:
        return None, None, "", "", "there is one GPU"
    fill, check = (cuda.function(kernels.COMMON, name) for name in ("fill", "check"))
    pattern = (c.c_uint32(kernels.ADDRESSES), c.c_uint32(7))
    words, home, home_device = c.c_uint64(size // 4), cuda.context, cuda.device
    speeds: dict[int, float] = {}
    wrong: list[int] = []
    with cuda.memory(size) as source, cuda.memory(16) as found:
        cuda.launch(fill, 1024, 256, source, words, *pattern, found)
        cuda.wait()
        with cuda.memory(size) as back:
            for other in range(1, count):
                cuda.use(other)
                there, able = cuda.context, c.c_int()
                cuda.call("cuDeviceCanAccessPeer", c.byref(able), home_device, cuda.device)
                with cuda.memory(size) as target:
                    cuda.use(0)
                    if not able.value:
                        continue
                    _enable(cuda, there)
                    length = c.c_size_t(size)

                    def copy(target: t.Any = target, there: t.Any = there, length: t.Any = length) -> None:
                        cuda.call("cuMemcpyPeerAsync", target, there, source, home, length, None)

                    speeds[other] = size / cuda.median(copy, seconds / (count - 1)) / 1e9
                    cuda.call("cuMemsetD32_v2", back, c.c_uint(0), c.c_size_t(size // 4))
                    cuda.call("cuMemcpyPeerAsync", back, home, target, there, length, None)
                    cuda.write(found, b"\0" * 8 + b"\xff" * 8)
                    cuda.launch(check, 1024, 256, back, words, *pattern, found)
                    cuda.wait()
                    if any(cuda.read(found, 4)):
                        wrong.append(other)
    if not speeds:
        return None, None, "", "", "no other GPU can be reached directly"
    slowest = min(speeds, key=lambda other: speeds[other])
    detail = f"{len(speeds)} of {count - 1} others; the slowest way is to the GPU of number {slowest} there"
    if wrong:
        detail = f"what came back from {', '.join(map(str, wrong))} is not what was sent"
    return not wrong, speeds[slowest], "GB/s", "peer copy", detail


def _enable(cuda: Cuda, context: c.c_void_p) -> None:
    try:
        cuda.call("cuCtxEnablePeerAccess", context, c.c_uint(0))
    except CudaError as error:
        if error.code != _ENABLED_ALREADY:
            raise


def all_reduce(cuda: Cuda, size: int, seconds: float) -> Measured:
    """Add vectors of ones over all GPUs with NCCL, in this one process.

    Args:
        cuda: the GPUs.
        size: bytes.
        seconds: how long to measure.
    """
    count = cuda.count()
    if count < 2:
        return None, None, "", "", "there is one GPU"
    library: t.Any = load("libnccl.so", ("2",))
    if library is None:
        return None, None, "", "", "libnccl.so.2 is not there"
    groups = (c.c_void_p * count)()
    code = library.ncclCommInitAll(groups, count, None)
    if code:
        return False, None, "", "NCCL", f"ncclCommInitAll: {code}"
    one = int.from_bytes(kernels.bf16(1.0), "little") << 16
    buffers: list[tuple[c.c_uint64, c.c_uint64]] = []
    for index in range(count):
        cuda.use(index)
        pair = (c.c_uint64(), c.c_uint64())
        for address in pair:
            cuda.call("cuMemAlloc_v2", c.byref(address), c.c_size_t(size))
        cuda.call("cuMemsetD32_v2", pair[0], c.c_uint(one), c.c_size_t(size // 4))
        cuda.wait()
        buffers.append(pair)
    codes: set[int] = set()

    def reduce() -> None:
        library.ncclGroupStart()
        for index, (source, target) in enumerate(buffers):
            cuda.use(index)
            group = c.c_void_p(groups[index])
            codes.add(library.ncclAllReduce(source, target, c.c_size_t(size // 4), _FLOAT, _SUM, group, None))
        codes.add(library.ncclGroupEnd())
        cuda.use(0)

    cuda.use(0)
    time = cuda.median(reduce, seconds)
    wanted = struct.pack("<f", count)
    wrong = []
    for index, (_, target) in enumerate(buffers):
        cuda.use(index)
        cuda.wait()
        if cuda.read(target, 4096) != wanted * 1024:
            wrong.append(index)
    if codes != {0}:
        return False, None, "", "NCCL", f"ncclAllReduce: {sorted(codes)}"
    detail = f"wrong sums on {', '.join(map(str, wrong))}" if wrong else f"{count} GPUs"
    # Bus bandwidth, as nccl-tests define it.
    return not wrong, size / time / 1e9 * 2 * (count - 1) / count, "GB/s", "NCCL", detail
