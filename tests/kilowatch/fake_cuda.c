/* libcuda.so.1 without a GPU: memory of the GPUs is memory of the process. FAKE_CUDA_FAIL names a call that fails. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int answer(const char *name) {
    const char *failing = getenv("FAKE_CUDA_FAIL");
    return failing && strcmp(failing, name) == 0 ? 999 : 0;
}
int cuInit(unsigned flags) { (void)flags; return answer("cuInit"); }
int cuDeviceGetCount(int *count) { *count = atoi(getenv("FAKE_CUDA_GPUS")); return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(uint64_t *place, size_t size) { *place = (uint64_t)(uintptr_t)malloc(size); return answer("cuMemAlloc_v2"); }
int cuMemFree_v2(uint64_t place) { free((void *)(uintptr_t)place); return 0; }
int cuMemAllocHost_v2(void **place, size_t size) { *place = malloc(size); return 0; }
int cuMemFreeHost(void *place) { free(place); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { return from && to && size > 4096 ? (memcpy((void *)(uintptr_t)to, from, 4096), answer("cuMemcpyHtoD_v2")) : 1; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { return from && to && size > 4096 ? (memcpy(to, (void *)(uintptr_t)from, 4096), 0) : 1; }
int cuMemcpyPeer(uint64_t to, void *tc, uint64_t from, void *fc, size_t size) {
    return tc != fc && to != from && size ? (memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, 4096), 0) : 1;
}
