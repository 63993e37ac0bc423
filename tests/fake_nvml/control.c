/* What concerns every call of a device: see control.h. */
#include "control.h"
#include <pthread.h>

static pthread_mutex_t manners_lock = PTHREAD_MUTEX_INITIALIZER;
struct nvmlDevice_st fake_gpus[MAX_GPUS];
struct nvmlDevice_st fake_parts[MAX_GPUS][MAX_PARTS];
int fake_users;

/* What concerns every call of a device, looked up once for each text of the control file. */
static struct manners {
    uint64_t known, pause, hang, all, code;
} manners[MAX_GPUS];

static struct manners manners_of(int gpu) {
    uint64_t written = fake_written();
    struct manners found = {written, 0, 0, 0, 0};
    pthread_mutex_lock(&manners_lock);
    int fresh = manners[gpu].known == written + 1;
    if (fresh) found = manners[gpu];
    pthread_mutex_unlock(&manners_lock);
    if (fresh) return found;
    found = (struct manners){written + 1, fake_number(gpu, "latency", 0), fake_number(gpu, "hang", 0),
                             fake_number(-1, "all", 0), fake_number(gpu, "code", 0)};
    pthread_mutex_lock(&manners_lock);
    if (fake_written() == written) manners[gpu] = found;
    pthread_mutex_unlock(&manners_lock);
    return found;
}

nvmlReturn_t fake_enter(int function, nvmlDevice_t device) {
    fake_count(function);
    if (!fake_users) return NVML_ERROR_UNINITIALIZED;
    if (!device) return NVML_ERROR_INVALID_ARGUMENT;
    struct manners now = manners_of(device->index);
    if (now.pause) usleep((useconds_t)now.pause);
    if (now.hang) {
        fake_hang_while(device->index, "hang");
        now = manners_of(device->index);
    }
    if (now.all) return (nvmlReturn_t)now.all;
    uint64_t code = now.code;
    struct nvmlDevice_st *gpu = &fake_gpus[device->index];
    if (code == NVML_ERROR_GPU_IS_LOST) gpu->lost = 1;
    if (gpu->lost) return NVML_ERROR_GPU_IS_LOST;
    return (nvmlReturn_t)code;
}

nvmlReturn_t fake_answer(nvmlDevice_t device, const char *function, long argument, fact_t *fact) {
    char key[96], part[16] = "";
    if (device->part) snprintf(part, sizeof part, "mig%d ", device->part);
    if (argument >= 0)
        snprintf(key, sizeof key, "%s%s/%ld", part, function, argument);
    else
        snprintf(key, sizeof key, "%s%s", part, function);
    if (!fake_lookup(device->index, key, fact)) return NVML_ERROR_NOT_SUPPORTED;
    return fact->type == 'e' ? (nvmlReturn_t)fact->whole[0] : NVML_SUCCESS;
}
