/* A program that takes devices and contexts from the driver. */
#include "driver.h"

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

/* Who asks the runtime has the driver work, and no context. */
static void asked(void) {
    int count = -1, active = -1;
    unsigned flags;
    handle current = &current;
    SAY(cuDeviceGetCount(&count));
    SAY(cudaGetDeviceCount(&count));
    SAY(cuDeviceGetCount(&count));
    SAY(cuCtxGetCurrent(&current));
    SAY(current == NULL);
    SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    SAY(active);
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
    SAY(cuCtxCreate_v2(&a, 4 | 8 | 128, 0));
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

/* Another one is current, and has ended; then the device's own is asked for. */
static void selected(void) {
    handle context = NULL, current = NULL, shared = NULL;
    unsigned flags;
    int active = -1;
    void *at;
    SAY(cudaInitDevice(1, 0, 0));
    SAY(cudaInitDevice(0, 4, 1));
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(active);
    SAY(flags);
    cuCtxGetCurrent(&current);
    SAY(current == NULL);
    cuCtxCreate_v2(&context, 0, 0);
    SAY(cudaSetDevice(1));
    SAY(cudaSetDevice(0));
    cuCtxGetCurrent(&current);
    cuDevicePrimaryCtxRetain(&shared, 0);
    SAY(current == shared);
    cuCtxSetCurrent(context);
    cuCtxPushCurrent_v2(context);
    cuCtxDestroy_v2(context);
    SAY(cudaMalloc(&at, 8));
    SAY(cudaSetDevice(0));
    SAY(cudaMalloc(&at, 8));
    cuCtxGetCurrent(&current);
    SAY(current == shared);
    puts("");
}

enum { THREADS = 8, TURNS = 50 };

/* Everything that a thread has is in a context of its own, and some of it in the one that all have. */
static void *one_of_many(void *failed) {
    for (int i = 0; i < TURNS; i++) {
        handle own, shared, stream, event;
        address at;
        void *theirs;
        int wrong = cuCtxCreate_v2(&own, 0, 0) || cuMemAlloc_v2(&at, 1000) || cuStreamCreate(&stream, 0) ||
                    cuEventCreate(&event, 0) || cuMemsetD32_v2(at, i, 250) || cuEventRecord(event, stream) ||
                    cuEventSynchronize(event) || cudaMalloc(&theirs, 8) || cudaFree(theirs);
        wrong = wrong || cuDevicePrimaryCtxRetain(&shared, 0) || cuCtxPushCurrent_v2(shared) ||
                cuMemAlloc_v2(&at, 8) || cuMemFree_v2(at) || cuCtxPopCurrent_v2(&shared) ||
                cuDevicePrimaryCtxRelease_v2(0);
        if (wrong || cuCtxDestroy_v2(own) || cuStreamSynchronize(stream) != 201 || cuCtxSynchronize() != 201)
            *(int *)failed += 1;
    }
    return NULL;
}

static void threads(void) {
    pthread_t threads[THREADS];
    int failed[THREADS] = {0};
    size_t before, after, total;
    handle context;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuMemGetInfo_v2(&before, &total);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, one_of_many, &failed[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        SAY(failed[i]);
    }
    cuMemGetInfo_v2(&after, &total);
    SAY(before == after);
    puts("");
}

int main(int count, char **arguments) {
    static const struct part parts[] = {
        {"start", start},
        {"asked", asked},
        {"none", none},
        {"contexts", contexts},
        {"ends", ends},
        {"primary", primary},
        {"selected", selected},
        {"threads", threads},
    };
    return count == 2 ? run(parts, sizeof parts / sizeof *parts, arguments[1]) : 64;
}
