/* A program that computes: copies numbers to the device, has them rectified there, and copies them back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef void *descriptor;
enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3, BY_ADDRESS = 4, COUNT = 6 };

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudnnCreate(descriptor *made);
int cudnnCreateTensorDescriptor(descriptor *made);
int cudnnSetTensor4dDescriptor(descriptor t, int format, int type, int n, int c, int h, int w);
int cudnnDestroyTensorDescriptor(descriptor t);
int cudnnCreateActivationDescriptor(descriptor *made);
int cudnnSetActivationDescriptor(descriptor a, int mode, int nan, double coefficient);
int cudnnActivationForward(void *handle, descriptor a, const void *alpha, descriptor x, const void *x_data,
                           const void *beta, descriptor y, void *y_data);

int main(void) {
    const float numbers[COUNT] = {-1, 2, -3, 4, -5, 6}, two = 2, zero = 0;
    float results[COUNT] = {0};
    void *x = NULL, *y = NULL, *none = &x;
    descriptor t, relu, dnn;
    printf("%d", cudaMalloc(&x, sizeof numbers));
    printf(" %d", cudaMalloc(&y, sizeof numbers));
    printf(" %d", cudaMalloc(&none, 0));
    printf(" %d", none == NULL);
    printf(" %d\n", cudaMemcpy(x, numbers, sizeof numbers, TO_DEVICE));
    cudnnCreateTensorDescriptor(&t);
    cudnnSetTensor4dDescriptor(t, 0, 0, 1, 1, 2, 3);
    cudnnCreateActivationDescriptor(&relu);
    cudnnSetActivationDescriptor(relu, 1, 0, 0);
    printf("%d", cudnnCreate(&dnn));
    printf(" %d", cudnnActivationForward(dnn, relu, &two, t, x, &zero, t, y));
    cudnnDestroyTensorDescriptor(t);
    printf(" %d", cudaDeviceSynchronize());
    printf(" %d", cudaMemcpy(results, y, sizeof results, BY_ADDRESS));
    for (int i = 0; i < COUNT; i++)
        printf(" %g", results[i]);
    printf("\n%d", cudaMemcpy(results, numbers, sizeof numbers, TO_HOST));
    printf(" %d", cudaGetLastError());
    printf(" %d", cudaMemcpy(NULL, x, 4, TO_HOST));
    printf(" %d", cudaMemcpy(y, x, 4, ON_DEVICE));
    printf(" %d", cudaMemcpy((char *)x + (1 << 20), numbers, 4, TO_DEVICE));
    printf(" %d", cudaMalloc(&none, (size_t)1 << 40));
    printf(" %d", cudaFree(x));
    printf(" %d", cudaFree(x));
    printf(" %d", cudaFree(y));
    printf(" %d\n", cudaFree(NULL));
    return 0;
}
