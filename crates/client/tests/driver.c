/* A program that takes devices, contexts, memory, streams and events from the driver, by what it is told to do. Says what
 * comes of each call. */
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
typedef uint64_t address;
enum { SIZE = 8 };

struct plane {
    size_t x, y;
    int memory;
    const void *host;
    address device;
    handle array;
    size_t pitch;
};
struct copy {
    struct plane from, to;
    size_t width, height;
};

struct volume {
    size_t x, y, z, level;
    int memory;
    const void *host;
    address device;
    handle array, reserved;
    size_t pitch, height;
};
struct volume_copy {
    struct volume from, to;
    size_t width, height, depth;
};

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int room, int device);
int cuDeviceGetUuid_v2(char *uuid, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceComputeCapability(int *major, int *minor, int device);
int cuDeviceGetProperties(int *properties, int device);
int cuDeviceGetPCIBusId(char *address, int room, int device);
int cuDeviceGetByPCIBusId(int *device, const char *address);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceGetDefaultMemPool(handle *pool, int device);
int cuDeviceGetMemPool(handle *pool, int device);
int cuDeviceSetMemPool(int device, handle pool);
int cuDevicePrimaryCtxRetain(handle *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
int cuCtxCreate_v2(handle *context, unsigned flags, int device);
int cuCtxCreate_v3(handle *context, void *affinities, int count, unsigned flags, int device);
int cuCtxDestroy_v2(handle context);
int cuCtxPushCurrent_v2(handle context);
int cuCtxPopCurrent_v2(handle *context);
int cuCtxSetCurrent(handle context);
int cuCtxGetCurrent(handle *context);
int cuCtxGetDevice(int *device);
int cuCtxGetFlags(unsigned *flags);
int cuCtxGetApiVersion(handle context, unsigned *version);
int cuCtxSynchronize(void);
int cuCtxGetLimit(size_t *value, int limit);
int cuCtxSetLimit(int limit, size_t value);
int cuCtxGetCacheConfig(int *config);
int cuCtxSetCacheConfig(int config);
int cuCtxGetStreamPriorityRange(int *least, int *greatest);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemAlloc_v2(address *made, size_t bytes);
int cuMemAllocPitch_v2(address *made, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemFree_v2(address at);
int cuMemAllocAsync(address *made, size_t bytes, handle stream);
int cuMemAllocFromPoolAsync(address *made, size_t bytes, handle pool, handle stream);
int cuMemFreeAsync(address at, handle stream);
int cuMemAllocManaged(address *made, size_t bytes, unsigned flags);
int cuMemGetAddressRange_v2(address *base, size_t *size, address at);
int cuMemHostAlloc(void **made, size_t bytes, unsigned flags);
int cuMemAllocHost_v2(void **made, size_t bytes);
int cuMemFreeHost(void *at);
int cuMemHostGetFlags(unsigned *flags, void *at);
int cuMemHostGetDevicePointer_v2(address *device, void *host, unsigned flags);
int cuMemPoolCreate(handle *pool, const void *properties);
int cuMemPoolDestroy(handle pool);
int cuMemPoolTrimTo(handle pool, size_t bytes);
int cuMemPoolGetAttribute(handle pool, int attribute, void *value);
int cuMemPoolSetAttribute(handle pool, int attribute, void *value);
int cuMemcpy(address to, address from, size_t bytes);
int cuMemcpyHtoD_v2(address to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, address from, size_t bytes);
int cuMemcpyDtoD_v2(address to, address from, size_t bytes);
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, handle stream);
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, handle stream);
int cuMemcpy2D_v2(const struct copy *what);
int cuMemcpy3D_v2(const struct volume_copy *what);
int cuMemcpy3DAsync_v2(const struct volume_copy *what, handle stream);
int cuMemsetD8_v2(address at, unsigned char value, size_t count);
int cuMemsetD16_v2(address at, unsigned short value, size_t count);
int cuMemsetD32_v2(address at, unsigned value, size_t count);
int cuMemsetD2D8_v2(address at, size_t pitch, unsigned char value, size_t width, size_t height);
int cuMemsetD32Async(address at, unsigned value, size_t count, handle stream);
int cuPointerGetAttribute(void *value, int attribute, address at);
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, address at);
int cuStreamCreate(handle *made, unsigned flags);
int cuStreamCreateWithPriority(handle *made, unsigned flags, int priority);
int cuStreamDestroy_v2(handle stream);
int cuStreamSynchronize(handle stream);
int cuStreamQuery(handle stream);
int cuStreamWaitEvent(handle stream, handle event, unsigned flags);
int cuStreamGetFlags(handle stream, unsigned *flags);
int cuStreamGetCtx(handle stream, handle *context);
int cuEventCreate(handle *made, unsigned flags);
int cuEventDestroy_v2(handle event);
int cuEventRecord(handle event, handle stream);
int cuEventQuery(handle event);
int cuEventSynchronize(handle event);
int cuEventElapsedTime(float *milliseconds, handle from, handle to);
int cuLaunchHostFunc(handle stream, void (*function)(void *), void *data);
int cuStreamAddCallback(handle stream, void (*function)(handle, int, void *), void *data, unsigned flags);
int cuModuleLoadData(handle *module, const void *image);
int cudaMalloc(void **made, size_t bytes);
int cudaFree(void *at);
int cublasCreate_v2(handle *made);
int cublasSscal_v2(handle blas, int count, const float *factor, void *x, int step);
int cudaDeviceSynchronize(void);
int cudaStreamCreate(handle *made);
int cudaStreamDestroy(handle stream);
int cudaStreamSynchronize(handle stream);

/* One at a time: the order of arguments is nobody's. */
#define SAY(number) printf("%lld ", (long long)(number))

static void start(void) {
    int count = -1, version = 0, value = -1, major = 0, minor = -1, properties[14] = {0};
    size_t total = 0;
    handle context = &context;
    char text[16] = "", uuid[16];
    SAY(cuDeviceGetCount(&count));
    SAY(cuCtxGetCurrent(&context));
    SAY(cuCtxSynchronize());
    SAY(cuInit(1));
    SAY(cuDriverGetVersion(&version));
    SAY(version);
    SAY(cuInit(0));
    SAY(cuInit(0));
    puts("");
    SAY(cuDeviceGetCount(&count));
    SAY(count);
    SAY(cuDeviceGetCount(NULL));
    SAY(cuDeviceGet(&count, 0));
    SAY(count);
    SAY(cuDeviceGet(&count, 1));
    SAY(cuDeviceGet(&count, -1));
    SAY(cuDeviceGetName(text, sizeof text, 0));
    printf("%s ", text);
    SAY(cuDeviceGetName(text, 3, 0));
    printf("%s ", text);
    SAY(cuDeviceGetName(text, 0, 0));
    SAY(cuDeviceGetUuid_v2(uuid, 0));
    SAY(memcmp(uuid, "vgpu", 4));
    SAY(cuDeviceTotalMem_v2(&total, 0));
    SAY(total);
    SAY(cuDeviceTotalMem_v2(&total, 1));
    puts("");
    /* Integrated, mapped and managed memory: none; by address, and pools: there are. */
    for (int i = 0, which[] = {16, 18, 19, 41, 75, 76, 83, 89, 115, 134, 13}; i < 11; i++) {
        cuDeviceGetAttribute(&value, which[i], 0);
        SAY(value);
    }
    SAY(cuDeviceGetAttribute(&value, 0, 0));
    SAY(cuDeviceGetAttribute(&value, 135, 0));
    SAY(cuDeviceGetAttribute(NULL, 1, 0));
    SAY(cuDeviceGetAttribute(&value, 1, 1));
    SAY(cuDeviceComputeCapability(&major, &minor, 0));
    SAY(major * 10 + minor);
    SAY(cuDeviceGetProperties(properties, 0));
    SAY(properties[0]);
    SAY(properties[9]);
    SAY(properties[13]);
    puts("");
    SAY(cuDeviceGetPCIBusId(text, sizeof text, 0));
    printf("%s ", text);
    SAY(cuDeviceGetByPCIBusId(&value, text));
    SAY(value);
    SAY(cuDeviceGetByPCIBusId(&value, "0000:01:00.0"));
    SAY(cuDeviceGetByPCIBusId(&value, "nowhere"));
    SAY(cuDeviceCanAccessPeer(&value, 0, 0));
    SAY(value);
    SAY(cuDeviceCanAccessPeer(&value, 0, 1));
    puts("");
}

static void none(void) {
    int count = -1;
    void *at;
    SAY(cuInit(0));
    SAY(cuDeviceGetCount(&count));
    SAY(cudaMalloc(&at, 4));
    puts("");
}

/* What a thread that a context is current to makes of it once it has ended. */
static void *late(void *context) {
    size_t free, total;
    handle current = NULL;
    cuCtxGetCurrent(&current);
    SAY(current == NULL);
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemGetInfo_v2(&free, &total));
    SAY(cuCtxDestroy_v2(context));
    cuCtxGetCurrent(&current);
    SAY(current == NULL);
    return NULL;
}

static void *current_and_destroyed(void *context) {
    size_t free, total;
    handle current = NULL;
    pthread_t thread;
    SAY(cuCtxPushCurrent_v2(context));
    pthread_create(&thread, NULL, late, context);
    pthread_join(thread, NULL);
    cuCtxGetCurrent(&current);
    SAY(current == context);
    SAY(cuMemGetInfo_v2(&free, &total));
    SAY(cuCtxPushCurrent_v2(context));
    SAY(cuCtxDestroy_v2(context));
    SAY(cuCtxPopCurrent_v2(&current));
    SAY(current == context);
    SAY(cuMemGetInfo_v2(&free, &total));
    return NULL;
}

static void contexts(void) {
    handle a = NULL, b = NULL, current = NULL;
    int device = -1, config = -1;
    unsigned flags = 99, version = 0;
    size_t value = 0;
    cuInit(0);
    SAY(cuCtxGetCurrent(&current));
    SAY(current == NULL);
    SAY(cuCtxSynchronize());
    SAY(cuCtxGetDevice(&device));
    SAY(cuCtxPopCurrent_v2(&current));
    SAY(cuCtxCreate_v2(&a, 0, 1));
    SAY(cuCtxCreate_v2(&a, 3, 0));
    SAY(cuCtxCreate_v2(&a, 64, 0));
    SAY(cuCtxCreate_v2(NULL, 0, 0));
    SAY(cuCtxCreate_v2(&a, 4 | 8, 0));
    SAY(cuCtxGetDevice(&device));
    SAY(device);
    SAY(cuCtxGetFlags(&flags));
    SAY(flags);
    SAY(cuCtxGetApiVersion(a, &version));
    SAY(version);
    SAY(cuCtxGetApiVersion(&a, &version));
    SAY(cuCtxSynchronize());
    puts("");
    SAY(cuCtxGetLimit(&value, 0));
    SAY(value);
    SAY(cuCtxSetLimit(0, 2048));
    SAY(cuCtxGetLimit(&value, 0));
    SAY(value);
    SAY(cuCtxGetLimit(&value, 7));
    SAY(cuCtxSetLimit(-1, 1));
    SAY(cuCtxSetCacheConfig(2));
    SAY(cuCtxGetCacheConfig(&config));
    SAY(config);
    SAY(cuCtxSetCacheConfig(4));
    SAY(cuCtxGetStreamPriorityRange(&device, NULL));
    SAY(device);
    puts("");
    SAY(cuCtxCreate_v3(&b, NULL, 0, 0, 0));
    SAY(a != b);
    cuCtxGetCurrent(&current);
    SAY(current == b);
    cuCtxGetLimit(&value, 0);
    SAY(value);
    SAY(cuCtxPopCurrent_v2(&current));
    SAY(current == b);
    cuCtxGetCurrent(&current);
    SAY(current == a);
    SAY(cuCtxPushCurrent_v2(&a));
    SAY(cuCtxSetCurrent(&a));
    SAY(cuCtxSetCurrent(b));
    SAY(cuCtxDestroy_v2(b));
    cuCtxGetCurrent(&current);
    SAY(current == NULL);
    SAY(cuCtxDestroy_v2(b));
    SAY(cuCtxSetCurrent(b));
    SAY(cuCtxDestroy_v2(NULL));
    SAY(cuCtxSetCurrent(NULL));
    puts("");
    pthread_t thread;
    pthread_create(&thread, NULL, current_and_destroyed, a);
    pthread_join(thread, NULL);
    puts("");
}

/* Of what is a context's nothing is left when it ends. */
static void ends(void) {
    handle a, b, stream, event, other;
    address at;
    size_t before, after, total;
    cuInit(0);
    cuCtxCreate_v2(&b, 0, 0);
    cuCtxCreate_v2(&a, 0, 0);
    cuMemGetInfo_v2(&before, &total);
    SAY(cuMemAlloc_v2(&at, 1 << 20));
    SAY(cuStreamCreate(&stream, 0));
    SAY(cuEventCreate(&event, 0));
    SAY(cuEventRecord(event, stream));
    SAY(cuStreamGetCtx(stream, &other));
    SAY(other == a);
    SAY(cuStreamGetCtx(NULL, &other));
    SAY(other == a);
    cuCtxPushCurrent_v2(b);
    /* An address is an address in each of them; an event is not. */
    SAY(cuMemsetD8_v2(at, 1, 4));
    SAY(cuEventRecord(event, stream));
    SAY(cuEventRecord(event, NULL));
    SAY(cuStreamWaitEvent(NULL, event, 0));
    SAY(cuStreamWaitEvent(NULL, event, 2));
    SAY(cuCtxDestroy_v2(a));
    SAY(cuStreamSynchronize(stream));
    SAY(cuEventSynchronize(event));
    SAY(cuMemsetD8_v2(at, 1, 4));
    SAY(cuMemFree_v2(at));
    cuMemGetInfo_v2(&after, &total);
    SAY(before == after);
    puts("");
}

/* The one that is the runtime's too. */
static void primary(void) {
    handle context = NULL, same = NULL, stream;
    unsigned flags = 99;
    int active = -1;
    void *at;
    cuInit(0);
    SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    SAY(flags);
    SAY(active);
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(cuDevicePrimaryCtxSetFlags_v2(0, 4));
    SAY(cuDevicePrimaryCtxSetFlags_v2(0, 5));
    SAY(cuDevicePrimaryCtxRetain(&context, 1));
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuDevicePrimaryCtxRetain(&same, 0));
    SAY(context == same);
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(flags);
    SAY(active);
    cuCtxGetCurrent(&same);
    SAY(same == NULL);
    SAY(cuCtxDestroy_v2(context));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(cuCtxSetCurrent(context));
    SAY(cuStreamCreate(&stream, 1));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(cuStreamSynchronize(stream));
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(active);
    cuCtxGetCurrent(&same);
    SAY(context == same);
    SAY(cuDevicePrimaryCtxRetain(&same, 0));
    SAY(context == same);
    SAY(cuStreamSynchronize(stream));
    cuDevicePrimaryCtxRelease_v2(0);
    puts("");
    /* The runtime makes it current, in each thread, and keeps it. */
    cuCtxSetCurrent(NULL);
    SAY(cudaMalloc(&at, 8));
    cuCtxGetCurrent(&same);
    SAY(context == same);
    cuDevicePrimaryCtxRetain(&same, 0);
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(cuMemFree_v2((address)at));
    SAY(cudaMalloc(&at, 8));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    SAY(cuMemFree_v2((address)at));
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(active);
    SAY(cudaMalloc(&at, 8));
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(active);
    SAY(cuMemFree_v2((address)at));
    /* And leaves another one where it is. */
    cuCtxCreate_v2(&context, 0, 0);
    SAY(cudaMalloc(&at, 8));
    cuCtxGetCurrent(&same);
    SAY(context == same);
    SAY(cuCtxDestroy_v2(context));
    SAY(cudaFree(at));
    puts("");
}

static void memory(void) {
    address at = 0, other = 0, base = 0;
    size_t free, before, total, size = 0, pitch = 0;
    handle context;
    char numbers[SIZE] = "ABCDEFG", copied[SIZE] = "";
    cuInit(0);
    SAY(cuMemAlloc_v2(&at, SIZE));
    SAY(cuMemGetInfo_v2(&free, &total));
    cuCtxCreate_v2(&context, 0, 0);
    cuMemGetInfo_v2(&before, &total);
    SAY(cuMemAlloc_v2(&at, SIZE));
    SAY(cuMemAlloc_v2(&other, 0));
    SAY(cuMemAlloc_v2(NULL, SIZE));
    SAY(cuMemAlloc_v2(&other, (size_t)1 << 40));
    SAY(cuMemGetInfo_v2(&free, &total));
    SAY(free < before);
    SAY(cuMemGetAddressRange_v2(&base, &size, at + 3));
    SAY(base == at);
    SAY(size);
    SAY(cuMemGetAddressRange_v2(NULL, NULL, at));
    SAY(cuMemGetAddressRange_v2(&base, &size, 8));
    puts("");
    SAY(cuMemcpyHtoD_v2(at, numbers, SIZE));
    SAY(cuMemcpyDtoD_v2(at + 4, at, 2));
    SAY(cuMemsetD8_v2(at + 6, 'x', 1));
    SAY(cuMemcpyDtoH_v2(copied, at, SIZE));
    printf("%s ", copied);
    SAY(cuMemsetD16_v2(at, 'a' | 'b' << 8, 2));
    SAY(cuMemsetD32Async(at + 4, 'c' | 'd' << 8 | 'e' << 16, 1, NULL));
    SAY(cuMemcpyDtoHAsync_v2(copied, at, SIZE, NULL));
    printf("%s ", copied);
    SAY(cuMemcpy((address)copied, (address)numbers, SIZE));
    SAY(cuMemcpy(at, (address)copied, SIZE));
    SAY(cuMemsetD8_v2(at, '-', 1));
    SAY(cuMemcpy((address)copied, at, SIZE));
    printf("%s\n", copied);
    SAY(cuMemcpyHtoD_v2((address)copied, numbers, SIZE));
    SAY(cuMemcpyDtoH_v2((void *)at, at, SIZE));
    SAY(cuMemcpyDtoH_v2(NULL, at, SIZE));
    SAY(cuMemcpyHtoD_v2(at, numbers, 0));
    SAY(cuMemcpyHtoD_v2(at + (1 << 20), numbers, SIZE));
    SAY(cuMemcpyDtoD_v2(at, at + 600, SIZE));
    SAY(cuMemcpyHtoDAsync_v2(at, numbers, SIZE, &at));
    SAY(cuMemsetD16_v2(at + 1, 0, 1));
    SAY(cuMemsetD32_v2(at + 2, 0, 1));
    SAY(cuMemsetD8_v2((address)copied, 0, 1));
    SAY(cuMemsetD8_v2(at, 0, (size_t)1 << 40));
    SAY(cuMemsetD8_v2(at, 0, 0));
    SAY(cuMemAllocManaged(&other, SIZE, 1));
    SAY(cuMemHostGetDevicePointer_v2(&other, numbers, 0));
    SAY(cuCtxSynchronize());
    puts("");
    SAY(cuMemAllocPitch_v2(&other, &pitch, 3, 2, 4));
    SAY(pitch);
    SAY(cuMemAllocPitch_v2(&other, &pitch, 3, 2, 1));
    SAY(cuMemAllocPitch_v2(&other, &pitch, 0, 2, 4));
    SAY(cuMemsetD2D8_v2(other, pitch, '+', 3, 2));
    /* Of two rows of three letters each but the first. */
    struct copy in = {.from = {.x = 1, .memory = 1, .host = numbers, .pitch = 4},
                      .to = {.x = 1, .memory = 2, .device = other, .pitch = pitch},
                      .width = 2,
                      .height = 2};
    struct copy out = {.from = {.memory = 2, .device = other, .pitch = pitch},
                       .to = {.memory = 4, .device = (address)copied, .pitch = 3},
                       .width = 3,
                       .height = 2};
    SAY(cuMemcpy2D_v2(&in));
    SAY(cuMemcpy2D_v2(&out));
    printf("%.6s ", copied);
    in.from.memory = 3;
    SAY(cuMemcpy2D_v2(&in));
    in.from.memory = 1;
    in.to.device = 0;
    SAY(cuMemcpy2D_v2(&in));
    out.width = 4;
    SAY(cuMemcpy2D_v2(&out));
    SAY(cuMemcpy2D_v2(NULL));
    SAY(cuMemFree_v2(other));
    SAY(cuMemFree_v2(other));
    SAY(cuMemFree_v2(at + 1));
    SAY(cuMemFree_v2(at));
    SAY(cuMemFree_v2(0));
    puts("");
}

/* Two planes of two rows of two letters, each but for the first one of all that there are. */
static void volumes(void) {
    const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    char copied[9] = "";
    handle context;
    address at;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuMemAlloc_v2(&at, 512);
    struct volume_copy in = {.from = {.x = 1, .y = 1, .z = 1, .memory = 1, .host = letters, .pitch = 3, .height = 2},
                             .to = {.memory = 2, .device = at, .pitch = 16, .height = 4},
                             .width = 2,
                             .height = 1,
                             .depth = 2};
    struct volume_copy out = {.from = {.memory = 2, .device = at, .pitch = 16, .height = 4},
                              .to = {.memory = 1, .host = copied, .pitch = 2, .height = 2},
                              .width = 2,
                              .height = 2,
                              .depth = 2};
    SAY(cuMemsetD8_v2(at, '.', 512));
    SAY(cuMemcpy3D_v2(&in));
    SAY(cuMemcpy3DAsync_v2(&out, NULL));
    printf("%s ", copied);
    SAY(cuMemcpy3DAsync_v2(&out, &at));
    out.from.z = 9;
    SAY(cuMemcpy3D_v2(&out));
    out.from.memory = 3;
    SAY(cuMemcpy3D_v2(&out));
    out.depth = 0;
    SAY(cuMemcpy3D_v2(&out));
    SAY(cuMemcpy3D_v2(NULL));
    puts("");
}

/* Memory of the program that is allocated for copies. */
static void host(void) {
    handle context, of = NULL;
    char *from = NULL, *to = NULL, *none = NULL;
    unsigned flags = 9, type = 9;
    address at = 0, start = 0;
    size_t size = 0;
    cuInit(0);
    SAY(cuMemHostAlloc((void **)&from, SIZE, 0));
    cuCtxCreate_v2(&context, 0, 0);
    cuMemAlloc_v2(&at, SIZE);
    SAY(cuMemHostAlloc((void **)&from, SIZE, 1 | 4));
    SAY(cuMemAllocHost_v2((void **)&to, SIZE));
    SAY(cuMemHostAlloc((void **)&none, SIZE, 8));
    SAY(cuMemHostAlloc((void **)&none, 0, 0));
    SAY(cuMemHostAlloc(NULL, SIZE, 0));
    SAY(cuMemHostAlloc((void **)&none, (size_t)1 << 50, 0));
    SAY(cuMemHostGetFlags(&flags, from + 1));
    SAY(flags);
    SAY(cuMemHostGetFlags(&flags, &flags));
    SAY(cuMemHostGetDevicePointer_v2(&start, from, 0));
    SAY(from[3]);
    puts("");
    memcpy(from, "ABCDEFG", SIZE);
    SAY(cuMemcpyHtoDAsync_v2(at, from, SIZE, NULL));
    SAY(cuMemcpyDtoHAsync_v2(to, at, SIZE, NULL));
    SAY(cuCtxSynchronize());
    printf("%s ", to);
    SAY(cuMemcpyHtoD_v2(at + 4, from, 2));
    SAY(cuMemcpyDtoH_v2(to, at, SIZE));
    printf("%s ", to);
    SAY(cuMemcpyHtoD_v2(at + 600, from, SIZE));
    SAY(cuPointerGetAttribute(&type, 2, (address)from));
    SAY(type);
    SAY(cuPointerGetAttribute(&of, 1, (address)from));
    SAY(of == context);
    SAY(cuPointerGetAttribute(&start, 4, (address)from + 2));
    SAY(start == (address)from + 2);
    SAY(cuPointerGetAttribute(&start, 3, (address)from));
    SAY(cuPointerGetAttribute(&size, 12, (address)from));
    SAY(size);
    SAY(cuMemFreeHost(to));
    SAY(cuMemFreeHost(to));
    SAY(cuMemFreeHost(from + 1));
    SAY(cuMemFreeHost(NULL));
    SAY(cuCtxDestroy_v2(context));
    SAY(cuPointerGetAttribute(&type, 2, (address)from));
    puts("");
}

static void pointers(void) {
    address at = 0, start = 1;
    handle context, of = NULL;
    unsigned type = 9, managed = 9;
    int device = 9;
    size_t size = 9;
    uint64_t id = 0, later = 0;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuMemAlloc_v2(&at, 1000);
    SAY(cuPointerGetAttribute(&of, 1, at + 8));
    SAY(of == context);
    SAY(cuPointerGetAttribute(&type, 2, at));
    SAY(type);
    SAY(cuPointerGetAttribute(&start, 3, at + 8));
    SAY(start == at + 8);
    SAY(cuPointerGetAttribute(&start, 4, at));
    SAY(cuPointerGetAttribute(&managed, 8, at));
    SAY(managed);
    SAY(cuPointerGetAttribute(&device, 9, at));
    SAY(device);
    SAY(cuPointerGetAttribute(&size, 12, at + 8));
    SAY(size);
    cuPointerGetAttribute(&id, 7, at);
    cuMemFree_v2(at);
    SAY(cuPointerGetAttribute(&type, 2, at));
    cuMemAlloc_v2(&at, 1000);
    cuPointerGetAttribute(&later, 7, at);
    SAY(id != later);
    SAY(cuPointerGetAttribute(&type, 2, (address)&type));
    SAY(cuPointerGetAttribute(NULL, 2, at));
    SAY(cuPointerGetAttribute(&type, 18, at));
    int which[] = {2, 4, 11, 9};
    void *values[] = {&type, &of, &start, &device};
    SAY(cuPointerGetAttributes(4, which, values, at + 8));
    SAY(type == 2 && of == NULL && start == at && device == 0);
    SAY(cuPointerGetAttributes(4, which, values, (address)&type));
    SAY(type == 0 && of == NULL && start == 0 && device == -2);
    SAY(cuPointerGetAttributes(0, which, values, at));
    puts("");
}

static void pools(void) {
    const int properties[22] = {1, 0, 1, 0}, of_the_host[22] = {1, 0, 2, 0};
    handle context, own = NULL, pool = NULL, chosen = NULL;
    address at = 0, none = 1;
    uint64_t bytes = 9;
    int reuse = 9;
    cuInit(0);
    SAY(cuDeviceGetDefaultMemPool(&own, 0));
    SAY(cuDeviceGetMemPool(&chosen, 0));
    SAY(own == chosen);
    SAY(cuMemAllocAsync(&at, 1000, NULL));
    cuCtxCreate_v2(&context, 0, 0);
    SAY(cuMemAllocAsync(&at, 1000, NULL));
    SAY(cuMemAllocAsync(&none, 0, NULL));
    SAY(none);
    SAY(cuMemAllocAsync(&none, 8, &at));
    SAY(cuMemPoolGetAttribute(own, 7, &bytes));
    SAY(bytes);
    SAY(cuMemFreeAsync(at, &at));
    SAY(cuMemFreeAsync(at, NULL));
    SAY(cuMemFreeAsync(at, NULL));
    SAY(cuMemFreeAsync(0, NULL));
    SAY(cuMemPoolGetAttribute(own, 7, &bytes));
    SAY(bytes);
    SAY(cuMemPoolGetAttribute(own, 8, &bytes));
    SAY(bytes);
    bytes = 1;
    SAY(cuMemPoolSetAttribute(own, 8, &bytes));
    bytes = 0;
    SAY(cuMemPoolSetAttribute(own, 8, &bytes));
    SAY(cuMemPoolGetAttribute(own, 6, &bytes));
    SAY(bytes);
    puts("");
    bytes = (uint64_t)1 << 40;
    SAY(cuMemPoolSetAttribute(own, 4, &bytes));
    bytes = 0;
    SAY(cuMemPoolGetAttribute(own, 4, &bytes));
    SAY(bytes == (uint64_t)1 << 40);
    SAY(cuMemPoolGetAttribute(own, 1, &reuse));
    SAY(reuse);
    reuse = 0;
    SAY(cuMemPoolSetAttribute(own, 1, &reuse));
    cuMemPoolGetAttribute(own, 1, &reuse);
    SAY(reuse);
    SAY(cuMemPoolGetAttribute(own, 9, &bytes));
    SAY(cuMemPoolGetAttribute(&own, 4, &bytes));
    SAY(cuMemPoolCreate(&pool, of_the_host));
    SAY(cuMemPoolCreate(&pool, NULL));
    SAY(cuMemPoolCreate(&pool, properties));
    SAY(cuDeviceSetMemPool(0, pool));
    SAY(cuMemAllocAsync(&at, 8, NULL));
    SAY(cuMemPoolGetAttribute(pool, 7, &bytes));
    SAY(bytes);
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuMemAllocFromPoolAsync(&at, 8, pool, NULL));
    SAY(cuMemPoolDestroy(pool));
    SAY(cuMemFree_v2(at));
    SAY(cuMemAllocFromPoolAsync(&at, 8, pool, NULL));
    SAY(cuDeviceGetMemPool(&chosen, 0));
    SAY(own == chosen);
    SAY(cuMemPoolDestroy(own));
    puts("");
}

static void streams(void) {
    handle context, stream, ranked, timed, untimed, theirs, module;
    unsigned flags = 9;
    float took = -1;
    cuInit(0);
    SAY(cuStreamCreate(&stream, 0));
    SAY(cuEventCreate(&timed, 0));
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    SAY(cuStreamCreate(NULL, 0));
    SAY(cuStreamCreate(&stream, 2));
    SAY(cuStreamCreate(&stream, 1));
    SAY(cuStreamCreateWithPriority(&ranked, 0, -5));
    SAY(cuStreamGetFlags(stream, &flags));
    SAY(flags);
    SAY(cuStreamGetFlags(NULL, &flags));
    SAY(flags);
    SAY(cuStreamQuery(stream));
    SAY(cuStreamSynchronize((handle)1));
    SAY(cuStreamSynchronize((handle)2));
    SAY(cuStreamSynchronize((handle)3));
    SAY(cuStreamDestroy_v2(NULL));
    SAY(cuStreamDestroy_v2(ranked));
    SAY(cuStreamDestroy_v2(ranked));
    SAY(cuStreamQuery(ranked));
    puts("");
    SAY(cuEventCreate(&timed, 8));
    SAY(cuEventCreate(&timed, 4));
    SAY(cuEventCreate(&timed, 1));
    SAY(cuEventCreate(&untimed, 2));
    SAY(cuEventQuery(timed));
    SAY(cuEventElapsedTime(&took, timed, timed));
    SAY(cuEventRecord(timed, stream));
    SAY(cuEventRecord(untimed, stream));
    SAY(cuEventRecord(stream, stream));
    SAY(cuEventRecord(timed, ranked));
    SAY(cuEventQuery(timed));
    SAY(cuEventSynchronize(untimed));
    SAY(cuEventElapsedTime(&took, timed, timed));
    SAY(took == 0);
    SAY(cuEventElapsedTime(&took, timed, untimed));
    SAY(cuEventElapsedTime(NULL, timed, timed));
    SAY(cuEventDestroy_v2(timed));
    SAY(cuEventDestroy_v2(timed));
    SAY(cuStreamWaitEvent(stream, timed, 0));
    SAY(cuStreamWaitEvent(stream, untimed, 0));
    puts("");
    /* What one API has made the other knows. */
    SAY(cudaStreamCreate(&theirs));
    SAY(cuEventRecord(untimed, theirs));
    SAY(cuStreamDestroy_v2(theirs));
    SAY(cudaStreamSynchronize(theirs));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaStreamDestroy(stream));
    SAY(cuStreamQuery(stream));
    SAY(cuModuleLoadData(&module, ""));
    fflush(stdout);
    if (fork() == 0)
        _exit(cuCtxSynchronize() != 3 || cuCtxGetCurrent(&context) != 3 || cuInit(0) != 3);
    int status;
    wait(&status);
    SAY(status);
    puts("");
}

static sem_t released;
static int order[4], count;

static void waits(void *letter) {
    sem_wait(&released);
    *(char *)letter = 'Z';
    order[count++] = 1;
}

static void takes(void *nothing) {
    (void)nothing;
    sem_wait(&released);
}

/* Who would be waited for cannot wait. */
static void asks(void *status) {
    *(int *)status = cudaDeviceSynchronize();
    order[count++] = 2;
}

static void called_back(handle stream, int status, void *of) {
    order[count++] = stream == of && status == 0 ? 3 : status;
}

/* Of the program's, which have their turn in a stream. */
static void functions(void) {
    handle context, stream, before, after;
    char *letters, copied[2] = "";
    address at;
    int status = 0;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuStreamCreate(&stream, 1);
    cuEventCreate(&before, 2);
    cuEventCreate(&after, 2);
    cuMemAlloc_v2(&at, SIZE);
    cuMemHostAlloc((void **)&letters, SIZE, 0);
    letters[0] = 'A';
    sem_init(&released, 0, 0);
    SAY(cuLaunchHostFunc(stream, NULL, NULL));
    SAY(cuLaunchHostFunc(&stream, asks, &status));
    SAY(cuEventRecord(before, stream));
    SAY(cuLaunchHostFunc(stream, waits, letters));
    SAY(cuMemcpyHtoDAsync_v2(at, letters, 1, stream));
    SAY(cuEventRecord(after, stream));
    SAY(cuLaunchHostFunc(stream, asks, &status));
    SAY(cuStreamAddCallback(stream, called_back, stream, 1));
    SAY(cuStreamAddCallback(stream, called_back, stream, 0));
    SAY(cuEventSynchronize(before));
    SAY(cuEventQuery(before));
    SAY(cuEventQuery(after));
    SAY(cuStreamQuery(stream));
    SAY(count);
    puts("");
    sem_post(&released);
    SAY(cuEventSynchronize(after));
    SAY(cuEventQuery(after));
    SAY(cuStreamSynchronize(stream));
    SAY(cuStreamQuery(stream));
    SAY(count);
    SAY(order[0] * 100 + order[1] * 10 + order[2]);
    SAY(status != 0);
    SAY(cuMemcpyDtoH_v2(copied, at, 1));
    printf("%s ", copied);
    /* Many more than can wait at once. */
    sem_destroy(&released);
    sem_init(&released, 0, 200);
    for (int i = 0; i < 200; i++)
        cuLaunchHostFunc(stream, takes, NULL);
    SAY(cuStreamSynchronize(stream));
    int left = -1;
    sem_getvalue(&released, &left);
    SAY(left);
    puts("");
}

/* What a compute does wrong that nobody waits for is said by whoever waits then, and for ever. */
static void wrong(void) {
    handle blas = NULL, context, event, stream;
    address at;
    const float two = 2;
    char copied[SIZE];
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 0);
    cuEventCreate(&event, 2);
    cuMemAlloc_v2(&at, SIZE);
    SAY(cublasCreate_v2(&blas));
    SAY(cublasSscal_v2(blas, 2, &two, (void *)(at + 4096), 1));
    SAY(cuEventRecord(event, stream));
    SAY(cuStreamAddCallback(stream, called_back, stream, 0));
    SAY(cuLaunchHostFunc(stream, takes, NULL));
    SAY(cuCtxSynchronize());
    SAY(order[0]);
    SAY(count);
    SAY(cuStreamSynchronize(stream));
    SAY(cuStreamQuery(stream));
    SAY(cuMemcpyDtoH_v2(copied, at, SIZE));
    SAY(cuCtxSynchronize());
    puts("");
}

typedef int function(void *made, size_t bytes);

static void entries(void) {
    void *found = NULL, *other = NULL;
    int status = 9;
    address at = 0;
    handle context;
    SAY(cuGetProcAddress_v2("cuMemAlloc", &found, 12040, 0, &status));
    SAY(status);
    SAY(found == (void *)cuMemAlloc_v2);
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    SAY(((function *)found)(&at, 8));
    SAY(cuMemFree_v2(at));
    SAY(cuGetProcAddress_v2("cuStreamQuery", &found, 12040, 0, NULL));
    SAY(cuGetProcAddress_v2("cuStreamQuery", &other, 12040, 2, &status));
    SAY(found == (void *)cuStreamQuery && other != found);
    SAY(((int (*)(handle))other)(NULL));
    SAY(cuGetProcAddress_v2("cuNothing", &found, 12040, 0, &status));
    SAY(status);
    SAY(found == NULL);
    SAY(cuGetProcAddress_v2("cuMemAllocAsync", &found, 11010, 0, &status));
    SAY(status);
    SAY(cuGetProcAddress_v2(NULL, &found, 12040, 0, &status));
    SAY(cuGetProcAddress_v2("cuInit", NULL, 12040, 0, &status));
    SAY(cuGetProcAddress_v2("cuInit", &found, 12040, 3, &status));
    /* One that is not served. */
    SAY(cuGetProcAddress_v2("cuModuleLoad", &found, 12040, 0, &status));
    SAY(((int (*)(handle *, const char *))found)(&context, ""));
    puts("");
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"start", start},       {"none", none},         {"contexts", contexts}, {"ends", ends},
               {"primary", primary},   {"memory", memory},     {"volumes", volumes}, {"host", host}, {"pointers", pointers}, {"pools", pools},
               {"streams", streams},   {"functions", functions}, {"wrong", wrong},       {"entries", entries}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (count == 2 && strcmp(arguments[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    return 64;
}
