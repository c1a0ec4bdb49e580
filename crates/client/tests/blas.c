/* A program that multiplies, with factors and results of its own and on the device, and does it wrongly. Says what
 * comes of each call. */
#include <stddef.h>
#include <stdio.h>

typedef void *handle;
enum { TO_DEVICE = 1, TO_HOST = 2, OF_PROGRAM = 0, ON_DEVICE = 1, SINGLE = 0, SUMS = 68, HALF = 2 };

int cudaMalloc(void **address, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cublasCreate_v2(handle *made);
int cublasDestroy_v2(handle blas);
int cublasSetStream_v2(handle blas, handle stream);
int cublasGetStream_v2(handle blas, handle *stream);
int cublasSetPointerMode_v2(handle blas, int mode);
int cublasGetPointerMode_v2(handle blas, int *mode);
int cublasSetMathMode(handle blas, int mode);
int cublasGetVersion_v2(handle blas, int *version);
int cublasGetProperty(int property, int *value);
int cublasSetWorkspace_v2(handle blas, void *workspace, size_t bytes);
int cublasSetVector(int n, int size, const void *x, int incx, void *y, int incy);
int cublasGetVector(int n, int size, const void *x, int incx, void *y, int incy);
int cublasGetVectorAsync(int n, int size, const void *x, int incx, void *y, int incy, handle stream);
int cublasSetMatrix(int rows, int columns, int size, const void *a, int lda, void *b, int ldb);
int cublasSetMatrixAsync(int rows, int columns, int size, const void *a, int lda, void *b, int ldb, handle stream);
int cublasGetMatrix(int rows, int columns, int size, const void *a, int lda, void *b, int ldb);
int cublasGemmEx(handle blas, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                 int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc, int sums,
                 int algorithm);
int cublasSgemv_v2(handle blas, int op, int m, int n, const float *alpha, const float *a, int lda, const float *x,
                   int incx, const float *beta, float *y, int incy);
int cublasSdot_v2(handle blas, int n, const float *x, int incx, const float *y, int incy, float *result);
int cublasSnrm2_v2(handle blas, int n, const float *x, int incx, float *result);

/* One at a time: the order of arguments is nobody's. */
#define SAY(status) printf("%d ", status)

int main(void) {
    const float numbers[] = {1, 2, 3, 4, 2, 0, 0}, two = 2, zero = 0;
    float *at, results[4] = {0}, dot = 0, length = 0;
    handle blas, stream = &blas;
    int mode = -1;
    cudaMalloc((void **)&at, sizeof numbers + 16);
    cudaMemcpy(at, numbers, sizeof numbers, TO_DEVICE);
    /* A matrix of two by two, by its columns; a factor of 2, and one of 0; then room for results. */
    float *factor = at + 4, *result = at + 6, *c = at + 7;
    SAY(cublasCreate_v2(NULL));
    SAY(cublasCreate_v2(&blas));
    SAY(cublasSetStream_v2(blas, (handle)2));
    SAY(cublasGetStream_v2(blas, &stream));
    SAY(stream == (handle)2);
    SAY(cublasGemmEx(blas, 0, 1, 2, 2, 2, &two, at, SINGLE, 2, at, SINGLE, 2, &zero, c, SINGLE, 2, SUMS, -1));
    SAY(cudaMemcpy(results, c, sizeof results, TO_HOST));
    printf("= %g %g %g %g\n", results[0], results[1], results[2], results[3]);
    SAY(cublasSdot_v2(blas, 2, at, 1, at + 2, 1, &dot));
    SAY(cublasSnrm2_v2(blas, 2, at + 2, 1, &length));
    printf("= %g %g\n", dot, length);
    SAY(cublasSetPointerMode_v2(blas, ON_DEVICE));
    SAY(cublasGetPointerMode_v2(blas, &mode));
    SAY(mode);
    SAY(cublasSgemv_v2(blas, 0, 2, 2, factor, at, 2, at, 1, factor + 1, c, 1));
    SAY(cublasSdot_v2(blas, 2, at, 1, at + 2, 1, result));
    cudaMemcpy(results, result, 3 * sizeof *results, TO_HOST);
    printf("= %g %g %g\n", results[0], results[1], results[2]);
    SAY(cublasSnrm2_v2(blas, 2, at, 1, NULL));
    SAY(cublasSetPointerMode_v2(blas, 2));
    SAY(cublasSetMathMode(blas, 4));
    SAY(cublasGetPointerMode_v2(blas, NULL));
    cublasSetPointerMode_v2(blas, OF_PROGRAM);
    SAY(cublasSgemv_v2(blas, 0, 2, 2, NULL, at, 2, at, 1, &zero, c, 1));
    SAY(cublasSgemv_v2(blas, 0, 2, 2, &two, at, 1, at, 1, &zero, c, 1));
    SAY(cublasGemmEx(blas, 0, 0, 2, 2, 2, &two, at, HALF, 2, at, SINGLE, 2, &zero, c, SINGLE, 2, SUMS, -1));
    puts("");
    /* Every other one there, and back without gaps; then two columns of one row less than there is between them. */
    float back[6] = {0}, matrix[6] = {1, 2, 3, 4, 5, 6};
    int version = 0, patch = 0;
    SAY(cublasSetVector(3, sizeof *matrix, matrix, 2, at, 1));
    SAY(cublasGetVector(3, sizeof *matrix, at, 1, back, 1));
    printf("= %g %g %g\n", back[0], back[1], back[2]);
    SAY(cublasSetMatrix(2, 2, sizeof *matrix, matrix, 3, at, 2));
    SAY(cublasSetMatrixAsync(0, 2, sizeof *matrix, matrix, 3, at, 2, NULL));
    SAY(cublasGetVectorAsync(2, sizeof *matrix, at + 1, 2, back, 3, NULL));
    SAY(cublasGetMatrix(1, 2, sizeof *matrix, at, 2, back + 1, 1));
    printf("= %g %g %g %g\n", back[0], back[1], back[2], back[3]);
    SAY(cublasSetVector(3, 0, matrix, 1, at, 1));
    SAY(cublasSetVector(3, sizeof *matrix, matrix, 1, at, -1));
    SAY(cublasSetVector(-1, sizeof *matrix, matrix, 1, at, 1));
    SAY(cublasGetMatrix(-1, 2, sizeof *matrix, at, 2, back, 1));
    SAY(cublasGetVector(3, sizeof *matrix, matrix, 1, at, 1));
    SAY(cublasGetMatrix(2, 2, sizeof *matrix, at, 1, back, 2));
    SAY(cublasSetVector(3, sizeof *matrix, matrix, 1, NULL, 1));
    SAY(cublasGetVectorAsync(1, sizeof *matrix, at, 1, back, 1, (handle)12345));
    puts("");
    SAY(cublasGetVersion_v2(blas, &version));
    SAY(cublasGetVersion_v2(NULL, &version));
    SAY(cublasGetProperty(2, &patch));
    SAY(cublasGetProperty(3, &patch));
    SAY(cublasSetWorkspace_v2(blas, NULL, 0));
    SAY(cublasSetWorkspace_v2(blas, (char *)at + 4, 1024));
    printf("= %d %d\n", version, patch);
    SAY(cublasDestroy_v2(blas));
    SAY(cublasDestroy_v2(blas));
    SAY(cublasSnrm2_v2(blas, 2, at, 1, &length));
    SAY(cublasSetStream_v2(NULL, NULL));
    puts("");
    return 0;
}
