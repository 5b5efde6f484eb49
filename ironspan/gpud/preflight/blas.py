# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""cuBLAS, where the host or the interpreter has it (also as a wheel: PyTorch brings one)."""

from __future__ import annotations

import contextlib
import ctypes as c
import math
import sys
import typing as t
from pathlib import Path

from ironspan.gpud.preflight import kernels
from ironspan.gpud.preflight.cuda import Cuda

SIZE = 8192
"""Rows and columns: the reference figures are of this size."""
_BF16, _F32_COMPUTE, _ANY_ALGORITHM, _PLAIN = 14, 68, -1, 0
_NAMES = ("13", "12", "11")
Measured = tuple[bool | None, float | None, str, str, str]


def beside(name: str) -> list[Path]:
    """Return libraries of NVIDIA's wheels among this interpreter's modules, and of its toolkit."""
    wheels = [found for entry in sys.path if entry for found in Path(entry).glob(f"nvidia/*/lib/{name}")]
    return [*wheels, *Path("/usr/local").glob(f"cuda*/lib64/{name}")]


def load(stem: str, versions: tuple[str, ...], first: str = "") -> c.CDLL | None:
    """Return a library, None where there is none.

    Args:
        stem: such as libcublas.so
        versions: of its name, the best first.
        first: library that has to be loaded before, of the same place.
    """
    for version in versions:
        for path in (Path(f"{stem}.{version}"), *beside(f"{stem}.{version}")):
            with contextlib.suppress(OSError):
                if first:
                    c.CDLL(str(path.with_name(f"{first}.{version}")), mode=c.RTLD_GLOBAL)
                return c.CDLL(str(path), mode=c.RTLD_GLOBAL)
    return None


def find() -> c.CDLL | None:
    """Return cuBLAS, None where there is none."""
    return load("libcublas.so", _NAMES, "libcublasLt.so")


def measured(cuda: Cuda, library: t.Any, seconds: float, size: int = SIZE) -> Measured:
    """Multiply two bf16 matrices of whole numbers; compare some sums, and all bits of two products.

    Args:
        cuda: the GPU.
        library: cuBLAS.
        seconds: how long to measure.
        size: rows and columns.
    """
    count, handle = size * size, c.c_void_p()
    # Column-major: element (row, column) lies at row + column * size. Small whole numbers, in a pattern.
    left = b"".join(kernels.bf16((n * 5 + 3) % 13 - 6) for n in range(13)) * (count // 13 + 1)
    right = b"".join(kernels.bf16((n * 7 + 1) % 11 - 5) for n in range(11)) * (count // 11 + 1)
    code = library.cublasCreate_v2(c.byref(handle))
    if code:
        return False, None, "", "cuBLAS", f"cublasCreate: {code}"
    one, zero = c.c_float(1), c.c_float(0)
    with cuda.memory(2 * count) as a, cuda.memory(2 * count) as b, cuda.memory(2 * count) as product:
        cuda.write(a, left[: 2 * count])
        cuda.write(b, right[: 2 * count])
        codes: set[int] = set()

        def multiply() -> None:
            codes.add(
                library.cublasGemmEx(
                    handle, _PLAIN, _PLAIN, size, size, size, c.byref(one), a, _BF16, size, b, _BF16, size,
                    c.byref(zero), product, _BF16, size, _F32_COMPUTE, _ANY_ALGORITHM,
                )
            )  # fmt: skip

        multiply()
        cuda.wait()
        first = cuda.read(product, 2 * count)
        time = cuda.median(multiply, seconds)
        last = cuda.read(product, 2 * count)
    library.cublasDestroy_v2(handle)
    if codes != {0}:
        return False, None, "", "cuBLAS", f"cublasGemmEx: {sorted(codes)}"
    wrong = [
        f"({row}, {column})"
        for row, column in ((0, 0), (1, size - 1), (size // 2, size // 3), (size - 1, size - 2))
        if first[2 * (row + column * size) :][:2] != rounded(exact(row, column, size))
    ]
    problems = [f"wrong sums at {', '.join(wrong)}"] * bool(wrong)
    problems += ["two products of the same matrices differ"] * (first != last)
    detail = "; ".join(problems) or f"{size}^3, products bit-equal"
    return not problems, 2 * size**3 / time / 1e12, "TFLOP/s", "cuBLAS", detail


def exact(row: int, column: int, size: int) -> int:
    """Return an element of the product."""
    return sum(
        ((((row + k * size) % 13) * 5 + 3) % 13 - 6) * ((((k + column * size) % 11) * 7 + 1) % 11 - 5)
        for k in range(size)
    )


def rounded(value: float) -> bytes:
    """Return a number as the nearest bf16, half to even."""
    if not value:
        return b"\0\0"
    step = 2.0 ** (math.frexp(value)[1] - 8)
    return kernels.bf16(round(value / step) * step)
