/*
 * cat.c - `cat SRC --target T PATH`: one virtual file to standard output, no mount needed.
 *
 * The same bytes as a mount would give, or an error; what was already written when a source fails
 * halfway cannot be called back, so the exit code tells. A reader that closes its end of the pipe
 * has had enough: that is no error. Refuses directories. Read next: image.h, rs_image_read.
 */
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#define STEP_BYTES (1u << 20)

/* 1 when the reader is gone, 0 when all is written. */
static int write_all(const uint8_t *p, size_t len, struct rs_err *err)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EPIPE)
			return 1;
		if (n <= 0)
			return rs_fail_sys(
				err, n < 0 ? errno : EIO, "standard output: cannot write");
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int stream(struct rs_view *v, const struct rs_image *img, struct rs_err *err)
{
	struct rs_catalog *cat = rs_view_source(v)->cat;
	uint8_t *step = rs_alloc(STEP_BYTES, err);
	int rc = step != NULL ? 0 : -1;

	for (uint64_t off = 0; rc == 0 && off < img->size; off += STEP_BYTES) {
		uint64_t len = rs_min(STEP_BYTES, img->size - off);

		rc = rs_image_read(img, cat, off, len, step, err);
		if (rc == 0)
			rc = write_all(step, (size_t)len, err);
	}
	rs_free(step);
	return rc < 0 ? -1 : 0;
}

static int print_file(struct rs_view *v, const char *path, struct rs_err *err)
{
	struct rs_image *img;
	uint64_t inode;
	int rc;

	if (fs__view_path(v, path, &inode, err) < 0)
		return -1;
	if (rs_view_node(v, inode) != RS_NODE_FILE) {
		rs_fail(err, RS_USAGE, "%s: is a directory", RS_SHOW(rs_str(path)));
		return rs_hint(err, "name a file, as rank_0/NAME; reshardfs ls lists them");
	}
	if (rs_view_build(v, inode, NULL, err) < 0)
		return -1;
	img = rs_view_hold(v, inode, err);
	if (img == NULL)
		return -1;
	rc = stream(v, img, err);
	rs_view_release(v, inode, img);
	return rc;
}

int fs_verb_cat(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct rs_view *v = NULL;
	struct rs_err err = {0};
	int code = FS_EXIT_OK;

	signal(SIGPIPE, SIG_IGN);
	if (rs_view_open(&opts, &v, &err) < 0 || print_file(v, o->args[1], &err) < 0)
		code = fs_report(&err);
	rs_view_close(v);
	return code;
}
