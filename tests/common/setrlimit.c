/* Preloaded into crun: it insists on raising RLIMIT_MEMLOCK before it loads a BPF program, which
 * fails where CAP_SYS_RESOURCE is missing and is not needed since Linux 5.11. */
#include <sys/resource.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    (void)resource;
    (void)limit;
    return 0;
}

int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
    (void)resource;
    (void)limit;
    return 0;
}
