/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML's functions. What the file has no key for is not supported, as NVML says it of cards that lack it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct gpu { int index; };

static struct gpu all[MOST_GPUS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};
static int started;

static int known(device gpu)
{
    return gpu >= all && gpu < all + MOST_GPUS;
}

static int enter_gpu(device gpu, const char *function)
{
    if (!started)
        return UNINITIALIZED;
    if (!known(gpu))
        return INVALID_ARGUMENT;
    return enter(gpu->index, function);
}

#define ENTER(function) do { int error_ = enter_gpu(gpu, function); if (error_) return error_; } while (0)

static int unsigned_of(device gpu, const char *function, const char *key, unsigned *into)
{
    long long value = 0;
    ENTER(function);
    int error = number(gpu->index, key, &value);
    if (error == OK)
        *into = (unsigned)value;
    return error;
}

static int text_of(device gpu, const char *function, const char *key, char *into, size_t length)
{
    ENTER(function);
    return text(gpu->index, key, into, length);
}

static int large_of(device gpu, const char *function, const char *key, unsigned long long *into)
{
    long long value = 0;
    ENTER(function);
    int error = number(gpu->index, key, &value);
    if (error == OK)
        *into = (unsigned long long)value;
    return error;
}

static int optional(int gpu, const char *key)
{
    long long value = 0;
    number(gpu, key, &value);
    return (int)value;
}

/* Key with one or two numbers, such as "clock.2" */
static const char *with(char *into, size_t length, const char *key, unsigned first)
{
    snprintf(into, length, "%s.%u", key, first);
    return into;
}

#define KEY(key, first) with((char[64]){0}, 64, key, first)

/* -- starting, errors, system -- */

static int start(const char *function)
{
    int error = enter_system(function);
    started = error == OK ? 1 : started;
    return error;
}

int nvmlInit(void) { return start("nvmlInit"); }
int nvmlInit_v2(void) { return start("nvmlInit"); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return start("nvmlInit"); }
int nvmlShutdown(void) { return started ? enter_system("nvmlShutdown") : UNINITIALIZED; }

const char *nvmlErrorString(int error)
{
    static const char *names[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
        "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
    };
    return error >= 0 && error < (int)(sizeof(names) / sizeof(*names)) ? names[error] : "Unknown Error";
}

static int system_text(const char *function, const char *key, char *into, unsigned length)
{
    int error = started ? enter_system(function) : UNINITIALIZED;
    return error ? error : text(SYSTEM, key, into, length);
}

int nvmlSystemGetDriverVersion(char *into, unsigned length) { return system_text("nvmlSystemGetDriverVersion", "driver", into, length); }
int nvmlSystemGetNVMLVersion(char *into, unsigned length) { return system_text("nvmlSystemGetNVMLVersion", "nvml", into, length); }

static int cuda_version(int *into)
{
    long long value = 0;
    int error = started ? enter_system("nvmlSystemGetCudaDriverVersion") : UNINITIALIZED;
    error = error ? error : number(SYSTEM, "cuda", &value);
    *into = (int)value;
    return error;
}

int nvmlSystemGetCudaDriverVersion(int *into) { return cuda_version(into); }
int nvmlSystemGetCudaDriverVersion_v2(int *into) { return cuda_version(into); }

/* -- finding a GPU -- */

static int count_of(unsigned *into)
{
    int error = started ? enter_system("nvmlDeviceGetCount") : UNINITIALIZED;
    *into = error ? 0 : (unsigned)gpus();
    return error;
}

int nvmlDeviceGetCount(unsigned *into) { return count_of(into); }
int nvmlDeviceGetCount_v2(unsigned *into) { return count_of(into); }

static int by_index(unsigned index, device *into)
{
    int error = started ? enter_system("nvmlDeviceGetHandleByIndex") : UNINITIALIZED;
    if (error)
        return error;
    if ((int)index >= gpus())
        return INVALID_ARGUMENT;
    *into = &all[index];
    return enter((int)index, "nvmlDeviceGetHandleByIndex");
}

int nvmlDeviceGetHandleByIndex(unsigned index, device *into) { return by_index(index, into); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *into) { return by_index(index, into); }

static int by_text(const char *function, const char *key, const char *wanted, device *into)
{
    int error = started ? enter_system(function) : UNINITIALIZED;
    for (int index = 0; !error && index < gpus(); index++) {
        const char *found = word(index, key);
        if (found && strcasecmp(found, wanted) == 0) {
            *into = &all[index];
            return enter(index, function);
        }
    }
    return error ? error : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *wanted, device *into) { return by_text("nvmlDeviceGetHandleByUUID", "uuid", wanted, into); }
int nvmlDeviceGetHandleBySerial(const char *wanted, device *into) { return by_text("nvmlDeviceGetHandleBySerial", "serial", wanted, into); }

/* Addresses are written with four or eight digits of the domain, with the function or without. */
static int by_address(const char *wanted, device *into)
{
    char full[48];
    const char *rest = strchr(wanted, ':');
    if (!rest)
        return INVALID_ARGUMENT;
    snprintf(full, sizeof(full), "%08lX%s%s", strtoul(wanted, NULL, 16), rest, strchr(rest, '.') ? "" : ".0");
    return by_text("nvmlDeviceGetHandleByPciBusId", "pci", full, into);
}

int nvmlDeviceGetHandleByPciBusId(const char *wanted, device *into) { return by_address(wanted, into); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, device *into) { return by_address(wanted, into); }

static int pci_of(device gpu, pci_info *into)
{
    ENTER("nvmlDeviceGetPciInfo");
    const char *address = word(gpu->index, "pci");
    if (!address)
        return NOT_SUPPORTED;
    memset(into, 0, sizeof(*into));
    sscanf(address, "%x:%x:%x", &into->domain, &into->bus, &into->slot);
    snprintf(into->bus_id, sizeof(into->bus_id), "%08X:%02X:%02X.0", into->domain, into->bus, into->slot);
    snprintf(into->legacy, sizeof(into->legacy), "%04X:%02X:%02X.0", into->domain & 0xffff, into->bus & 0xff, into->slot & 0xff);
    into->id = (unsigned)optional(gpu->index, "pci_id");
    into->subsystem = (unsigned)optional(gpu->index, "pci_subsystem");
    return OK;
}

int nvmlDeviceGetPciInfo(device gpu, pci_info *into) { return pci_of(gpu, into); }
int nvmlDeviceGetPciInfo_v2(device gpu, pci_info *into) { return pci_of(gpu, into); }
int nvmlDeviceGetPciInfo_v3(device gpu, pci_info *into) { return pci_of(gpu, into); }

int nvmlDeviceGetIndex(device gpu, unsigned *into)
{
    ENTER("nvmlDeviceGetIndex");
    *into = (unsigned)gpu->index;
    return OK;
}

/* -- one text or one number each -- */

#define TEXT(name, key) int name(device gpu, char *into, unsigned length) { return text_of(gpu, #name, key, into, length); }
#define UNSIGNED(name, key) int name(device gpu, unsigned *into) { return unsigned_of(gpu, #name, key, into); }
#define LARGE(name, key) int name(device gpu, unsigned long long *into) { return large_of(gpu, #name, key, into); }
#define UNSIGNED_OF(name, key) \
    int name(device gpu, unsigned which, unsigned *into) { return unsigned_of(gpu, #name, KEY(key, which), into); }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
UNSIGNED(nvmlDeviceGetMinorNumber, "minor")
UNSIGNED(nvmlDeviceGetBrand, "brand")
UNSIGNED(nvmlDeviceGetBoardId, "board_id")
UNSIGNED(nvmlDeviceGetArchitecture, "architecture")
UNSIGNED(nvmlDeviceGetInforomConfigurationChecksum, "inforom_checksum")
UNSIGNED(nvmlDeviceGetPersistenceMode, "persistence")
UNSIGNED(nvmlDeviceGetComputeMode, "compute_mode")
UNSIGNED(nvmlDeviceGetPerformanceState, "pstate")
UNSIGNED(nvmlDeviceGetPowerUsage, "power")
UNSIGNED(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
UNSIGNED(nvmlDeviceGetPowerManagementLimit, "power_limit")
UNSIGNED(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit")
UNSIGNED(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UNSIGNED(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UNSIGNED(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
UNSIGNED(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_max_generation")
UNSIGNED(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
UNSIGNED(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UNSIGNED(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")
UNSIGNED(nvmlDeviceGetNumGpuCores, "cores")
UNSIGNED(nvmlDeviceGetMaxMigDeviceCount, "mig_most")
LARGE(nvmlDeviceGetTotalEnergyConsumption, "energy")
LARGE(nvmlDeviceGetCurrentClocksEventReasons, "clocks_reasons")
LARGE(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_reasons")
LARGE(nvmlDeviceGetSupportedClocksEventReasons, "clocks_supported")
LARGE(nvmlDeviceGetSupportedClocksThrottleReasons, "clocks_supported")
LARGE(nvmlDeviceGetSupportedEventTypes, "event_types")
UNSIGNED_OF(nvmlDeviceGetClockInfo, "clock")
UNSIGNED_OF(nvmlDeviceGetMaxClockInfo, "max_clock")
UNSIGNED_OF(nvmlDeviceGetTemperature, "temperature")
UNSIGNED_OF(nvmlDeviceGetTemperatureThreshold, "threshold")
UNSIGNED_OF(nvmlDeviceGetPcieThroughput, "pcie_throughput")
UNSIGNED_OF(nvmlDeviceGetNvLinkState, "nvlink")
UNSIGNED_OF(nvmlDeviceGetNvLinkVersion, "nvlink_version")
UNSIGNED_OF(nvmlDeviceGetNvLinkRemoteDeviceType, "nvlink_remote")

/* The device plugin chooses GPUs that are near each other. */
int nvmlDeviceGetTopologyCommonAncestor(device gpu, device other, unsigned *level)
{
    return known(other) ? unsigned_of(gpu, "nvmlDeviceGetTopologyCommonAncestor", "topology", level) : INVALID_ARGUMENT;
}

/* NVML gives it no length; the buffer has 64 bytes. */
int nvmlDeviceGetGspFirmwareVersion(device gpu, char *into)
{
    return text_of(gpu, "nvmlDeviceGetGspFirmwareVersion", "gsp", into, 64);
}

int nvmlDeviceGetInforomVersion(device gpu, unsigned object, char *into, unsigned length)
{
    return text_of(gpu, "nvmlDeviceGetInforomVersion", KEY("inforom", object), into, length);
}

int nvmlDeviceValidateInforom(device gpu)
{
    ENTER("nvmlDeviceValidateInforom");
    return optional(gpu->index, "inforom_error");
}

int nvmlDeviceGetCudaComputeCapability(device gpu, int *major, int *minor)
{
    ENTER("nvmlDeviceGetCudaComputeCapability");
    const char *found = word(gpu->index, "compute");
    return found && sscanf(found, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

static int two_of(device gpu, const char *function, const char *key, unsigned *first, unsigned *second)
{
    ENTER(function);
    const char *found = word(gpu->index, key);
    return found && sscanf(found, "%u %u", first, second) == 2 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetUtilizationRates(device gpu, utilization *into) { return two_of(gpu, "nvmlDeviceGetUtilizationRates", "utilization", &into->gpu, &into->memory); }
int nvmlDeviceGetEncoderUtilization(device gpu, unsigned *into, unsigned *period) { return two_of(gpu, "nvmlDeviceGetEncoderUtilization", "encoder", into, period); }
int nvmlDeviceGetDecoderUtilization(device gpu, unsigned *into, unsigned *period) { return two_of(gpu, "nvmlDeviceGetDecoderUtilization", "decoder", into, period); }
int nvmlDeviceGetMigMode(device gpu, unsigned *current, unsigned *pending) { return two_of(gpu, "nvmlDeviceGetMigMode", "mig", current, pending); }
int nvmlDeviceGetEccMode(device gpu, unsigned *current, unsigned *pending) { return two_of(gpu, "nvmlDeviceGetEccMode", "ecc", current, pending); }
int nvmlDeviceGetGspFirmwareMode(device gpu, unsigned *enabled, unsigned *preset) { return two_of(gpu, "nvmlDeviceGetGspFirmwareMode", "gsp_mode", enabled, preset); }

static int memory_of(device gpu, const char *function, const char *key, memory_info *into)
{
    unsigned long long total = 0, used = 0;
    ENTER(function);
    const char *found = word(gpu->index, key);
    if (!found || sscanf(found, "%llu %llu", &total, &used) != 2)
        return NOT_SUPPORTED;
    *into = (memory_info){total << 20, (total - used) << 20, used << 20};
    return OK;
}

int nvmlDeviceGetMemoryInfo(device gpu, memory_info *into) { return memory_of(gpu, "nvmlDeviceGetMemoryInfo", "memory", into); }
int nvmlDeviceGetBAR1MemoryInfo(device gpu, memory_info *into) { return memory_of(gpu, "nvmlDeviceGetBAR1MemoryInfo", "bar1", into); }

int nvmlDeviceGetMemoryInfo_v2(device gpu, memory_info_v2 *into)
{
    memory_info found;
    if (into->version != (0x02000000 | sizeof(*into)))
        return VERSION_MISMATCH;
    int error = memory_of(gpu, "nvmlDeviceGetMemoryInfo", "memory", &found);
    if (error == OK)
        *into = (memory_info_v2){into->version, found.total, 0, found.free, found.used};
    return error;
}

int nvmlDeviceGetTemperatureV(device gpu, temperature_v1 *into)
{
    return into->version == (0x01000000 | sizeof(*into))
               ? unsigned_of(gpu, "nvmlDeviceGetTemperatureV", KEY("temperature", into->sensor), (unsigned *)&into->temperature)
               : VERSION_MISMATCH;
}

int nvmlDeviceGetMarginTemperature(device gpu, margin_v1 *into)
{
    return into->version == (0x01000000 | sizeof(*into))
               ? unsigned_of(gpu, "nvmlDeviceGetMarginTemperature", "margin", (unsigned *)&into->margin)
               : VERSION_MISMATCH;
}

int nvmlDeviceGetAddressingMode(device gpu, versioned_value *into)
{
    return unsigned_of(gpu, "nvmlDeviceGetAddressingMode", "addressing", &into->value);
}

int nvmlDeviceGetCapabilities(device gpu, versioned_value *into)
{
    return unsigned_of(gpu, "nvmlDeviceGetCapabilities", "capabilities", &into->value);
}

int nvmlDeviceIsMigDeviceHandle(device gpu, unsigned *into)
{
    ENTER("nvmlDeviceIsMigDeviceHandle");
    *into = 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device gpu, unsigned index, device *into)
{
    (void)index, (void)into;
    ENTER("nvmlDeviceGetMigDeviceHandleByIndex");
    return NOT_FOUND;
}
