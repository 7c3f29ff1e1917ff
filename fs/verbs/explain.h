/*
 * explain.h - one tensor of one target rank, found and planned; and its drawing.
 */
#ifndef FS_VERBS_EXPLAIN_H
#define FS_VERBS_EXPLAIN_H

#include "verbs.h"

/* A stretch of the tensor in the virtual file: containers may cut long tensors in several. */
struct explain_stretch {
	uint64_t file_off, skip, bytes;
};
/* Where a box of the target comes from. */
struct explain_box {
	struct rs_box target; /* in the target tensor */
	struct rs_box source; /* the same elements in the whole source tensor */
	struct rs_box stored; /* and in the entry that stores them, when it is row-major */
	const struct rs_tensor *tensor; /* NULL: zeros */
	uint32_t unit;
};
struct explain {
	const struct rs_source *src;
	char path[FS_VIEW_PATH_MAX];
	uint64_t rank;
	struct rs_image *img; /* held */
	const struct rs_wanted *want;
	const struct rs_nest *nest;
	struct explain_stretch *stretches; /* heap */
	uint64_t n_stretches, cap_stretches;
	struct explain_box *boxes; /* heap; in the order of the parts, then of the pieces */
	uint64_t n_boxes, cap_boxes;
};

/* fs__explain_draw - a tensor of two axes as letters, one a source file; others: nothing. */
void fs__explain_draw(FILE *to, const struct explain *x);

#endif
