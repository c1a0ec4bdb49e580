/* A program that does what it should not: it computes with what is no handle, is one no more, or is of another kind; it
 * ends descriptors while computes with them have not been done, on this thread and on another; and it leaves things
 * when it ends. Of each call it says what comes of it. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

typedef void *handle;
enum { TO_DEVICE = 1, TO_HOST = 2, COUNT = 6, LARGE = 4 << 20, ROUNDS = 5000 };

int cudaMalloc(void **address, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemset(void *address, int value, size_t bytes);
int cudaDeviceSynchronize(void);
int cudaStreamCreate(handle *made);
int cudaEventCreate(handle *made);
int cudnnCreate(handle *made);
int cudnnSetStream(handle dnn, handle stream);
int cudnnGetStream(handle dnn, handle *stream);
int cudnnDestroy(handle dnn);
int cudnnCreateTensorDescriptor(handle *made);
int cudnnSetTensor4dDescriptor(handle t, int format, int type, int n, int c, int h, int w);
int cudnnDestroyTensorDescriptor(handle t);
int cudnnCreateActivationDescriptor(handle *made);
int cudnnSetActivationDescriptor(handle a, int mode, int nan, double coefficient);
int cudnnActivationForward(handle dnn, handle a, const void *alpha, handle x, const void *x_data, const void *beta,
                           handle y, void *y_data);
int cudnnGetConvolutionForwardAlgorithmMaxCount(handle dnn, int *count);
int cudnnCreateDropoutDescriptor(handle *made);
int cudnnSetDropoutDescriptor(handle d, handle dnn, float dropout, void *states, size_t bytes, unsigned long long seed);

static const float NUMBERS[COUNT] = {-1, 2, -3, 4, -5, 6}, ONE = 1, ZERO = 0;
static handle dnn, relu;
static void *x, *y;

/* One at a time: the order of arguments is nobody's. */
#define SAY(status) printf("%d ", status)

static handle tensor(int width) {
    handle t = NULL;
    cudnnCreateTensorDescriptor(&t);
    cudnnSetTensor4dDescriptor(t, 0, 0, 1, 1, 1, width);
    return t;
}

static int rectify(handle with, handle activation, handle t) {
    return cudnnActivationForward(with, activation, &ONE, t, x, &ZERO, t, y);
}

static void say_results(void) {
    float results[COUNT] = {0};
    SAY(cudaMemcpy(results, y, sizeof results, TO_HOST));
    for (int i = 0; i < COUNT; i++)
        printf("%g ", results[i]);
    puts("");
}

static void handles(void) {
    handle t = tensor(COUNT), stale, dropout;
    int count = 0;
    cudnnCreate(&stale);
    SAY(rectify(stale, relu, t));
    SAY(cudnnDestroy(stale));
    SAY(cudnnDestroy(stale));
    SAY(cudnnDestroy(NULL));
    cudnnCreateDropoutDescriptor(&dropout);
    handle wrong[] = {NULL, stale, t, relu, &t, (char *)dnn + 8, (char *)dnn + 128 * 1000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SAY(rectify(wrong[i], relu, t));
        SAY(cudnnGetConvolutionForwardAlgorithmMaxCount(wrong[i], &count));
        SAY(cudnnSetDropoutDescriptor(dropout, wrong[i], 0.5f, x, sizeof NUMBERS, 1));
        SAY(cudnnSetStream(wrong[i], NULL));
    }
    SAY(count);
    SAY(cudnnDestroyTensorDescriptor(dnn));
    SAY(cudnnDestroy(t));
    SAY(rectify(dnn, relu, t));
    puts("");
}

static void descriptors(void) {
    handle t = tensor(COUNT), stale = tensor(COUNT);
    SAY(cudnnDestroyTensorDescriptor(stale));
    handle wrong[] = {NULL, stale, relu, dnn, &t, (char *)t + 8};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SAY(rectify(dnn, relu, wrong[i]));
        SAY(rectify(dnn, wrong[i] == relu ? t : wrong[i], t));
    }
    SAY(cudaDeviceSynchronize());
    puts("");
}

/* Computes that have worked are not waited for: what they are of is what it was when they were called. */
static void ended_before_it_is_done(void) {
    void *large;
    handle wide = tensor(COUNT), narrow = tensor(2);
    SAY(rectify(dnn, relu, wide));
    SAY(rectify(dnn, relu, narrow));
    SAY(cudnnDestroyTensorDescriptor(narrow));
    SAY(cudaMalloc(&large, LARGE));
    SAY(cudaMemset(y, 0, sizeof NUMBERS));
    for (int i = 0; i < 20; i++)
        cudaMemset(large, i, LARGE);
    SAY(rectify(dnn, relu, wide));
    SAY(cudnnDestroyTensorDescriptor(wide));
    handle other = tensor(2);
    SAY(other == wide);
    SAY(rectify(dnn, relu, other));
    SAY(cudnnDestroyTensorDescriptor(other));
    SAY(rectify(dnn, relu, other));
    say_results();
}

static handle shared;

/* Another thread ends what this one computes with, and makes it anew. */
static void *meddler(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        cudnnDestroyTensorDescriptor(shared);
        shared = tensor(i % 2 ? 2 : COUNT);
    }
    return unused;
}

static void ended_while_in_use(void) {
    pthread_t thread;
    int others = 0, worked = 0;
    shared = tensor(COUNT);
    pthread_create(&thread, NULL, meddler, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        /* It was made and not yet set: not supported; or ended and not yet made: a bad parameter. */
        int status = rectify(dnn, relu, *(handle volatile *)&shared);
        worked += status == 0;
        others += status != 0 && status != 2000 && status != 3000;
    }
    pthread_join(thread, NULL);
    SAY(others);
    SAY(worked > 0);
    SAY(rectify(dnn, relu, shared));
    SAY(cudaDeviceSynchronize());
    say_results();
}

enum { THREADS = 4 };

/* Each with a handle, a stream, a shape and memory of its own. */
static void *alone(void *number) {
    float scale = (float)(size_t)number, results[COUNT] = {0};
    int width = COUNT - (int)(size_t)number % 3, wrong = 0;
    handle mine, stream, set;
    void *to;
    wrong |= cudnnCreate(&mine) | cudaStreamCreate(&stream) | cudnnSetStream(mine, stream);
    wrong |= cudaMalloc(&to, sizeof NUMBERS) | cudaMemset(to, 0, sizeof NUMBERS);
    for (int i = 0; i < 500; i++) {
        handle t = tensor(width);
        wrong |= cudnnActivationForward(mine, relu, &scale, t, x, &ZERO, t, to) | cudnnDestroyTensorDescriptor(t);
    }
    wrong |= cudnnGetStream(mine, &set) | (set != stream) | cudaMemcpy(results, to, sizeof results, TO_HOST);
    for (int i = 0; i < COUNT; i++)
        wrong |= results[i] != (i < width && NUMBERS[i] > 0 ? scale * NUMBERS[i] : 0);
    return (void *)(size_t)wrong;
}

static void side_by_side(void) {
    pthread_t threads[THREADS];
    void *wrong;
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, alone, (void *)(i + 1));
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        SAY((int)(size_t)wrong);
    }
    puts("");
}

int main(void) {
    cudaMalloc(&x, sizeof NUMBERS);
    cudaMalloc(&y, sizeof NUMBERS);
    cudaMemcpy(x, NUMBERS, sizeof NUMBERS, TO_DEVICE);
    cudnnCreate(&dnn);
    cudnnCreateActivationDescriptor(&relu);
    cudnnSetActivationDescriptor(relu, 1, 0, 0);
    handles();
    descriptors();
    ended_before_it_is_done();
    ended_while_in_use();
    side_by_side();
    for (int i = 0; i < 1000; i++) {
        handle left;
        cudnnCreate(&left);
        cudaEventCreate(&left);
        cudaStreamCreate(&left);
        tensor(i + 1);
    }
    SAY(rectify(dnn, relu, tensor(COUNT)));
    puts("");
    return 0;
}
