/*
 * reply.c - answers to the kernel, and the one place where an error becomes an errno. EIO, ESTALE
 * and ENOMEM are the only ones: an errno that sounds like an answer (ENOENT, EINVAL) would make a
 * loader skip a file that should be there.
 */
#include <errno.h>
#include <sys/stat.h>

#include "fs/mount/internal.h"

#define NS_PER_S 1000000000

static int errno_of(enum rs_code code)
{
	switch (code) {
	case RS_CHANGED:
		return ESTALE;
	case RS_NOMEM:
		return ENOMEM;
	default:
		return EIO;
	}
}

void fs__reply_failed(struct fs_mount *m, fuse_req_t req, const struct rs_err *err)
{
	fs__log_cause(&m->log, err);
	fuse_reply_err(req, errno_of(err->code));
}

struct fs_scratch *fs__scratch(struct fs_mount *m)
{
	struct fs_scratch *scratch = pthread_getspecific(m->scratch);

	if (scratch)
		return scratch;
	scratch = rs_alloc(sizeof(*scratch), NULL);
	if (scratch && pthread_setspecific(m->scratch, scratch) != 0) {
		rs_free(scratch);
		return NULL;
	}
	return scratch;
}

/*
 * The owner, who mounted, may read all that is shown. Others may what the sources let them; the
 * group bits speak of the group of the sources, so they count when that is the group shown,
 * or when everybody may anyway.
 */
static mode_t mode_of(const struct fs_mount *m, const struct rs_attr *a)
{
	bool file = a->kind == RS_NODE_FILE;
	uint32_t mode = a->mode & 0555;

	if (m->o->umask_set) {
		mode = (file ? 0444u : 0555u) & ~m->o->umask;
	} else {
		mode |= file ? 0400u : 0500u;
		if (!(mode & 0004) && a->gid != m->gid)
			mode &= ~0070u;
	}
	return (file ? S_IFREG : S_IFDIR) | mode;
}

static struct stat stat_of(const struct fs_mount *m, const struct rs_attr *a)
{
	struct timespec t = {a->mtime_ns / NS_PER_S, a->mtime_ns % NS_PER_S};

	if (t.tv_nsec < 0) { /* before 1970 */
		t.tv_sec--;
		t.tv_nsec += NS_PER_S;
	}
	return (struct stat){
		.st_ino = a->inode,
		.st_mode = mode_of(m, a),
		.st_nlink = a->nlink,
		.st_uid = m->uid,
		.st_gid = m->gid,
		.st_size = (off_t)a->size,
		.st_blocks = (blkcnt_t)(a->size / 512 + (a->size % 512 != 0)),
		.st_blksize = FS_READ_MAX,
		.st_atim = t,
		.st_mtim = t,
		.st_ctim = t,
	};
}

/* Attributes of what is ready; answers the request itself when that fails. */
static bool ready_stat(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct stat *st)
{
	struct rs_attr attr;
	struct rs_err err = {0};
	int state = rs_view_attr(m->view, ino, &attr, &err);

	if (state == 0) {
		*st = stat_of(m, &attr);
		return true;
	}
	if (state > 0)
		rs_fail(&err, RS_IO, "inode %llu: expected to be ready", (unsigned long long)ino);
	fs__reply_failed(m, req, &err);
	return false;
}

void fs__reply_attr(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct stat st;

	(void)file;
	if (ready_stat(m, req, ino, &st))
		fuse_reply_attr(req, &st, FS_FOREVER_S);
}

void fs__reply_entry(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct fuse_entry_param entry = {
		.ino = ino, .attr_timeout = FS_FOREVER_S, .entry_timeout = FS_FOREVER_S};

	(void)file;
	if (ready_stat(m, req, ino, &entry.attr))
		fuse_reply_entry(req, &entry);
}

void fs__reply_open(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct rs_err err = {0};
	struct rs_image *image = rs_view_hold(m->view, ino, &err);

	if (!image) {
		fs__reply_failed(m, req, &err);
		return;
	}
	const struct rs_output *output = rs_view_output(m->view, ino);

	if (output->at_root)
		fs__log_line(&m->log, FS_LOG_DEBUG, "open: %s", output->name);
	else
		fs__log_line(&m->log, FS_LOG_DEBUG, "open: file of rank %llu",
			(unsigned long long)output->rank);
	file->fh = (uintptr_t)image;
	file->direct_io = m->o->direct;
	file->keep_cache = !m->o->direct;
	file->noflush = 1;
	/* Nobody will release a handle whose opener was interrupted meanwhile. */
	if (fuse_reply_open(req, file) == -ENOENT)
		rs_view_release(m->view, ino, image);
}
