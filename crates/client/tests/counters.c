/* Counts what it calls itself, and compares with what `vgpu_counters` says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;

int cudnnCreate(handle *made);
int cudnnCreateTensorDescriptor(handle *made);
int cudnnDestroyTensorDescriptor(handle t);
int cudnnCTCLoss(void);
int cublasCreate_v2(handle *made);
int cudaMalloc(void **address, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaLaunchKernel(void);

typedef struct {
    uint64_t size, calls, records, wakes, predicted, known, new, bytes;
} counters;

static int (*count)(counters *);

#define CHECK(condition) check(condition, #condition)

static void check(int holds, const char *condition) {
    if (holds)
        return;
    fprintf(stderr, "not so: %s\n", condition);
    exit(1);
}

static counters counted(void) {
    counters now = {.size = sizeof now};
    CHECK(count(&now) == 0 && now.size == sizeof now);
    return now;
}

static void room(void) {
    counters now;
    for (uint64_t size = 0; size < 8; size++) {
        now.size = size;
        CHECK(count(&now) == 1);
    }
    CHECK(count(NULL) == 1);
    struct {
        uint64_t size, calls, after;
    } small = {16, 7, 7};
    CHECK(count((counters *)&small) == 0);
    CHECK(small.size == 16 && small.calls == counted().calls && small.after == 7);
    struct {
        counters now;
        uint64_t after;
    } large = {{.size = 1000}, 7};
    CHECK(count(&large.now) == 0 && large.now.size == sizeof now && large.after == 7);
}

int main(void) {
    char bytes[1000] = {0};
    void *memory;
    handle made;
    *(void **)&count = dlsym(RTLD_DEFAULT, "vgpu_counters");
    CHECK(count != NULL);
    /* Neither begins anything. */
    CHECK(counted().calls == 0);
    CHECK(cudnnCTCLoss() != 0 && cudnnCTCLoss() != 0);
    CHECK(cudaLaunchKernel() == 801);
    pid_t child = fork();
    if (!child)
        _exit(cudnnCreateTensorDescriptor(&made));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    for (int i = 0; i < 3; i++)
        CHECK(cudnnCreateTensorDescriptor(&made) == 0 && cudnnDestroyTensorDescriptor(made) == 0);
    CHECK(cudnnDestroyTensorDescriptor((handle)&made) != 0);
    CHECK(cudnnCreate(&made) == 0 && cublasCreate_v2(&made) == 0);
    CHECK(counted().calls == 9 && counted().records == 0);
    CHECK(cudaMalloc(&memory, sizeof bytes) == 0 && cudaMemcpy(memory, bytes, sizeof bytes, 1) == 0);
    CHECK(counted().calls == 11 && counted().records == 2 && counted().bytes == sizeof bytes);
    CHECK(cudnnCTCLoss() != 0);
    room();
    child = fork();
    if (!child)
        _exit(counted().calls != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("done");
    return 0;
}
