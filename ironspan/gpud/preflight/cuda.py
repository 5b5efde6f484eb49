# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The driver's own library, libcuda, as far as the tests need it: a host with a driver has nothing else.

Only processes of ``one`` use this: a call may hang, and a fault ends the context.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import statistics
import typing as t
from collections.abc import Callable, Iterator

NO_MEMORY = 2
SMS, MAJOR = 16, 75
"""CUdevice_attribute: how many multiprocessors; the first number of the compute capability."""
_BATCHES = 5
Argument = c.c_uint32 | c.c_uint64


class CudaError(Exception):
    """A call failed.

    Args:
        call: its name.
        code: CUresult.
        name: of the code.
    """

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name or 'error'} ({code})")
        self.code = code


class Cuda:
    """One GPU, in the driver's context that cuBLAS and NCCL share.

    ``meanwhile`` is called while the GPU works on what is timed.

    Args:
        library: path or name of libcuda.

    Raises:
        OSError: there is no such library.
        CudaError: it does not start.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._library = c.CDLL(library)
        self.call("cuInit", c.c_uint(0))
        self._devices: dict[int, c.c_int] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        self.use(0)

    def call(self, name: str, *arguments: t.Any) -> None:
        """Call a function.

        Raises:
            CudaError: it did not return 0.
        """
        code = int(getattr(self._library, name)(*arguments))
        if code:
            text = c.c_char_p()
            self._library.cuGetErrorName(c.c_int(code), c.byref(text))
            raise CudaError(name, code, (text.value or b"").decode("ascii", "replace"))

    def count(self) -> int:
        """Return how many GPUs this process sees."""
        found = c.c_int()
        self.call("cuDeviceGetCount", c.byref(found))
        return found.value

    def use(self, index: int) -> None:
        """Make a GPU the one that later calls are about."""
        if index not in self._devices:
            device = c.c_int()
            self.call("cuDeviceGet", c.byref(device), c.c_int(index))
            self._devices[index] = device
        context = c.c_void_p()
        self.device = self._devices[index]
        self.call("cuDevicePrimaryCtxRetain", c.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        self.context = context

    def attribute(self, number: int) -> int:
        """Return a CUdevice_attribute."""
        found = c.c_int()
        self.call("cuDeviceGetAttribute", c.byref(found), c.c_int(number), self.device)
        return found.value

    def free_bytes(self) -> int:
        """Return how much memory is free."""
        free, total = c.c_size_t(), c.c_size_t()
        self.call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
        return free.value

    @contextlib.contextmanager
    def memory(self, size: int) -> Iterator[c.c_uint64]:
        """Give memory of the GPU, bytes, while the block runs."""
        address = c.c_uint64()
        self.call("cuMemAlloc_v2", c.byref(address), c.c_size_t(size))
        try:
            yield address
        finally:
            with contextlib.suppress(CudaError):
                self.call("cuMemFree_v2", address)

    @contextlib.contextmanager
    def pinned(self, size: int) -> Iterator[c.c_void_p]:
        """Give memory of the host that the GPU reads by itself, bytes, while the block runs."""
        address = c.c_void_p()
        self.call("cuMemAllocHost_v2", c.byref(address), c.c_size_t(size))
        try:
            yield address
        finally:
            with contextlib.suppress(CudaError):
                self.call("cuMemFreeHost", address)

    def write(self, to: c.c_uint64, content: bytes) -> None:
        """Copy bytes to the GPU."""
        self.call("cuMemcpyHtoD_v2", to, c.c_char_p(content), c.c_size_t(len(content)))

    def read(self, source: c.c_uint64, size: int) -> bytes:
        """Copy bytes from the GPU."""
        buffer = c.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", buffer, source, c.c_size_t(size))
        return buffer.raw

    def function(self, ptx: str, name: str) -> c.c_void_p:
        """Return a kernel of a text in PTX, which the driver compiles."""
        module, found = c.c_void_p(), c.c_void_p()
        self.call("cuModuleLoadData", c.byref(module), c.c_char_p(ptx.encode()))
        self.call("cuModuleGetFunction", c.byref(found), module, c.c_char_p(name.encode()))
        return found

    def launch(self, function: c.c_void_p, blocks: int, threads: int, *arguments: Argument) -> None:
        """Start a kernel."""
        pointers = (c.c_void_p * len(arguments))(*(c.addressof(argument) for argument in arguments))
        sizes = [c.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, 0)]
        self.call("cuLaunchKernel", function, *sizes, None, pointers, None)

    def wait(self) -> None:
        """Wait for all that was started."""
        self.call("cuCtxSynchronize")

    def seconds(self, do: Callable[[], None], times: int) -> float:
        """Return how long the GPU took for each of several runs, seconds by its own clock."""
        first, last, found = c.c_void_p(), c.c_void_p(), c.c_float()
        for event in (first, last):
            self.call("cuEventCreate", c.byref(event), c.c_uint(0))
        self.call("cuEventRecord", first, None)
        for _ in range(times):
            do()
        self.call("cuEventRecord", last, None)
        self.meanwhile()
        self.call("cuEventSynchronize", last)
        self.call("cuEventElapsedTime", c.byref(found), first, last)
        for event in (first, last):
            self.call("cuEventDestroy_v2", event)
        return found.value / 1000 / times

    def median(self, do: Callable[[], None], seconds: float) -> float:
        """Return the median time of one run, seconds.

        Args:
            do: starts it.
            seconds: for how long altogether, after one run that does not count.
        """
        once = max(self.seconds(do, 2), 1e-6)
        times = max(1, round(seconds / _BATCHES / once))
        return statistics.median(self.seconds(do, times) for _ in range(_BATCHES))
