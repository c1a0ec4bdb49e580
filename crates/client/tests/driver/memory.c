/* A program that takes memory from the driver, copies and fills it, and asks what an address is in. */
#include "driver.h"

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
    /* One plane too many, and nothing is copied. */
    in.depth = 9;
    in.from.z = 0;
    SAY(cuMemcpy3D_v2(&in));
    SAY(cuMemcpy3D_v2(&out));
    printf("%s ", copied);
    /* Planes that are in one another, without end; and that follow each other. */
    out.depth = -1;
    out.from.height = out.to.height = 1;
    SAY(cuMemcpy3D_v2(&out));
    out.from.height = out.to.height = 0;
    SAY(cuMemcpy3D_v2(&out));
    out.depth = 2;
    SAY(cuMemcpy3D_v2(&out));
    printf("%s ", copied);
    out.from.height = 4;
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

int main(int count, char **arguments) {
    static const struct part parts[] = {
        {"memory", memory},
        {"volumes", volumes},
        {"host", host},
        {"pointers", pointers},
        {"pools", pools},
    };
    return count == 2 ? run(parts, sizeof parts / sizeof *parts, arguments[1]) : 64;
}
