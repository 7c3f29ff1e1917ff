/*
 * fault.c - the twin of core/base/sys.c whose calls fail on demand. It is linked before the
 * library, so that the linker never looks for sys.o there; what it does not define would pull that
 * in and not link. The counters are atomic because builders of images read from several threads.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/internal.h"

static struct {
	_Atomic uint64_t allocs, alloc_n, reads, read_n;
	_Atomic int64_t live;
	atomic_int kind, openat2_sys;
	atomic_bool alloc_always, read_always, hit;
} fault;

void fault_alloc(uint64_t n)
{
	fault.allocs = 0;
	fault.alloc_n = n;
	fault.alloc_always = false;
	fault.hit = false;
}

void fault_alloc_always(uint64_t n)
{
	fault_alloc(n);
	fault.alloc_always = true;
}

void fault_read(uint64_t n, enum fault_kind kind)
{
	fault.reads = 0;
	fault.read_n = n;
	fault.kind = (int)kind;
	fault.read_always = false;
	fault.hit = false;
}

void fault_read_always(uint64_t n, enum fault_kind kind)
{
	fault_read(n, kind);
	fault.read_always = true;
}

void fault_openat2(int sys)
{
	fault.openat2_sys = sys;
}

void fault_clear(void)
{
	fault_alloc(0);
	fault_read(0, FAULT_EIO);
	fault_openat2(0);
}

bool fault_hit(void)
{
	return fault.hit;
}

int64_t fault_live(void)
{
	return fault.live;
}

uint64_t fault_allocs(void)
{
	return fault.allocs;
}

uint64_t fault_reads(void)
{
	return fault.reads;
}

/* Is the @i-th call struck by a fault set for the @n-th? */
static bool is_struck(uint64_t i, uint64_t n, bool always)
{
	return n != 0 && (always ? i >= n : i == n);
}

static bool alloc_strikes(void)
{
	if (!is_struck(++fault.allocs, fault.alloc_n, fault.alloc_always))
		return false;
	fault.hit = true;
	return true;
}

void *rs__calloc(size_t bytes)
{
	void *p = alloc_strikes() ? NULL : calloc(1, bytes);

	fault.live += p != NULL;
	return p;
}

void *rs__realloc(void *p, size_t bytes)
{
	void *grown = alloc_strikes() ? NULL : realloc(p, bytes);

	fault.live += !p && grown;
	return grown;
}

void rs__free(void *p)
{
	fault.live -= p != NULL;
	free(p);
}

static ssize_t fail_with(int sys)
{
	errno = sys;
	return -1;
}

ssize_t rs__pread(int fd, void *buf, size_t len, off_t off)
{
	if (!is_struck(++fault.reads, fault.read_n, fault.read_always))
		return pread(fd, buf, len, off);
	fault.hit = true;
	switch ((enum fault_kind)fault.kind) {
	case FAULT_EIO:
		return fail_with(EIO);
	case FAULT_END:
		return 0;
	case FAULT_SHORT:
		return pread(fd, buf, len ? 1 : 0, off);
	case FAULT_EINTR:
		return fail_with(EINTR);
	case FAULT_EAGAIN:
		return fail_with(EAGAIN);
	case FAULT_ESTALE:
		return fail_with(ESTALE);
	case FAULT_STALL:
		usleep(FAULT_STALL_MS * 1000);
		return pread(fd, buf, len, off);
	}
	abort();
}

int rs__openat2(int dirfd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {.flags = (unsigned int)flags, .resolve = resolve};

	if (fault.openat2_sys) {
		errno = fault.openat2_sys;
		return -1;
	}
	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}
