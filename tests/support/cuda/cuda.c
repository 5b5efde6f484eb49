/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPUs whose memory is the process's own and whose kernels are those of ironspan.gpud.preflight.kernels, done here in C.
 * Time is counted, not spent: a copy takes its bytes divided by the speed that the file names. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64
#define LANES 32
#define SUMS 8
#define CALL(name, ...) int name(__VA_ARGS__) { if (met(#name)) return met(#name);

static char lines[MOST * 8][160], uuids[MOST][48];
static int count, gpus, current = -1;
static double now, marks[4096];
static int marked;
static uint64_t generation, taken;
static struct { const void *to, *from; size_t size; uint64_t generation; } last;

#ifndef USUAL_STATE
#define USUAL_STATE "/dev/null"
#endif

/* The value of "UUID.key" of the GPU that is used, else of "key". */
static const char *value(const char *key)
{
    char own[96];
    snprintf(own, sizeof(own), "%s.%s ", current < 0 ? "-" : uuids[current], key);
    for (int pass = 0; pass < 2; pass++) {
        char all[96];
        snprintf(all, sizeof(all), "%s ", key);
        const char *head = pass ? all : own;
        for (int n = count - 1; n >= 0; n--)
            if (!strncmp(lines[n], head, strlen(head)))
                return lines[n] + strlen(head);
    }
    return NULL;
}

static double number(const char *key, double usual) { return value(key) ? atof(value(key)) : usual; }

static int met(const char *call)
{
    char key[96];
    snprintf(key, sizeof(key), "hang.%s", call);
    if (value(key))
        for (;;)
            pause();
    snprintf(key, sizeof(key), "ends.%s", call);
    if (value(key))
        _exit(3);
    snprintf(key, sizeof(key), "error.%s", call);
    return (int)number(key, 0);
}

static void started(void)
{
    FILE *file = fopen(getenv("IRONSPAN_CUDA_STATE") ? getenv("IRONSPAN_CUDA_STATE") : USUAL_STATE, "r");
    while (file && count < MOST * 8 && fgets(lines[count], sizeof(lines[0]), file)) {
        lines[count][strcspn(lines[count], "\n")] = '\0';
        count++;
    }
    if (file)
        fclose(file);
    char *seen = strdup(getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "GPU-0"), *rest = NULL;
    for (char *each = strtok_r(seen, ",", &rest); each && gpus < MOST; each = strtok_r(NULL, ",", &rest))
        snprintf(uuids[gpus++], sizeof(uuids[0]), "%s", each);
    free(seen);
    current = 0;
}

/* For the stand-in of NCCL. */
void ironspan_passes(double seconds) { now += seconds; }

int cuInit(unsigned flags) { (void)flags; if (!gpus) started(); return met("cuInit"); }
int cuGetErrorName(int code, const char **name)
{
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
CALL(cuDeviceGetCount, int *found) *found = gpus; return 0; }
CALL(cuDeviceGet, int *device, int index) if (index >= gpus) return 101; *device = index; return 0; }
CALL(cuDevicePrimaryCtxRetain, void **context, int device) *context = (void *)(intptr_t)(device + 1); return 0; }
CALL(cuCtxSetCurrent, void *context) current = (int)(intptr_t)context - 1; return 0; }
CALL(cuDeviceGetAttribute, int *found, int which, int device)
    (void)device;
    *found = which == 16 ? (int)number("sms", 4) : which == 75 ? (int)number("major", 9) : 0;
    return 0;
}
CALL(cuMemGetInfo_v2, size_t *free_, size_t *total)
    *total = (size_t)number("memory_mib", 64) << 20;
    *free_ = *total - taken;
    return 0;
}
CALL(cuMemAlloc_v2, uint64_t *address, size_t size)
    if (value("largest_mib") && size > (size_t)number("largest_mib", 0) << 20)
        return 2;
    size_t *memory = malloc(size + 64);
    if (!memory)
        return 2;
    memory[0] = size;
    taken += size;
    *address = (uint64_t)(uintptr_t)memory + 64;
    return 0;
}
CALL(cuMemFree_v2, uint64_t address)
    size_t *memory = (size_t *)(uintptr_t)(address - 64);
    taken -= memory[0];
    generation++;
    free(memory);
    return 0;
}
CALL(cuMemAllocHost_v2, void **address, size_t size) *address = malloc(size); return *address ? 0 : 2; }
CALL(cuMemFreeHost, void *address) free(address); return 0; }

/* What was copied just so before is there already. */
static void copied(void *to, const void *from, size_t size, const char *wrong)
{
    if (last.to != to || last.from != from || last.size != size || last.generation != generation) {
        memcpy(to, from, size);
        if (value(wrong) && size > 1024)
            ((uint8_t *)to)[(size_t)number(wrong, 0)] ^= 4;
        generation++;
        last.to = to, last.from = from, last.size = size, last.generation = generation;
    }
}
static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t size) generation++; memcpy(at(to), from, size); return 0; }
CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t size) memcpy(to, at(from), size); return 0; }
CALL(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t size, void *stream)
    (void)stream;
    copied(at(to), at(from), size, "wrong.d2d");
    now += 2 * size / number("d2d", 4400) / 1e9;
    return 0;
}
CALL(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t size, void *stream)
    (void)stream;
    copied(at(to), from, size, "wrong.h2d");
    now += size / number("h2d", 55) / 1e9;
    return 0;
}
CALL(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t size, void *stream)
    (void)stream;
    copied(to, at(from), size, "wrong.d2h");
    now += size / number("d2h", 53) / 1e9;
    return 0;
}
CALL(cuMemsetD32_v2, uint64_t to, unsigned word, size_t words)
    generation++;
    for (size_t n = 0; n < words; n++)
        ((uint32_t *)at(to))[n] = word;
    return 0;
}
CALL(cuDeviceCanAccessPeer, int *able, int device, int other) (void)device; (void)other; *able = !value("no_peer"); return 0; }
CALL(cuCtxEnablePeerAccess, void *context, unsigned flags) (void)context; (void)flags; return 0; }
CALL(cuMemcpyPeerAsync, uint64_t to, void *there, uint64_t from, void *here, size_t size, void *stream)
    (void)there; (void)here; (void)stream;
    copied(at(to), at(from), size, "wrong.peer");
    now += size / number("peer", 380) / 1e9;
    return 0;
}

CALL(cuModuleLoadData, void **module, const char *text) *module = strstr(text, ".entry") ? (void *)text : NULL; return *module ? 0 : 218; }
CALL(cuModuleGetFunction, void **function, void *module, const char *name)
    (void)module;
    *function = strdup(name);
    return 0;
}

static float bf16(uint16_t bits) { uint32_t word = (uint32_t)bits << 16; float found; memcpy(&found, &word, 4); return found; }

/* PTX manual, "Matrix Fragments for mma.m16n8k16": lane and register of each element, back to the matrices. */
static void multiply(const uint16_t *left, const uint16_t *right, float *sums, unsigned warps, unsigned loops)
{
    float a[16][16], b[SUMS][16][8], *first = sums;
    for (int lane = 0; lane < LANES; lane++)
        for (int half = 0; half < 8; half++) {
            int row = lane / 4 + (half / 2 % 2) * 8, k = lane % 4 * 2 + half % 2 + half / 4 * 8;
            a[row][k] = bf16(left[lane * 8 + half]);
        }
    for (int n = 0; n < SUMS; n++)
        for (int lane = 0; lane < LANES; lane++)
            for (int half = 0; half < 4; half++)
                b[n][lane % 4 * 2 + half % 2 + half / 2 * 8][lane / 4] = bf16(right[lane * 4 * SUMS + n * 4 + half]);
    for (int lane = 0; lane < LANES; lane++)
        for (int n = 0; n < SUMS; n++)
            for (int place = 0; place < 4; place++) {
                int row = lane / 4 + place / 2 * 8, column = lane % 4 * 2 + place % 2;
                float sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += a[row][k] * b[n][k][column];
                first[(lane * SUMS + n) * 4 + place] = sum * loops;
            }
    for (unsigned warp = 1; warp < warps; warp++)
        memcpy(sums + warp * LANES * SUMS * 4, first, LANES * SUMS * 16);
}

CALL(cuLaunchKernel, void *function, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
     unsigned shared, void *stream, void **arguments, void **more)
    (void)y; (void)z; (void)ty; (void)tz; (void)shared; (void)stream; (void)more;
    uint64_t first = *(uint64_t *)arguments[0], second = *(uint64_t *)arguments[1];
    const char *name = function;
    now += 1e-5;
    if (!strcmp(name, "mma")) {
        unsigned warps = blocks * threads / LANES, loops = *(uint32_t *)arguments[3];
        uint64_t sums = *(uint64_t *)arguments[2];
        if (last.to != at(sums) || last.generation != generation) {
            multiply(at(first), at(second), at(sums), warps, loops);
            if (value("wrong.mma"))
                ((uint32_t *)at(sums))[(size_t)number("wrong.mma", 0) * threads * SUMS * 4] ^= 1;
            last.to = at(sums), last.from = NULL, last.size = 0, last.generation = ++generation;
        }
        now += (double)warps * loops * SUMS * 4096 / number("mma", 2000) / 1e12;
        return 0;
    }
    generation++;
    if (!strcmp(name, "add")) {
        float *left = at(first), *right = at(second), *sum = at(*(uint64_t *)arguments[2]);
        for (uint64_t n = 0; n < *(uint64_t *)arguments[3]; n++)
            sum[n] = left[n] + right[n];
        if (value("wrong.add"))
            sum[(size_t)number("wrong.add", 0)] += 1;
        return 0;
    }
    uint32_t *memory = at(first), factor = *(uint32_t *)arguments[2], seed = *(uint32_t *)arguments[3];
    uint32_t *found = at(*(uint64_t *)arguments[4]);
    uint64_t stuck = (uint64_t)(int64_t)number("wrong.memory", -1), *where = (uint64_t *)(found + 2);
    for (uint64_t n = 0; n < second; n++) {
        uint32_t word = ((uint32_t)n * factor + (uint32_t)(n >> 32) * 2246822507u) ^ seed;
        if (!strcmp(name, "fill"))
            memory[n] = n == stuck ? word | 0x10 : word;
        else if (memory[n] != word) {
            found[0]++;
            *where = n < *where ? n : *where;
        }
    }
    return 0;
}
CALL(cuCtxSynchronize, void) return 0; }
CALL(cuEventCreate, void **event, unsigned flags)
    (void)flags;
    *event = &marks[marked++ % 4096];
    return 0;
}
CALL(cuEventDestroy_v2, void *event) (void)event; return 0; }
CALL(cuEventRecord, double *event, void *stream) (void)stream; *event = now; return 0; }
CALL(cuEventSynchronize, void *event) (void)event; return 0; }
CALL(cuEventElapsedTime, float *found, double *from, double *to) *found = (float)((*to - *from) * 1000); return 0; }
