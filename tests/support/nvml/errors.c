/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML's functions about errors of memory and links, about processes and events. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

struct gpu { int index; };

extern int nvmlDeviceGetIndex(device gpu, unsigned *into);
extern int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *into);

#define ENTER(function) do { \
        unsigned index_; \
        int error_ = nvmlDeviceGetIndex(gpu, &index_); \
        if (!error_) error_ = enter((int)index_, function); \
        if (error_) return error_; \
    } while (0)

/* -- memory -- */

/* "ecc_count.ERROR.COUNTER": 0 corrected or 1 not, 0 since the driver started or 1 in all; "ecc_count.E.C.LOCATION" */
int nvmlDeviceGetTotalEccErrors(device gpu, unsigned error, unsigned counter, unsigned long long *into)
{
    char key[64];
    long long value = 0;
    ENTER("nvmlDeviceGetTotalEccErrors");
    snprintf(key, sizeof(key), "ecc_count.%u.%u", error, counter);
    int answer = number(gpu->index, key, &value);
    *into = (unsigned long long)value;
    return answer;
}

int nvmlDeviceGetMemoryErrorCounter(device gpu, unsigned error, unsigned counter, unsigned location, unsigned long long *into)
{
    char key[64];
    long long value = 0;
    ENTER("nvmlDeviceGetMemoryErrorCounter");
    snprintf(key, sizeof(key), "ecc_count.%u.%u.%u", error, counter, location);
    int answer = number(gpu->index, key, &value);
    *into = (unsigned long long)value;
    return answer;
}

/* "sram": eleven counts in NVML's order, then whether the threshold was exceeded */
int nvmlDeviceGetSramEccErrorStatus(device gpu, sram_status *into)
{
    ENTER("nvmlDeviceGetSramEccErrorStatus");
    if (into->version != (0x01000000 | sizeof(*into)))
        return VERSION_MISMATCH;
    const char *found = word(gpu->index, "sram");
    if (!found)
        return NOT_SUPPORTED;
    char *rest = (char *)found;
    for (int at = 0; at < 11; at++)
        into->counts[at] = strtoull(rest, &rest, 10);
    into->exceeded = (unsigned)strtoul(rest, NULL, 10);
    return OK;
}

int nvmlDeviceGetRemappedRows(device gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    ENTER("nvmlDeviceGetRemappedRows");
    const char *found = word(gpu->index, "remapped");
    return found && sscanf(found, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetRowRemapperHistogram(device gpu, row_histogram *into)
{
    ENTER("nvmlDeviceGetRowRemapperHistogram");
    const char *found = word(gpu->index, "row_histogram");
    return found && sscanf(found, "%u %u %u %u %u", &into->max, &into->high, &into->partial, &into->low, &into->none) == 5
               ? OK : NOT_SUPPORTED;
}

/* "retired_pages.CAUSE": how many; their addresses are made up */
static int retired(device gpu, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    char key[32];
    long long value = 0;
    ENTER("nvmlDeviceGetRetiredPages");
    snprintf(key, sizeof(key), "retired_pages.%u", cause);
    int error = number(gpu->index, key, &value);
    if (error)
        return error;
    unsigned room = *count;
    *count = (unsigned)value;
    if (room < *count || (!addresses && *count))
        return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < *count; at++)
        addresses[at] = 0x10000ull * (at + 1);
    return OK;
}

int nvmlDeviceGetRetiredPages(device gpu, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    return retired(gpu, cause, count, addresses);
}

int nvmlDeviceGetRetiredPages_v2(device gpu, unsigned cause, unsigned *count, unsigned long long *addresses, unsigned long long *times)
{
    int error = retired(gpu, cause, count, addresses);
    if (!error && times)
        memset(times, 0, *count * sizeof(*times));
    return error;
}

int nvmlDeviceGetRepairStatus(device gpu, repair_status *into)
{
    ENTER("nvmlDeviceGetRepairStatus");
    const char *found = word(gpu->index, "repair");
    return found && sscanf(found, "%u %u", &into->channels, &into->tpcs) == 2 ? OK : NOT_SUPPORTED;
}

/* -- fields: "field.ID" or "field.ID.SCOPE", as "NUMBER [u|ull|double]" -- */

int nvmlDeviceGetFieldValues(device gpu, int count, field_value *values)
{
    ENTER("nvmlDeviceGetFieldValues");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int at = 0; at < count; at++) {
        char key[64], type[8] = "u";
        field_value *each = &values[at];
        snprintf(key, sizeof(key), "field.%u.%u", each->id, each->scope);
        const char *found = word(gpu->index, key);
        if (!found) {
            snprintf(key, sizeof(key), "field.%u", each->id);
            found = word(gpu->index, key);
        }
        each->timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        each->latency = 0;
        each->error = !found || strcmp(found, "unsupported") == 0 ? NOT_SUPPORTED : OK;
        if (each->error)
            continue;
        each->value.ull = 0;
        sscanf(found, "%*s %7s", type);
        if (strcmp(type, "double") == 0) {
            each->type = 0;
            each->value.real = strtod(found, NULL);
        } else if (strcmp(type, "ull") == 0) {
            each->type = 3;
            each->value.ull = strtoull(found, NULL, 0);
        } else {
            each->type = 1;
            each->value.u = (unsigned)strtoul(found, NULL, 0);
        }
    }
    return OK;
}

/* -- links and fabric -- */

int nvmlDeviceGetNvLinkErrorCounter(device gpu, unsigned link, unsigned counter, unsigned long long *into)
{
    char key[64];
    long long value = 0;
    ENTER("nvmlDeviceGetNvLinkErrorCounter");
    snprintf(key, sizeof(key), "nvlink_errors.%u.%u", link, counter);
    int error = number(gpu->index, key, &value);
    if (error) {
        snprintf(key, sizeof(key), "nvlink_errors.%u", counter);
        error = number(gpu->index, key, &value);
    }
    *into = (unsigned long long)value;
    return error;
}

static int fabric_of(device gpu, unsigned *state, unsigned *status, unsigned *health, unsigned *summary)
{
    ENTER("nvmlDeviceGetGpuFabricInfo");
    const char *found = word(gpu->index, "fabric");
    return found && sscanf(found, "%u %u %i %u", state, status, (int *)health, summary) == 4 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetGpuFabricInfo(device gpu, fabric_info *into)
{
    unsigned state, status, health, summary;
    int error = fabric_of(gpu, &state, &status, &health, &summary);
    if (error == OK) {
        memset(into, 0, sizeof(*into));
        into->state = (unsigned char)state;
        into->status = status;
    }
    return error;
}

int nvmlDeviceGetGpuFabricInfoV(device gpu, fabric_info_v *into)
{
    unsigned state, status, health, summary, version = into->version;
    if (version != 0x02000024 && version != (0x03000000 | sizeof(*into)))
        return VERSION_MISMATCH;
    int error = fabric_of(gpu, &state, &status, &health, &summary);
    if (error)
        return error;
    memset(into->cluster, 0, sizeof(into->cluster));
    into->clique = 0;
    into->state = (unsigned char)state;
    into->status = status;
    into->health = health;
    if (version >> 24 == 3)
        into->summary = (unsigned char)summary;
    return OK;
}

/* -- processes: "processes", and "mps_processes" of clients of MPS, as "PID:MIB PID:MIB" -- */

static int processes(device gpu, const char *function, const char *key, unsigned *count, void *into, int version)
{
    ENTER(function);
    const char *found = word(gpu->index, key);
    unsigned room = *count, at = 0, pid;
    unsigned long long mib;
    for (int length; found && sscanf(found, " %u:%llu%n", &pid, &mib, &length) == 2; found += length, at++) {
        if (at >= room || !into)
            continue;
        if (version == 1)
            ((process_v1 *)into)[at] = (process_v1){pid, mib << 20};
        else
            ((process_v2 *)into)[at] = (process_v2){pid, mib << 20, ~0u, ~0u};
    }
    *count = at;
    return at > room || (at && !into) ? INSUFFICIENT_SIZE : OK;
}

static int none(device gpu, const char *function, unsigned *count)
{
    ENTER(function);
    *count = 0;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses(device gpu, unsigned *count, process_v1 *into) { return processes(gpu, "nvmlDeviceGetComputeRunningProcesses", "processes", count, into, 1); }
int nvmlDeviceGetComputeRunningProcesses_v2(device gpu, unsigned *count, process_v2 *into) { return processes(gpu, "nvmlDeviceGetComputeRunningProcesses", "processes", count, into, 2); }
int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *count, process_v2 *into) { return processes(gpu, "nvmlDeviceGetComputeRunningProcesses", "processes", count, into, 2); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device gpu, unsigned *count, process_v2 *into) { (void)into; return none(gpu, "nvmlDeviceGetGraphicsRunningProcesses", count); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device gpu, unsigned *count, process_v2 *into) { return processes(gpu, "nvmlDeviceGetMPSComputeRunningProcesses", "mps_processes", count, into, 2); }

/* -- events: a set sees what is written after it was made -- */

struct set { long long seen; unsigned long long types[MOST_GPUS]; };

int nvmlEventSetCreate(struct set **into)
{
    int error = enter_system("nvmlEventSetCreate");
    if (error)
        return error;
    *into = calloc(1, sizeof(**into));
    (*into)->seen = last_event();
    return OK;
}

int nvmlEventSetFree(struct set *set)
{
    free(set);
    return OK;
}

int nvmlDeviceRegisterEvents(device gpu, unsigned long long types, struct set *set)
{
    long long offered = 0;
    ENTER("nvmlDeviceRegisterEvents");
    if (number(gpu->index, "event_types", &offered) || (types & ~(unsigned long long)offered))
        return NOT_SUPPORTED;
    set->types[gpu->index] |= types;
    return OK;
}

static int wait_for(struct set *set, event_data *into, unsigned milliseconds)
{
    for (unsigned waited = 0;;) {
        unsigned long before = read_again();
        int error = enter_system("nvmlEventSetWait"), index;
        unsigned long long type, data;
        long long sequence;
        if (error)
            return error;
        while (next_event(set->seen, &sequence, &index, &type, &data)) {
            set->seen = sequence;
            if (index < 0 || index >= MOST_GPUS || !(set->types[index] & type))
                continue;
            memset(into, 0, sizeof(*into));
            nvmlDeviceGetHandleByIndex_v2((unsigned)index, &into->gpu);
            into->type = type;
            into->data = data;
            into->instance = into->compute = ~0u;
            return OK;
        }
        /* NVML says it of the whole set when one GPU of it is lost. */
        for (index = 0; index < MOST_GPUS; index++)
            if (set->types[index] && (error = enter(index, "nvmlEventSetWait")))
                return error;
        /* To ask all of it again costs more than an agent that waits. */
        do {
            if (waited >= milliseconds)
                return TIMEOUT;
            pause_ms(20);
            waited += 20;
        } while (read_again() == before);
    }
}

int nvmlEventSetWait(struct set *set, event_data *into, unsigned milliseconds) { return wait_for(set, into, milliseconds); }
int nvmlEventSetWait_v2(struct set *set, event_data *into, unsigned milliseconds) { return wait_for(set, into, milliseconds); }

/* -- for the test: sizes of structures -- */

#define SIZE(type) if (strcmp(name, #type) == 0) return sizeof(type)

size_t ironspan_size_of(const char *name)
{
    SIZE(pci_info);
    SIZE(memory_info);
    SIZE(memory_info_v2);
    SIZE(utilization);
    SIZE(temperature_v1);
    SIZE(margin_v1);
    SIZE(row_histogram);
    SIZE(process_v2);
    SIZE(repair_status);
    SIZE(versioned_value);
    SIZE(sram_status);
    SIZE(field_value);
    SIZE(fabric_info);
    SIZE(fabric_info_v);
    SIZE(event_data);
    return 0;
}
