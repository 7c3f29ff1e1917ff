/*
 * internal.h - what the files of the plan room share: blocks, the step between boxes and loops.
 */
#ifndef RESHARDFS_CORE_PLAN_INTERNAL_H
#define RESHARDFS_CORE_PLAN_INTERNAL_H

#include "reshardfs/plan.h"

/*
 * A box of the target and where its elements are: element (i, j, ...) of the box is element
 * first + i * stride[0] + j * stride[1] + ... of the content of @entry. No entry: zeros.
 */
struct rs__block {
	struct rs_box box;
	const struct rs_entry *entry;
	uint32_t unit;
	uint64_t first;
	uint64_t stride[RS_MAX_AXES];
};
struct rs__blocks {
	struct rs__block *items; /* heap */
	uint64_t n, cap;
	struct rs_shape shape;  /* of the target as the blocks see it: at least one axis */
	uint64_t element_bytes; /* of one step along the last axis */
};
/*
 * rs__blocks_place - all blocks of @want, unproved. @to starts zeroed; free to->items also on
 * failure. Errors: as rs_plan_nest.
 */
int rs__blocks_place(struct rs_catalog *cat, const struct rs_wanted *want, struct rs__blocks *to,
	struct rs_err *err);

#endif
