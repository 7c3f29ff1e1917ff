/*
 * init.c - what kernel and daemon agree on in the first request, INIT. libfuse 3.14 offers
 * parallel directory operations and then forgets to say so to the kernel, and it does not know
 * mapped files without a page cache; so its answer passes through here and gets these two bits.
 * Without the first, one lookup that waits for a hung source would block its whole directory.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/mount/internal.h"

#define MAX_BACKGROUND 64 /* the default 12 lets parallel page faults queue in D state */
#define CONGESTION_THRESHOLD 48
#define DIRECT_IO_ALLOW_MMAP (1u << 4) /* of flags2; kernels before 6.6 ignore it */

void fs__op_init(void *userdata, struct fuse_conn_info *conn)
{
	const unsigned int wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
				    FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_CACHE_SYMLINKS;
	/*
	 * Splicing loses to plain replies here. The tree is immutable, so nothing need be
	 * invalidated by size or time. Readdirplus would build every image on `find -type f`.
	 */
	const unsigned int unwanted = FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				      FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA |
				      FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
				      FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_WRITEBACK_CACHE |
				      FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;

	(void)userdata;
	conn->want |= conn->capable & wanted;
	conn->want &= ~unwanted;
	conn->max_write = FS_READ_MAX; /* libfuse derives max_pages from it */
	conn->max_read = FS_READ_MAX;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = CONGESTION_THRESHOLD;
	conn->time_gran = 1;
}

static ssize_t read_request(int fd, void *buf, size_t size, void *userdata)
{
	(void)userdata;
	return read(fd, buf, size);
}

/* The kernel asks nothing else before INIT is answered, so the first reply is that answer. */
static ssize_t write_greeting(int fd, struct iovec *iov, int n, const struct fs_mount *m)
{
	struct fuse_init_out init;

	if (n != 2 || iov[1].iov_len != sizeof(init))
		return writev(fd, iov, n);
	memcpy(&init, iov[1].iov_base, sizeof(init));
	init.flags |= FUSE_PARALLEL_DIROPS; /* of Linux 4.7, older than all that libfuse 3 needs */
	if (m->o->direct && (init.flags & FUSE_INIT_EXT))
		init.flags2 |= DIRECT_IO_ALLOW_MMAP;

	struct iovec ours[2] = {iov[0], {&init, sizeof(init)}};

	return writev(fd, ours, 2);
}

/*
 * A source was truncated, and pages that the answer points to are gone. op_read finds that in its
 * scratch; to libfuse it looks like a reader that left, about which it says nothing on stderr.
 */
static int torn(struct fs_mount *m)
{
	struct fs_scratch *scratch = fs__scratch(m);

	if (scratch)
		scratch->torn = true;
	return ENOENT;
}

/*
 * A builder may answer a parked request while the main thread takes the mount down. Once libfuse
 * closes the descriptor its number may belong to another file, so replies end before that.
 */
static ssize_t write_reply(int fd, struct iovec *iov, int n, void *userdata)
{
	struct fs_mount *m = userdata;
	ssize_t written = -1;
	int fail = ENOTCONN;

	pthread_rwlock_rdlock(&m->wire.lock);
	if (!m->wire.cut) {
		bool first = !atomic_load_explicit(&m->wire.greeted, memory_order_relaxed) &&
			     !atomic_exchange(&m->wire.greeted, true);

		written = first ? write_greeting(fd, iov, n, m) : writev(fd, iov, n);
		fail = errno;
	}
	pthread_rwlock_unlock(&m->wire.lock);
	if (written < 0)
		errno = fail == EFAULT ? torn(m) : fail;
	return written;
}

int fs__init_complete(struct fs_mount *m, int fd, struct rs_err *err)
{
	const struct fuse_custom_io io = {.writev = write_reply, .read = read_request};
	int fail = fuse_session_custom_io(m->session, &io, fd);

	return fail ? rs_fail_sys(err, -fail, "libfuse refuses our input and output") : 0;
}

void fs__init_cut(struct fs_mount *m)
{
	pthread_rwlock_wrlock(&m->wire.lock);
	m->wire.cut = true;
	pthread_rwlock_unlock(&m->wire.lock);
}
