/*
 * map.c - source files in memory: bytes without a system call, and what happens when they vanish.
 *
 * A mapped page of a file that was truncated is not there any more, and touching it is SIGBUS.
 * Copies therefore run under a guard: a jump buffer of the thread that the signal handler returns
 * to, so that the copy fails instead of the program. Outside of a guarded copy the signal does what
 * it did before. Refuses to map where a page can hang for ever (network and FUSE file systems):
 * there io.c reads instead.
 */
#include <linux/magic.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "internal.h"

/* Magic numbers that <linux/magic.h> of older systems lacks. */
#define MAGIC_XFS 0x58465342
#define MAGIC_ZFS 0x2fc12fc1
#define MAGIC_EROFS 0xe0f5e1e2

/* Where the handler returns to; NULL outside of a guarded copy. The one thread-local of core. */
static _Thread_local sigjmp_buf *guard;
static struct sigaction before;

static void on_bus_error(int signo, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	if (guard)
		siglongjmp(*guard, 1);
	sigaction(signo, &before, NULL); /* not ours: let the instruction fault again */
}

static void install(void)
{
	/* NODEFER: the jump leaves the handler without its end, which would unblock the signal. */
	struct sigaction action = {
		.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &before);
}

static bool is_local(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC: /* ext2 and ext3, too */
	case MAGIC_XFS:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case MAGIC_ZFS:
	case TMPFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case SQUASHFS_MAGIC:
	case MAGIC_EROFS:
		return true;
	}
	return false;
}

void rs_file_map(struct rs_file *file, enum rs_access access)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *map;

	if (file->fd < 0 || file->size == 0 || file->size > SIZE_MAX || access == RS_ACCESS_PREAD ||
		(access == RS_ACCESS_AUTO && !is_local(file->fd)))
		return;
	pthread_once(&once, install);
	map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->fd, 0);
	if (map != MAP_FAILED) /* else reading goes on by pread */
		file->map = map;
}

void rs__file_unmap(struct rs_file *file)
{
	if (file->map)
		munmap((void *)(uintptr_t)file->map, (size_t)file->size);
	file->map = NULL;
}

/* Alone in a function, so that nothing of the caller lives in registers when the jump comes. */
static __attribute__((noinline)) void copy_rows(
	const uint8_t *src, const struct rs_rows *rows, uint8_t *dst)
{
	for (uint64_t i = 0; i < rows->count; i++, src += rows->pitch, dst += rows->width)
		memcpy(dst, src, (size_t)rows->width);
}

bool rs__map_copy(const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0)) { /* a page of the source is gone */
		guard = NULL;
		return false;
	}
	guard = &here;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	copy_rows(file->map + rows->off, rows, dst);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	guard = NULL;
	return true;
}
