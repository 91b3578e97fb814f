/*
 * A stand-in for openat2, for callgrind: valgrind before 3.25 does not know the call. Linked into the binary that is
 * counted, and nowhere else (`--wrap=syscall`, see benches/counts). It opens below the directory without looking at
 * links on the way, which is the same in the roots that are counted: they have none.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <sys/syscall.h>

long __real_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    long given[6];
    va_list all;
    va_start(all, number);
    for (int at = 0; at < 6; at++)
        given[at] = va_arg(all, long);
    va_end(all);
    if (number != SYS_openat2)
        return __real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    const char *path = (const char *)given[1];
    const struct open_how *how = (const struct open_how *)given[2];
    while (*path == '/')
        path++;
    return openat((int)given[0], *path ? path : ".", (int)how->flags, (mode_t)how->mode);
}
