/* A program that trains LeNet-5 to tell digits, as PyTorch has it done: each call has descriptors that are made for it,
 * and ended after it. It says how many calls an iteration takes, what the weights came to, and what part of digits that
 * it has not seen it gets right, in percent. Written for CUDA alone: it knows nothing of how it is answered, and is
 * linked to public names. With `--table` it says for each iteration what that took; of which the numbers of
 * `vgpu_counters`, a function that whoever answers may have, are 0 where there is none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *handle;
typedef struct {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math_type, reserved[3];
} performance;

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
int cudaMemset(void *address, int value, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, handle stream);
int cudaStreamCreate(handle *made);
int cudaStreamSynchronize(handle stream);
int cudaStreamDestroy(handle stream);
int cudaEventCreate(handle *made);
int cudaEventRecord(handle event, handle stream);
int cudaEventSynchronize(handle event);
int cudaEventElapsedTime(float *milliseconds, handle from, handle to);
int cudaEventDestroy(handle event);

int cublasCreate_v2(handle *made);
int cublasSetStream_v2(handle blas, handle stream);
int cublasDestroy_v2(handle blas);
int cublasSgemm_v2(handle blas, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc);
int cublasSaxpy_v2(handle blas, int n, const float *alpha, const float *x, int incx, float *y, int incy);
int cublasSscal_v2(handle blas, int n, const float *alpha, float *x, int incx);
int cublasScopy_v2(handle blas, int n, const float *x, int incx, float *y, int incy);
int cublasSnrm2_v2(handle blas, int n, const float *x, int incx, float *result);

int cudnnCreate(handle *made);
int cudnnSetStream(handle dnn, handle stream);
int cudnnDestroy(handle dnn);
int cudnnCreateTensorDescriptor(handle *made);
int cudnnSetTensor4dDescriptor(handle t, int format, int type, int n, int c, int h, int w);
int cudnnDestroyTensorDescriptor(handle t);
int cudnnCreateFilterDescriptor(handle *made);
int cudnnSetFilter4dDescriptor(handle f, int type, int format, int k, int c, int h, int w);
int cudnnDestroyFilterDescriptor(handle f);
int cudnnCreateConvolutionDescriptor(handle *made);
int cudnnSetConvolution2dDescriptor(handle c, int pad_h, int pad_w, int u, int v, int dilation_h, int dilation_w,
                                    int mode, int type);
int cudnnDestroyConvolutionDescriptor(handle c);
int cudnnCreatePoolingDescriptor(handle *made);
int cudnnSetPooling2dDescriptor(handle p, int mode, int nan, int h, int w, int pad_h, int pad_w, int stride_h,
                                int stride_w);
int cudnnDestroyPoolingDescriptor(handle p);
int cudnnCreateActivationDescriptor(handle *made);
int cudnnSetActivationDescriptor(handle a, int mode, int nan, double coefficient);
int cudnnDestroyActivationDescriptor(handle a);
int cudnnGetConvolutionForwardAlgorithm_v7(handle dnn, handle x, handle f, handle c, handle y, int wanted, int *count,
                                           performance *found);
int cudnnGetConvolutionForwardWorkspaceSize(handle dnn, handle x, handle f, handle c, handle y, int algorithm,
                                            size_t *bytes);
int cudnnConvolutionForward(handle dnn, const void *alpha, handle x, const void *x_data, handle f, const void *f_data,
                            handle c, int algorithm, void *space, size_t bytes, const void *beta, handle y,
                            void *y_data);
int cudnnConvolutionBackwardBias(handle dnn, const void *alpha, handle dy, const void *dy_data, const void *beta,
                                 handle db, void *db_data);
int cudnnConvolutionBackwardFilter(handle dnn, const void *alpha, handle x, const void *x_data, handle dy,
                                   const void *dy_data, handle c, int algorithm, void *space, size_t bytes,
                                   const void *beta, handle df, void *df_data);
int cudnnConvolutionBackwardData(handle dnn, const void *alpha, handle f, const void *f_data, handle dy,
                                 const void *dy_data, handle c, int algorithm, void *space, size_t bytes,
                                 const void *beta, handle dx, void *dx_data);
int cudnnAddTensor(handle dnn, const void *alpha, handle a, const void *a_data, const void *beta, handle c,
                   void *c_data);
int cudnnActivationForward(handle dnn, handle a, const void *alpha, handle x, const void *x_data, const void *beta,
                           handle y, void *y_data);
int cudnnActivationBackward(handle dnn, handle a, const void *alpha, handle y, const void *y_data, handle dy,
                            const void *dy_data, handle x, const void *x_data, const void *beta, handle dx,
                            void *dx_data);
int cudnnPoolingForward(handle dnn, handle p, const void *alpha, handle x, const void *x_data, const void *beta,
                        handle y, void *y_data);
int cudnnPoolingBackward(handle dnn, handle p, const void *alpha, handle y, const void *y_data, handle dy,
                         const void *dy_data, handle x, const void *x_data, const void *beta, handle dx,
                         void *dx_data);
int cudnnSoftmaxForward(handle dnn, int algorithm, int mode, const void *alpha, handle x, const void *x_data,
                        const void *beta, handle y, void *y_data);

enum { TO_DEVICE = 1, TO_HOST = 2, FLOAT = 0, NCHW = 0, CROSS_CORRELATION = 1, MAX = 0, RELU = 1, CHANNELS = 1 };
enum { SIDE = 28, BATCH = 20, ITERATIONS = 150, EXAMS = 10, STEPS = 12, LAYERS = 5, DIGITS = 10 };

static const float ONE = 1, ZERO = 0, RATE = -0.1f;
static handle stream, dnn, blas;

/* Of an iteration: calls; those among them that compute or are of memory, and no descriptor's and no question; and
 * those among these that wait for what was sent before, since bytes of the program's go or come. */
static unsigned long calls, computes, waits;

/* Makes a call, which must succeed. */
#define CALL(call) called(call, #call)

static void called(int status, const char *what) {
    calls++;
    computes += !strstr(what, "Descriptor(") && !strstr(what, "Get");
    waits += strstr(what, "Memcpy") || strstr(what, "nrm2");
    if (!status)
        return;
    fprintf(stderr, "%d: %s\n", status, what);
    exit(1);
}

/* Numbers that are as good as random, and the same each time: Steele and others, "SplitMix", 2014. */
static uint64_t state = 1;

static unsigned below(unsigned end) {
    uint64_t mixed = state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return (unsigned)((mixed ^ (mixed >> 31)) % end);
}

/* Digits as they are on a display of five by seven points. */
static const unsigned char POINTS[DIGITS][7] = {
    {0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E}, {0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E},
    {0x0E, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1F}, {0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E},
    {0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02}, {0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E},
    {0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E}, {0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08},
    {0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E}, {0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C},
};

static float pictures[BATCH][SIDE][SIDE], right[BATCH][DIGITS];
static unsigned labels[BATCH];

/* Digits somewhere in their pictures, three times as large, with noise; and which they are. */
static void draw(void) {
    memset(right, 0, sizeof right);
    for (int i = 0; i < BATCH; i++) {
        unsigned digit = labels[i] = below(DIGITS), top = below(5) + 2, left = below(8) + 2;
        right[i][digit] = 1;
        for (unsigned y = 0; y < SIDE; y++)
            for (unsigned x = 0; x < SIDE; x++) {
                unsigned row = (y - top) / 3, column = (x - left) / 3;
                int lit = row < 7 && column < 5 && (POINTS[digit][row] >> (4 - column) & 1);
                pictures[i][y][x] = (float)lit + (float)below(100) / 250 - 0.2f;
            }
    }
}

/* Data on the device, and its gradient. */
typedef struct {
    float *at, *gradient;
    int count;
} data;

static data place(int count) {
    data made = {.count = count};
    size_t bytes = sizeof(float) * (size_t)count;
    CALL(cudaMalloc((void **)&made.at, bytes));
    CALL(cudaMalloc((void **)&made.gradient, bytes));
    CALL(cudaMemset(made.at, 0, bytes));
    return made;
}

/* Of layers: filters, then matrices; how many come out, how many weights each of these has, how they lie. */
static const struct {
    int outputs, channels, side, padding;
} SHAPE[LAYERS] = {{6, 1, 5, 2}, {16, 6, 5, 0}, {120, 400, 1, 0}, {84, 120, 1, 0}, {10, 84, 1, 0}};

static struct {
    data w, b;
} layers[LAYERS];

/* Of what lies before and after each step: channels, and height and width. */
static const int DIMS[STEPS + 1][2] = {{1, 28},  {6, 28},  {6, 28}, {6, 14}, {16, 10}, {16, 10}, {16, 5},
                                       {120, 1}, {120, 1}, {84, 1}, {84, 1}, {10, 1},  {10, 1}};
static data between[STEPS + 1], wanted;

static void begin(void) {
    for (int i = 0; i < LAYERS; i++) {
        int inputs = SHAPE[i].channels * SHAPE[i].side * SHAPE[i].side, count = inputs * SHAPE[i].outputs;
        layers[i].w = place(count);
        layers[i].b = place(SHAPE[i].outputs);
        float *numbers = malloc(sizeof(float) * (size_t)count);
        /* The root of 6 by the inputs is the most, after He and others, without a mathematical library. */
        float most = 1;
        for (int j = 0; j < 30; j++)
            most = (most + 6 / (float)inputs / most) / 2;
        for (int j = 0; j < count; j++)
            numbers[j] = most * ((float)below(2001) / 1000 - 1);
        CALL(cudaMemcpy(layers[i].w.at, numbers, sizeof(float) * (size_t)count, TO_DEVICE));
        free(numbers);
    }
    for (int i = 0; i <= STEPS; i++)
        between[i] = place(BATCH * DIMS[i][0] * DIMS[i][1] * DIMS[i][1]);
    wanted = place(BATCH * DIGITS);
}

static handle tensor(int n, int channels, int side) {
    handle t;
    CALL(cudnnCreateTensorDescriptor(&t));
    CALL(cudnnSetTensor4dDescriptor(t, NCHW, FLOAT, n, channels, side, side));
    return t;
}

static handle tensor_of(int i) { return tensor(BATCH, DIMS[i][0], DIMS[i][1]); }

static handle filter(int layer) {
    handle f;
    int side = SHAPE[layer].side;
    CALL(cudnnCreateFilterDescriptor(&f));
    CALL(cudnnSetFilter4dDescriptor(f, FLOAT, NCHW, SHAPE[layer].outputs, SHAPE[layer].channels, side, side));
    return f;
}

static handle convolution(int layer) {
    handle c;
    int padding = SHAPE[layer].padding;
    CALL(cudnnCreateConvolutionDescriptor(&c));
    CALL(cudnnSetConvolution2dDescriptor(c, padding, padding, 1, 1, 1, 1, CROSS_CORRELATION, FLOAT));
    return c;
}

static void end(handle a, handle b) {
    CALL(cudnnDestroyTensorDescriptor(a));
    CALL(cudnnDestroyTensorDescriptor(b));
}

static void add_bias(int step, int layer) {
    handle b = tensor(1, SHAPE[layer].outputs, 1), y = tensor_of(step + 1);
    CALL(cudnnAddTensor(dnn, &ONE, b, layers[layer].b.at, &ONE, y, between[step + 1].at));
    end(b, y);
}

static void bias_back(int step, int layer) {
    handle b = tensor(1, SHAPE[layer].outputs, 1), y = tensor_of(step + 1);
    CALL(cudnnConvolutionBackwardBias(dnn, &ONE, y, between[step + 1].gradient, &ZERO, b, layers[layer].b.gradient));
    end(b, y);
}

static void convolve(int step, int layer, int backward) {
    if (backward)
        bias_back(step, layer);
    handle x = tensor_of(step), y = tensor_of(step + 1), f = filter(layer), c = convolution(layer);
    data w = layers[layer].w, from = between[step], to = between[step + 1];
    if (backward) {
        CALL(cudnnConvolutionBackwardFilter(dnn, &ONE, x, from.at, y, to.gradient, c, 1, NULL, 0, &ZERO, f,
                                            w.gradient));
        if (step)
            CALL(cudnnConvolutionBackwardData(dnn, &ONE, f, w.at, y, to.gradient, c, 1, NULL, 0, &ZERO, x,
                                              from.gradient));
    } else {
        performance found;
        int count;
        size_t bytes;
        void *space = NULL;
        CALL(cudnnGetConvolutionForwardAlgorithm_v7(dnn, x, f, c, y, 1, &count, &found));
        CALL(cudnnGetConvolutionForwardWorkspaceSize(dnn, x, f, c, y, found.algorithm, &bytes));
        if (bytes)
            CALL(cudaMalloc(&space, bytes));
        CALL(cudnnConvolutionForward(dnn, &ONE, x, from.at, f, w.at, c, found.algorithm, space, bytes, &ZERO, y,
                                     to.at));
        if (bytes)
            CALL(cudaFree(space));
    }
    CALL(cudnnDestroyConvolutionDescriptor(c));
    CALL(cudnnDestroyFilterDescriptor(f));
    end(x, y);
    if (!backward)
        add_bias(step, layer);
}

static void activate(int step, int backward) {
    handle x = tensor_of(step), y = tensor_of(step + 1), a;
    data from = between[step], to = between[step + 1];
    CALL(cudnnCreateActivationDescriptor(&a));
    CALL(cudnnSetActivationDescriptor(a, RELU, 0, 0));
    if (backward)
        CALL(cudnnActivationBackward(dnn, a, &ONE, y, to.at, y, to.gradient, x, from.at, &ZERO, x, from.gradient));
    else
        CALL(cudnnActivationForward(dnn, a, &ONE, x, from.at, &ZERO, y, to.at));
    CALL(cudnnDestroyActivationDescriptor(a));
    end(x, y);
}

static void pool(int step, int backward) {
    handle x = tensor_of(step), y = tensor_of(step + 1), p;
    data from = between[step], to = between[step + 1];
    CALL(cudnnCreatePoolingDescriptor(&p));
    CALL(cudnnSetPooling2dDescriptor(p, MAX, 0, 2, 2, 0, 0, 2, 2));
    if (backward)
        CALL(cudnnPoolingBackward(dnn, p, &ONE, y, to.at, y, to.gradient, x, from.at, &ZERO, x, from.gradient));
    else
        CALL(cudnnPoolingForward(dnn, p, &ONE, x, from.at, &ZERO, y, to.at));
    CALL(cudnnDestroyPoolingDescriptor(p));
    end(x, y);
}

/* Matrices in column order: a column for each picture; weights as many columns as there are outputs. */
static void multiply(int step, int layer, int backward) {
    int in = SHAPE[layer].channels, out = SHAPE[layer].outputs, n = BATCH;
    data w = layers[layer].w, x = between[step], y = between[step + 1];
    if (!backward) {
        CALL(cublasSgemm_v2(blas, 1, 0, out, n, in, &ONE, w.at, in, x.at, in, &ZERO, y.at, out));
        add_bias(step, layer);
        return;
    }
    bias_back(step, layer);
    CALL(cublasSgemm_v2(blas, 0, 1, in, out, n, &ONE, x.at, in, y.gradient, out, &ZERO, w.gradient, in));
    CALL(cublasSgemm_v2(blas, 0, 0, in, n, out, &ONE, w.at, in, y.gradient, out, &ZERO, x.gradient, in));
}

/* What each step does, and in which layer; the last is softmax. */
static const struct {
    void (*with_weights)(int step, int layer, int backward), (*without)(int step, int backward);
    int layer;
} PLAN[STEPS - 1] = {{convolve, NULL, 0}, {NULL, activate, 0}, {NULL, pool, 0},     {convolve, NULL, 1},
                     {NULL, activate, 0}, {NULL, pool, 0},     {multiply, NULL, 2}, {NULL, activate, 0},
                     {multiply, NULL, 3}, {NULL, activate, 0}, {multiply, NULL, 4}};

static void run(int step, int backward) {
    if (PLAN[step].without)
        PLAN[step].without(step, backward);
    else
        PLAN[step].with_weights(step, PLAN[step].layer, backward);
}

/* For each of ten digits, how likely it is that one. */
static void forward(void) {
    CALL(cudaMemcpyAsync(between[0].at, pictures, sizeof pictures, TO_DEVICE, stream));
    for (int step = 0; step < STEPS - 1; step++)
        run(step, 0);
    handle x = tensor_of(STEPS - 1), y = tensor_of(STEPS);
    CALL(cudnnSoftmaxForward(dnn, 1, CHANNELS, &ONE, x, between[STEPS - 1].at, &ZERO, y, between[STEPS].at));
    end(x, y);
}

static void backward(void) {
    /* Of softmax and cross entropy together. */
    const float minus = -1, mean = 1.0f / BATCH;
    float *gradient = between[STEPS - 1].gradient;
    CALL(cudaMemcpyAsync(wanted.at, right, sizeof right, TO_DEVICE, stream));
    CALL(cublasScopy_v2(blas, wanted.count, between[STEPS].at, 1, gradient, 1));
    CALL(cublasSaxpy_v2(blas, wanted.count, &minus, wanted.at, 1, gradient, 1));
    CALL(cublasSscal_v2(blas, wanted.count, &mean, gradient, 1));
    for (int step = STEPS - 2; step >= 0; step--)
        run(step, 1);
}

static void learn(void) {
    float length;
    for (int i = 0; i < LAYERS; i++) {
        CALL(cublasSaxpy_v2(blas, layers[i].w.count, &RATE, layers[i].w.gradient, 1, layers[i].w.at, 1));
        CALL(cublasSaxpy_v2(blas, layers[i].b.count, &RATE, layers[i].b.gradient, 1, layers[i].b.at, 1));
    }
    CALL(cublasSnrm2_v2(blas, layers[LAYERS - 1].w.count, layers[LAYERS - 1].w.gradient, 1, &length));
    if (!(length >= 0 && length < 1000))
        called(-1, "the gradient is a number, and not large");
}

static int is_right(const float *said, unsigned label) {
    unsigned most = 0;
    for (unsigned i = 1; i < DIGITS; i++)
        most = said[i] > said[most] ? i : most;
    return most == label;
}

static int exam(void) {
    static float said[BATCH][DIGITS];
    int passed = 0;
    draw();
    forward();
    CALL(cudaMemcpy(said, between[STEPS].at, sizeof said, TO_HOST));
    for (int i = 0; i < BATCH; i++)
        passed += is_right(said[i], labels[i]);
    return passed;
}

/* A number of all bits of these (Fowler, Noll and Vo's). */
static uint64_t hashed(data of, uint64_t hash) {
    size_t bytes = sizeof(float) * (size_t)of.count;
    unsigned char *numbers = malloc(bytes);
    CALL(cudaMemcpy(numbers, of.at, bytes, TO_HOST));
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ numbers[i]) * 0x100000001B3;
    free(numbers);
    return hash;
}

/* What docs/reuse.md says of it. */
typedef struct {
    uint64_t size, calls, records, wakes, predicted, known, new, bytes;
} counters;

static counters counted(void) {
    static int (*count)(counters *);
    counters now = {.size = sizeof now};
    if (!count)
        *(void **)&count = dlsym(RTLD_DEFAULT, "vgpu_counters");
    if (count)
        count(&now);
    return now;
}

static void iterate(void) {
    calls = computes = waits = 0;
    draw();
    forward();
    backward();
    learn();
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

#define SINCE(counter) (unsigned long)(now.counter - then.counter)

/* What it took since `then`, in a line: columns are named in `main`. */
static void row(int iteration, counters then, double took) {
    counters now = counted();
    printf("%d %lu %lu %lu %lu %lu %lu %.1f %lu %lu %lu %lu\n", iteration, calls, computes, waits, SINCE(calls),
           SINCE(records), SINCE(wakes), took, SINCE(predicted), SINCE(known), SINCE(new), SINCE(bytes));
}

int main(int count, char **arguments) {
    int devices, passed = 0, table = count == 2 && !strcmp(arguments[1], "--table");
    uint64_t hash = 0xCBF29CE484222325;
    float took;
    handle from, to;
    CALL(cudaGetDeviceCount(&devices));
    CALL(cudaSetDevice(devices - 1));
    CALL(cudaStreamCreate(&stream));
    CALL(cudaEventCreate(&from));
    CALL(cudaEventCreate(&to));
    CALL(cudnnCreate(&dnn));
    CALL(cudnnSetStream(dnn, stream));
    CALL(cublasCreate_v2(&blas));
    CALL(cublasSetStream_v2(blas, stream));
    begin();
    CALL(cudaEventRecord(from, stream));
    if (table)
        puts("iteration calls computes waits counted records wakeups us predicted known new bytes");
    for (int i = 1; i <= ITERATIONS; i++) {
        counters then = counted();
        double start = microseconds();
        iterate();
        if (table)
            row(i, then, microseconds() - start);
    }
    unsigned long iteration = calls;
    CALL(cudaEventRecord(to, stream));
    CALL(cudaEventSynchronize(to));
    CALL(cudaEventElapsedTime(&took, from, to));
    for (int i = 0; i < EXAMS; i++)
        passed += exam();
    for (int i = 0; i < LAYERS; i++)
        hash = hashed(layers[i].b, hashed(layers[i].w, hash));
    CALL(cudaEventDestroy(from));
    CALL(cudaEventDestroy(to));
    CALL(cudnnDestroy(dnn));
    CALL(cublasDestroy_v2(blas));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaStreamDestroy(stream));
    if (!table)
        fprintf(stderr, "%.2f ms an iteration\n", (double)took / ITERATIONS);
    printf("%lu %016llx %.1f\n", iteration, (unsigned long long)hash, 100.0 * passed / (EXAMS * BATCH));
    return 0;
}
