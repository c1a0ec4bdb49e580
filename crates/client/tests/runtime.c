/* A program that copies and fills within the device, and has streams and events. Says what comes of each call. */
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
enum { ON_HOST, TO_DEVICE, TO_HOST, ON_DEVICE, BY_ADDRESS, SIZE = 8 };

int cudaGetDeviceCount(int *count);
int cudaGetDevice(int *device);
int cudaSetDevice(int device);
int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, handle stream);
int cudaMemset(void *address, int value, size_t bytes);
int cudaMemsetAsync(void *address, int value, size_t bytes, handle stream);
int cudaStreamCreate(handle *made);
int cudaStreamSynchronize(handle stream);
int cudaStreamWaitEvent(handle stream, handle event, unsigned flags);
int cudaStreamDestroy(handle stream);
int cudaEventCreate(handle *made);
int cudaEventRecord(handle event, handle stream);
int cudaEventSynchronize(handle event);
int cudaEventElapsedTime(float *milliseconds, handle from, handle to);
int cudaEventDestroy(handle event);
int cudaGetLastError(void);
int cudnnCreate(handle *made);
int cudnnSetStream(handle dnn, handle stream);
int cudnnGetStream(handle dnn, handle *stream);
int cudnnDestroy(handle dnn);

/* One at a time: the order of arguments is nobody's. */
#define SAY(status) printf("%d ", status)

static void devices(void) {
    int count = -1, device = -1;
    SAY(cudaGetDeviceCount(&count));
    SAY(cudaGetDevice(&device));
    SAY(count);
    SAY(device);
    SAY(cudaSetDevice(0));
    SAY(cudaSetDevice(1));
    SAY(cudaGetDeviceCount(NULL));
    puts("");
}

static void memory(handle stream) {
    char *at, numbers[SIZE] = "ABCDEFG", copied[SIZE] = "";
    size_t before = 0, after = 0, total = 0;
    SAY(cudaMemGetInfo(&before, &total));
    cudaMalloc((void **)&at, SIZE);
    SAY(cudaMemGetInfo(&after, &total));
    SAY(after < before && before <= total);
    SAY(cudaMemset(at, 'x', SIZE));
    SAY(cudaMemcpyAsync(at, numbers, 4, TO_DEVICE, stream));
    SAY(cudaMemcpyAsync(at + 5, at + 1, 2, ON_DEVICE, stream));
    SAY(cudaMemsetAsync(at + 7, 0, 1, stream));
    SAY(cudaMemcpyAsync(copied, at, SIZE, TO_HOST, stream));
    printf("%s ", copied);
    SAY(cudaMemcpy(copied, numbers, SIZE, BY_ADDRESS));
    printf("%s ", copied);
    SAY(cudaMemcpy(copied, at, SIZE, ON_DEVICE));
    SAY(cudaMemcpy(at, at, SIZE, ON_HOST));
    SAY(cudaMemset(copied, 0, SIZE));
    SAY(cudaMemsetAsync(at, 0, SIZE, &at));
    SAY(cudaFree(at));
    puts("");
}

static void events(handle stream) {
    handle from, to;
    float took = -1;
    SAY(cudaEventCreate(&from));
    SAY(cudaEventCreate(&to));
    SAY(cudaEventCreate(NULL));
    SAY(cudaEventRecord(from, stream));
    SAY(cudaEventElapsedTime(&took, from, to));
    SAY(cudaEventRecord(to, NULL));
    SAY(cudaStreamWaitEvent(stream, to, 0));
    SAY(cudaEventSynchronize(to));
    SAY(cudaEventElapsedTime(&took, from, to));
    SAY(took >= 0);
    SAY(cudaEventRecord(to, &took));
    SAY(cudaEventRecord(stream, stream));
    SAY(cudaEventDestroy(from));
    SAY(cudaEventDestroy(from));
    SAY(cudaEventSynchronize(from));
    puts("");
}

int main(void) {
    handle stream, dnn, set = NULL;
    devices();
    SAY(cudaStreamCreate(NULL));
    SAY(cudaStreamCreate(&stream));
    puts("");
    memory(stream);
    events(stream);
    SAY(cudnnCreate(NULL));
    SAY(cudnnCreate(&dnn));
    SAY(cudnnSetStream(dnn, stream));
    SAY(cudnnGetStream(dnn, &set));
    SAY(set == stream);
    SAY(cudnnSetStream(stream, stream));
    fflush(stdout);
    if (fork() == 0)
        _exit(cudaStreamSynchronize(stream) != 3 || cudnnSetStream(dnn, stream) != 1001 || cudnnDestroy(dnn) != 0);
    int status;
    wait(&status);
    SAY(status);
    SAY(cudnnDestroy(dnn));
    SAY(cudnnDestroy(dnn));
    puts("");
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaStreamSynchronize((handle)2));
    SAY(cudaStreamDestroy(stream));
    SAY(cudaStreamDestroy(stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaGetLastError());
    puts("");
    return 0;
}
