// A libcuda.so.1 that does nothing: Triton compiles for an H100 and launches over it, and a step takes the host's time alone.
#include <stddef.h>
#include <stdint.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_DUMP_STATS
#endif

typedef void *Handle;

#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSetLimit)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncSetCacheConfig)
NOTHING(cuTensorMapEncodeTiled)
NOTHING(cuTensorMapEncodeIm2col)

#define ANSWER(name, type, value, ...) int name(type *found, ##__VA_ARGS__) { *found = value; return 0; }
ANSWER(cuDriverGetVersion, int, 13000)
ANSWER(cuDeviceGetCount, int, 1)
ANSWER(cuDeviceGet, int, 0)
ANSWER(cuCtxGetDevice, int, 0)
ANSWER(cuCtxGetCurrent, Handle, (Handle)1)
ANSWER(cuDevicePrimaryCtxRetain, Handle, (Handle)1)
ANSWER(cuCtxGetLimit, size_t, 0)
ANSWER(cuModuleLoadData, Handle, (Handle)0x100)
ANSWER(cuFuncGetAttribute, int, attribute == 0 ? 1024 : 0, int attribute)
ANSWER(cuOccupancyMaxActiveClusters, int, 1)
ANSWER(cuOccupancyMaxActiveBlocksPerMultiprocessor, int, 1)
ANSWER(cuPointerGetAttribute, uint64_t, address, int attribute, uint64_t address)

int cuModuleGetFunction(Handle *found, Handle module, const char *name) {
    static Handle next = (Handle)0x200;
    *found = next++;
    return 0;
}
int cuStreamIsCapturing(Handle stream, int *found) { *found = 0; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "an error"; return 0; }
int cuPointerGetAttributes(unsigned count, int *attributes, void **found, uint64_t address) {
    for (unsigned i = 0; i < count; i++)
        *(uint64_t *)found[i] = address;
    return 0;
}
int cuDeviceGetAttribute(int *found, int attribute, int device) {
    switch (attribute) { // of an H100
    case 75: *found = 9; break;
    case 76: *found = 0; break;
    case 97: *found = 232448; break;
    case 16: *found = 132; break;
    case 10: *found = 32; break;
    default: *found = 1024;
    }
    return 0;
}

// The number of launches, and the last of the watched function: its grid, block, shared memory and stream, and 8 bytes
// of each of its parameters.
typedef struct {
    unsigned grid[3], block[3], shared;
    Handle stream, attributes;
    unsigned count;
} Config;
long launches;
unsigned parameters;
Config config;
Handle watched;
uint64_t values[64];

int cuLaunchKernelEx(const Config *given, Handle of, void **cells, void **extra) {
    launches++;
    if (of != watched)
        return 0;
    config = *given;
    for (unsigned i = 0; i < parameters; i++)
        values[i] = *(uint64_t *)cells[i];
    return 0;
}

// Between these two, callgrind counts instructions; each pair writes a file.
void start_counting(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop_counting(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
