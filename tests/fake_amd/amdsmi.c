/* A stand-in for libamd_smi.so that obeys a control file: see fake_driver/facts.h.
 *
 * Signatures and offsets of structs are those of amdsmi.h of ROCm 7.0; structs are filled by offset. The keys of
 * the control file are the functions, with the values of their fields in order; `init` is the code of
 * amdsmi_init, `library_hang` blocks every call of a GPU, `library_code` is the code of each of them.
 */
#include "facts.h"
#include <time.h>

#define NOT_SUPPORTED 2
#define TIMEOUT 8
#define NOT_INIT 32
#define MAX_GPUS 16

typedef struct { int index; } gpu_t;
static gpu_t gpus[MAX_GPUS];
static int users, socket_of_all;
static long events_at;

static int count_of(void) { return (int)fake_number(-1, "gpus", 0); }

static unsigned enter(int function, gpu_t *gpu) {
    fake_count(function);
    if (!users) return NOT_INIT;
    int index = gpu ? gpu->index : -1;
    fake_hang_while(index, "library_hang");
    return (unsigned)fake_number(index, "library_code", 0);
}

static unsigned answer(int function, const char *name, gpu_t *gpu, fact_t *fact) {
    unsigned code = enter(function, gpu);
    if (code) return code;
    if (!fake_lookup(gpu->index, name, fact)) return NOT_SUPPORTED;
    return fact->type == 'e' ? (unsigned)fact->whole[0] : 0;
}

#define ANSWER(function)                                           \
    fact_t fact;                                                   \
    unsigned code = answer(F_##function, #function, gpu, &fact);   \
    if (code) return code

static void put32(void *out, int offset, uint64_t value) {
    uint32_t narrow = (uint32_t)value;
    memcpy((char *)out + offset, &narrow, 4);
}
static void put64(void *out, int offset, uint64_t value) { memcpy((char *)out + offset, &value, 8); }

unsigned amdsmi_init(uint64_t flags) {
    fake_count(F_amdsmi_init);
    fake_hang_while(-1, "init_hang");
    unsigned code = (unsigned)fake_number(-1, "init", 0);
    if (code || flags != 2) return code ? code : 1;
    for (int index = 0; index < MAX_GPUS; index++) gpus[index].index = index;
    users++;
    return 0;
}

unsigned amdsmi_shut_down(void) {
    fake_count(F_amdsmi_shut_down);
    if (users) users--;
    return 0;
}

unsigned amdsmi_get_lib_version(void *out) {
    fact_t fact;
    fake_count(F_amdsmi_get_lib_version);
    if (!fake_lookup(-1, "amdsmi_get_lib_version", &fact)) return NOT_SUPPORTED;
    for (int part = 0; part < 3; part++) put32(out, 4 * part, fact.whole[part]);
    return 0;
}

unsigned amdsmi_get_socket_handles(uint32_t *count, void **out) {
    unsigned code = enter(F_amdsmi_get_socket_handles, 0);
    if (code) return code;
    if (out && *count) out[0] = &socket_of_all;
    *count = 1;
    return 0;
}

unsigned amdsmi_get_processor_handles(void *socket, uint32_t *count, void **out) {
    unsigned code = enter(F_amdsmi_get_processor_handles, 0);
    if (code || socket != &socket_of_all) return code ? code : 1;
    for (int index = 0; out && index < count_of() && index < (int)*count; index++) out[index] = &gpus[index];
    *count = (uint32_t)count_of();
    return 0;
}

unsigned amdsmi_get_gpu_device_bdf(gpu_t *gpu, uint64_t *out) {
    ANSWER(amdsmi_get_gpu_device_bdf);
    *out = fact.whole[0];
    return 0;
}

unsigned amdsmi_get_gpu_asic_info(gpu_t *gpu, void *out) {
    ANSWER(amdsmi_get_gpu_asic_info);
    char *comma = strchr(fact.text, ',');
    if (!comma) return NOT_SUPPORTED;
    memcpy(out, fact.text, (size_t)(comma - fact.text));
    strcpy((char *)out + 532, comma + 1);
    return 0;
}

static unsigned errors(int function, const char *name, gpu_t *gpu, void *out) {
    fact_t fact;
    unsigned code = answer(function, name, gpu, &fact);
    for (int part = 0; !code && part < 3; part++) put64(out, 8 * part, fact.whole[part]);
    return code;
}

unsigned amdsmi_get_gpu_total_ecc_count(gpu_t *gpu, void *out) {
    return errors(F_amdsmi_get_gpu_total_ecc_count, "amdsmi_get_gpu_total_ecc_count", gpu, out);
}

unsigned amdsmi_get_gpu_ecc_count(gpu_t *gpu, uint64_t block, void *out) {
    if (block != 1) return 1;
    return errors(F_amdsmi_get_gpu_ecc_count, "amdsmi_get_gpu_ecc_count", gpu, out);
}

unsigned amdsmi_get_gpu_bad_page_threshold(gpu_t *gpu, uint32_t *out) {
    ANSWER(amdsmi_get_gpu_bad_page_threshold);
    *out = (uint32_t)fact.whole[0];
    return 0;
}

unsigned amdsmi_get_gpu_bad_page_info(gpu_t *gpu, uint32_t *count, void *out) {
    ANSWER(amdsmi_get_gpu_bad_page_info);
    for (int page = 0; out && page < fact.count && page < (int)*count; page++) {
        put64(out, 24 * page, 0x1000u * (unsigned)page);
        put64(out, 24 * page + 8, 0x1000);
        put32(out, 24 * page + 16, fact.whole[page]);
    }
    *count = (uint32_t)fact.count;
    return 0;
}

unsigned amdsmi_get_pcie_info(gpu_t *gpu, void *out) {
    ANSWER(amdsmi_get_pcie_info);
    for (int part = 0; part < 5; part++) put64(out, 96 + 16 + 8 * part, fact.whole[part]);
    return 0;
}

unsigned amdsmi_get_xgmi_link_status(gpu_t *gpu, void *out) {
    ANSWER(amdsmi_get_xgmi_link_status);
    put32(out, 0, (uint64_t)fact.count);
    for (int link = 0; link < fact.count && link < 8; link++) put32(out, 4 + 4 * link, fact.whole[link]);
    return 0;
}

unsigned amdsmi_get_violation_status(gpu_t *gpu, void *out) {
    ANSWER(amdsmi_get_violation_status);
    for (int part = 0; part < 6; part++) put64(out, 16 + 8 * part, fact.whole[part]);
    return 0;
}

/* ---- events: lines of the file `events`, "<gpu> <type> <text>" ---- */

unsigned amdsmi_init_gpu_event_notification(gpu_t *gpu) {
    return enter(F_amdsmi_init_gpu_event_notification, gpu);
}

unsigned amdsmi_set_gpu_event_notification_mask(gpu_t *gpu, uint64_t mask) {
    unsigned code = enter(F_amdsmi_set_gpu_event_notification_mask, gpu);
    return code ? code : mask == 0xF ? 0 : 1;
}

unsigned amdsmi_get_gpu_event_notification(int milliseconds, uint32_t *count, void *out) {
    unsigned code = enter(F_amdsmi_get_gpu_event_notification, 0);
    if (code) return code;
    uint32_t room = *count;
    *count = 0;
    char path[4096], line[512];
    snprintf(path, sizeof path, "%s/events", fake_folder());
    for (int turn = 0; turn <= milliseconds / 10; turn++) {
        FILE *file = fopen(path, "r");
        if (file) {
            fseek(file, events_at, SEEK_SET);
            while (*count < room && fgets(line, sizeof line, file)) {
                int index, kind, used = 0;
                if (sscanf(line, "%d %d %n", &index, &kind, &used) < 2) continue;
                line[strcspn(line, "\n")] = 0;
                char *entry = (char *)out + 272 * *count;
                put64(entry, 0, (uint64_t)(uintptr_t)&gpus[index]);
                put32(entry, 8, (uint64_t)kind);
                snprintf(entry + 12, 256, "%s", line + used);
                ++*count;
            }
            events_at = ftell(file);
            fclose(file);
        }
        if (*count) return 0;
        usleep(10000);
    }
    return TIMEOUT;
}

unsigned amdsmi_stop_gpu_event_notification(gpu_t *gpu) {
    return enter(F_amdsmi_stop_gpu_event_notification, gpu);
}
