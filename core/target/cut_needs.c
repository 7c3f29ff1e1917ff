/*
 * cut_needs.c - which source ranks a target rank takes from, by strategies and listing alone.
 *
 * All cuts are equal, so slices are fractions: any whole shape that both layouts divide shows which
 * cells meet. Names that share source and target layout share the answer, so the work is per
 * pair of layouts and not per name. A cell is asked of the rank with the local number of
 * the target rank if it holds it, else of the lowest that is there.
 */
#include "core/target/cut.h"

#include <inttypes.h>

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

/* The smallest shape that both grids cut; explicit borders fix axis 0. */
static int common_shape(
	const struct rs_grid *a, const struct rs_grid *b, struct rs_shape *out, struct rs_err *err)
{
	*out = (struct rs_shape){.n_axes = a->n_axes};
	for (uint32_t i = 0; i < a->n_axes; i++) {
		uint64_t x = (uint64_t)a->cuts[i] * (i ? 1 : a->fields);
		uint64_t y = (uint64_t)b->cuts[i] * (i ? 1 : b->fields);
		if (!rs_mul(x / gcd(x, y), y, &out->dims[i]))
			return rs_fail(
				err, RS_LIMIT, "cuts of axis %" PRIu32 " overflow 64 bits", i);
	}
	if (a->n_axes && a->edges)
		out->dims[0] = a->edges[a->cuts[0]];
	else if (a->n_axes && b->edges)
		out->dims[0] = b->edges[b->cuts[0]];
	return 0;
}

static int ask_pair(
	struct rs__asking *q, const struct rs_grid *target, uint32_t local, struct rs_err *err)
{
	struct rs_box at;

	if (common_shape(q->grid, target, &q->shape, err) < 0 ||
		rs_grid_fits(q->grid, &q->shape, err) < 0 ||
		rs_grid_fits(target, &q->shape, err) < 0)
		return -1;
	for (uint32_t f = 0; f < target->fields; f++) {
		q->box = rs_grid_box(target, &q->shape, target->cell_of[local], f, &at);
		if (rs__mark_holders(q, err) < 0)
			return -1;
	}
	return 0;
}

/* The source layout of @p against what the target stage wants of that name. */
static int ask_param(struct rs__asking *q, const struct rs_placed *p, uint32_t stage,
	uint32_t local, uint8_t *asked, struct rs_err *err)
{
	const struct rs__cut *cut = q->t->priv;
	const struct rs_layout *to = NULL;
	const uint32_t *placements;

	struct rs_str name = cut->names[p - q->t->source->strategy->params];

	if (!name.ptr)
		return 0; /* left out */
	if (q->t->strategy && !(to = rs_strategy_find(q->t->strategy, stage, name)))
		return 0;
	rs_strategy_stages(q->t->source->strategy, p->name, &placements);
	if (q->t->source->strategy->params[placements[0]].stage != p->stage)
		return 0; /* shared: the lowest stage owns it */

	uint32_t from = rs__layouts_index(&cut->source, p->layout);
	uint32_t into = to ? rs__layouts_index(&cut->target, to) : cut->target.n;
	uint32_t n_axes = p->layout->n_axes;
	uint8_t *done =
		&asked[((uint64_t)p->stage * cut->source.n + from) * (cut->target.n + 1) + into];
	if (*done)
		return 0;
	*done = 1;
	q->base = (uint64_t)p->stage * rs_catalog_stage_devices(q->t->source->cat);
	q->grid = cut->source.grids[from];
	const struct rs_grid *target =
		to && to->n_axes ? cut->target.grids[into] : cut->whole[n_axes];
	if (n_axes == 0) /* replicated: every rank has the whole */
		target = cut->whole[0];
	else if (target->n_axes != n_axes)
		return rs_fail(err, RS_USAGE,
			"target %s: the tensor map of '%s' has %" PRIu32 " axes, the source's has "
			"%" PRIu32,
			q->t->opts.target, RS_SHOW(p->name), target->n_axes, n_axes);
	if (ask_pair(q, target, local, err) < 0)
		return rs_err_prefix(err, "tensor '%s'", RS_SHOW(p->name));
	return 0;
}

int rs__cut_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks)
{
	const struct rs__cut *cut = t->priv;
	const struct rs_strategy *src = t->source->strategy;
	uint32_t devices = rs_catalog_stage_devices(t->source->cat);
	uint32_t stage = (uint32_t)(rank / cut->devices), local = (uint32_t)(rank % cut->devices);

	if (t->source->without_ranks) {
		source_ranks[0] = 1;
		return 0;
	}
	struct rs__asking q = {
		.t = t, .rank = rank, .match = local % devices, .source_ranks = source_ranks};
	int rc = 0;

	for (uint32_t i = 0; i < cut->n_source_stages[stage]; i++) {
		uint64_t from = (uint64_t)cut->stages[stage][i] * devices + q.match;
		if (rs_catalog_rank_unit(t->source->cat, from) == RS_NO_UNIT)
			return rs__missing_rank(t, from, rank, err);
		source_ranks[from] = 1;
	}
	if (!src)
		return 0;
	uint8_t *asked =
		rs_alloc((uint64_t)src->n_stages * cut->source.n * (cut->target.n + 1), err);
	if (!asked)
		return -1;
	for (uint64_t i = 0; rc == 0 && i < src->n_params; i++)
		rc = ask_param(&q, &src->params[i], stage, local, asked, err);
	rs_free(asked);
	return rc;
}
