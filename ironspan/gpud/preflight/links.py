# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Copies between GPUs, and NCCL."""

from __future__ import annotations

import ctypes as c
import statistics
import struct
import typing as t
from collections.abc import Callable, Sequence

from ironspan.gpud.preflight import kernels
from ironspan.gpud.preflight.blas import Measured, load
from ironspan.gpud.preflight.cuda import Cuda, CudaError

_ENABLED_ALREADY = 704
_FLOAT, _SUM = 7, 0
"""ncclFloat32, ncclSum."""
_LOOKED_AT = 1 << 16
_RUNS, _BATCHES = 4, 5


class UniqueId(c.Structure):
    """NCCL's name of a group of ranks (ncclUniqueId); whoever knows it can join."""

    _fields_ = (("internal", c.c_char * 128),)


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


def nccl() -> t.Any:
    """Return NCCL, None where there is none."""
    return load("libnccl.so", ("2",))


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
    library = nccl()
    if library is None:
        return None, None, "", "", "libnccl.so.2 is not there"
    groups = (c.c_void_p * count)()
    code = library.ncclCommInitAll(groups, count, None)
    if code:
        return False, None, "", "NCCL", f"ncclCommInitAll: {code}"
    return _summed(cuda, library, list(groups), count, size, lambda do: cuda.median(do, seconds))


def unique_id(library: t.Any) -> bytes:
    """Return the name of a new group, which this process serves.

    Raises:
        OSError: NCCL makes none.
    """
    made = UniqueId()
    if code := library.ncclGetUniqueId(c.byref(made)):
        raise OSError(f"ncclGetUniqueId: {code}")
    return bytes(made)


def all_reduce_between(
    cuda: Cuda, library: t.Any, name: bytes, first: int, ranks: int, size: int
) -> Measured:
    """Add vectors of ones over the GPUs of two hosts; both call this at the same time.

    Args:
        cuda: this host's GPUs.
        library: NCCL.
        name: of the group, see ``unique_id``.
        first: rank of this host's first GPU.
        ranks: GPUs of both.
        size: bytes, the same on both.
    """
    count, made = cuda.count(), UniqueId.from_buffer_copy(name)
    groups = (c.c_void_p * count)()
    codes = {library.ncclGroupStart()}
    for index in range(count):
        cuda.use(index)
        place = c.byref(groups, index * c.sizeof(c.c_void_p))
        codes.add(library.ncclCommInitRank(place, ranks, made, first + index))
    codes.add(library.ncclGroupEnd())
    if codes != {0}:
        return False, None, "", "NCCL", f"ncclCommInitRank: {sorted(codes - {0})}"

    def timed(do: Callable[[], None]) -> float:
        # Both hosts must do it equally often, so it is counted and not timed.
        cuda.seconds(do, 2)
        return statistics.median(cuda.seconds(do, _RUNS) for _ in range(_BATCHES))

    return _summed(cuda, library, list(groups), ranks, size, timed)


def _summed(
    cuda: Cuda,
    library: t.Any,
    groups: Sequence[int | None],
    ranks: int,
    size: int,
    timed: Callable[[Callable[[], None]], float],
) -> Measured:
    one = int.from_bytes(kernels.bf16(1.0), "little") << 16
    buffers: list[tuple[c.c_uint64, c.c_uint64]] = []
    for index in range(len(groups)):
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
    time = timed(reduce)
    wrong = []
    for index, (_, target) in enumerate(buffers):
        cuda.use(index)
        cuda.wait()
        if not _are(cuda, target, size, struct.pack("<f", ranks)):
            wrong.append(index)
    if codes != {0}:
        return False, None, "", "NCCL", f"ncclAllReduce: {sorted(codes)}"
    detail = f"wrong sums on {', '.join(map(str, wrong))}" if wrong else f"{ranks} GPUs"
    # Bus bandwidth, as nccl-tests define it.
    return not wrong, size / time / 1e9 * 2 * (ranks - 1) / ranks, "GB/s", "NCCL", detail


def _are(cuda: Cuda, target: c.c_uint64, size: int, word: bytes) -> bool:
    """Say whether the beginning, the middle and the end of a buffer have one word everywhere."""
    length = min(size, _LOOKED_AT)
    places = (0, (size - length) // 8 * 4, size - length)
    wanted = word * (length // len(word))
    return all(cuda.read(c.c_uint64(target.value + place), length) == wanted for place in places)
