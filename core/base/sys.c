/*
 * sys.c - the system calls that tests make fail. One line each and nothing else, because the unit
 * tests link tests/lib/fault.c in place of this file. Next: arena.c and io.c, which call them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

void *rs__calloc(size_t bytes)
{
	return calloc(1, bytes);
}

void *rs__realloc(void *p, size_t bytes)
{
	return realloc(p, bytes);
}

void rs__free(void *p)
{
	free(p);
}

ssize_t rs__pread(int fd, void *buf, size_t len, off_t off)
{
	return pread(fd, buf, len, off);
}

int rs__openat2(int dirfd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {.flags = (unsigned int)flags, .resolve = resolve};

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}
