/* A program that trains as PyTorch does: of each layer it makes the descriptors, sets, uses and ends them, forward and
 * then backward. It says the last status, and that of waiting for all. Nothing is at its device pointers. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *descriptor;
int cudnnCreateTensorDescriptor(descriptor *made);
int cudnnSetTensor4dDescriptor(descriptor t, int format, int type, int n, int c, int h, int w);
int cudnnDestroyTensorDescriptor(descriptor t);
int cudnnCreateActivationDescriptor(descriptor *made);
int cudnnSetActivationDescriptor(descriptor a, int mode, int nan, double coefficient);
int cudnnDestroyActivationDescriptor(descriptor a);
int cudnnActivationForward(void *handle, descriptor a, const void *alpha, descriptor x, const void *x_data,
                           const void *beta, descriptor y, void *y_data);
int cudnnActivationBackward(void *handle, descriptor a, const void *alpha, descriptor y, const void *y_data,
                            descriptor dy, const void *dy_data, descriptor x, const void *x_data, const void *beta,
                            descriptor dx, void *dx_data);

int cudaDeviceSynchronize(void);
int cudnnCreate(void **handle);

enum { FLOAT, DOUBLE, LAYERS = 5 };

static void *handle;

static int layer(int i, int type, int backward) {
    const float half = 0.5f, zero = 0;
    const double third = 1.0 / 3, none = 0;
    const void *alpha = type == DOUBLE ? (const void *)&third : &half;
    const void *beta = type == DOUBLE ? (const void *)&none : &zero;
    void *x_data = (void *)(uintptr_t)(0x1000 + i), *y_data = (void *)(uintptr_t)(0x1001 + i);
    descriptor t = NULL, a = NULL;
    int status = cudnnCreateTensorDescriptor(&t) || cudnnSetTensor4dDescriptor(t, 0, type, 1 + i, 4, 8, 8) ||
                 cudnnCreateActivationDescriptor(&a) || cudnnSetActivationDescriptor(a, i % 3, 0, 1.0);
    if (!status)
        status = backward ? cudnnActivationBackward(handle, a, alpha, t, y_data, t, (void *)0x9000, t, x_data, beta, t,
                                                    (void *)0x9001)
                          : cudnnActivationForward(handle, a, alpha, t, x_data, beta, t, y_data);
    cudnnDestroyActivationDescriptor(a);
    cudnnDestroyTensorDescriptor(t);
    return status;
}

int main(int count, char **arguments) {
    int status = count == 2 ? cudnnCreate(&handle) : 64;
    for (int iteration = 0; !status && iteration < atoi(arguments[1]); iteration++) {
        int type = iteration % 4 == 3 ? DOUBLE : FLOAT;
        for (int i = 0; !status && i < LAYERS; i++)
            status = layer(i, type, 0);
        for (int i = LAYERS - 1; !status && i >= 0; i--)
            status = layer(i, type, 1);
    }
    printf("%d %d\n", status, cudaDeviceSynchronize());
    return 0;
}
