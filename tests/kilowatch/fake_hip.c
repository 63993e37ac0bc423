/* libamdhip64.so without a GPU: memory of the GPUs is memory of the process. FAKE_HIP_FAIL names a call that fails. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int answer(const char *name) {
    const char *failing = getenv("FAKE_HIP_FAIL");
    return failing && strcmp(failing, name) == 0 ? 999 : 0;
}
int hipInit(unsigned flags) { (void)flags; return answer("hipInit"); }
int hipGetDeviceCount(int *count) { *count = atoi(getenv("FAKE_CUDA_GPUS")); return 0; }
int hipSetDevice(int number) { return number < atoi(getenv("FAKE_CUDA_GPUS")) ? 0 : 101; }
int hipDeviceSynchronize(void) { return 0; }
int hipMalloc(void **place, size_t size) { *place = malloc(size); return answer("hipMalloc"); }
int hipHostMalloc(void **place, size_t size, unsigned flags) { *place = flags ? NULL : malloc(size); return 0; }
int hipFree(void *place) { free(place); return 0; }
int hipHostFree(void *place) { free(place); return 0; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    return (kind == 1 || kind == 2) && to && from && size > 4096 ? (memcpy(to, from, 4096), answer("hipMemcpy")) : 1;
}
int hipMemcpyPeer(void *to, int other, const void *from, int number, size_t size) {
    return other != number && to != from && size > 4096 ? (memcpy(to, from, 4096), 0) : 1;
}
