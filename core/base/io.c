/*
 * io.c - reading source files: open, read exactly, notice change, gather rows. The only place where
 * bytes of a source are read. Refuses what is no regular file, and a file that is not what it was
 * when it was opened; never hands out fewer bytes than were asked for. Next: dir.c, which opens
 * files beneath a fence.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Linux moves at most 0x7ffff000 bytes a call; a round number below that keeps pages aligned. */
#define READ_MOST (UINT64_C(1) << 30)
/* EAGAIN is not expected of regular files, yet some file systems answer it under pressure. */
#define EAGAIN_TRIES 100

static int64_t in_ns(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct rs_identity rs__identity(const struct stat *st)
{
	return (struct rs_identity){
		.ino = st->st_ino,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.mtime_ns = in_ns(st->st_mtim),
		.ctime_ns = in_ns(st->st_ctim),
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.nlink = (uint32_t)st->st_nlink,
	};
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFLNK:
		return "a symbolic link";
	}
	return "a device";
}

int rs__fail_open(struct rs_err *err, int sys, const char *name)
{
	switch (sys) {
	case ENOENT:
	case ENOTDIR:
	case ENAMETOOLONG:
		rs_fail_sys(err, sys, "%s: expected a file", RS__PATH(name));
		if (err)
			err->code = RS_MISSING;
		return -1;
	case ENXIO: /* a socket, or a device that nobody serves */
	case ENODEV:
		return rs_fail(err, RS_CORRUPT,
			"%s: expected a regular file, found a socket or device", RS__PATH(name));
	}
	return rs_fail_sys(err, sys, "%s: cannot be opened", RS__PATH(name));
}

int rs__file_adopt(int fd, const char *name, struct rs_file *out, struct rs_err *err)
{
	struct stat st;
	int flags;

	if (fstat(fd, &st) < 0) {
		rs_fail_sys(err, errno, "%s: cannot be examined", RS__PATH(name));
		goto fail;
	}
	if (!S_ISREG(st.st_mode)) {
		rs_fail(err, RS_CORRUPT, "%s: expected a regular file, found %s", RS__PATH(name),
			kind_of(st.st_mode));
		goto fail;
	}
	/* It was for FIFOs only; a file system in user space would see it in every read. */
	flags = fcntl(fd, F_GETFL);
	if (flags >= 0)
		(void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	*out = (struct rs_file){.fd = fd, .name = name, .id = rs__identity(&st)};
	out->size = out->id.size;
	return 0;
fail:
	close(fd);
	return -1;
}

int rs_file_open(const char *path, const char *name, struct rs_file *out, struct rs_err *err)
{
	int flags = RS__OPEN_FLAGS | O_NOATIME, fd;

	if (!name)
		name = path;
	for (;;) {
		fd = open(path, flags);
		if (fd >= 0)
			return rs__file_adopt(fd, name, out, err);
		if (errno == EPERM && (flags & O_NOATIME))
			flags &= ~O_NOATIME; /* for owners only */
		else if (errno != EINTR)
			return rs__fail_open(err, errno, name);
	}
}

void rs_file_memory(const void *bytes, uint64_t size, const char *name, struct rs_file *out)
{
	*out = (struct rs_file){
		.fd = -1, .mem = bytes ? bytes : "", .size = size, .name = name, .id.size = size};
}

void rs_file_close(struct rs_file *file)
{
	rs__file_unmap(file);
	if (file->fd >= 0)
		close(file->fd);
	*file = (struct rs_file){.fd = -1, .name = file->name};
}

static int fail_read(const struct rs_file *file, uint64_t off, int sys, struct rs_err *err)
{
	rs_fail_sys(err, sys, "%s@%" PRIu64 ": reading failed", RS__PATH(file->name), off);
	/* A file server's way of saying that the file was deleted or replaced there. */
	if (err && sys == ESTALE)
		err->code = RS_CHANGED;
	return -1;
}

static int fail_short(const struct rs_file *file, uint64_t off, uint64_t len, struct rs_err *err)
{
	return rs_fail(err, RS_CHANGED,
		"%s@%" PRIu64 ": expected %" PRIu64
		" more bytes, found the end of the file, which had "
		"%" PRIu64 " bytes when it was opened",
		RS__PATH(file->name), off, len, file->id.size);
}

static int read_fd(
	const struct rs_file *file, uint64_t off, uint8_t *dst, uint64_t len, struct rs_err *err)
{
	int tries = EAGAIN_TRIES;

	while (len > 0) {
		ssize_t n = rs__pread(file->fd, dst, (size_t)rs_min(len, READ_MOST), (off_t)off);

		if (n > 0) {
			off += (uint64_t)n;
			dst += n;
			len -= (uint64_t)n;
		} else if (n == 0) {
			return fail_short(file, off, len, err);
		} else if (errno == EAGAIN && tries-- > 0) {
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		} else if (errno != EINTR) {
			return fail_read(file, off, errno, err);
		}
	}
	return 0;
}

/* Bytes of a range that the caller has found to lie inside the file. */
static int read_range(
	const struct rs_file *file, uint64_t off, uint8_t *dst, uint64_t len, struct rs_err *err)
{
	const struct rs_rows one = {.off = off, .width = len, .count = 1};

	if (file->pool)
		return rs__pool_read(file, &one, dst, err);
	if (file->fd >= 0)
		return read_fd(file, off, dst, len, err);
	memcpy(dst, file->mem + off, (size_t)len);
	return 0;
}

int rs__read_rows(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err)
{
	uint64_t off = rows->off;

	if (rows->count == 1 || rows->pitch == rows->width)
		return read_range(file, off, dst, rows->width * rows->count, err);
	for (uint64_t i = 0; i < rows->count; i++, off += rows->pitch, dst += rows->width)
		if (read_range(file, off, dst, rows->width, err) < 0)
			return -1;
	return 0;
}

static int fail_range(const struct rs_file *file, uint64_t off, uint64_t len, struct rs_err *err)
{
	return rs_fail(err, RS_CORRUPT,
		"%s@%" PRIu64 ": expected %" PRIu64 " bytes here, found a file of %" PRIu64
		" bytes",
		RS__PATH(file->name), off, len, file->size);
}

int rs_file_read(
	const struct rs_file *file, uint64_t off, void *buf, uint64_t len, struct rs_err *err)
{
	if (!rs_range_ok(off, len, file->size))
		return fail_range(file, off, len, err);
	return len ? read_range(file, off, buf, len, err) : 0;
}

static bool same_content(const struct rs_identity *then, const struct rs_identity *now)
{
	if (then->ino != now->ino || then->size != now->size || then->mtime_ns != now->mtime_ns)
		return false;
	/*
	 * The ctime moves with the content, even when somebody puts the mtime back, but also when
	 * owner, mode or number of names change: a file that was deleted, replaced or closed to
	 * others keeps serving through its descriptor.
	 */
	return then->ctime_ns == now->ctime_ns || then->mode != now->mode ||
	       then->uid != now->uid || then->gid != now->gid || then->nlink != now->nlink;
}

int rs_file_check(const struct rs_file *file, struct rs_err *err)
{
	struct rs_identity now;
	struct stat st;

	if (file->fd < 0)
		return 0;
	if (file->pool)
		return rs__pool_check(file, err);
	if (fstat(file->fd, &st) < 0)
		return fail_read(file, 0, errno, err);
	now = rs__identity(&st);
	if (same_content(&file->id, &now))
		return 0;
	rs_fail(err, RS_CHANGED,
		"%s: expected the file of %" PRIu64 " bytes that was opened, found one of %" PRIu64
		" bytes, written to since",
		RS__PATH(file->name), file->id.size, now.size);
	return rs_hint(err, "mount again to serve what the file holds now");
}

/* A mapped page could not be had: the file has lost its end, or the disk failed. */
static int fail_mapped(const struct rs_file *file, uint64_t off, struct rs_err *err)
{
	if (rs_file_check(file, err) < 0)
		return -1;
	return fail_read(file, off, EIO, err);
}

int rs_io_gather(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err)
{
	uint64_t off = rows->off, width = rows->width, count = rows->count, span;

	if (count == 0 || width == 0)
		return 0;
	/* [off, off + span) covers all rows; one check keeps a wrong plan from reading astray. */
	if (!rs_mul(count - 1, rows->pitch, &span) || !rs_add(span, width, &span))
		span = UINT64_MAX;
	if (!rs_range_ok(off, span, file->size))
		return fail_range(file, off, span, err);
	if (file->map)
		return rs__map_copy(file, rows, dst) ? 0 : fail_mapped(file, off, err);
	return file->pool ? rs__pool_read(file, rows, dst, err)
			  : rs__read_rows(file, rows, dst, err);
}
