/* What no folder can do as sysfs does: block a reader, or refuse one as a GPU in reset does.
 *
 * Preloaded into the process that reads. Opening a file of a GPU (`.../devices/0000:05:00.0/...`) obeys the
 * facts `hang` and `errno` of the GPU whose address is the fact `place`; all other files are as they are.
 */
#include "facts.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#define MAX_GPUS 16

typedef int opening(const char *, int, ...);

static int refused(const char *path) {
    const char *found = path ? strstr(path, "/bus/pci/devices/") : 0;
    if (!found || !getenv(FAKE_VARIABLE)) return 0;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        fact_t fact;
        if (!fake_lookup(gpu, "place", &fact)) return 0;
        if (strncmp(found + 17, fact.text, 12)) continue;
        fake_count(F_open);
        fake_hang_while(gpu, "hang");
        return (int)fake_number(gpu, "errno", 0);
    }
    return 0;
}

#define OPENING(name)                                                   \
    int name(const char *path, int flags, ...) {                        \
        static opening *real;                                           \
        if (!real) real = (opening *)dlsym(RTLD_NEXT, #name);           \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = va_arg(rest, mode_t);                             \
        va_end(rest);                                                   \
        int code = refused(path);                                       \
        if (code) return errno = code, -1;                              \
        return real(path, flags, mode);                                 \
    }

OPENING(open)
OPENING(open64)
