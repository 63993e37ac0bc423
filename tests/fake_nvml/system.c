/* The library itself, fields, performance monitoring and events. */
#include "control.h"
#include <poll.h>
#include <sys/inotify.h>

/* ---- the library itself ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    fake_count(F_nvmlInitWithFlags);
    fake_hang_while(-1, "init_hang");
    uint64_t code = fake_number(-1, "init", 0);
    if (code) return (nvmlReturn_t)code;
    if (!fake_users++)
        for (int gpu = 0; gpu < MAX_GPUS; gpu++) fake_gpus[gpu].index = gpu, fake_gpus[gpu].lost = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    fake_count(F_nvmlShutdown);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    fake_users--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static __thread char text[32];
    snprintf(text, sizeof text, "fake error %d", (int)result);
    return text;
}

static nvmlReturn_t system_text(const char *key, char *out, unsigned int size) {
    fact_t fact;
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    if (!fake_lookup(-1, key, &fact)) return NVML_ERROR_NOT_SUPPORTED;
    snprintf(out, size, "%s", fact.text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    fake_count(F_nvmlSystemGetDriverVersion);
    return system_text("driver", version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    fake_count(F_nvmlSystemGetNVMLVersion);
    return system_text("driver", version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    fake_count(F_nvmlSystemGetCudaDriverVersion_v2);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    *version = (int)fake_number(-1, "cuda", 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *number) {
    fake_count(F_nvmlDeviceGetCount_v2);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    *number = (unsigned int)fake_number(-1, "gpus", 0);
    return (nvmlReturn_t)fake_number(-1, "all", 0);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *number) {
    fake_count(F_nvmlGetExcludedDeviceCount);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    *number = (unsigned int)fake_number(-1, "excluded", 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info) {
    fake_count(F_nvmlGetExcludedDeviceInfoByIndex);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    fact_t fact;
    char key[32];
    snprintf(key, sizeof key, "excluded/%u", index);
    if (!fake_lookup(-1, key, &fact)) return NVML_ERROR_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    snprintf(info->pciInfo.busId, sizeof info->pciInfo.busId, "%s", fact.text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out) {
    fake_count(F_nvmlDeviceGetHandleByIndex_v2);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    if (index >= fake_number(-1, "gpus", 0)) return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t code = fake_number((int)index, "code", 0);
    if (code == NVML_ERROR_GPU_IS_LOST) return NVML_ERROR_GPU_IS_LOST;
    *out = &fake_gpus[index];
    return NVML_SUCCESS;
}

/* ---- fields ---- */

static void fill(nvmlDevice_t device, nvmlFieldValue_t *field) {
    fact_t fact;
    char key[48];
    memset(&field->value, 0xA5, sizeof field->value); /* the real one leaves rubbish beside a uint */
    field->timestamp = 0;
    field->latencyUsec = 0;
    snprintf(key, sizeof key, "field %u %u", field->fieldId, field->scopeId);
    int found = fake_lookup(device->index, key, &fact);
    if (!found) {
        snprintf(key, sizeof key, "field %u *", field->fieldId);
        found = fake_lookup(device->index, key, &fact);
    }
    if (!found || fact.type == 'e') {
        field->nvmlReturn = found ? (nvmlReturn_t)fact.whole[0] : NVML_ERROR_NOT_SUPPORTED;
        return;
    }
    field->nvmlReturn = NVML_SUCCESS;
    switch (fact.type) {
    case 'd': field->valueType = NVML_VALUE_TYPE_DOUBLE, field->value.dVal = fact.number[0]; break;
    case 'l': field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG, field->value.ulVal = fact.whole[0]; break;
    case 'U': field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, field->value.ullVal = fact.whole[0]; break;
    case 's': field->valueType = NVML_VALUE_TYPE_SIGNED_LONG_LONG, field->value.sllVal = (long long)fact.whole[0]; break;
    case 'i': field->valueType = NVML_VALUE_TYPE_SIGNED_INT, field->value.siVal = (int)fact.whole[0]; break;
    case 'h': field->valueType = NVML_VALUE_TYPE_UNSIGNED_SHORT, field->value.usVal = (unsigned short)fact.whole[0]; break;
    default: field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT, field->value.uiVal = (unsigned int)fact.whole[0];
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int number, nvmlFieldValue_t *values) {
    ENTER(nvmlDeviceGetFieldValues);
    if (number < 0 || (uint64_t)number > fake_number(device->index, "field_limit", 100000))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int row = 0; row < number; row++) fill(device, &values[row]);
    return NVML_SUCCESS;
}

/* ---- GPM: values of "gpm <id>", of a MIG instance "gpm <id>/<instance>", only between two samples of the same GPU ---- */

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    ENTER(nvmlGpmQueryDeviceSupport);
    out->isSupportedDevice = (unsigned int)fake_number(device->index, "gpm", 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    fake_count(F_nvmlGpmSampleAlloc);
    *sample = calloc(1, sizeof **sample);
    (*sample)->gpu = -1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    fake_count(F_nvmlGpmSampleFree);
    free(sample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    ANSWER(nvmlGpmSampleGet, -1);
    sample->gpu = device->index;
    sample->instance = -1;
    clock_gettime(CLOCK_MONOTONIC, &sample->at);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample) {
    ANSWER(nvmlGpmMigSampleGet, -1);
    sample->gpu = device->index;
    sample->instance = (int)instance;
    clock_gettime(CLOCK_MONOTONIC, &sample->at);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    fake_count(F_nvmlGpmMetricsGet);
    if (get->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (get->sample1->gpu < 0 || get->sample1->gpu != get->sample2->gpu ||
        get->sample1->instance != get->sample2->instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int row = 0; row < get->numMetrics; row++) {
        fact_t fact;
        char key[32];
        int instance = get->sample1->instance;
        snprintf(key, sizeof key, instance < 0 ? "gpm %u" : "gpm %u/%d", get->metrics[row].metricId, instance);
        int found = fake_lookup(get->sample1->gpu, key, &fact);
        get->metrics[row].nvmlReturn = found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        if (found && fact.type == 'e') get->metrics[row].nvmlReturn = (nvmlReturn_t)fact.whole[0];
        get->metrics[row].value = found ? fact.number[0] : 0;
    }
    return NVML_SUCCESS;
}

/* ---- events ---- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    char path[4096];
    struct stat about;
    fake_count(F_nvmlEventSetCreate);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    snprintf(path, sizeof path, "%s/events", fake_folder());
    (*set)->offset = stat(path, &about) ? 0 : (long)about.st_size; /* only what comes from now on */
    (*set)->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    inotify_add_watch((*set)->notify, path, IN_MODIFY);
    inotify_add_watch((*set)->notify, fake_folder(), IN_MOVED_TO);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    fake_count(F_nvmlEventSetFree);
    close(set->notify);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ANSWER(nvmlDeviceRegisterEvents, -1);
    if (types & ~fake_number(device->index, "nvmlDeviceGetSupportedEventTypes", 0))
        return NVML_ERROR_NOT_SUPPORTED;
    set->mask |= types;
    set->gpus[device->index] = 1;
    return NVML_SUCCESS;
}

/* What the driver does in the kernel: sleep until there is news of the file or of the control file. */
static void sleep_on(int notify, unsigned int milliseconds) {
    char news[4096];
    struct pollfd waiting = {notify, POLLIN, 0};
    if (poll(&waiting, 1, (int)milliseconds) > 0 && read(notify, news, sizeof news) < 0) usleep(1000);
}

static unsigned int since(const struct timespec *begin) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned int)((now.tv_sec - begin->tv_sec) * 1000 +
                          (now.tv_nsec - begin->tv_nsec) / 1000000);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout) {
    char path[4096], line[256];
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    fake_count(F_nvmlEventSetWait_v2);
    snprintf(path, sizeof path, "%s/events", fake_folder());
    for (;;) {
        if (!fake_users) return NVML_ERROR_UNINITIALIZED;
        uint64_t code = fake_number(-1, "wait", 0);
        struct stat about;
        int news = !stat(path, &about) && (long)about.st_size > set->offset;
        FILE *file = news ? fopen(path, "r") : 0;
        while (file && !fseek(file, set->offset, SEEK_SET) && fgets(line, sizeof line, file) &&
               strchr(line, '\n')) {
            int gpu;
            unsigned long long type, payload;
            set->offset += (long)strlen(line);
            if (sscanf(line, "%d %llu %llu", &gpu, &type, &payload) != 3) continue;
            if (gpu < 0 || gpu >= MAX_GPUS || !set->gpus[gpu] || !(set->mask & type)) continue;
            fclose(file);
            *data = (nvmlEventData_t){&fake_gpus[gpu], type, payload, 0xFFFFFFFF, 0xFFFFFFFF};
            return NVML_SUCCESS;
        }
        if (file) fclose(file);
        if (code) return usleep(2000), (nvmlReturn_t)code;
        unsigned int waited = since(&begin);
        if (waited >= timeout) return NVML_ERROR_TIMEOUT;
        sleep_on(set->notify, timeout - waited);
    }
}
