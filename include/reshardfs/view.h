/*
 * view.h - floor 7: the virtual tree: root, rank directories, files in these or at the root; inode
 * numbers are arithmetic; images are built when first looked at, by builder threads, while requests
 * wait.
 *
 *   root                                     inode 1
 *   the k-th file at the root, by name       16 + k
 *   rank_R                                   (R + 1) << 20
 *   the k-th file of rank_R, by name         ((R + 1) << 20) + 1 + k
 *
 * Nothing here knows FUSE: a request that must wait is an opaque waiter (callback and pointer).
 */
#ifndef RESHARDFS_VIEW_H
#define RESHARDFS_VIEW_H

#include "reshardfs/base.h"
#include "reshardfs/image.h"
#include "reshardfs/source.h"
#include "reshardfs/target.h"

#define RS_INODE_ROOT 1u
#define RS_INODE_SHIFT 20

struct rs_view_options {
	struct rs_source_options source;
	struct rs_target_options target;
	const char *name;      /* name=: file name pattern in a rank directory, NULL: by format */
	const char *ranks;     /* ranks=: "0-3+8", NULL: all */
	bool proved;           /* verify=headers: build every image before rs_view_open returns */
	enum rs_access access; /* access=: how data files are read */
	bool io_timeout_set;
	uint32_t io_timeout_s; /* io_timeout=: per read, where files are not mapped; 0: for ever; 60
				  unless set */
	uint64_t memory;       /* memory=: bytes of images kept; 0: 256 MB */
	uint32_t builders;     /* threads; 0: clamp(cpus, 2, 8) */
};

struct rs_view;
/*
 * rs_view_open - source, target, their agreement, and the shown ranks; all that can be told
 * without looking at every header is refused here. No thread is started.
 * Owns: rs_view_close frees source and target, too.
 */
int rs_view_open(const struct rs_view_options *opts, struct rs_view **out, struct rs_err *err);
void rs_view_close(struct rs_view *v); /* stops the builders; every waiter is answered first */
struct rs_source *rs_view_source(const struct rs_view *v);
struct rs_target *rs_view_target(const struct rs_view *v);
uint64_t rs_view_n_ranks(const struct rs_view *v);          /* shown */
uint64_t rs_view_rank(const struct rs_view *v, uint64_t i); /* the i-th shown, ascending */
uint64_t rs_view_n_files(const struct rs_view *v);
/* rs_view_file - inode of the @i-th file: those at the root by name, then by rank and name. */
uint64_t rs_view_file(const struct rs_view *v, uint64_t i);
/* rs_view_output - what is in a file; NULL when @inode is none. */
const struct rs_output *rs_view_output(const struct rs_view *v, uint64_t inode);

enum rs_node_kind { RS_NODE_NONE, RS_NODE_ROOT, RS_NODE_RANK, RS_NODE_FILE };
struct rs_attr {
	enum rs_node_kind kind;
	uint64_t inode, size;
	uint32_t mode; /* permission bits only */
	uint32_t gid;  /* whose group bits these are: of the source; UINT32_MAX when files differ */
	int64_t mtime_ns;
	uint32_t nlink;
};
/* rs_view_node - what an inode number stands for; RS_NODE_NONE for a number that is not in the
 * tree. */
enum rs_node_kind rs_view_node(const struct rs_view *v, uint64_t inode);
/* rs_view_inode_rank - of a rank directory, or the rank whose list a file shows. */
uint64_t rs_view_inode_rank(const struct rs_view *v, uint64_t inode);
/* rs_view_child - inode of @name in directory @parent; 0 when there is none. Never builds. */
uint64_t rs_view_child(const struct rs_view *v, uint64_t parent, const char *name);
/*
 * rs_view_entry - the @i-th child of a directory, files first, by name, then ranks; false past the
 * last.
 * @name: at least 256 bytes.
 */
bool rs_view_entry(const struct rs_view *v, uint64_t dir, uint64_t i, char *name, uint64_t *inode);
/* rs_view_parent - inode of the parent directory (the root's is itself). */
uint64_t rs_view_parent(const struct rs_view *v, uint64_t inode);
/*
 * rs_view_attr - attributes. Directories: at once. Files: 0 with @out once they are measured, 1
 * while they are not (use rs_view_want), -1 with the kept reason when their image cannot be built.
 */
int rs_view_attr(struct rs_view *v, uint64_t inode, struct rs_attr *out, struct rs_err *err);

/*
 * A request parked on an image. @done is called exactly once, from a builder thread or from
 * rs_view_want itself: with err->code RS_OK when the image is ready. It must not block.
 */
struct rs_waiter {
	void (*done)(struct rs_waiter *w, const struct rs_err *err);
	struct rs_waiter *next, *prev; /* private */
	uint64_t inode;                /* private */
};
/* rs_view_start - start the builder threads (after fork). RS_LIMIT when the system has no more. */
int rs_view_start(struct rs_view *v, struct rs_err *err);
/*
 * rs_view_want - have the image of a file built; never blocks on I/O. What failed is told again,
 * except RS_IO and RS_NOMEM, which are tried anew. Before rs_view_start requests only queue up.
 */
void rs_view_want(struct rs_view *v, uint64_t inode, struct rs_waiter *w);
/* rs_view_cancel - take an unanswered waiter back; false when it was or is being answered. */
bool rs_view_cancel(struct rs_view *v, struct rs_waiter *w);
/*
 * rs_view_build - build the image in the calling thread (verbs, verify=headers); 0 when it has been
 * built. Needs no builder. @notes: the remarks on this file, also when it was built by an earlier
 * call, but not when by a builder.
 */
int rs_view_build(struct rs_view *v, uint64_t inode, struct rs_notes *notes, struct rs_err *err);

/*
 * rs_view_hold - the image of a file that has been measured, for an open handle; it is built again
 * if it was dropped under memory= (this may block on I/O; to the same bytes, or RS_CHANGED).
 * rs_view_release - give it back.
 */
struct rs_image *rs_view_hold(struct rs_view *v, uint64_t inode, struct rs_err *err);
void rs_view_release(struct rs_view *v, uint64_t inode, struct rs_image *img);

#endif
