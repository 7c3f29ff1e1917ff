/*
 * ops.c - what the kernel may ask. Every function has one shape: unpack the request, one core call,
 * one reply. Refused: names over 255 bytes (the kernel leaves that to us), handles and inodes
 * that are not in the tree, and every open for writing.
 * Next: wait.c for files that nobody has looked at yet, reply.c for answers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/mount/internal.h"

#define STATFS_BLOCK 4096u

/* Directories are there at once, files when somebody has built their image. */
static void answer(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino,
	const struct fuse_file_info *file, fs__answer_fn fn)
{
	switch (rs_view_node(m->view, ino)) {
	case RS_NODE_ROOT:
	case RS_NODE_RANK:
		fn(m, req, ino, NULL);
		return;
	case RS_NODE_FILE:
		fs__when_ready(m, req, ino, file, fn);
		return;
	case RS_NODE_NONE:
		break;
	}
	fuse_reply_err(req, ESTALE); /* an inode number of some other mount */
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	/* With inode 0 the kernel remembers that there is no such name; ENOENT it would ask again.
	 */
	const struct fuse_entry_param nothing = {.entry_timeout = FS_FOREVER_S};
	struct fs_mount *m = fs__mount_of(req);

	if (strlen(name) > FS_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	uint64_t ino = rs_view_child(m->view, parent, name);

	if (ino)
		answer(m, req, ino, NULL, fs__reply_entry);
	else
		fuse_reply_entry(req, &nothing);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	(void)file;
	answer(fs__mount_of(req), req, ino, NULL, fs__reply_attr);
}

/* Inode numbers are arithmetic: there is nothing to forget. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	(void)ino;
	(void)n;
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(req);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct fs_mount *m = fs__mount_of(req);

	if ((file->flags & O_ACCMODE) != O_RDONLY || (file->flags & O_TRUNC))
		fuse_reply_err(req, EROFS);
	else if (rs_view_node(m->view, ino) != RS_NODE_FILE)
		fuse_reply_err(req, ESTALE);
	else
		fs__when_ready(m, req, ino, file, fs__reply_open);
}

static const struct rs_image *image_of(const struct fuse_file_info *file)
{
	return (const struct rs_image *)(uintptr_t)file->fh;
}

/*
 * All that was asked, up to the end of the file, or an error: the kernel takes a short reply
 * for the end of the file and keeps believing that.
 */
static void op_read(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *file)
{
	struct fs_mount *m = fs__mount_of(req);
	const struct rs_image *image = image_of(file);
	struct rs_err err = {0};
	struct fs_scratch *scratch;

	if (off < 0 || size > FS_READ_MAX) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	if (size == 0 || (uint64_t)off >= image->size) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	uint64_t len = rs_min(size, image->size - (uint64_t)off);

	scratch = fs__scratch(m);
	if (!scratch) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	struct rs_reply reply = {.iov = scratch->pieces, .max = FS_PIECES, .buf = scratch->bytes};

	if (rs_image_reply(image, m->cat, (uint64_t)off, len, &reply, &err) < 0) {
		fs__reply_failed(m, req, &err);
		return;
	}
	scratch->torn = false;
	fuse_reply_iov(req, reply.iov, (int)reply.n);
	if (scratch->torn) { /* the kernel has told the reader EIO by itself */
		rs_fail(&err, RS_CHANGED, "target rank %llu: a source file was truncated",
			(unsigned long long)rs_view_inode_rank(m->view, ino));
		fs__log_cause(&m->log, &err);
	}
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	struct fs_mount *m = fs__mount_of(req);

	rs_view_release(m->view, ino, (struct rs_image *)(uintptr_t)file->fh);
	fuse_reply_err(req, 0);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
	enum rs_node_kind kind = rs_view_node(fs__mount_of(req)->view, ino);

	if (kind != RS_NODE_ROOT && kind != RS_NODE_RANK) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	file->cache_readdir = 1;
	file->keep_cache = 1;
	fuse_reply_open(req, file);
}

/* Entry number @i of @dir: ".", "..", then its children. */
static bool dir_entry(const struct fs_mount *m, uint64_t dir, uint64_t i, char *name, uint64_t *ino)
{
	if (i >= 2)
		return rs_view_entry(m->view, dir, i - 2, name, ino);
	snprintf(name, FS_NAME_MAX + 1, "%s", i ? ".." : ".");
	*ino = i ? rs_view_parent(m->view, dir) : dir;
	return true;
}

/* Entries are numbered, so a listing resumes anywhere: @off is the number of the next one. */
static void op_readdir(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *file)
{
	struct fs_mount *m = fs__mount_of(req);
	struct fs_scratch *scratch = fs__scratch(m);
	char *buffer = scratch ? (char *)scratch->bytes : NULL;
	size_t used = 0;

	(void)file;
	if (off < 0 || !buffer) {
		fuse_reply_err(req, buffer ? EINVAL : ENOMEM);
		return;
	}
	size = rs_min(size, FS_READ_MAX);
	for (uint64_t i = (uint64_t)off;; i++) {
		char name[FS_NAME_MAX + 1];
		uint64_t child;

		if (!dir_entry(m, ino, i, name, &child))
			break;
		bool is_file = rs_view_node(m->view, child) == RS_NODE_FILE;
		struct stat st = {.st_ino = child, .st_mode = is_file ? S_IFREG : S_IFDIR};
		size_t need = fuse_add_direntry(
			req, buffer + used, size - used, name, &st, (off_t)(i + 1));

		if (need > size - used)
			break;
		used += need;
	}
	fuse_reply_buf(req, buffer, used);
}

/* Tells what is known: the files measured so far. Never causes a header to be read. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs_mount *m = fs__mount_of(req);
	uint64_t files = rs_view_n_files(m->view), blocks = 0;
	struct rs_attr attr, root;

	(void)ino;
	for (uint64_t i = 0; i < files; i++)
		if (rs_view_attr(m->view, rs_view_file(m->view, i), &attr, NULL) == 0)
			blocks += attr.size / STATFS_BLOCK + (attr.size % STATFS_BLOCK != 0);
	rs_view_attr(m->view, RS_INODE_ROOT, &root, NULL); /* its links tell how many directories */
	const struct statvfs st = {
		.f_bsize = STATFS_BLOCK,
		.f_frsize = STATFS_BLOCK,
		.f_blocks = blocks,
		.f_files = root.nlink - 1 + files,
		.f_namemax = FS_NAME_MAX,
		.f_flag = ST_RDONLY,
	};

	fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops fs__ops = {
	.init = fs__op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.open = op_open,
	.read = op_read,
	.release = op_release,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.statfs = op_statfs,
	.getxattr = fs__op_getxattr,
	.listxattr = fs__op_listxattr,
};
