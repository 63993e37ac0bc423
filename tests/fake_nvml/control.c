/* The control file and the counters: see control.h. */
#include "control.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#define BUCKETS 16384
#define HANGING F_COUNT
#define WRITTEN (F_COUNT + 1)
#define SLOTS (F_COUNT + 2)

static pthread_mutex_t manners_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static fact_t *table[BUCKETS];
static uint64_t known = UINT64_MAX; /* of calls[WRITTEN] */
struct nvmlDevice_st fake_gpus[MAX_GPUS];
struct nvmlDevice_st fake_parts[MAX_GPUS][MAX_PARTS];
static volatile uint64_t *calls;
int fake_users;

const char *fake_folder(void) {
    const char *name = getenv("KILOWATCH_FAKE_NVML");
    return name ? name : ".";
}

static void map_counters(void) {
    if (!calls) {
        char path[4096];
        snprintf(path, sizeof path, "%s/calls", fake_folder());
        int file = open(path, O_RDWR);
        void *page = MAP_FAILED;
        if (file >= 0) {
            page = mmap(0, SLOTS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            close(file);
        }
        calls = page == MAP_FAILED ? calloc(SLOTS, 8) : page;
    }
}

void fake_count(int function) {
    map_counters();
    __sync_fetch_and_add(&calls[function], 1);
}

static unsigned hash(const char *key) {
    unsigned sum = 2166136261u;
    while (*key) sum = (sum ^ (unsigned char)*key++) * 16777619u;
    return sum % BUCKETS;
}

static void learn(char *line) {
    char *rest = strchr(line, '\t');
    if (!rest) return;
    *rest++ = 0;
    fact_t *fact = calloc(1, sizeof *fact);
    snprintf(fact->key, sizeof fact->key, "%s", line);
    fact->type = rest[0];
    rest = strchr(rest, '\t');
    rest = rest ? rest + 1 : "";
    snprintf(fact->text, sizeof fact->text, "%s", rest);
    for (char *end; fact->count < MAX_VALUES; rest = end) {
        double number = strtod(rest, &end);
        if (end == rest) break;
        fact->number[fact->count] = number;
        fact->whole[fact->count++] =
            *rest == '-' ? (uint64_t)strtoll(rest, 0, 10) : strtoull(rest, 0, 10);
    }
    fact_t **bucket = &table[hash(fact->key)];
    fact->next = *bucket;
    *bucket = fact;
}

/* Read the control file again if it has changed. Call with the lock held. */
static void refresh(void) {
    char path[4096], line[512];
    uint64_t written = calls[WRITTEN];
    if (written == known) return;
    snprintf(path, sizeof path, "%s/control", fake_folder());
    FILE *file = fopen(path, "r");
    if (!file) return;
    known = written;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        for (fact_t *fact = table[bucket], *next; fact; fact = next) next = fact->next, free(fact);
        table[bucket] = 0;
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        learn(line);
    }
    fclose(file);
}

static int find(const char *key, fact_t *out) {
    for (fact_t *fact = table[hash(key)]; fact; fact = fact->next)
        if (!strcmp(fact->key, key)) return *out = *fact, 1;
    return 0;
}

int fake_lookup(int gpu, const char *key, fact_t *out) {
    char full[128];
    pthread_mutex_lock(&table_lock);
    refresh();
    snprintf(full, sizeof full, "%d %s", gpu, key);
    int found = gpu >= 0 && find(full, out);
    if (!found) {
        snprintf(full, sizeof full, "* %s", key);
        found = find(full, out);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

uint64_t fake_number(int gpu, const char *key, uint64_t otherwise) {
    fact_t fact;
    return fake_lookup(gpu, key, &fact) && fact.count ? fact.whole[0] : otherwise;
}

void fake_hang_while(int gpu, const char *key) {
    if (!fake_number(gpu, key, 0)) return;
    __sync_fetch_and_add(&calls[HANGING], 1);
    for (int turns = 0; fake_number(gpu, key, 0) && turns < 60000; turns++) {
        char control[4096];
        snprintf(control, sizeof control, "%s/control", fake_folder());
        if (access(control, F_OK)) break; /* the test is over */
        usleep(5000);
    }
    __sync_fetch_and_sub(&calls[HANGING], 1);
}

/* What concerns every call of a device, looked up once for each text of the control file. */
static struct manners {
    uint64_t known, pause, hang, all, code;
} manners[MAX_GPUS];

static struct manners manners_of(int gpu) {
    uint64_t written = calls[WRITTEN];
    struct manners found = {written, 0, 0, 0, 0};
    pthread_mutex_lock(&manners_lock);
    int fresh = manners[gpu].known == written + 1;
    if (fresh) found = manners[gpu];
    pthread_mutex_unlock(&manners_lock);
    if (fresh) return found;
    found = (struct manners){written + 1, fake_number(gpu, "latency", 0), fake_number(gpu, "hang", 0),
                             fake_number(-1, "all", 0), fake_number(gpu, "code", 0)};
    pthread_mutex_lock(&manners_lock);
    if (calls[WRITTEN] == written) manners[gpu] = found;
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
