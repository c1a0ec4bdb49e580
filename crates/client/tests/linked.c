/* A program that was linked to the libraries, by names and versions of the facades. */
#include <stdio.h>

int cudnnCreateTensorDescriptor(void **made);
int cublasCgemmStridedBatched(void);
int cuTexObjectCreate(void);

int main(void) {
    void *made;
    printf("%d %d %d\n", cudnnCreateTensorDescriptor(&made), cublasCgemmStridedBatched(), cuTexObjectCreate());
    return 0;
}
