/* Functions of one GPU. */
#include "control.h"

#define ONE(function, type)                                          \
    nvmlReturn_t function(nvmlDevice_t device, type *out) {          \
        ANSWER(function, -1);                                        \
        *out = (type)fact.whole[0];                                  \
        return NVML_SUCCESS;                                         \
    }
#define ONE_OF(function, kind, type)                                 \
    nvmlReturn_t function(nvmlDevice_t device, kind which, type *out) { \
        ANSWER(function, (long)which);                               \
        *out = (type)fact.whole[0];                                  \
        return NVML_SUCCESS;                                         \
    }
#define TWO(function, type)                                          \
    nvmlReturn_t function(nvmlDevice_t device, type *one, type *two) { \
        ANSWER(function, -1);                                        \
        *one = (type)fact.whole[0];                                  \
        *two = (type)fact.whole[1];                                  \
        return NVML_SUCCESS;                                         \
    }
#define TEXT(function)                                               \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int size) { \
        ANSWER(function, -1);                                        \
        snprintf(out, size, "%s", fact.text);                        \
        return NVML_SUCCESS;                                         \
    }

ONE(nvmlDeviceGetPowerUsage, unsigned int)
ONE(nvmlDeviceGetMinorNumber, unsigned int)
ONE(nvmlDeviceGetIndex, unsigned int)
ONE(nvmlDeviceGetModuleId, unsigned int)
ONE(nvmlDeviceGetMaxMigDeviceCount, unsigned int)
ONE(nvmlDeviceGetGpuInstanceId, unsigned int)
ONE(nvmlDeviceGetComputeInstanceId, unsigned int)
ONE(nvmlDeviceGetFanSpeed, unsigned int)
ONE(nvmlDeviceGetEnforcedPowerLimit, unsigned int)
ONE(nvmlDeviceGetPowerManagementLimit, unsigned int)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int)
ONE(nvmlDeviceGetCurrPcieLinkWidth, unsigned int)
ONE(nvmlDeviceGetMaxPcieLinkWidth, unsigned int)
ONE(nvmlDeviceGetPerformanceState, nvmlPstates_t)
ONE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t)
ONE(nvmlDeviceGetBrand, nvmlBrandType_t)
ONE(nvmlDeviceGetTotalEnergyConsumption, unsigned long long)
ONE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long)
ONE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long)
ONE(nvmlDeviceGetSupportedEventTypes, unsigned long long)
ONE_OF(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned int)
ONE_OF(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned int)
ONE_OF(nvmlDeviceGetClockInfo, nvmlClockType_t, unsigned int)
ONE_OF(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned int)
ONE_OF(nvmlDeviceGetNvLinkState, unsigned int, nvmlEnableState_t)
ONE_OF(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned int, nvmlIntNvLinkDeviceType_t)
TWO(nvmlDeviceGetPowerManagementLimitConstraints, unsigned int)
TWO(nvmlDeviceGetEncoderUtilization, unsigned int)
TWO(nvmlDeviceGetDecoderUtilization, unsigned int)
TWO(nvmlDeviceGetJpgUtilization, unsigned int)
TWO(nvmlDeviceGetOfaUtilization, unsigned int)
TWO(nvmlDeviceGetMigMode, unsigned int)
TWO(nvmlDeviceGetEccMode, nvmlEnableState_t)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetInforomImageVersion)

nvmlReturn_t nvmlDeviceGetMemoryAffinity(
    nvmlDevice_t device, unsigned int size, unsigned long *nodes, nvmlAffinityScope_t scope) {
    ANSWER(nvmlDeviceGetMemoryAffinity, (long)scope);
    for (unsigned int word = 0; word < size; word++) nodes[word] = word < MAX_VALUES ? fact.whole[word] : 0;
    return NVML_SUCCESS;
}

/* ---- MIG devices: those of which the control file has a UUID ---- */

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(
    nvmlDevice_t device, unsigned int index, nvmlDevice_t *out) {
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
    if (device->part || index >= MAX_PARTS) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlDevice_t part = &fake_parts[device->index][index];
    part->index = device->index, part->part = (int)index + 1;
    fact_t fact;
    if (fake_answer(part, "nvmlDeviceGetUUID", -1, &fact)) return NVML_ERROR_NOT_FOUND;
    *out = part;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out) {
    ANSWER(nvmlDeviceGetAttributes_v2, -1);
    memset(out, 0, sizeof *out);
    out->multiprocessorCount = (unsigned int)fact.whole[0];
    out->gpuInstanceSliceCount = (unsigned int)fact.whole[1];
    out->computeInstanceSliceCount = (unsigned int)fact.whole[2];
    out->memorySizeMB = fact.whole[3];
    return NVML_SUCCESS;
}

/* A GPU instance: of those whose place the control file has, as for a user who may ask. */
static struct nvmlGpuInstance_st {
    nvmlDevice_t device;
    unsigned int id;
} instances[MAX_GPUS][16];

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out) {
    ENTER(nvmlDeviceGetGpuInstanceById);
    fact_t fact;
    if (id >= 16 || fake_answer(device, "nvmlGpuInstanceGetInfo", (long)id, &fact)) return NVML_ERROR_NO_PERMISSION;
    *out = &instances[device->index][id];
    (*out)->device = device, (*out)->id = id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out) {
    nvmlDevice_t device = instance->device;
    ANSWER(nvmlGpuInstanceGetInfo, (long)instance->id);
    memset(out, 0, sizeof *out);
    out->device = device, out->id = instance->id;
    out->placement.start = (unsigned int)fact.whole[0], out->placement.size = 1;
    return NVML_SUCCESS;
}

/* ---- one GPU: answers that are structs ---- */

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    ANSWER(nvmlDeviceGetPciInfo_v3, -1);
    memset(out, 0, sizeof *out);
    unsigned int domain = 0, bus = 0, slot = 0;
    sscanf(fact.text, "%x:%x:%x", &domain, &bus, &slot);
    out->domain = domain, out->bus = bus, out->device = slot;
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", domain, bus, slot);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus, slot);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out) {
    ANSWER(nvmlDeviceGetPlatformInfo, -1);
    if (out->version != nvmlPlatformInfo_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    /* The GUID is 8 bytes and the serial of the chassis 13, both filled up with zeros. */
    unsigned char *to[] = {out->ibGuid, out->chassisSerialNumber, &out->slotNumber};
    const int sizes[] = {8, 13, 5};
    memset(out->ibGuid, 0, sizeof *out - sizeof out->version);
    int value = 0;
    for (int part = 0; part < 3; part++)
        for (int byte = 0; byte < sizes[part]; byte++)
            to[part][byte] = (unsigned char)fact.whole[value++];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    ANSWER(nvmlDeviceGetMemoryInfo, -1);
    out->total = fact.whole[0];
    out->free = fact.whole[2];
    out->used = fact.whole[3] + fact.whole[1]; /* version 1 counts what is reserved as used */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    ANSWER(nvmlDeviceGetMemoryInfo_v2, -1);
    if (out->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->total = fact.whole[0];
    out->reserved = fact.whole[1];
    out->free = fact.whole[2];
    out->used = fact.whole[3];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
    ANSWER(nvmlDeviceGetBAR1MemoryInfo, -1);
    out->bar1Total = fact.whole[0];
    out->bar1Free = fact.whole[1];
    out->bar1Used = fact.whole[2];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    ANSWER(nvmlDeviceGetUtilizationRates, -1);
    out->gpu = (unsigned int)fact.whole[0];
    out->memory = (unsigned int)fact.whole[1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    ANSWER(nvmlDeviceGetMarginTemperature, -1);
    if (out->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->marginTemperature = (int)fact.whole[0];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(
    nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
    nvmlMemoryLocation_t location, unsigned long long *out) {
    ANSWER(nvmlDeviceGetMemoryErrorCounter, type * 100L + counter * 10L + location);
    *out = fact.whole[0];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(
    nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out) {
    ANSWER(nvmlDeviceGetRowRemapperHistogram, -1);
    out->max = (unsigned int)fact.whole[0];
    out->high = (unsigned int)fact.whole[1];
    out->partial = (unsigned int)fact.whole[2];
    out->low = (unsigned int)fact.whole[3];
    out->none = (unsigned int)fact.whole[4];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out) {
    ANSWER(nvmlDeviceGetRepairStatus, -1);
    if (out->version != nvmlRepairStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->bChannelRepairPending = (unsigned int)fact.whole[0];
    out->bTpcRepairPending = (unsigned int)fact.whole[1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
    nvmlDevice_t device, nvmlWorkloadPowerProfileCurrentProfiles_t *out) {
    ANSWER(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles, -1);
    if (out->version != nvmlWorkloadPowerProfileCurrentProfiles_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    /* Of the enforced profiles: the first two words of the mask. */
    out->enforcedProfilesMask.mask[0] = (unsigned int)fact.whole[0];
    out->enforcedProfilesMask.mask[1] = (unsigned int)fact.whole[1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out) {
    ANSWER(nvmlDeviceGetSramEccErrorStatus, -1);
    if (out->version != nvmlEccSramErrorStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->aggregateUncParity = fact.whole[0];
    out->aggregateUncSecDed = fact.whole[1];
    out->volatileUncParity = fact.whole[2];
    out->volatileUncSecDed = fact.whole[3];
    out->bThresholdExceeded = (unsigned int)fact.whole[4];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    ANSWER(nvmlDeviceGetGpuFabricInfoV, -1);
    /* The fourth value is the newest version that this driver knows. */
    if (out->version >> 24 > fact.whole[3]) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->status = (nvmlReturn_t)fact.whole[4];
    out->state = (nvmlGpuFabricState_t)fact.whole[0];
    out->healthMask = (unsigned int)fact.whole[1];
    out->cliqueId = (unsigned int)fact.whole[5];
    memset(out->clusterUuid, (int)fact.whole[6], sizeof out->clusterUuid);
    if (out->version == nvmlGpuFabricInfo_v3) out->healthSummary = (unsigned char)fact.whole[2];
    return NVML_SUCCESS;
}

/* The fact of the function is the number of processes; those of its rows are pid, memory, instances. */
static nvmlReturn_t processes(nvmlDevice_t device, const char *function, unsigned int count,
                              unsigned int *number, nvmlProcessInfo_t *out) {
    unsigned int room = *number;
    *number = count;
    if (room < count) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int row = 0; row < count; row++) {
        fact_t fact;
        out[row] = (nvmlProcessInfo_t){.pid = 1000 + row, .usedGpuMemory = 1 << 20,
                                       .gpuInstanceId = ~0u, .computeInstanceId = ~0u};
        if (fake_answer(device, function, (long)row, &fact) || fact.count < 4) continue;
        out[row] = (nvmlProcessInfo_t){.pid = (unsigned int)fact.whole[0], .usedGpuMemory = fact.whole[1],
                                       .gpuInstanceId = (unsigned int)fact.whole[2],
                                       .computeInstanceId = (unsigned int)fact.whole[3]};
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *number, nvmlProcessInfo_t *out) {
    ANSWER(nvmlDeviceGetComputeRunningProcesses_v3, -1);
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v3",
                     (unsigned int)fact.whole[0], number, out);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *number, nvmlProcessInfo_v2_t *out) {
    ANSWER(nvmlDeviceGetComputeRunningProcesses_v2, -1);
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v2",
                     (unsigned int)fact.whole[0], number, (nvmlProcessInfo_t *)out);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *number, nvmlProcessInfo_t *out) {
    ANSWER(nvmlDeviceGetMPSComputeRunningProcesses_v3, -1);
    return processes(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
                     (unsigned int)fact.whole[0], number, out);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *number, nvmlProcessInfo_t *out) {
    ANSWER(nvmlDeviceGetGraphicsRunningProcesses_v3, -1);
    return processes(device, "nvmlDeviceGetGraphicsRunningProcesses_v3",
                     (unsigned int)fact.whole[0], number, out);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
    nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *number,
    unsigned long long since) {
    ANSWER(nvmlDeviceGetProcessUtilization, -1);
    (void)since;
    unsigned int room = *number, count = (unsigned int)fact.whole[0];
    *number = count;
    if (!count) return NVML_ERROR_NOT_FOUND;
    if (room < count) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int row = 0; row < count; row++) {
        memset(&out[row], 0, sizeof out[row]);
        if (fake_answer(device, "nvmlDeviceGetProcessUtilization", (long)row, &fact)) continue;
        out[row].pid = (unsigned int)fact.whole[0];
        out[row].smUtil = (unsigned int)fact.whole[1];
        out[row].timeStamp = (unsigned long long)time(NULL) * 1000000ull;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(
    nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out) {
    ANSWER(nvmlDeviceGetNvLinkRemotePciInfo_v2, (long)link);
    memset(out, 0, sizeof *out);
    unsigned int domain = 0, bus = 0, slot = 0;
    sscanf(fact.text, "%x:%x:%x", &domain, &bus, &slot);
    out->domain = domain, out->bus = bus, out->device = slot;
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", domain, bus, slot);
    return NVML_SUCCESS;
}
