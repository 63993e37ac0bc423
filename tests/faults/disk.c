/* A disk that fails on purpose: loaded before libc (LD_PRELOAD), it stands between a process and
 * the files whose path holds KILOWATCH_DISK_PATH.
 *
 * KILOWATCH_DISK names a file of one word that a test may change at any time:
 *   ok     nothing
 *   eio    what is written fails with EIO
 *   rofs   what is written fails with EROFS, as on a disk that the kernel has made read-only
 *   nospace  what is written fails with ENOSPC, as on a disk that is full
 *   short  half of what is asked for is written, as a disk that is nearly full does
 *   lag    fsync and fdatasync take eight seconds, and succeed
 *   fsync  fsync and fdatasync fail with EIO, and the pages are as good as lost
 * KILOWATCH_DISK_SYNCED, where it is set, is a folder that gets a copy of each file as it is synced, by its path with a %
 * for each slash: what a power cut leaves.
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
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void find(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
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

/* Where the copy of a file is; 0 where none is made. */
static int copy_of(const char *path, char *copy) {
    const char *folder = getenv("KILOWATCH_DISK_SYNCED"), *part = getenv("KILOWATCH_DISK_PATH");
    if (!folder || !part || !strstr(path, part)) return 0;
    int at = snprintf(copy, 400, "%s/", folder);
    snprintf(copy + at, 1200 - (size_t)at, "%s", path);
    for (char *letter = copy + at; *letter; letter++)
        if (*letter == '/') *letter = '%';
    return 1;
}

/* Copy what was synced: aside, then in place, for the process may be killed at any time. */
static void keep(int file, const char *path) {
    char copy[1200], aside[1240], name[64], block[1 << 16];
    if (!copy_of(path, copy)) return;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    snprintf(aside, sizeof aside, "%s.%d", copy, file);
    int from = open(name, O_RDONLY | O_CLOEXEC);
    int to = from < 0 ? -1 : open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t size = 0;
    while (to >= 0 && (size = read(from, block, sizeof block)) > 0)
        if (real_write(to, block, (size_t)size) != size) abort();
    if (to >= 0) close(to);
    if (from >= 0) close(from);
    if (to >= 0) size < 0 ? real_unlink(aside) : real_rename(aside, copy); /* a folder can't be read */
}

int rename(const char *old, const char *new) {
    char from[1200], to[1200];
    int result = real_rename(old, new);
    if (!result && copy_of(old, from) && copy_of(new, to) && real_rename(from, to)) real_unlink(to);
    return result;
}

int unlink(const char *path) {
    char copy[1200];
    int result = real_unlink(path);
    if (!result && copy_of(path, copy)) real_unlink(copy);
    return result;
}

static int sync_of(int file, int (*real)(int)) {
    char path[512];
    if (!ours(file, path)) return real(file);
    remember(path);
    char how = mode();
    if (how == 'l') sleep(8);
    if (how != 'f') {
        int result = real(file);
        if (!result) keep(file, path);
        return result;
    }
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
    case 'n': return errno = ENOSPC, -1;
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
