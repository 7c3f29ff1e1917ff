/*
 * holders.c - which source ranks are asked for a box of a tensor, by grid and listing alone.
 *
 * A cell is asked of the rank with the local number of the target rank if it holds it, else of the
 * lowest that is there: the choice that core/catalog/pieces.c makes when it has the headers.
 * Refuses a cell whose holders are all missing.
 */
#include "core/target/internal.h"

static bool present(const struct rs__asking *q, uint32_t local)
{
	const struct rs_catalog *cat = q->t->source->cat;
	return rs_catalog_rank_unit(cat, q->base + local) != RS_NO_UNIT;
}

static int mark_holder(void *arg, uint32_t cell, struct rs_err *err)
{
	struct rs__asking *q = arg;
	const struct rs_grid *g = q->grid;
	uint32_t holder = g->holders[g->first[cell]];
	struct rs_box at, cell_box, common;
	bool meets = false;

	for (uint32_t f = 0; f < g->fields && !meets; f++) {
		cell_box = rs_grid_box(g, &q->shape, cell, f, &at);
		meets = rs_box_intersect(&cell_box, &q->box, &common);
	}
	if (!meets)
		return 0;
	if (g->cell_of[q->match] == cell && present(q, q->match)) {
		holder = q->match;
	} else {
		uint32_t i = g->first[cell];
		while (i < g->first[cell + 1] && !present(q, g->holders[i]))
			i++;
		if (i == g->first[cell + 1])
			return rs__missing_rank(q->t, q->base + holder, q->rank, err);
		holder = g->holders[i];
	}
	q->source_ranks[q->base + holder] = 1;
	return 0;
}

int rs__mark_holders(struct rs__asking *q, struct rs_err *err)
{
	return rs_grid_meet(q->grid, &q->shape, &q->box, mark_holder, q, err);
}
