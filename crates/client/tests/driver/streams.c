/* A program that takes streams, events and addresses of functions from the driver, and has functions of its own run. */
#include "driver.h"

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

/* As many events as there can be, each with a moment, and then some. */
static void events(void) {
    enum { MOST = 65536 };
    static handle all[MOST];
    handle context, other;
    float took = -1;
    int wrong = 0;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    for (int i = 0; i < MOST; i++)
        wrong += cuEventCreate(&all[i], 0) || cuEventRecord(all[i], NULL);
    SAY(wrong);
    SAY(cuEventCreate(&other, 0));
    SAY(cudaEventCreate(&other));
    SAY(cuEventElapsedTime(&took, all[0], all[MOST - 1]));
    SAY(cuEventDestroy_v2(all[0]));
    SAY(cuEventCreate(&other, 0));
    SAY(cuEventRecord(other, NULL));
    SAY(cuEventElapsedTime(&took, other, all[1]));
    SAY(cuCtxDestroy_v2(context));
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

static void nothing(void *of) {
    (void)of;
}

static handle recorded;

/* Launches until there is no more room, calls what would wait, and sends more than others may. */
static void launches(void *statuses) {
    int launched = 0, *status = statuses;
    void *at;
    while (cudaLaunchHostFunc(NULL, nothing, NULL) == 0)
        launched++;
    *status++ = launched > 32;
    *status++ = cudaLaunchHostFunc(NULL, nothing, NULL);
    *status++ = cudaMalloc(&at, 8);
    *status++ = cudaStreamCreate(&at);
    *status++ = cudaDeviceSynchronize();
    for (int i = 0; i < 10000; i++)
        *status |= cuEventRecord(recorded, NULL);
}

/* What a function of the program's calls does not wait for itself. */
static void nested(void) {
    int statuses[6] = {0};
    alarm(60);
    SAY(cudaEventCreate(&recorded));
    SAY(cudaLaunchHostFunc(NULL, launches, statuses));
    SAY(cudaDeviceSynchronize());
    for (int i = 0; i < 6; i++)
        SAY(statuses[i]);
    puts("");
}

static void looks(void *left) {
    unsigned flags;
    int active = 1;
    while (active)
        cuDevicePrimaryCtxGetState(0, &flags, &active);
    *(int *)left = cuCtxPopCurrent_v2(NULL);
}

/* What ends waits for a function, and the function for nothing. */
static void released_meanwhile(void) {
    handle context;
    address at;
    int left = 0;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuMemAlloc_v2(&at, SIZE);
    SAY(cuLaunchHostFunc(NULL, looks, &left));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(left);
    puts("");
}

/* With CUDA_LAUNCH_BLOCKING=1 each is waited for: what a compute does wrong is its own status. */
static void blocking(void) {
    handle blas = NULL, context;
    const float two = 2;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    SAY(cublasCreate_v2(&blas));
    SAY(cublasSscal_v2(blas, 2, &two, (void *)4096, 1));
    SAY(cuCtxSynchronize());
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
    static const struct part parts[] = {
        {"streams", streams},
        {"events", events},
        {"functions", functions},
        {"nested", nested},
        {"released", released_meanwhile},
        {"wrong", wrong}, {"blocking", blocking},
        {"entries", entries},
    };
    return count == 2 ? run(parts, sizeof parts / sizeof *parts, arguments[1]) : 64;
}
