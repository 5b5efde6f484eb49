# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process of one test of one GPU, which may hang or be killed: writes one line of JSON and ends.

    {"passed": true, "measured": 4321.0, "unit": "GB/s", "way": "cuMemcpyDtoD", "detail": ""}

``passed`` is null where the test cannot be run here. The GPU is the first that the process sees
(CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import contextlib
import ctypes as c
import json
import os
import sys
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ironspan.gpud.preflight import blas, kernels, links
from ironspan.gpud.preflight.children import bound
from ironspan.gpud.preflight.cuda import MAJOR, NO_MEMORY, SMS, Cuda, CudaError

_MIB, _GIB = 1 << 20, 1 << 30
AMPERE = 8
"""Compute capability from which tensor cores know bf16."""
THREADS, BLOCKS_PER_SM = 256, 2
_PATTERNS = (
    *((0, seed) for seed in (0, 0xFFFFFFFF, 0xAAAAAAAA, 0x55555555)),
    *((kernels.ADDRESSES, seed) for seed in (0, 0xFFFFFFFF)),
)
"""Factor and seed of each walk: all bits off, on, every other one, the address, and its opposite."""
_LEFT_FREE = _GIB
BAD_CLOCKS = {0x8: "HW slowdown", 0x20: "SW thermal", 0x40: "HW thermal", 0x80: "power brake"}
"""Reasons for lower clocks that are faults (NVML, nvmlClocksEventReason...)."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came out of a test.

    Args:
        passed: None where it cannot be run here.
        measured: figure, None for none.
        unit: of it.
        way: how it was measured; figures of different ways are not compared.
        detail: for people.
    """

    passed: bool | None
    measured: float | None = None
    unit: str = ""
    way: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a test works with.

    Args:
        cuda: the GPU.
        seconds: how long to measure.
        size: bytes of a copy at most.
        gpu: UUID.
    """

    cuda: Cuda
    seconds: float
    size: int
    gpu: str = ""

    @property
    def blocks(self) -> int:
        """How many blocks keep the whole GPU busy."""
        return self.cuda.attribute(SMS) * BLOCKS_PER_SM

    def part(self, share: int) -> int:
        """Return bytes of a buffer: at most a share of the free memory, whole mebibytes."""
        return max(_MIB, min(self.size, self.cuda.free_bytes() // share) // _MIB * _MIB)


def smoke(bench: Bench) -> Found:
    """A01: a kernel of ours adds two vectors."""
    cuda, count = bench.cuda, 1 << 20
    left = array("f", ((n * 7) % 4093 for n in range(count)))
    right = array("f", ((n * 13) % 8191 for n in range(count)))
    wanted = array("f", map(float.__add__, left, right)).tobytes()
    add = cuda.function(kernels.COMMON, "add")
    with cuda.memory(4 * count) as a, cuda.memory(4 * count) as b, cuda.memory(4 * count) as sums:
        cuda.write(a, left.tobytes())
        cuda.write(b, right.tobytes())
        cuda.launch(add, bench.blocks, THREADS, a, b, sums, c.c_uint64(count))
        cuda.wait()
        found = cuda.read(sums, 4 * count)
    wrong = differing(found, wanted)
    return Found(not wrong, way="vector add", detail=f"{wrong} of {count} sums are wrong" if wrong else "")


def memory_bandwidth(bench: Bench) -> Found:
    """A02: copies inside the GPU's memory; each byte is read and written."""
    cuda, size = bench.cuda, bench.part(4)
    fill, check = (cuda.function(kernels.COMMON, name) for name in ("fill", "check"))
    with cuda.memory(size) as source, cuda.memory(size) as target, cuda.memory(16) as found:
        words = c.c_uint64(size // 4)
        pattern = (c.c_uint32(kernels.ADDRESSES), c.c_uint32(1))
        cuda.launch(fill, bench.blocks * 8, THREADS, source, words, *pattern, found)
        cuda.call("cuMemsetD32_v2", target, c.c_uint(0), c.c_size_t(size // 4))

        def copy() -> None:
            cuda.call("cuMemcpyDtoDAsync_v2", target, source, c.c_size_t(size), None)

        seconds = cuda.median(copy, bench.seconds)
        wrong, first = counted(cuda, check, bench, target, words, pattern, found)
    detail = f"{wrong} words of the copy are wrong, the first at byte {4 * first}" if wrong else ""
    return Found(not wrong, 2 * size / seconds / 1e9, "GB/s", "cuMemcpyDtoD", detail)


def products(bench: Bench) -> Found:
    """A03: products of bf16 matrices, by cuBLAS where it is there, else by a kernel of ours."""
    if bench.cuda.attribute(MAJOR) < AMPERE:
        return Found(None, detail="bf16 needs compute capability 8.0")
    library = blas.find()
    return tensor(bench) if library is None else Found(*blas.measured(bench.cuda, library, bench.seconds))


def tensor(bench: Bench) -> Found:
    """Multiply in all tensor cores again and again, and compare each bit with what has to come out."""
    cuda, blocks = bench.cuda, bench.blocks
    warps = blocks * THREADS // kernels.LANES
    mma = cuda.function(kernels.MMA, "mma")
    size, wrong, runs, seconds, spent = warps * kernels.WARP_BYTES, 0, 0, 0.0, 0.0
    places: set[int] = set()
    with cuda.memory(512) as left, cuda.memory(2048) as right, cuda.memory(size) as sums:
        while not runs or spent < bench.seconds:
            operands = kernels.operands(seed=runs)
            cuda.write(left, operands.left)
            cuda.write(right, operands.right)
            cuda.call("cuMemsetD32_v2", sums, c.c_uint(0), c.c_size_t(size // 4))

            def multiply() -> None:
                cuda.launch(mma, blocks, THREADS, left, right, sums, c.c_uint32(kernels.LOOPS))

            part = min(1.0, bench.seconds / 4)
            once = cuda.median(multiply, part)
            seconds, spent, runs = min(seconds or once, once), spent + max(part, once), runs + 1
            found = cuda.read(sums, size)
            if found != operands.sums * warps:
                wrong += differing(found, operands.sums * warps)
                length = len(operands.sums)
                places |= {n for n in range(warps) if found[n * length : (n + 1) * length] != operands.sums}
    teraflops = warps * kernels.LOOPS * kernels.FLOP / seconds / 1e12
    where = ", ".join(str(place * kernels.LANES // THREADS) for place in sorted(places)[:4])
    detail = (
        f"{wrong} sums are wrong, in blocks {where}" if wrong else f"{runs} runs, each bit as it has to be"
    )
    return Found(not wrong, teraflops, "TFLOP/s", "mma", detail)


def corruption(bench: Bench) -> Found:
    """A04: patterns through nearly all free memory, and products whose every bit is known."""
    walked = walk(bench)
    if not walked.passed or bench.cuda.attribute(MAJOR) < AMPERE:
        return walked
    multiplied = tensor(bench)
    detail = "; ".join(filter(None, (walked.detail, multiplied.detail)))
    return Found(multiplied.passed, walked.measured, walked.unit, walked.way, detail)


def walk(bench: Bench) -> Found:
    """Write patterns to the memory and read them back."""
    cuda = bench.cuda
    fill, check = (cuda.function(kernels.COMMON, name) for name in ("fill", "check"))
    size = max(_MIB, (cuda.free_bytes() - _LEFT_FREE) // _MIB * _MIB)
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(cuda.memory(16))
        while True:
            try:
                memory = stack.enter_context(cuda.memory(size))
                break
            except CudaError as error:
                if error.code != NO_MEMORY or size <= _MIB:
                    raise
                size = size * 3 // 4 // _MIB * _MIB or _MIB
        words = c.c_uint64(size // 4)
        for factor, seed in _PATTERNS:
            pattern = (c.c_uint32(factor), c.c_uint32(seed))
            cuda.launch(fill, bench.blocks * 8, THREADS, memory, words, *pattern, found)
            wrong, first = counted(cuda, check, bench, memory, words, pattern, found)
            if wrong:
                detail = (
                    f"{wrong} words do not have what was written to them (pattern {factor:#x} {seed:#x}), "
                    f"the first at byte {4 * first}"
                )
                return Found(False, float(wrong), "words", "patterns", detail)
    return Found(True, 0.0, "words", "patterns", f"{size / _GIB:.1f} GiB, {len(_PATTERNS)} patterns")


def counted(
    cuda: Cuda,
    check: c.c_void_p,
    bench: Bench,
    memory: c.c_uint64,
    words: c.c_uint64,
    pattern: tuple[c.c_uint32, c.c_uint32],
    found: c.c_uint64,
) -> tuple[int, int]:
    """Return how many words differ from a pattern, and the place of the first."""
    cuda.write(found, b"\0" * 8 + b"\xff" * 8)
    cuda.launch(check, bench.blocks * 8, THREADS, memory, words, *pattern, found)
    cuda.wait()
    answer = cuda.read(found, 16)
    return int.from_bytes(answer[:4], "little"), int.from_bytes(answer[8:], "little")


def soak(bench: Bench) -> Found:
    """A05: full load for a while; no fault lowers the clocks, and the GPU stays below its limit."""
    import pynvml

    from ironspan.gpud import nvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByUUID(bench.gpu)
    margins: list[int] = []
    reasons = 0

    def look() -> None:
        nonlocal reasons
        with contextlib.suppress(pynvml.NVMLError):
            reasons |= int(nvml.FAST["throttle"](card))
        with contextlib.suppress(pynvml.NVMLError):
            margins.append(int(nvml.SLOW["margin"](card)))

    if bench.cuda.attribute(MAJOR) < AMPERE:
        return Found(None, detail="its load is bf16, which needs compute capability 8.0")
    bench.cuda.meanwhile = look
    found = tensor(bench)
    bad = [name for bit, name in BAD_CLOCKS.items() if reasons & bit]
    margin = min(margins, default=None)
    words = [f"clocks were lowered: {', '.join(bad)}"] if bad else []
    if margin is not None:
        words.append(f"{margin} degrees left")
    words.append(f"{found.measured or 0:.0f} TFLOP/s; {found.detail}")
    well = bool(found.passed) and not bad and (margin is None or margin > 0)
    return Found(well, None if margin is None else float(margin), "degrees left", "mma", "; ".join(words))


def host_copies(bench: Bench) -> Found:
    """A06: copies between pinned memory of the host and the GPU, the slower way counts."""
    cuda, size = bench.cuda, min(bench.part(4), 512 * _MIB)
    with cuda.pinned(size) as host, cuda.pinned(size) as back, cuda.memory(size) as memory:
        c.memmove(host, os.urandom(4096) * (size // 4096), size)

        def to() -> None:
            cuda.call("cuMemcpyHtoDAsync_v2", memory, host, c.c_size_t(size), None)

        def of() -> None:
            cuda.call("cuMemcpyDtoHAsync_v2", back, memory, c.c_size_t(size), None)

        ways = {
            name: size / cuda.median(do, bench.seconds / 2) / 1e9 for name, do in (("H2D", to), ("D2H", of))
        }
        same = c.string_at(host, size) == c.string_at(back, size)
    detail = ", ".join(f"{name} {figure:.1f}" for name, figure in ways.items())
    if not same:
        detail += "; what came back is not what was sent"
    return Found(same, min(ways.values()), "GB/s", "pinned", detail)


def pairs(bench: Bench) -> Found:
    """A07: copies from this GPU to each other one."""
    return Found(*links.to_others(bench.cuda, bench.part(8), bench.seconds))


def all_reduce(bench: Bench) -> Found:
    """A08: NCCL's all-reduce over all GPUs of this host."""
    return Found(*links.all_reduce(bench.cuda, min(bench.part(8), _GIB), bench.seconds))


def differing(found: bytes, wanted: bytes) -> int:
    """Return how many 32-bit words differ."""
    if found == wanted:
        return 0
    one, other = array("I"), array("I")
    one.frombytes(found)
    other.frombytes(wanted)
    return sum(a != b for a, b in zip(one, other, strict=True))


TESTS: dict[str, Callable[[Bench], Found]] = {
    "A01": smoke,
    "A02": memory_bandwidth,
    "A03": products,
    "A04": corruption,
    "A05": soak,
    "A06": host_copies,
    "A07": pairs,
    "A08": all_reduce,
}


def main(test: str, gpu: str, seconds: float) -> None:
    """Run a test and print what came out.

    Args:
        test: its name.
        gpu: UUID of the GPU.
        seconds: how long to measure.
    """
    try:
        found = TESTS[test](Bench(Cuda(), seconds, _GIB, gpu))
    except Exception as error:
        # Whatever it is, this GPU did not do what it has to.
        known = isinstance(error, CudaError | OSError)
        found = Found(False, detail=(str(error) if known else repr(error))[:200])
    print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    bound(int(sys.argv[1]))
    main(sys.argv[2], sys.argv[3], float(sys.argv[4]))
