/*
 * readonly.c - every request that would change something, answered EROFS. The mount is `ro`, so the
 * kernel refuses nearly all of them itself; these are for a mount that root has made `rw` again,
 * where an absent handler would say ENOSYS.
 */
#include <errno.h>

#include "fs/mount/internal.h"

static void op_setattr(
	fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set, struct fuse_file_info *file)
{
	(void)ino, (void)attr, (void)set, (void)file;
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

static void op_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	(void)link, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
	const char *to_name, unsigned int flags)
{
	(void)parent, (void)name, (void)to_parent, (void)to_name, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *file)
{
	(void)parent, (void)name, (void)mode, (void)file;
	fuse_reply_err(req, EROFS);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *file)
{
	(void)ino, (void)buf, (void)size, (void)off, (void)file;
	fuse_reply_err(req, EROFS);
}

static void op_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	(void)ino, (void)name, (void)value, (void)size, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t length,
	struct fuse_file_info *file)
{
	(void)ino, (void)mode, (void)off, (void)length, (void)file;
	fuse_reply_err(req, EROFS);
}

void fs__ops_readonly(struct fuse_lowlevel_ops *ops)
{
	ops->setattr = op_setattr;
	ops->mknod = op_mknod;
	ops->mkdir = op_mkdir;
	ops->unlink = op_remove;
	ops->rmdir = op_remove;
	ops->symlink = op_symlink;
	ops->rename = op_rename;
	ops->link = op_link;
	ops->create = op_create;
	ops->write = op_write;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_remove;
	ops->fallocate = op_fallocate;
}
