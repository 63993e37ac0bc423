/* What a stand-in for a driver's library obeys: the control file and the counters of a folder.
 *
 * An environment variable names the folder, which holds:
 *   control  text, one fact a line, replaced as a whole; read again at the first call after it
 *   calls    shared memory: one counter a function, in the order of functions.h, then the
 *            number of calls that hang at this moment, then how often control was written
 * The lines of the control file are described in __init__.py, which writes them.
 */
#ifndef KILOWATCH_FAKE_FACTS
#define KILOWATCH_FAKE_FACTS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "functions.h" /* generated: F_<function> numbers, F_COUNT, FAKE_VARIABLE */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_VALUES 32

typedef struct fact {
    struct fact *next;
    char key[96];
    char type; /* of a field: d u l U s i h, or e for an error code */
    int count;
    double number[MAX_VALUES];
    uint64_t whole[MAX_VALUES];
    char text[128];
} fact_t;

const char *fake_folder(void);

/* Count a call. */
void fake_count(int function);

/* What the control file says of this GPU (-1: of none in particular), or of all of them. */
int fake_lookup(int gpu, const char *key, fact_t *out);

/* The same, as one whole number. */
uint64_t fake_number(int gpu, const char *key, uint64_t otherwise);

/* Block as a driver call that hangs does, until the control file says otherwise. */
void fake_hang_while(int gpu, const char *key);

/* How often the control file was written. */
uint64_t fake_written(void);

#endif
