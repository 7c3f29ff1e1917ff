/*
 * internal.h - what the files of the view room share.
 *
 * view.c opens and closes, tree.c does the arithmetic of inodes and names (immutable after open),
 * build.c holds all that changes: states, waiters, images.
 */
#ifndef RESHARDFS_CORE_VIEW_INTERNAL_H
#define RESHARDFS_CORE_VIEW_INTERNAL_H

#include <pthread.h>

#include "reshardfs/view.h"

#define RS__NAME_MAX 255     /* NAME_MAX of Linux */
#define RS__BUILDERS_MAX 64u /* builders= beyond gain nothing: headers are small */

enum rs__state {
	RS__EMPTY,   /* nobody has looked */
	RS__QUEUED,  /* in view->queue */
	RS__LOADING, /* one thread builds it */
	RS__READY,   /* measured, for ever; the body may come and go */
	RS__FAILED,  /* for ever, for the reason in failure */
};

/* A virtual file. output and inode are immutable; all the rest is guarded by view->lock. */
struct rs__vfile {
	const struct rs_output *output;
	uint64_t inode;
	enum rs__state state;
	bool rebuilding;    /* one thread makes a dropped body again */
	uint32_t holders;   /* open handles */
	uint32_t mode, gid; /* the measure: valid when READY */
	uint64_t size;
	int64_t mtime_ns;
	struct rs_image *image; /* the body, or NULL */
	struct rs_err *failure; /* heap */
	struct rs_notes *notes; /* heap; NULL: none */
	struct rs_waiter *waiters;
	struct rs__vfile *next,
		*prev; /* QUEUED: in the queue; a body without holders: in the LRU */
};
struct rs__chain {
	struct rs__vfile *head, *tail;
};
/* A rank directory and its files, by name. */
struct rs__vdir {
	uint64_t rank;
	struct rs__vfile *files;
	uint64_t n_files;
};

struct rs_view {
	struct rs_source *source;
	struct rs_target *target;
	uint64_t *ranks; /* shown, ascending; heap, as the two below */
	uint64_t n_ranks;
	struct rs__vfile *files; /* as the outputs of the target: root first, then by rank */
	uint64_t n_files, n_root;
	struct rs__vdir *dirs; /* by rank; none when all files are at the root */
	uint64_t n_dirs;
	uint32_t dir_mode, dir_gid; /* of all directories: what SOURCE permits */
	int64_t dir_mtime_ns;
	uint64_t memory;
	uint32_t n_builders; /* to start */

	pthread_mutex_t lock;   /* pointer work only, never held across I/O */
	pthread_cond_t work;    /* the queue got something, or stopping */
	pthread_cond_t settled; /* a file left LOADING or rebuilding */
	struct rs__chain queue; /* guarded by lock, as all below */
	struct rs__chain idle;  /* bodies without holders, the latest used first */
	uint64_t body_bytes;    /* of all bodies, held or idle */
	bool stopping;
	pthread_t threads[RS__BUILDERS_MAX];
	uint32_t n_threads;
};

/*
 * rs__view_new - a view on an open source and target, with the ranks= of @opts, whose name= is
 * looked at; it has no files yet, nothing is read. The caller still owns source and target on
 * failure.
 */
int rs__view_new(const struct rs_view_options *opts, struct rs_source *source,
	struct rs_target *target, struct rs_view **out, struct rs_err *err);
/* rs__view_arrange - have the target arrange its files, and give them places in the tree. */
int rs__view_arrange(struct rs_view *v, const char *name, struct rs_err *err);

/* rs__view_file - the file with inode number @inode, or NULL. */
struct rs__vfile *rs__view_file(const struct rs_view *v, uint64_t inode);
/* rs__ranks_parse - "0-3+8" below @n_ranks, ascending and distinct; NULL: all. Heap. */
int rs__ranks_parse(
	const char *text, uint64_t n_ranks, uint64_t **ranks, uint64_t *n, struct rs_err *err);
/* rs__pattern_check - may this be a file name, for any rank below @n_ranks? RS_USAGE. */
int rs__pattern_check(const char *pattern, uint64_t n_ranks, struct rs_err *err);

/*
 * rs__view_prove - build every image, in several threads that are gone at return.
 * The error is that of the first file that fails, in the order of the tree.
 */
int rs__view_prove(struct rs_view *v, struct rs_err *err);
/* rs__view_stop - answer every waiter, end the builders, free the images. */
void rs__view_stop(struct rs_view *v);

#endif
