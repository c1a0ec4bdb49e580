/* A program that uses cuDNN's descriptors, of both versions, as programs find them: by SONAME, name and version, at
 * run time. Its one argument says what it does; it ends at the first thing that is not as it should be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *descriptor;
enum { FLOAT = 0, NCHW = 0, CROSS_CORRELATION = 1, GUARD = 0x5EED5EED };

#define IS(value, wanted)                                                                                  \
    do {                                                                                                   \
        long long is_ = (long long)(value), wanted_ = (long long)(wanted);                                 \
        if (is_ != wanted_) {                                                                              \
            fprintf(stderr, "line %d: %s is %lld, not %lld\n", __LINE__, #value, is_, wanted_);            \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

struct library {
    void *handle;
    const char *soname;
    int bad_param, not_initialized, not_supported;
};

static struct library open_library(int version) {
    struct library v8 = {NULL, "libcudnn.so.8", 3, 1, 9}, v9 = {NULL, "libcudnn.so.9", 2000, 1001, 3000};
    struct library library = version == 8 ? v8 : v9;
    library.handle = dlopen(library.soname, RTLD_NOW | RTLD_LOCAL);
    if (!library.handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* By the version that programs ask for which were linked to it. */
static void *find(struct library library, const char *name) {
    void *found = dlvsym(library.handle, name, library.soname);
    if (!found) {
        fprintf(stderr, "%s: no %s\n", library.soname, name);
        exit(1);
    }
    return found;
}

#define CALL(library, name, ...) ((int (*)())find(library, #name))(__VA_ARGS__)

static descriptor make(struct library library, const char *kind) {
    char name[64];
    descriptor made = NULL;
    snprintf(name, sizeof name, "cudnnCreate%sDescriptor", kind);
    IS(((int (*)(descriptor *))find(library, name))(&made), 0);
    IS(made != NULL && (uintptr_t)made % 8 == 0, 1);
    return made;
}

static void end(struct library library, const char *kind, descriptor made, int wanted) {
    char name[64];
    snprintf(name, sizeof name, "cudnnDestroy%sDescriptor", kind);
    IS(((int (*)(descriptor))find(library, name))(made), wanted);
}

static void tensors(struct library library) {
    descriptor t = make(library, "Tensor");
    IS(CALL(library, cudnnSetTensor4dDescriptor, t, NCHW, FLOAT, 2, 3, 4, 5), 0);
    int is[9];
    IS(CALL(library, cudnnGetTensor4dDescriptor, t, &is[0], &is[1], &is[2], &is[3], &is[4], &is[5], &is[6], &is[7],
            &is[8]),
       0);
    int want[9] = {FLOAT, 2, 3, 4, 5, 60, 20, 5, 1};
    IS(memcmp(is, want, sizeof is), 0);

    size_t size = 0;
    IS(CALL(library, cudnnGetTensorSizeInBytes, t, &size), 0);
    IS(size, 2 * 3 * 4 * 5 * 4);

    int dims[5] = {2, 3, 4, 5, 6}, strides[5] = {360, 120, 30, 6, 1}, type = GUARD, count = GUARD;
    IS(CALL(library, cudnnSetTensorNdDescriptor, t, FLOAT, 5, dims, strides), 0);
    memset(dims, 0, sizeof dims); /* copied at the call */
    int got_dims[6] = {[5] = GUARD}, got_strides[6] = {[5] = GUARD};
    IS(CALL(library, cudnnGetTensorNdDescriptor, t, 8, &type, &count, got_dims, got_strides), 0);
    IS(count, 5);
    IS(got_dims[4], 6);
    IS(got_strides[0], 360);
    IS(got_dims[5] == GUARD && got_strides[5] == GUARD, 1); /* no more than there is */

    IS(CALL(library, cudnnSetTensor4dDescriptor, t, NCHW, FLOAT, 2, 0, 4, 5), library.bad_param);
    IS(CALL(library, cudnnSetTensor4dDescriptor, t, NCHW, FLOAT, 1 << 16, 1 << 15, 1, 1), library.not_supported);
    IS(CALL(library, cudnnGetTensorSizeInBytes, t, &size), 0);
    IS(size, (1LL << 31) * 4); /* what was rejected is there all the same */
    /* packs of a type that has none: the getter fails after two results */
    int four[4] = {2, 4, 3, 3};
    IS(CALL(library, cudnnSetTensorNdDescriptorEx, t, 2, FLOAT, 4, four), 0);
    for (int i = 0; i < 9; i++)
        is[i] = GUARD;
    IS(CALL(library, cudnnGetTensor4dDescriptor, t, &is[0], &is[1], &is[2], &is[3], &is[4], &is[5], &is[6], &is[7],
            &is[8]),
       library.bad_param);
    IS(is[0] == FLOAT && is[1] == 2 && is[2] == GUARD && is[8] == GUARD, 1);
    end(library, "Tensor", t, 0);
    end(library, "Tensor", NULL, 0);
}

static void convolutions(struct library library) {
    descriptor t = make(library, "Tensor"), f = make(library, "Filter"), conv = make(library, "Convolution");
    int groups = GUARD, math = GUARD, n = GUARD, c = GUARD, h = GUARD, w = GUARD, dims[4];
    IS(CALL(library, cudnnGetConvolutionGroupCount, conv, &groups), 0);
    IS(groups, 1);
    IS(CALL(library, cudnnSetConvolutionGroupCount, conv, 4), 0);
    IS(CALL(library, cudnnSetConvolutionMathType, conv, 1), 0);
    IS(CALL(library, cudnnSetConvolution2dDescriptor, conv, 1, 1, 2, 2, 1, 1, CROSS_CORRELATION, FLOAT), 0);
    IS(CALL(library, cudnnGetConvolutionGroupCount, conv, &groups), 0);
    IS(CALL(library, cudnnGetConvolutionMathType, conv, &math), 0);
    IS(groups == 4 && math == 1, 1); /* setting the rest leaves them */

    IS(CALL(library, cudnnSetTensor4dDescriptor, t, NCHW, FLOAT, 2, 8, 9, 11), 0);
    IS(CALL(library, cudnnSetFilter4dDescriptor, f, FLOAT, NCHW, 16, 2, 3, 3), 0);
    IS(CALL(library, cudnnGetConvolution2dForwardOutputDim, conv, t, f, &n, &c, &h, &w), 0);
    IS(n == 2 && c == 16 && h == 5 && w == 6, 1);
    IS(CALL(library, cudnnGetConvolutionNdForwardOutputDim, conv, t, f, 4, dims), 0);
    IS(memcmp(dims, (int[]){2, 16, 5, 6}, sizeof dims), 0);
    IS(CALL(library, cudnnSetConvolutionGroupCount, conv, 1), 0);
    n = GUARD;
    IS(CALL(library, cudnnGetConvolution2dForwardOutputDim, conv, t, f, &n, &c, &h, &w), library.bad_param);
    IS(n, 0);
    end(library, "Convolution", conv, 0);
    end(library, "Filter", f, 0);
    end(library, "Tensor", t, 0);
}

static void others(struct library library) {
    descriptor pool = make(library, "Pooling"), a = make(library, "Activation"), d = make(library, "Dropout");
    int mode = GUARD, nan = GUARD, is[8];
    double ceiling = 0;
    IS(CALL(library, cudnnSetPooling2dDescriptor, pool, 1, 0, 2, 3, 0, 1, 2, 2), 0);
    IS(CALL(library, cudnnGetPooling2dDescriptor, pool, &is[0], &is[1], &is[2], &is[3], &is[4], &is[5], &is[6], &is[7]),
       0);
    IS(memcmp(is, (int[]){1, 0, 2, 3, 0, 1, 2, 2}, sizeof is), 0);
    int (*set)(descriptor, int, int, double) = find(library, "cudnnSetActivationDescriptor");
    IS(set(a, 3, 1, 6.0), 0);
    IS(CALL(library, cudnnGetActivationDescriptor, a, &mode, &nan, &ceiling), 0);
    IS(mode == 3 && nan == 1 && ceiling == 6.0, 1);
    IS(set(a, 7, 1, 6.0), library.bad_param);

    char memory[64];
    void *states = NULL;
    float dropout = 0;
    unsigned long long seed = 0;
    int (*restore)(descriptor, void *, float, void *, size_t, unsigned long long) =
        find(library, "cudnnRestoreDropoutDescriptor");
    IS(restore(d, NULL, 0.5f, memory, 64, 1ull << 40), library.bad_param);
    IS(restore(d, memory, 0.5f, memory, 64, 1ull << 40), 0);
    IS(CALL(library, cudnnGetDropoutDescriptor, d, memory, &dropout, &states, &seed), 0);
    IS(dropout == 0.5f && states == memory && seed == 1ull << 40, 1);
    end(library, "Dropout", d, 0);
    end(library, "Activation", a, 0);
    end(library, "Pooling", pool, 0);
}

static void wrong_ones(struct library library) {
    descriptor t = make(library, "Tensor"), f = make(library, "Filter");
    int type = GUARD, is[8];
    size_t size = GUARD;
    IS(CALL(library, cudnnCreateTensorDescriptor, NULL), library.bad_param);
    IS(CALL(library, cudnnGetTensorSizeInBytes, f, &size), library.bad_param);
    IS(CALL(library, cudnnGetTensorSizeInBytes, (char *)t + 8, &size), library.bad_param);
    IS(CALL(library, cudnnGetTensorSizeInBytes, &type, &size), library.bad_param);
    IS(size, GUARD);
    IS(CALL(library, cudnnGetTensor4dDescriptor, t, &type, &is[0], &is[1], &is[2], &is[3], &is[4], &is[5], &is[6],
            NULL),
       library.bad_param);
    IS(type, GUARD); /* nothing is written */
    IS(CALL(library, cudnnSetTensorNdDescriptor, t, FLOAT, 4, NULL, is), library.bad_param);
    /* as the real library, whatever the alignment */
    char room[sizeof size + 1];
    IS(CALL(library, cudnnGetTensorSizeInBytes, t, (size_t *)(room + 1)), 0);
    end(library, "Tensor", f, library.bad_param);
    end(library, "Filter", f, 0);
    end(library, "Tensor", t, 0);
    end(library, "Tensor", t, library.bad_param);
}

static void about(struct library library, int version) {
    size_t (*number)(void) = find(library, "cudnnGetVersion");
    const char *(*name)(int) = find(library, "cudnnGetErrorString");
    int major = GUARD;
    IS(number() / (version == 8 ? 1000 : 10000), version);
    IS(CALL(library, cudnnGetProperty, 0, &major), 0);
    IS(major, version);
    IS(strcmp(name(0), "CUDNN_STATUS_SUCCESS"), 0);
    IS(strcmp(name(library.bad_param), "CUDNN_STATUS_BAD_PARAM"), 0);
    IS(strcmp(name(-5), "CUDNN_UNKNOWN_STATUS"), 0);
}

static void each(void) {
    for (int version = 8; version <= 9; version++) {
        struct library library = open_library(version);
        tensors(library);
        convolutions(library);
        others(library);
        wrong_ones(library);
        about(library, version);
    }
}

/* A descriptor of one is none of the other; and both are of one slab, in one client. */
static void both(void) {
    struct library v8 = open_library(8), v9 = open_library(9);
    descriptor ours = make(v8, "Tensor"), theirs = make(v9, "Tensor");
    IS(ours != theirs, 1);
    end(v9, "Tensor", ours, v9.bad_param);
    end(v8, "Tensor", theirs, v8.bad_param);
    end(v8, "Tensor", ours, 0);
    IS(make(v9, "Tensor") == ours, 1); /* the room that the other left */
    end(v9, "Tensor", theirs, 0);
}

enum { MOVED = 10000 };
static descriptor moving[MOVED];

static void *destroyer(void *library) {
    for (int i = 0; i < MOVED; i++)
        end(*(struct library *)library, "Tensor", moving[i], 0);
    return NULL;
}

/* Made on one thread, ended on another, which ends itself then. */
static void threads(void) {
    struct library library = open_library(9);
    descriptor lowest = NULL, highest = NULL;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < MOVED; i++) {
            descriptor made = moving[i] = make(library, "Tensor");
            lowest = !lowest || made < lowest ? made : lowest;
            highest = made > highest ? made : highest;
        }
        pthread_t thread;
        IS(pthread_create(&thread, NULL, destroyer, &library), 0);
        IS(pthread_join(thread, NULL), 0);
    }
    IS(((char *)highest - (char *)lowest) / 128 < MOVED + 200, 1); /* no more than lived at a time */
}

static struct library late_library;
static descriptor late_lowest, late_highest;

static pthread_key_t late_key;

static void late(void *again) {
    descriptor made[100];
    for (int i = 0; i < 100; i++) {
        made[i] = make(late_library, "Tensor");
        late_lowest = !late_lowest || made[i] < late_lowest ? made[i] : late_lowest;
        late_highest = made[i] > late_highest ? made[i] : late_highest;
    }
    for (int i = 0; i < 100; i++)
        end(late_library, "Tensor", made[i], 0);
    if (again)
        IS(pthread_setspecific(late_key, again), 0);
}

static void *uses(void *unused) {
    (void)unused;
    late(NULL);
    IS(pthread_setspecific(late_key, &late_key), 0);
    return NULL;
}

/* A thread that calls also when it ends, as late as there is a turn for that, where no more is to be told of its end. */
static void ending(void) {
    late_library = open_library(9);
    IS(pthread_key_create(&late_key, late), 0);
    for (pthread_key_t other; !pthread_key_create(&other, NULL);)
        ;
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        IS(pthread_create(&thread, NULL, uses, NULL), 0);
        IS(pthread_join(thread, NULL), 0);
    }
    IS(((char *)late_highest - (char *)late_lowest) / 128 < 300, 1); /* nothing of ended threads is lost */
}

enum { EACH_ROUND = 10000, ROUNDS = 1000 };
static descriptor waiting[2][EACH_ROUND];
static int (*create)(descriptor *), (*destroy)(descriptor);

static void *makes(void *place) {
    descriptor *made = place;
    int failed = 0;
    for (int i = 0; i < EACH_ROUND; i++)
        failed |= create(&made[i]);
    return failed ? place : NULL;
}

/* Of this process, in pages. */
static long resident(void) {
    long all, resident;
    FILE *statm = fopen("/proc/self/statm", "r");
    IS(fscanf(statm, "%ld %ld", &all, &resident), 2);
    fclose(statm);
    return resident;
}

/* Ten million, each made on a thread that others come after, and ended on this one meanwhile: not a bit more memory for
 * any of them, of which a byte would be seen. */
static void millions(void) {
    struct library library = open_library(9);
    create = (int (*)(descriptor *))find(library, "cudnnCreateTensorDescriptor");
    destroy = (int (*)(descriptor))find(library, "cudnnDestroyTensorDescriptor");
    long before = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        pthread_t thread;
        void *failed;
        IS(pthread_create(&thread, NULL, makes, waiting[round % 2]), 0);
        for (int i = 0; round && i < EACH_ROUND; i++)
            IS(destroy(waiting[(round + 1) % 2][i]), 0);
        IS(pthread_join(thread, &failed), 0);
        IS(failed == NULL, 1);
        if (round == ROUNDS / 2)
            before = resident();
    }
    long grown = (resident() - before) * sysconf(_SC_PAGESIZE);
    IS(grown < 1 << 20, 1);
}

static void *maker(void *library) {
    return make(*(struct library *)library, "Tensor");
}

/* The client stays where it is when the last library that wants it goes, and the last thread that used it. */
static void reopened(void) {
    struct library library = open_library(9);
    pthread_t thread;
    descriptor t = NULL;
    IS(pthread_create(&thread, NULL, maker, &library), 0);
    IS(pthread_join(thread, &t), 0);
    IS(dlclose(library.handle), 0);
    library = open_library(9);
    end(library, "Tensor", t, 0);
}

/* A child begins nothing, and breaks nothing of its parent's. */
static void forked(void) {
    struct library library = open_library(9);
    descriptor t = make(library, "Tensor"), made = NULL;
    size_t size = GUARD;
    pid_t child = fork();
    if (child == 0) {
        IS(CALL(library, cudnnCreateTensorDescriptor, &made), library.not_initialized);
        IS(made == NULL, 1);
        IS(CALL(library, cudnnSetTensor4dDescriptor, t, NCHW, FLOAT, 2, 3, 4, 5), library.not_initialized);
        IS(CALL(library, cudnnGetTensorSizeInBytes, t, &size), library.not_initialized);
        IS(size, GUARD);
        end(library, "Tensor", t, 0); /* as destructors do */
        pthread_t thread;
        void *failed;
        create = (int (*)(descriptor *))find(library, "cudnnCreateTensorDescriptor");
        IS(pthread_create(&thread, NULL, makes, waiting), 0); /* a thread of the child's own */
        IS(pthread_join(thread, &failed), 0);
        IS(failed != NULL, 1);
        exit(0);
    }
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(CALL(library, cudnnGetTensorSizeInBytes, t, &size), 0);
    end(library, "Tensor", t, 0);
    end(library, "Tensor", make(library, "Tensor"), 0);
}

/* A child that comes before anything has begun is a process as any other. */
static void forked_before(void) {
    struct library library = open_library(9);
    pid_t child = fork();
    if (child == 0) {
        tensors(library);
        exit(0);
    }
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static int (*set_activation)(descriptor, int, int, double);

static void *sets_first(void *a) {
    /* 2.5 is in a register of vectors while the thread's place is found for the first time */
    return set_activation(a, 1, 0, 2.5) ? a : NULL;
}

/* Threads whose first call has a number in a register of vectors. */
static void first(void) {
    struct library library = open_library(9);
    descriptor a = make(library, "Activation");
    set_activation = (int (*)(descriptor, int, int, double))find(library, "cudnnSetActivationDescriptor");
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        void *failed;
        int mode, nan;
        double ceiling = 0;
        IS(set_activation(a, 0, 0, 0.0), 0);
        IS(pthread_create(&thread, NULL, sets_first, a), 0);
        IS(pthread_join(thread, &failed), 0);
        IS(failed == NULL, 1);
        IS(CALL(library, cudnnGetActivationDescriptor, a, &mode, &nan, &ceiling), 0);
        IS(ceiling == 2.5, 1);
    }
    end(library, "Activation", a, 0);
}

static void unserved(void) {
    struct library v8 = open_library(8), v9 = open_library(9);
    for (int i = 0; i < 3; i++) {
        IS(CALL(v8, cudnnCTCLoss, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), v8.not_supported);
        IS(CALL(v9, cudnnCTCLoss, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), v9.not_supported);
        IS(CALL(v9, cudnnCreateRNNDescriptor, NULL), v9.not_supported);
    }
}

int main(int count, char **arguments) {
    struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"each", each},     {"both", both},     {"threads", threads}, {"ending", ending},
               {"reopened", reopened}, {"millions", millions}, {"forked", forked}, {"forked-before", forked_before},
               {"first", first}, {"unserved", unserved}};
    for (size_t i = 0; count == 2 && i < sizeof all / sizeof *all; i++) {
        if (!strcmp(arguments[1], all[i].name)) {
            all[i].run();
            puts("done");
            return 0;
        }
    }
    return 64;
}
