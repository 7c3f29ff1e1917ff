/*
 * nest.c - reads the loops of a nest as a flat list of runs, and counts what serving them costs.
 *
 * A nest of two runs may stand for a million rows; nothing here visits a row. Counting is a
 * product of loop counts, touching is a sum over runs, finding a byte is one step a level.
 * Read next: include/reshardfs/plan.h (what a nest is), explain.c and plan_rank.c (who asks).
 */
#include "verbs.h"

#define PAGE_BYTES 4096u

static int visit_loop(const struct rs_nest *nest, uint32_t index, uint32_t depth,
	struct fs_leaf leaf, int (*visit)(void *arg, const struct fs_leaf *leaf), void *arg)
{
	const struct rs_loop *loop = &nest->loops[index];

	leaf.off += loop->start;
	/* The root, depth 0, never turns; pitch[d] belongs to the loop at depth d + 1. */
	if (loop->count > 1 && depth > 0 && depth <= RS_MAX_AXES) {
		leaf.count[leaf.n_loops] = loop->count;
		leaf.step[leaf.n_loops] = loop->bytes;
		leaf.level[leaf.n_loops] = depth - 1;
		leaf.n_loops++;
	}
	if (loop->n_children == 0) {
		leaf.run = &nest->runs[loop->run];
		leaf.width = loop->bytes;
		for (uint32_t i = 0; i < leaf.n_loops; i++)
			leaf.pitch[i] = leaf.run->pitch[leaf.level[i]];
		return visit(arg, &leaf);
	}
	for (uint32_t i = 0; i < loop->n_children; i++) {
		int rc = visit_loop(nest, loop->child + i, depth + 1, leaf, visit, arg);

		if (rc != 0)
			return rc;
	}
	return 0;
}

int fs__nest_leaves(
	const struct rs_nest *nest, int (*visit)(void *arg, const struct fs_leaf *leaf), void *arg)
{
	struct fs_leaf leaf;

	if (nest->n_loops == 0)
		return 0;
	memset(&leaf, 0, sizeof(leaf));
	return visit_loop(nest, 0, 0, leaf, visit, arg);
}

uint64_t fs__leaf_reads(const struct fs_leaf *leaf)
{
	uint64_t n = 1;

	/* Every repetition lands on bytes of its own, so the product is below the tensor's size. */
	for (uint32_t i = 0; i < leaf->n_loops; i++)
		n *= leaf->count[i];
	return n;
}

/*
 * A row of w bytes that begins anywhere meets 1 + (w - 1) / 4096 pages on average. Rows closer
 * together than that share pages, so a loop never costs more than the whole stretch it spans.
 */
uint64_t fs__leaf_touched(const struct fs_leaf *leaf)
{
	const uint64_t slack = PAGE_BYTES - 1;
	uint64_t extent = leaf->width, cost = leaf->width + slack;

	if (leaf->run->entry == NULL)
		return 0;
	for (uint32_t i = leaf->n_loops; i-- > 0;) {
		uint64_t apart, many;

		if (!rs_mul(leaf->count[i] - 1, leaf->pitch[i], &apart) ||
			!rs_add(apart, extent, &extent))
			extent = UINT64_MAX - slack;
		if (!rs_mul(leaf->count[i], cost, &many))
			many = UINT64_MAX;
		cost = rs_min(many, rs_min(extent, UINT64_MAX - slack) + slack);
	}
	return cost;
}

const struct rs_run *fs__nest_at(const struct rs_nest *nest, uint64_t off)
{
	const struct rs_loop *loop = nest->loops;

	if (nest->n_loops == 0 || off >= nest->bytes)
		return NULL;
	for (;;) {
		uint64_t in_turn = (off - loop->start) % loop->bytes;
		const struct rs_loop *next = NULL;

		if (loop->n_children == 0)
			return &nest->runs[loop->run];
		for (uint32_t i = 0; i < loop->n_children; i++) {
			const struct rs_loop *child = &nest->loops[loop->child + i];

			if (child->start <= in_turn)
				next = child;
		}
		if (next == NULL)
			return NULL;
		loop = next;
		off = in_turn;
	}
}
