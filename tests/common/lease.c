/* Holds a lease on a file: whoever opens it waits, until this ends or the kernel's patience does (fcntl(2)). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int file = argc > 1 ? open(argv[1], O_RDWR) : -1;
    signal(SIGIO, SIG_IGN);
    if (file < 0 || fcntl(file, F_SETLEASE, F_WRLCK) != 0) {
        perror("lease");
        return 1;
    }
    puts("held");
    fflush(stdout);
    for (;;)
        pause();
}
