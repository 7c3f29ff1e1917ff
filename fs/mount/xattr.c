/*
 * xattr.c - what a virtual file says of itself: user.reshardfs.target, .sources (paths below
 * SOURCE, a line each) and, when it holds tensors, .rank; the root has .version and .source. Every
 * other name is ENODATA, never ENOSYS: ls, cp and tar ask for security and ACL names on each file
 * and must stay silent.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "fs/mount/internal.h"

#define PREFIX "user.reshardfs."

static const char file_names[] = PREFIX "target\0" PREFIX "sources\0" PREFIX "rank";
static const char root_names[] = PREFIX "version\0" PREFIX "source";

static void reply_value(fuse_req_t req, const char *value, size_t len, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (size < len)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

/*
 * The paths of the files that the bytes of @ino come from. More than an attribute may hold
 * (64 KiB) ends in a line "...".
 */
static void reply_sources(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, size_t size)
{
	const size_t room = 65536 - sizeof("\n...");
	struct fs_scratch *scratch = fs__scratch(m);
	struct rs_err err = {0};
	size_t len = 0;

	if (!scratch) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	char *text = (char *)scratch->bytes;
	struct rs_image *image = rs_view_hold(m->view, ino, &err);

	if (!image) {
		fs__reply_failed(m, req, &err);
		return;
	}
	for (uint32_t i = 0; i < image->n_files; i++) {
		const char *path = rs_catalog_file_info(m->cat, image->files[i])->path;
		const char *shown = *path ? path : m->source;

		if (len + 1 + strlen(shown) > room) {
			len += (size_t)snprintf(text + len, 65536 - len, "\n...");
			break;
		}
		len += (size_t)snprintf(text + len, 65536 - len, "%s%s", i ? "\n" : "", shown);
	}
	rs_view_release(m->view, ino, image);
	reply_value(req, text, len, size);
}

/* An index or a companion is of no rank. */
static bool of_rank(const struct fs_mount *m, fuse_ino_t ino)
{
	return rs_view_output(m->view, ino)->kind == RS_OUTPUT_LIST;
}

static void get_of_file(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char rank[24];

	if (strcmp(name, "rank") == 0 && of_rank(m, ino)) {
		int len =
			snprintf(rank, sizeof(rank), "%" PRIu64, rs_view_inode_rank(m->view, ino));

		reply_value(req, rank, (size_t)len, size);
	} else if (strcmp(name, "target") == 0) {
		const char *target = m->o->view.target.target;

		reply_value(req, target, strlen(target), size);
	} else if (strcmp(name, "sources") == 0) {
		reply_sources(m, req, ino, size);
	} else {
		fuse_reply_err(req, ENODATA);
	}
}

void fs__op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs_mount *m = fs__mount_of(req);
	enum rs_node_kind kind = rs_view_node(m->view, ino);

	if (m->o->no_xattr || !rs_str_starts(rs_str(name), PREFIX)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	name += strlen(PREFIX);
	if (kind == RS_NODE_FILE)
		get_of_file(m, req, ino, name, size);
	else if (kind == RS_NODE_ROOT && strcmp(name, "version") == 0)
		reply_value(req, RS_VERSION, strlen(RS_VERSION), size);
	else if (kind == RS_NODE_ROOT && strcmp(name, "source") == 0)
		reply_value(req, m->source, strlen(m->source), size);
	else
		fuse_reply_err(req, ENODATA);
}

void fs__op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs_mount *m = fs__mount_of(req);
	enum rs_node_kind kind = rs_view_node(m->view, ino);

	if (m->o->no_xattr || (kind != RS_NODE_FILE && kind != RS_NODE_ROOT))
		reply_value(req, "", 0, size);
	else if (kind == RS_NODE_FILE)
		reply_value(req, file_names,
			of_rank(m, ino) ? sizeof(file_names)
					: sizeof(file_names) - sizeof(PREFIX "rank"),
			size);
	else
		reply_value(req, root_names, sizeof(root_names), size);
}
