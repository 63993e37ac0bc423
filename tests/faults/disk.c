/* A disk that fails on purpose: loaded before libc (LD_PRELOAD), it stands between a process and
 * the files whose path holds KILOWATCH_DISK_PATH.
 *
 * KILOWATCH_DISK names a file of one word that a test may change at any time:
 *   ok     nothing
 *   eio    what is written fails with EIO
 *   rofs   what is written fails with EROFS, as on a disk that the kernel has made read-only
 *   short  half of what is asked for is written, as a disk that is nearly full does
 *   lag    fsync and fdatasync take eight seconds, and succeed
 *   fsync  fsync and fdatasync fail with EIO, and the pages are as good as lost
 * Every failed sync, and every write or sync of a file after its sync failed, is a line of
 * KILOWATCH_DISK.log: "failed <file>", "again <file>".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MOST 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char failed[MOST][512];
static int failures;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void find(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

/* Whether the file is one of ours; its path. */
static int ours(int file, char *path) {
    char link[64];
    const char *part = getenv("KILOWATCH_DISK_PATH");
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = part ? readlink(link, path, 511) : -1;
    errno = before;
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, part) != 0;
}

static char mode(void) {
    char word = 'o';
    const char *name = getenv("KILOWATCH_DISK");
    int before = errno, file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, &word, 1) != 1) word = 'o';
        close(file);
    }
    errno = before;
    return word;
}

static void note(const char *what, const char *path) {
    char name[600], line[600];
    snprintf(name, sizeof name, "%s.log", getenv("KILOWATCH_DISK"));
    int file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int size = snprintf(line, sizeof line, "%s %s\n", what, path);
    if (file >= 0 && real_write(file, line, (size_t)size) != size) abort();
    close(file);
}

/* Say so when a file is used after its sync has failed. */
static void remember(const char *path) {
    pthread_mutex_lock(&lock);
    for (int at = 0; at < failures; at++)
        if (!strcmp(failed[at], path)) note("again", path);
    pthread_mutex_unlock(&lock);
}

static int sync_of(int file, int (*real)(int)) {
    char path[512];
    if (!ours(file, path)) return real(file);
    remember(path);
    char how = mode();
    if (how == 'l') sleep(8);
    if (how != 'f') return real(file);
    pthread_mutex_lock(&lock);
    if (failures < MOST) strcpy(failed[failures++], path);
    pthread_mutex_unlock(&lock);
    note("failed", path);
    errno = EIO;
    return -1;
}

int fsync(int file) { return sync_of(file, real_fsync); }
int fdatasync(int file) { return sync_of(file, real_fdatasync); }

/* How many bytes to write; -1 for none, with errno. */
static ssize_t room(int file, size_t size) {
    char path[512];
    if (!ours(file, path)) return (ssize_t)size;
    remember(path);
    switch (mode()) {
    case 'e': return errno = EIO, -1;
    case 'r': return errno = EROFS, -1;
    case 's': return size > 1 ? (ssize_t)(size / 2) : (ssize_t)size;
    default: return (ssize_t)size;
    }
}

ssize_t write(int file, const void *data, size_t size) {
    ssize_t left = room(file, size);
    return left < 0 ? -1 : real_write(file, data, (size_t)left);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    ssize_t left = room(file, size);
    return left < 0 ? -1 : real_pwrite(file, data, (size_t)left, offset);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    return pwrite64(file, data, size, offset);
}
