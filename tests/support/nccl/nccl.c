/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * NCCL between two processes of one machine, each with some GPUs of tests/support/cuda: an all-reduce adds what both have, in a
 * file that both map. Time is counted by the stand-in of libcuda, at the speed that the file names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64
#define REGION (64u << 20)

void ironspan_passes(double seconds);

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { volatile uint64_t wrote[2], took[2]; float sums[2][REGION / 4]; } Shared;
typedef struct { const float *source; float *target; size_t count; } Call;

static Shared *shared;
static int side, ranks, called;
static uint64_t rounds;
static Call calls[MOST];

static const char *value(const char *key)
{
    static char line[128];
    FILE *file = fopen(getenv("IRONSPAN_NCCL_STATE") ? getenv("IRONSPAN_NCCL_STATE") : "/dev/null", "r");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ' ') {
            fclose(file);
            return line + strlen(key) + 1;
        }
    if (file)
        fclose(file);
    return NULL;
}

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
    return value(key) ? atoi(value(key)) : 0;
}

int ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    const char *mark = getenv("IRONSPAN_NCCL_MARK");
    snprintf(id->internal, sizeof(id->internal), "/dev/shm/ironspan-nccl-%s-XXXXXX", mark ? mark : "");
    int file = mkstemp(id->internal);
    if (file < 0 || ftruncate(file, sizeof(Shared)))
        return 2;
    /* Now, because the other process takes the name away as soon as it has it. */
    shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return met("ncclGetUniqueId");
}

int ncclCommInitRank(void **group, int of, ncclUniqueId id, int rank)
{
    if (!shared) {
        int file = open(id.internal, O_RDWR);
        if (file < 0)
            return 2;
        shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        side = 1;
        unlink(id.internal);
    }
    ranks = of;
    *group = (void *)(intptr_t)(rank + 1);
    return met("ncclCommInitRank");
}

int ncclGroupStart(void) { called = 0; return 0; }

int ncclAllReduce(const void *source, void *target, size_t count, int type, int operation, void *group, void *stream)
{
    (void)type; (void)operation; (void)group; (void)stream;
    calls[called++] = (Call){source, target, count};
    return met("ncclAllReduce");
}

static void both(volatile uint64_t *counts)
{
    counts[side] = rounds;
    __sync_synchronize();
    while (counts[!side] < rounds)
        usleep(100);
}

int ncclGroupEnd(void)
{
    if (!called)
        return 0;
    size_t count = calls[0].count;
    float *mine = shared->sums[side], *theirs = shared->sums[!side];
    rounds++;
    memset(mine, 0, count * 4);
    for (int n = 0; n < called; n++)
        for (size_t k = 0; k < count; k++)
            mine[k] += calls[n].source[k];
    both(shared->wrote);
    for (int n = 0; n < called; n++)
        for (size_t k = 0; k < count; k++)
            calls[n].target[k] = mine[k] + theirs[k];
    if (value("wrong"))
        calls[0].target[atol(value("wrong"))] += 1;
    both(shared->took);
    ironspan_passes(count * 4 / (value("speed") ? atof(value("speed")) : 120) / 1e9 * 2 * (ranks - 1) / ranks);
    return 0;
}
