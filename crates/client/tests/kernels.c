/* What a compiler makes of a program with a kernel of its own, `kernel<<<2, 3, 4, 5>>>()`, linked to libcudart.so.12; and
 * what such a program asks when it fails. Says what it was told. */
#include <stdint.h>
#include <stdio.h>

struct dimensions {
    unsigned x, y, z;
};
struct channel_format {
    int x, y, z, w, kind;
};

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
void __cudaRegisterFunction(void **module, const char *function, char *device, const char *name, int limit, void *a,
                            void *b, void *c, void *d, int *e);
unsigned __cudaPushCallConfiguration(struct dimensions grid, struct dimensions block, size_t shared, void *stream);
int __cudaPopCallConfiguration(struct dimensions *grid, struct dimensions *block, size_t *shared, void **stream);
int cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block, void **arguments,
                     size_t shared, void *stream);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
const char *cudaGetErrorName(int error);
const char *cudaGetErrorString(int error);
int cudaRuntimeGetVersion(int *version);
struct channel_format cudaCreateChannelDesc(int x, int y, int z, int w, int kind);
const char *cublasGetStatusName(int status);
int cuGetErrorName(int error, const char **name);

static void kernel(void) {
    struct dimensions grid, block;
    size_t shared;
    void *stream;
    int popped = __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
    printf("%d: %u %u %u, %u %u %u, %zu, %d\n", popped, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
           (int)(intptr_t)stream);
    cudaLaunchKernel((const void *)kernel, grid, block, NULL, shared, stream);
}

int main(void) {
    void **module = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(module, (char *)kernel, NULL, "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(module);
    struct dimensions grid = {2, 1, 1}, block = {3, 1, 1};
    if (__cudaPushCallConfiguration(grid, block, 4, (void *)5) == 0)
        kernel();
    int peeked = cudaPeekAtLastError(), last = cudaGetLastError(), version = 0;
    printf("%d %d %d %s\n", peeked, last, cudaGetLastError(), cudaGetErrorName(last));
    cudaRuntimeGetVersion(&version);
    struct channel_format format = cudaCreateChannelDesc(8, 8, 8, 0, 1);
    const char *name = NULL, *none = "";
    int known = cuGetErrorName(801, &name), unknown = cuGetErrorName(-1, &none);
    printf("%s %d %d %d %s %s\n", cudaGetErrorString(-1), version, format.z, format.kind, cublasGetStatusName(15),
           cublasGetStatusName(-1));
    printf("%d %s %d %s\n", known, name, unknown, none ? none : "nothing");
    __cudaUnregisterFatBinary(module);
    return 0;
}
