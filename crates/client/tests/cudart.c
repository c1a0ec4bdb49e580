/* The runtime's functions, a part of them at a time. Says what comes of each call. */
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
enum { ON_HOST, TO_DEVICE, TO_HOST, ON_DEVICE, BY_ADDRESS };

/* As much of cudaDeviceProp as is looked at, by where it is; and what comes before and after the struct. */
struct properties {
    char before[8];
    union {
        char name[256];
        int ints[258];
        size_t sizes[129];
    } all;
    char after[8];
};

struct attributes {
    int type, device;
    void *on_device, *on_host;
};

struct pool_properties {
    int type, handles, place, device;
    char rest[72];
};

struct extent {
    size_t width, height, depth;
};
struct volume {
    void *address;
    size_t pitch, width, height;
};
struct copy {
    void *from_array;
    size_t from_x, from_y, from_z;
    struct volume from;
    void *to_array;
    size_t to_x, to_y, to_z;
    struct volume to;
    struct extent extent;
    int kind;
};

int cudaGetDeviceCount(int *count);
int cudaGetDevice(int *device);
int cudaSetDevice(int device);
int cudaInitDevice(int device, unsigned device_flags, unsigned flags);
int cudaSetValidDevices(int *devices, int count);
int cudaChooseDevice(int *device, const void *wanted);
int cudaGetDeviceProperties(void *properties, int device);
int cudaGetDeviceProperties_v2(void *properties, int device);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaDeviceGetPCIBusId(char *address, int room, int device);
int cudaDeviceGetByPCIBusId(int *device, const char *address);
int cudaDeviceCanAccessPeer(int *can, int device, int peer);
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status);
int cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags, int *status);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaGetDeviceFlags(unsigned *flags);
int cudaSetDeviceFlags(unsigned flags);
int cudaDeviceGetLimit(size_t *value, int limit);
int cudaDeviceSetLimit(int limit, size_t value);
int cudaDeviceGetCacheConfig(int *config);
int cudaDeviceSetCacheConfig(int config);
int cudaDeviceGetSharedMemConfig(int *config);
int cudaDeviceSetSharedMemConfig(int config);
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
int cudaMalloc(void **address, size_t bytes);
int cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height);
int cudaMallocManaged(void **address, size_t bytes, unsigned flags);
int cudaFree(void *address);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMallocHost(void **address, size_t bytes);
int cudaHostAlloc(void **address, size_t bytes, unsigned flags);
int cudaFreeHost(void *address);
int cudaHostGetFlags(unsigned *flags, void *address);
int cudaHostGetDevicePointer(void **on_device, void *address, unsigned flags);
int cudaHostRegister(void *address, size_t bytes, unsigned flags);
int cudaPointerGetAttributes(struct attributes *attributes, const void *address);
int cudaMallocAsync(void **address, size_t bytes, handle stream);
int cudaMallocFromPoolAsync(void **address, size_t bytes, handle pool, handle stream);
int cudaFreeAsync(void *address, handle stream);
int cudaDeviceGetDefaultMemPool(handle *pool, int device);
int cudaDeviceGetMemPool(handle *pool, int device);
int cudaDeviceSetMemPool(int device, handle pool);
int cudaMemPoolCreate(handle *pool, const struct pool_properties *properties);
int cudaMemPoolDestroy(handle pool);
int cudaMemPoolTrimTo(handle pool, size_t bytes);
int cudaMemPoolGetAttribute(handle pool, int attribute, void *value);
int cudaMemPoolSetAttribute(handle pool, int attribute, void *value);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, handle stream);
int cudaMemcpyAsync_ptsz(void *to, const void *from, size_t bytes, int kind, handle stream);
int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes);
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                      int kind, handle stream);
int cudaMemset(void *address, int value, size_t bytes);
int cudaMemsetAsync(void *address, int value, size_t bytes, handle stream);
int cudaMemset_ptds(void *address, int value, size_t bytes);
int cudaMemset2D(void *address, size_t pitch, int value, size_t width, size_t height);
int cudaMemset2DAsync(void *address, size_t pitch, int value, size_t width, size_t height, handle stream);
int cudaMalloc3D(struct volume *volume, struct extent extent);
int cudaMemcpy3D(const struct copy *copy);
int cudaMemcpy3DAsync(const struct copy *copy, handle stream);
int cudaMemset3D(struct volume volume, int value, struct extent extent);
int cudaMemset3DAsync(struct volume volume, int value, struct extent extent, handle stream);
int cudaStreamCreate(handle *stream);
int cudaStreamCreateWithFlags(handle *stream, unsigned flags);
int cudaStreamCreateWithPriority(handle *stream, unsigned flags, int priority);
int cudaStreamDestroy(handle stream);
int cudaStreamSynchronize(handle stream);
int cudaStreamQuery(handle stream);
int cudaStreamGetFlags(handle stream, unsigned *flags);
int cudaStreamGetPriority(handle stream, int *priority);
int cudaStreamGetId(handle stream, unsigned long long *id);
int cudaStreamIsCapturing(handle stream, int *status);
int cudaStreamWaitEvent(handle stream, handle event, unsigned flags);
int cudaStreamAddCallback(handle stream, void (*callback)(handle, int, void *), void *data, unsigned flags);
int cudaLaunchHostFunc(handle stream, void (*function)(void *), void *data);
int cudaEventCreateWithFlags(handle *event, unsigned flags);
int cudaEventRecord(handle event, handle stream);
int cudaEventRecordWithFlags(handle event, handle stream, unsigned flags);
int cudaEventQuery(handle event);
int cudaEventSynchronize(handle event);
int cudaEventElapsedTime(float *milliseconds, handle from, handle to);
int cudaEventDestroy(handle event);
int cudaProfilerStart(void);
int cudaGetLastError(void);

/* One at a time: the order of arguments is nobody's. */
#define SAY(status) printf("%d ", (int)(status))

static void device(void) {
    int number = -1, value = -1, one = 0, two[2] = {0, 1};
    char text[16] = "";
    void *function = NULL;
    SAY(cudaInitDevice(0, 0, 0));
    SAY(cudaInitDevice(1, 0, 0));
    SAY(cudaInitDevice(0, 0, 2));
    SAY(cudaSetValidDevices(&one, 1));
    SAY(cudaSetValidDevices(two, 2));
    SAY(cudaChooseDevice(&number, text));
    SAY(number);
    SAY(cudaChooseDevice(&number, NULL));
    SAY(cudaDeviceGetAttribute(&value, 75, 0));
    SAY(value);
    SAY(cudaDeviceGetAttribute(&value, 19, 0));
    SAY(value);
    SAY(cudaDeviceGetAttribute(&value, 0, 0));
    SAY(cudaDeviceGetAttribute(&value, 75, 1));
    SAY(cudaDeviceGetAttribute(NULL, 75, 0));
    puts("");
    SAY(cudaDeviceGetPCIBusId(text, sizeof text, 0));
    printf("%s ", text);
    SAY(cudaDeviceGetByPCIBusId(&number, text));
    SAY(cudaDeviceGetByPCIBusId(&number, "0000:01:00.0"));
    SAY(cudaDeviceGetByPCIBusId(&number, "nothing"));
    SAY(cudaDeviceCanAccessPeer(&value, 0, 0));
    SAY(value);
    SAY(cudaDeviceCanAccessPeer(&value, 0, 1));
    SAY(cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &value));
    SAY(value);
    SAY(function != NULL);
    SAY(cudaGetDriverEntryPoint("cuNothing", &function, 0, &value));
    SAY(value);
    SAY(function == NULL);
    SAY(cudaGetDriverEntryPoint("cuNothing", &function, 0, NULL));
    SAY(cudaGetDriverEntryPoint_ptsz("cuStreamQuery", &function, 0, NULL));
    SAY(cudaGetDriverEntryPoint(NULL, &function, 0, NULL));
    SAY(cudaProfilerStart());
    puts("");
}

static void properties(void) {
    struct properties p;
    memset(&p, 7, sizeof p);
    SAY(cudaGetDeviceProperties_v2(&p.all, 0));
    printf("%s %zu ", p.all.name, p.all.sizes[36]);
    SAY(p.all.sizes[37]);  /* shared memory of a block */
    SAY(p.all.ints[77]);   /* warp */
    SAY(p.all.ints[80]);   /* threads of a block */
    SAY(p.all.ints[84]);   /* blocks of a grid */
    SAY(p.all.ints[90]);   /* capability */
    SAY(p.all.ints[91]);
    SAY(p.all.sizes[46]);  /* alignment of textures */
    SAY(p.all.ints[97]);   /* multiprocessors */
    SAY(p.all.ints[100]);  /* can memory be mapped */
    SAY(p.all.sizes[71]);  /* alignment of surfaces */
    SAY(p.all.ints[151]);  /* unified addressing */
    SAY(p.all.ints[156]);  /* threads of a multiprocessor */
    SAY(p.all.sizes[80]);  /* shared memory of a multiprocessor */
    SAY(p.all.ints[163]);  /* managed memory */
    SAY(p.all.ints[167]);  /* how much slower double precision is */
    SAY(p.all.sizes[87]);  /* shared memory of a block at most */
    SAY(p.all.ints[178]);  /* blocks of a multiprocessor */
    SAY(p.all.ints[182]);  /* registering of memory */
    SAY(p.all.ints[186]);  /* pools */
    SAY(p.all.ints[257]);
    SAY(p.before[7] == 7 && p.after[0] == 7);
    memset(&p, 7, sizeof p);
    SAY(cudaGetDeviceProperties(&p.all, 0));
    SAY(p.all.ints[90]);
    SAY(p.all.ints[181]);
    SAY(p.all.ints[182] == 0x07070707);
    SAY(cudaGetDeviceProperties_v2(NULL, 0));
    SAY(cudaGetDeviceProperties_v2(&p.all, 1));
    puts("");
}

static void context(void) {
    unsigned flags = 99;
    size_t value = 0;
    int config = -1, least = -1, greatest = -1;
    void *at;
    SAY(cudaSetDeviceFlags(4));
    SAY(cudaGetDeviceFlags(&flags));
    SAY(flags);
    SAY(cudaSetDeviceFlags(3));
    SAY(cudaDeviceGetLimit(&value, 0));
    SAY(value);
    SAY(cudaDeviceSetLimit(0, 2048));
    SAY(cudaDeviceGetLimit(&value, 0));
    SAY(value);
    SAY(cudaDeviceGetLimit(&value, 99));
    SAY(cudaDeviceSetCacheConfig(2));
    SAY(cudaDeviceGetCacheConfig(&config));
    SAY(config);
    SAY(cudaDeviceSetCacheConfig(4));
    SAY(cudaDeviceSetSharedMemConfig(1));
    SAY(cudaDeviceGetSharedMemConfig(&config));
    SAY(config);
    SAY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SAY(least);
    SAY(greatest);
    SAY(cudaDeviceGetStreamPriorityRange(NULL, NULL));
    puts("");
    SAY(cudaMalloc(&at, 512));
    SAY(cudaDeviceReset());
    SAY(cudaFree(at));
    SAY(cudaDeviceGetLimit(&value, 0));
    SAY(value);
    SAY(cudaHostAlloc(&at, 512, 0));
    SAY(cudaDeviceReset());
    SAY(cudaFreeHost(at));
    puts("");
}

static void host(void) {
    char *a, *b, *device, numbers[8] = "abcdefg";
    unsigned flags = 99;
    size_t before, after, total;
    handle stream;
    void *none = &none;
    cudaStreamCreate(&stream);
    cudaMalloc((void **)&device, 1 << 20);
    SAY(cudaMallocHost((void **)&a, 1 << 20));
    SAY(cudaHostAlloc((void **)&b, 8, 1 | 2 | 4));
    SAY(cudaHostAlloc(&none, 8, 8));
    SAY(cudaHostAlloc(&none, (size_t)1 << 40, 0));
    SAY(cudaMallocHost(NULL, 8));
    SAY(cudaMallocHost(&none, 0));
    SAY(none == NULL);
    SAY(cudaHostGetFlags(&flags, b + 7));
    SAY(flags);
    SAY(cudaHostGetFlags(&flags, a));
    SAY(flags);
    SAY(cudaHostGetFlags(&flags, numbers));
    /* Mapped was accepted, as CUDA has it where it cannot be; now is when that is said. */
    SAY(cudaHostGetDevicePointer(&none, b, 0));
    SAY(cudaHostRegister(numbers, 8, 0));
    SAY(cudaMallocManaged(&none, 8, 1));
    SAY(a[0] == 0 && a[(1 << 20) - 1] == 0);
    puts("");
    memcpy(a, "ABCDEFG", 8);
    memset(a + 8, 'x', (1 << 20) - 8);
    SAY(cudaMemcpyAsync(device, a, 1 << 20, TO_DEVICE, stream));
    SAY(cudaMemcpyAsync(device + 4, device, 3, ON_DEVICE, stream));
    SAY(cudaMemcpyAsync_ptsz(b, device, 8, TO_HOST, stream));
    SAY(cudaStreamSynchronize(stream));
    printf("%.8s ", b);
    SAY(cudaMemcpy(device, numbers, 8, TO_DEVICE));
    SAY(cudaMemcpy(a, device, 1 << 20, BY_ADDRESS));
    printf("%s ", a);
    SAY(a[8] == 'x' && a[(1 << 20) - 1] == 'x');
    SAY(cudaMemcpy(b, a, 4, ON_HOST));
    printf("%.8s ", b);
    /* They end in the middle of it, or are the wrong way round, or too long for the device. */
    SAY(cudaMemcpy(device, a + 1, 1 << 20, TO_HOST));
    SAY(cudaMemcpyAsync(device + 1, a, 1 << 20, TO_DEVICE, stream));
    SAY(cudaMemcpyAsync(device, a, 1, 7, stream));
    SAY(cudaMemcpyAsync(device, a, 1, TO_DEVICE, &stream));
    SAY(cudaDeviceSynchronize());
    puts("");
    SAY(cudaMemGetInfo(&before, &total));
    /* At once, while they are copied. */
    memset(a + 8, 'y', 8);
    SAY(cudaMemcpyAsync(device, a, 1 << 20, TO_DEVICE, stream));
    SAY(cudaFreeHost(a));
    SAY(cudaFreeHost(a));
    SAY(cudaFreeHost(b + 1));
    SAY(cudaFreeHost(b));
    SAY(cudaFreeHost(NULL));
    SAY(cudaFreeHost(numbers));
    SAY(cudaMemGetInfo(&after, &total));
    SAY(before == after);
    SAY(cudaMemcpy(numbers, device + 7, 8, TO_HOST));
    printf("%.4s ", numbers + 1);
    SAY(cudaMallocHost((void **)&a, 16 << 20));
    SAY(cudaMallocHost((void **)&b, 1));
    SAY(cudaFreeHost(a));
    SAY(cudaMallocHost((void **)&b, 1));
    SAY(cudaGetLastError());
    fflush(stdout);
    if (fork() == 0)
        _exit(cudaFreeHost(b) != 3 || cudaMallocHost((void **)&a, 1) != 3);
    int status;
    wait(&status);
    SAY(status);
    puts("");
}

static void wait_for(void *semaphore) {
    sem_wait(semaphore);
}

/* Copies that wait for a function: those of host-allocated memory are asked for, no more. */
static void asynchronous(void) {
    char *a, *b, *device, *small;
    handle stream;
    sem_t go;
    sem_init(&go, 0, 0);
    cudaStreamCreate(&stream);
    cudaMalloc((void **)&device, 1 << 20);
    cudaMallocHost((void **)&a, 1 << 20);
    cudaMallocHost((void **)&b, 1 << 20);
    memset(a, 'o', 1 << 20);
    SAY(cudaLaunchHostFunc(stream, wait_for, &go));
    SAY(cudaMemcpyAsync(device, a, 1 << 20, TO_DEVICE, stream));
    SAY(cudaMemcpy2DAsync(b, 4, device, 8, 4, 2, BY_ADDRESS, stream));
    SAY(cudaStreamQuery(stream));
    memcpy(a, "new and late", 12);
    SAY(b[0]);
    sem_post(&go);
    SAY(cudaStreamSynchronize(stream));
    printf("%s ", b);
    /* More than there is of it, though in the same page: it is the program's as any other. */
    SAY(cudaMallocHost((void **)&small, 5));
    memcpy(small, "small", 5);
    SAY(cudaMemcpyAsync(device, small, 8, TO_DEVICE, stream));
    memset(small, 0, 5);
    SAY(cudaMemcpy(a, device, 8, TO_HOST));
    printf("%s ", a);
    SAY(cudaGetLastError());
    puts("");
}

/* Rows of three of five on the host, which are six apart, and eight or more on the device. */
static void planes(void) {
    char from[12] = "abcde-fghij", to[13] = "............", *at, *shared;
    size_t pitch = 0;
    handle stream;
    cudaStreamCreate(&stream);
    SAY(cudaMallocPitch((void **)&at, &pitch, 5, 2));
    SAY(pitch);
    SAY(cudaMallocHost((void **)&shared, 12));
    SAY(cudaMemset2D(at, pitch, '+', 5, 2));
    SAY(cudaMemcpy2D(at + 1, pitch, from, 6, 3, 2, TO_DEVICE));
    SAY(cudaMemcpy2D(to, 6, at, pitch, 5, 2, TO_HOST));
    printf("%s ", to);
    SAY(cudaMemset2DAsync(at + 2, pitch, '-' | 0x1200, 1, 2, stream));
    memset(shared, '.', 12);
    SAY(cudaMemcpy2DAsync(shared, 6, at, pitch, 5, 2, TO_HOST, stream));
    SAY(cudaStreamSynchronize(stream));
    printf("%.12s ", shared);
    SAY(cudaMemcpy2D(at, pitch, shared + 6, 2, 2, 2, BY_ADDRESS));
    SAY(cudaMemcpy2D(at + 8, 8, at, pitch, 2, 2, ON_DEVICE));
    SAY(cudaMemcpy2D(to, 4, at + 8, 8, 2, 2, TO_HOST));
    printf("%s ", to);
    SAY(cudaMemcpy2D(to, 3, from, 6, 3, 2, ON_HOST));
    printf("%s ", to);
    puts("");
    SAY(cudaMemcpy2D(at, 4, from, 6, 5, 2, TO_DEVICE));
    SAY(cudaMemcpy2D(at, pitch, from, 4, 5, 2, TO_DEVICE));
    SAY(cudaMemcpy2D(at, pitch, from, 6, 3, 3, TO_DEVICE));
    SAY(cudaMemcpy2D(at, pitch, from, 6, 3, 2, TO_HOST));
    SAY(cudaMemcpy2D(at, pitch, from, 6, 3, 0, TO_DEVICE));
    SAY(cudaMemcpy2D(at, pitch, NULL, 6, 3, 2, TO_DEVICE));
    SAY(cudaMemcpy2D(at, (size_t)-1, from, 6, 3, 3, TO_DEVICE));
    SAY(cudaMemset2D(at, pitch, 0, 5, 3));
    SAY(cudaMemset2D(at, 4, 0, 5, 2));
    SAY(cudaMemset2D(from, 6, 0, 5, 2));
    SAY(cudaMemset_ptds(at, 0, 5));
    SAY(cudaMemcpyPeer(at, 0, at + pitch, 0, 5));
    SAY(cudaMemcpyPeer(at, 0, at + pitch, 1, 5));
    SAY(cudaMallocPitch((void **)&at, &pitch, (size_t)-1, 2));
    SAY(cudaMallocPitch((void **)&at, &pitch, 0, 2));
    SAY(at == NULL);
    SAY(cudaDeviceSynchronize());
    puts("");
}

/* Two planes of two rows of three, of a program's three planes of two rows of five. */
static void volumes(void) {
    char from[31] = "abcdefghijklmnopqrstuvwxyzABCD", to[31] = "..............................";
    struct volume on_device, nothing;
    struct extent extent = {3, 2, 2}, large = {5, 2, 3};
    SAY(cudaMalloc3D(&on_device, large));
    SAY(on_device.pitch);
    SAY(on_device.width == 5 && on_device.height == 2);
    struct volume host = {from, 5, 5, 2}, back = {to, 5, 5, 2};
    SAY(cudaMemset3D(on_device, '+', large));
    struct copy in = {NULL, 1, 0, 1, host, NULL, 2, 0, 0, on_device, extent, TO_DEVICE};
    SAY(cudaMemcpy3D(&in));
    SAY(cudaMemset3DAsync(on_device, '-', (struct extent){1, 1, 3}, NULL));
    struct copy out = {NULL, 0, 0, 0, on_device, NULL, 0, 0, 0, back, large, BY_ADDRESS};
    SAY(cudaMemcpy3DAsync(&out, NULL));
    printf("%s ", to);
    puts("");
    in.from_x = 3;
    SAY(cudaMemcpy3D(&in));
    in.from_x = 1;
    in.to_z = 2;
    SAY(cudaMemcpy3D(&in));
    in.to_array = from;
    SAY(cudaMemcpy3D(&in));
    in.to_array = NULL;
    in.extent = (struct extent){0, 2, (size_t)-1};
    SAY(cudaMemcpy3D(&in));
    in.kind = 5;
    SAY(cudaMemcpy3D(&in));
    SAY(cudaMemcpy3D(NULL));
    SAY(cudaMemcpy3DAsync(&out, &out));
    SAY(cudaMemset3D(on_device, 0, (struct extent){513, 1, 1}));
    SAY(cudaMemset3D(on_device, 0, (struct extent){5, 2, 4}));
    SAY(cudaMemset3D(back, 0, large));
    /* Planes that are in one another, without end; and nothing of what is wrong is done. */
    on_device.height = 0;
    out.from.height = 0;
    out.extent.depth = -1;
    SAY(cudaMemset3D(on_device, 0, (struct extent){5, 2, (size_t)-1}));
    SAY(cudaMemcpy3D(&out));
    on_device.height = out.from.height = 2;
    out.extent.depth = 3;
    SAY(cudaMemcpy3D(&out));
    printf("%s ", to);
    SAY(cudaMalloc3D(&nothing, (struct extent){5, (size_t)-1, 2}));
    SAY(cudaMalloc3D(&nothing, (struct extent){5, 0, 2}));
    SAY(nothing.address == NULL);
    SAY(cudaMalloc3D(NULL, large));
    SAY(cudaDeviceSynchronize());
    puts("");
}

static void addresses(void) {
    struct attributes is;
    char *device, *shared;
    cudaMalloc((void **)&device, 16);
    cudaMallocHost((void **)&shared, 16);
    char *all[] = {device + 3, shared + 3, (char *)&is, NULL};
    for (int i = 0; i < 4; i++) {
        SAY(cudaPointerGetAttributes(&is, all[i]));
        SAY(is.type);
        SAY(is.device);
        SAY(is.on_device == all[i]);
        SAY(is.on_host == all[i]);
    }
    cudaFree(device);
    SAY(cudaPointerGetAttributes(&is, device));
    SAY(is.type);
    SAY(cudaPointerGetAttributes(NULL, shared));
    puts("");
}

static void pools(void) {
    struct pool_properties wanted = {1, 0, 1, 0, {0}};
    handle whole, pool;
    void *at, *other;
    uint64_t wide = 0;
    SAY(cudaDeviceGetDefaultMemPool(&whole, 0));
    SAY(cudaDeviceGetMemPool(&pool, 0));
    SAY(pool == whole);
    SAY(cudaMemPoolCreate(&pool, &wanted));
    wanted.handles = 1;
    SAY(cudaMemPoolCreate(&pool, &wanted));
    SAY(cudaMallocAsync(&at, 512, NULL));
    SAY(cudaMallocFromPoolAsync(&other, 1024, pool, NULL));
    SAY(cudaMallocFromPoolAsync(&other, 1024, &wanted, NULL));
    SAY(cudaMemPoolGetAttribute(pool, 7, &wide));
    SAY(wide);
    SAY(cudaMemPoolSetAttribute(pool, 4, &wide));
    SAY(cudaMemPoolTrimTo(pool, 0));
    SAY(cudaFreeAsync(other, NULL));
    SAY(cudaFreeAsync(other, NULL));
    SAY(cudaFreeAsync(at, &at));
    SAY(cudaFree(at));
    SAY(cudaDeviceSetMemPool(0, pool));
    SAY(cudaMemPoolDestroy(pool));
    SAY(cudaMemPoolDestroy(pool));
    puts("");
}

static void count(void *data) {
    int count = -1;
    /* It wants nothing of the device. */
    cudaGetDeviceCount(&count);
    *(int *)data += count;
}

static char *shared, seen[8];
static void see(void *data) {
    (void)data;
    memcpy(seen, shared, 4);
}

static handle called;
static void callback(handle stream, int status, void *data) {
    called = stream;
    *(int *)data += 10 + status;
}

static void streams(void) {
    handle a, b, event, timed;
    unsigned flags = 9;
    int value = -1;
    unsigned long long one = 0, other = 0;
    float took;
    SAY(cudaStreamCreateWithFlags(&a, 1));
    SAY(cudaStreamCreateWithFlags(&b, 2));
    SAY(cudaStreamCreateWithPriority(&b, 0, -5));
    SAY(cudaStreamGetFlags(a, &flags));
    SAY(flags);
    SAY(cudaStreamGetPriority(b, &value));
    SAY(value);
    SAY(cudaStreamGetId(a, &one));
    SAY(cudaStreamGetId(b, &other));
    SAY(one != other);
    SAY(cudaStreamIsCapturing(a, &value));
    SAY(value);
    SAY(cudaStreamQuery(a));
    SAY(cudaStreamQuery(&a));
    puts("");
    SAY(cudaEventCreateWithFlags(&event, 2));
    SAY(cudaEventCreateWithFlags(&timed, 4));
    SAY(cudaEventCreateWithFlags(&timed, 0));
    SAY(cudaEventRecordWithFlags(event, a, 0));
    SAY(cudaEventRecordWithFlags(event, a, 2));
    SAY(cudaEventRecord(timed, a));
    SAY(cudaEventQuery(event));
    SAY(cudaEventSynchronize(event));
    SAY(cudaEventElapsedTime(&took, event, timed));
    SAY(cudaStreamWaitEvent(b, event, 0));
    SAY(cudaStreamWaitEvent(b, event, 2));
    SAY(cudaEventDestroy(event));
    SAY(cudaEventQuery(event));
    puts("");
    cudaMalloc((void **)&shared, 1 << 20);
    char *device = shared;
    cudaMallocHost((void **)&shared, 1 << 20);
    cudaMemsetAsync(device, 'm', 1 << 20, a);
    SAY(cudaMemcpyAsync(shared, device, 1 << 20, TO_HOST, a));
    SAY(cudaLaunchHostFunc(a, see, NULL));
    SAY(cudaStreamSynchronize(a));
    printf("%s ", seen);
    value = 0;
    SAY(cudaLaunchHostFunc(a, count, &value));
    SAY(cudaStreamAddCallback(b, callback, &value, 0));
    SAY(cudaDeviceSynchronize());
    SAY(value);
    SAY(called == b);
    SAY(cudaStreamAddCallback(b, callback, &value, 1));
    SAY(cudaLaunchHostFunc(&a, count, &value));
    SAY(cudaLaunchHostFunc(a, NULL, &value));
    SAY(cudaStreamQuery(a));
    SAY(value);
    SAY(cudaStreamDestroy(a));
    SAY(cudaStreamDestroy(b));
    puts("");
}

static void none(void) {
    void *at;
    int value;
    unsigned flags;
    char properties[1032];
    SAY(cudaGetDeviceProperties_v2(properties, 0));
    SAY(cudaDeviceGetAttribute(&value, 75, 0));
    SAY(cudaGetDeviceFlags(&flags));
    SAY(cudaDeviceReset());
    SAY(cudaMallocHost(&at, 8));
    SAY(cudaStreamCreate(&at));
    SAY(cudaProfilerStart());
    puts("");
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*part)(void);
    } parts[] = {{"device", device}, {"properties", properties}, {"context", context}, {"host", host},
                 {"asynchronous", asynchronous}, {"planes", planes}, {"volumes", volumes}, {"addresses", addresses}, {"pools", pools},
                 {"streams", streams}, {"none", none}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (count == 2 && strcmp(arguments[1], parts[i].name) == 0)
            parts[i].part();
    return 0;
}
