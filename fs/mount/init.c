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
static ssize_t write_reply(int fd, struct iovec *iov, int n, void *userdata)
{
	struct fs_mount *m = userdata;
	struct fuse_init_out init;

	if (atomic_load_explicit(&m->greeted, memory_order_relaxed) ||
		atomic_exchange(&m->greeted, true) || n != 2 || iov[1].iov_len != sizeof(init))
		return writev(fd, iov, n);
	memcpy(&init, iov[1].iov_base, sizeof(init));
	init.flags |= FUSE_PARALLEL_DIROPS; /* of Linux 4.7, older than all that libfuse 3 needs */
	if (m->o->direct && (init.flags & FUSE_INIT_EXT))
		init.flags2 |= DIRECT_IO_ALLOW_MMAP;

	struct iovec ours[2] = {iov[0], {&init, sizeof(init)}};

	return writev(fd, ours, 2);
}

int fs__init_complete(struct fs_mount *m, struct rs_err *err)
{
	const struct fuse_custom_io io = {.writev = write_reply, .read = read_request};
	int fail = fuse_session_custom_io(m->session, &io, fuse_session_fd(m->session));

	return fail ? rs_fail_sys(err, -fail, "libfuse refuses our input and output") : 0;
}
