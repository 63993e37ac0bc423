/* The control file and the counters: see facts.h. */
#include "facts.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#define BUCKETS 16384
#define HANGING F_COUNT
#define WRITTEN (F_COUNT + 1)
#define SLOTS (F_COUNT + 2)

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static fact_t *table[BUCKETS];
static uint64_t known = UINT64_MAX; /* of calls[WRITTEN] */
static volatile uint64_t *calls;

const char *fake_folder(void) {
    const char *name = getenv(FAKE_VARIABLE);
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
    map_counters();
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

uint64_t fake_written(void) {
    map_counters();
    return calls[WRITTEN];
}
