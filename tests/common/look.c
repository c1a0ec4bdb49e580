/* Runs in a container with glibc: which file does the loader find for each name? */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct link_map *map;
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        int found = library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0;
        printf("%s %s\n", argv[i], found ? map->l_name : "not found");
        /* A file that is loaded already keeps the name it was found by first. */
        if (library)
            dlclose(library);
    }
    return 0;
}
