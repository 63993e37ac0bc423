/* A stand-in for libnvidia-ml.so.1 that obeys a control file.
 *
 * Compiled against the real nvml.h, so that every struct and every signature is the real one.
 * KILOWATCH_FAKE_NVML names a folder that holds:
 *   control  text, one fact a line, replaced as a whole; read again at the first call after it
 *   events   text, one event a line, only appended: "<gpu> <type> <data>"
 *   calls    shared memory: one counter a function, in the order of functions.h, then the
 *            number of calls that hang at this moment, then how often control was written
 * The lines of the control file are described in __init__.py, which writes them.
 * control.c reads it; device.c answers for one GPU, system.c for the rest. All other functions of
 * the header exist too (generated stubs) and answer NOT_SUPPORTED.
 */
#ifndef KILOWATCH_FAKE_NVML
#define KILOWATCH_FAKE_NVML
#define _GNU_SOURCE
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"
#include "functions.h" /* generated: F_<function> numbers, F_COUNT */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 64
#define MAX_VALUES 32
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

typedef struct fact {
    struct fact *next;
    char key[96];
    char type; /* of a field: d u l U s i h, or e for an error code */
    int count;
    double number[MAX_VALUES];
    uint64_t whole[MAX_VALUES];
    char text[128];
} fact_t;

extern struct nvmlDevice_st fake_gpus[MAX_GPUS];
extern struct nvmlDevice_st fake_parts[MAX_GPUS][MAX_PARTS];
extern int fake_users; /* nvmlInit less nvmlShutdown */

const char *fake_folder(void);

/* Count a call. */
void fake_count(int function);

/* What the control file says of this GPU (-1: of none in particular), or of all of them. */
int fake_lookup(int gpu, const char *key, fact_t *out);

/* The same, as one whole number. */
uint64_t fake_number(int gpu, const char *key, uint64_t otherwise);

/* Block as a driver call that hangs does, until the control file says otherwise. */
void fake_hang_while(int gpu, const char *key);

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
