/* A stand-in for libnvidia-ml.so.1 that obeys a control file.
 *
 * Compiled against the real nvml.h, so that every struct and every signature is the real one.
 * KILOWATCH_FAKE_NVML names a folder as in fake_driver/facts.h, which also holds:
 *   events   text, one event a line, only appended: "<gpu> <type> <data>"
 * fake_driver/facts.c reads it; control.c decides; device.c answers for one GPU, system.c for the rest. All other functions of
 * the header exist too (generated stubs) and answer NOT_SUPPORTED.
 */
#ifndef KILOWATCH_FAKE_NVML
#define KILOWATCH_FAKE_NVML
#define _GNU_SOURCE
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"
#include "facts.h"
#include <sys/stat.h>
#include <time.h>

#define MAX_GPUS 64
#define MAX_PARTS 8

struct nvmlDevice_st {
    int index;
    int lost; /* a lost GPU stays lost until the library is initialised anew */
    int part; /* of a MIG device: its number on the GPU from 1 on; its facts are "mig<part> <key>" */
};
struct nvmlEventSet_st {
    uint64_t mask;
    long offset;
    int notify; /* inotify, on the file of events and the folder */
    int gpus[MAX_GPUS];
};
struct nvmlGpmSample_st {
    int gpu;
    int instance; /* MIG GPU instance; -1: the whole GPU */
    struct timespec at;
};

extern struct nvmlDevice_st fake_gpus[MAX_GPUS];
extern struct nvmlDevice_st fake_parts[MAX_GPUS][MAX_PARTS];
extern int fake_users; /* nvmlInit less nvmlShutdown */

/* The gate of every call of a device: counts, waits, and answers for its state. */
nvmlReturn_t fake_enter(int function, nvmlDevice_t device);

/* The scripted answer of a call: its values, or its error code. */
nvmlReturn_t fake_answer(nvmlDevice_t device, const char *function, long argument, fact_t *fact);

#define ENTER(function)                                    \
    do {                                                   \
        nvmlReturn_t code_ = fake_enter(F_##function, device);  \
        if (code_) return code_;                           \
    } while (0)

#define ANSWER(function, argument)                                   \
    fact_t fact;                                                     \
    ENTER(function);                                                 \
    do {                                                             \
        nvmlReturn_t code_ = fake_answer(device, #function, argument, &fact); \
        if (code_) return code_;                                     \
    } while (0)

#endif
