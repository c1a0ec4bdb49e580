/* The driver's functions and some others, declared anew; and a program that does what it is told to, by name, and says
 * what comes of each call. */
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
int cudaGetDeviceCount(int *count);
int cudaMalloc(void **made, size_t bytes);
int cudaFree(void *at);
int cudaSetDevice(int device);
int cudaInitDevice(int device, unsigned device_flags, unsigned flags);
int cublasCreate_v2(handle *made);
int cublasSscal_v2(handle blas, int count, const float *factor, void *x, int step);
int cudaDeviceSynchronize(void);
int cudaEventCreate(handle *made);
int cudaStreamCreate(handle *made);
int cudaLaunchHostFunc(handle stream, void (*function)(void *), void *data);
int cudaStreamDestroy(handle stream);
int cudaStreamSynchronize(handle stream);

/* One at a time: the order of arguments is nobody's. */
#define SAY(number) printf("%lld ", (long long)(number))

struct part {
    const char *name;
    void (*run)(void);
};

static int run(const struct part *parts, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, parts[i].name) == 0) {
            parts[i].run();
            return 0;
        }
    return 64;
}
