# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What runs on the GPU, in PTX, and what has to come out of it, worked out here."""

from __future__ import annotations

import random
import struct
import typing as t

_INDEX = """
 mov.u32 %r0, %ctaid.x;
 mov.u32 %r1, %ntid.x;
 mov.u32 %r2, %tid.x;
 mul.wide.u32 %i, %r0, %r1;
 cvt.u64.u32 %x, %r2;
 add.u64 %i, %i, %x;
 mov.u32 %r3, %nctaid.x;
 mul.wide.u32 %step, %r3, %r1;
"""
_REGISTERS = (
    ".reg .pred %p, %q; .reg .u32 %r<12>; .reg .u64 %i, %x, %step, %n, %a, %b, %c, %o; .reg .f32 %f<3>;"
)
# The word that belongs at place i: (low half of i * factor + high half of i * other) ^ seed.
_VALUE = """
 cvt.u32.u64 %r5, %i;
 shr.u64 %x, %i, 32;
 cvt.u32.u64 %r6, %x;
 mul.lo.u32 %r5, %r5, %r7;
 mad.lo.u32 %r5, %r6, 2246822507, %r5;
 xor.b32 %r5, %r5, %r8;
 shl.b64 %x, %i, 2;
 add.u64 %c, %a, %x;
"""
_WALK = f"""
 {_REGISTERS}
 ld.param.u64 %a, [memory];
 ld.param.u64 %n, [words];
 ld.param.u32 %r7, [factor];
 ld.param.u32 %r8, [seed];
 ld.param.u64 %o, [found];
 {_INDEX}
"""
_PARAMETERS = ".param .u64 memory, .param .u64 words, .param .u32 factor, .param .u32 seed, .param .u64 found"
COMMON = f"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 left, .param .u64 right, .param .u64 sum, .param .u64 words)
{{
 {_REGISTERS}
 ld.param.u64 %a, [left];
 ld.param.u64 %b, [right];
 ld.param.u64 %c, [sum];
 ld.param.u64 %n, [words];
 {_INDEX}
NEXT:
 setp.ge.u64 %p, %i, %n;
 @%p bra END;
 shl.b64 %x, %i, 2;
 add.u64 %o, %a, %x;
 ld.global.f32 %f0, [%o];
 add.u64 %o, %b, %x;
 ld.global.f32 %f1, [%o];
 add.f32 %f2, %f0, %f1;
 add.u64 %o, %c, %x;
 st.global.f32 [%o], %f2;
 add.u64 %i, %i, %step;
 bra NEXT;
END:
 ret;
}}
.visible .entry fill({_PARAMETERS})
{{
 {_WALK}
NEXT:
 setp.ge.u64 %p, %i, %n;
 @%p bra END;
 {_VALUE}
 st.global.u32 [%c], %r5;
 add.u64 %i, %i, %step;
 bra NEXT;
END:
 ret;
}}
.visible .entry check({_PARAMETERS})
{{
 {_WALK}
NEXT:
 setp.ge.u64 %p, %i, %n;
 @%p bra END;
 {_VALUE}
 ld.global.u32 %r9, [%c];
 setp.eq.u32 %q, %r9, %r5;
 @%q bra GOOD;
 red.global.add.u32 [%o], 1;
 red.global.min.u64 [%o+8], %i;
GOOD:
 add.u64 %i, %i, %step;
 bra NEXT;
END:
 ret;
}}
"""
"""``add``: sum of two vectors. ``fill``, ``check``: write a pattern; count the words that differ from it
(``found``: how many, 32 bits; from byte 8 the first, 64 bits)."""
ADDRESSES = 2654435761
"""A factor with which each place has another word. With the factor 0 all have the seed (up to 16 GiB)."""

LOOPS = 8192
ACCUMULATORS, LANES = 8, 32
WARP_BYTES = LANES * ACCUMULATORS * 16
FLOP = 2 * 16 * 8 * 16 * ACCUMULATORS
"""Of a warp in one loop: eight products of matrices, 16 x 16 by 16 x 8."""


def _mma() -> str:
    lines = []
    for n in range(ACCUMULATORS):
        sums = ", ".join(f"%c{4 * n + j}" for j in range(4))
        lines.append(
            f" mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{sums}}}, {{%a0, %a1, %a2, %a3}}, "
            f"{{%b{2 * n}, %b{2 * n + 1}}}, {{{sums}}};"
        )
    zero = "\n".join(f" mov.f32 %c{n}, 0f00000000;" for n in range(4 * ACCUMULATORS))
    load = "\n".join(
        f" ld.global.v4.u32 {{%b{4 * n}, %b{4 * n + 1}, %b{4 * n + 2}, %b{4 * n + 3}}}, [%y+{16 * n}];"
        for n in range(ACCUMULATORS // 2)
    )
    store = "\n".join(
        f" st.global.v4.f32 [%z+{16 * n}], {{%c{4 * n}, %c{4 * n + 1}, %c{4 * n + 2}, %c{4 * n + 3}}};"
        for n in range(ACCUMULATORS)
    )
    return f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry mma(.param .u64 left, .param .u64 right, .param .u64 sums, .param .u32 loops)
{{
 .reg .pred %p; .reg .u32 %r<6>; .reg .b32 %a<4>; .reg .b32 %b<{2 * ACCUMULATORS}>;
 .reg .f32 %c<{4 * ACCUMULATORS}>; .reg .u64 %x, %y, %z, %w;
 ld.param.u64 %x, [left];
 ld.param.u64 %y, [right];
 ld.param.u64 %z, [sums];
 ld.param.u32 %r4, [loops];
 mov.u32 %r0, %tid.x;
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ntid.x;
 and.b32 %r3, %r0, 31;
 mul.wide.u32 %w, %r3, 16;
 add.u64 %x, %x, %w;
 mul.wide.u32 %w, %r3, {8 * ACCUMULATORS};
 add.u64 %y, %y, %w;
 mad.lo.u32 %r5, %r1, %r2, %r0;
 mul.wide.u32 %w, %r5, {16 * ACCUMULATORS};
 add.u64 %z, %z, %w;
 ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%x];
{load}
{zero}
LOOP:
{chr(10).join(lines)}
 sub.u32 %r4, %r4, 1;
 setp.ne.u32 %p, %r4, 0;
 @%p bra LOOP;
{store}
 ret;
}}
"""


MMA = _mma()
"""``mma``: each warp adds the same products of bf16 matrices ``loops`` times, in tensor cores."""


class Operands(t.NamedTuple):
    """What ``mma`` gets, as each lane of a warp loads it, and what each warp has to write.

    Args:
        left, right: bytes.
        sums: bytes.
    """

    left: bytes
    right: bytes
    sums: bytes


def operands(seed: int, loops: int = LOOPS) -> Operands:
    """Return whole numbers from -8 to 7 as operands: their sums are exact, so that each bit is known.

    The places of elements in lanes are those of the PTX manual, "Matrix Fragments for mma.m16n8k16".
    """
    numbers = random.Random(seed)
    a = [[numbers.randrange(-8, 8) for _ in range(16)] for _ in range(16)]
    bs = [[[numbers.randrange(-8, 8) for _ in range(8)] for _ in range(16)] for _ in range(ACCUMULATORS)]
    left, right, sums = b"", b"", b""
    for lane in range(LANES):
        g, k = lane // 4, lane % 4 * 2
        for row, column in ((g, k), (g + 8, k), (g, k + 8), (g + 8, k + 8)):
            left += bf16(a[row][column]) + bf16(a[row][column + 1])
        for b in bs:
            right += b"".join(bf16(b[row][g]) for row in (k, k + 1, k + 8, k + 9))
            for row, column in ((g, k), (g, k + 1), (g + 8, k), (g + 8, k + 1)):
                sum_ = sum(a[row][n] * b[n][column] for n in range(16)) * loops
                # A sum of nothing but zeros is +0 here and in the card.
                sums += struct.pack("<f", sum_)
    return Operands(left, right, sums)


def bf16(value: float) -> bytes:
    """Return a number that bf16 has exactly, as it lies in memory."""
    return struct.pack("<f", value)[2:]
