/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that answers like libnvidia-ml.so.1, from a file. Its structures are NVML's, in our words: a test compares
 * their sizes with those of nvidia-ml-py. */
#ifndef IRONSPAN_SHIM_H
#define IRONSPAN_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    VERSION_MISMATCH = 25,
};

#define SYSTEM (-1)
#define MOST_GPUS 16

typedef struct gpu *device;

typedef struct { char legacy[16]; unsigned domain, bus, slot, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_info_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version, sensor; int temperature; } temperature_v1;
typedef struct { unsigned version; int margin; } margin_v1;
typedef struct { unsigned max, high, partial, low, none; } row_histogram;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } process_v2;
typedef struct { unsigned pid; unsigned long long memory; } process_v1;
typedef struct { unsigned version, channels, tpcs; } repair_status;
typedef struct { unsigned version, value; } versioned_value;
typedef struct {
    unsigned version;
    unsigned long long counts[11];
    unsigned exceeded;
} sram_status;
typedef union { double real; unsigned u; unsigned long long ull; int i; } field_number;
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, error;
    field_number value;
} field_value;
typedef struct { unsigned char cluster[16]; unsigned status, clique; unsigned char state; } fabric_info;
typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health;
    unsigned char summary; /* only of version 3 */
} fabric_info_v;
typedef struct { device gpu; unsigned long long type, data; unsigned instance, compute; } event_data;

/* state.c: the file. Keys are words, a GPU's own value is written INDEX.KEY and goes before KEY. */
int enter(int gpu, const char *function);
int enter_system(const char *function);
int text(int gpu, const char *key, char *into, size_t length);
int number(int gpu, const char *key, long long *into);
const char *word(int gpu, const char *key);
int gpus(void);
int next_event(long long after, long long *sequence, int *gpu, unsigned long long *type, unsigned long long *data);
long long last_event(void);
unsigned long read_again(void);
void pause_ms(int milliseconds);

#endif
