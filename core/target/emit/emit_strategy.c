/*
 * emit_strategy.c - any target whose slices are equal boxes, as a MindSpore strategy.
 *
 * What a plan or a short target makes is a tree of ranks that nobody wrote a strategy for; with
 * this one a second mount on top of it, or MindSpore, can read it. Every tensor gets its own device
 * matrix, which the cells of the ranks tell. Entries without layout stay without. Refuses cells
 * that follow no mesh. Read next: rs_strategy_make.
 */
#include "core/target/emit/emit.h"

#include <stdlib.h>

/* Device dimensions: the digits, and what lies between them. Outermost first. */
static void matrix(const struct rs__digit *digits, uint32_t n, uint32_t devices,
	struct rs_layout *l, uint32_t *dim_of)
{
	uint32_t dims[RS_MAX_DEVICE_DIMS * 4], n_dims = 0, at = 1;

	for (uint32_t i = 0; i < n; i++) {
		if (digits[i].stride > at)
			dims[n_dims++] = digits[i].stride / at;
		dim_of[i] = n_dims;
		dims[n_dims++] = digits[i].extent;
		at = digits[i].stride * digits[i].extent;
	}
	if (devices > at || n_dims == 0)
		dims[n_dims++] = devices / at;
	l->n_dev = n_dims;
	for (uint32_t d = 0; d < n_dims && n_dims <= RS_MAX_DEVICE_DIMS; d++)
		l->dev[d] = dims[n_dims - 1 - d];
}

static int by_weight(const void *a, const void *b, void *digits)
{
	const struct rs__digit *d = digits;
	uint32_t x = d[*(const uint32_t *)a].weight, y = d[*(const uint32_t *)b].weight;
	return (x < y) - (x > y);
}

static int make_layout(const struct rs_target *t, const struct rs__survey *s,
	const struct rs__seen *item, const uint32_t *cells, struct rs_layout *l, struct rs_err *err)
{
	struct rs__digit digits[RS__DIGITS_MAX];
	uint32_t dim_of[RS__DIGITS_MAX], order[RS__DIGITS_MAX], n, end = 0;

	*l = (struct rs_layout){.n_axes = item->whole.n_axes};
	if (!rs__digits(item, cells, s->devices, digits, &n))
		return rs__digits_fail(t, item, err);
	matrix(digits, n, s->devices, l, dim_of);
	if (l->n_dev > RS_MAX_DEVICE_DIMS)
		return rs__digits_fail(t, item, err);
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_weight, digits);
	for (uint32_t a = 0; a < l->n_axes; a++) {
		for (uint32_t i = 0; i < n; i++)
			if (digits[order[i]].axis == a)
				l->map[end++] = (int32_t)dim_of[order[i]];
		l->nested |= end > l->map_first[a] + 1;
		if (end == l->map_first[a])
			l->map[end++] = RS_MAP_NONE;
		l->map_first[a + 1] = end;
	}
	return 0;
}

/* The placements of one tensor: a layout for every stage that has it. */
static int place(const struct rs_target *t, const struct rs__survey *s, const struct rs__seen *item,
	struct rs_placed *params, struct rs_layout *layouts, uint64_t *n, struct rs_err *err)
{
	for (uint32_t stage = 0; stage < s->n_stages; stage++) {
		const uint32_t *cells = item->cells + (uint64_t)stage * s->devices;
		if (cells[0] == RS__ABSENT || item->loose)
			continue;
		if (make_layout(t, s, item, cells, &layouts[*n], err) < 0)
			return -1;
		params[*n] = (struct rs_placed){item->name, stage, &layouts[*n]};
		(*n)++;
	}
	return 0;
}

static int make(struct rs_target *t, const struct rs__survey *s, struct rs_strategy **out,
	struct rs_err *err)
{
	struct rs_placed *params;
	struct rs_layout *layouts;
	uint64_t most, n = 0;
	int rc = -1;

	if (!rs_mul(rs_max(s->n, 1), s->n_stages, &most) || most > RS_MAX_TENSORS)
		return rs_fail(err, RS_LIMIT, "target %s: too many tensors for a strategy",
			t->opts.target);
	params = rs_alloc(most * sizeof(*params), err);
	layouts = rs_alloc(most * sizeof(*layouts), err);
	if (params && layouts)
		rc = 0;
	for (uint64_t i = 0; rc == 0 && i < s->n; i++)
		rc = place(t, s, &s->items[i], params, layouts, &n, err);
	if (rc == 0)
		rc = rs_strategy_make(t->opts.target, params, n, out, err);
	rs_free(params);
	rs_free(layouts);
	return rc;
}

int rs_target_emit_strategy(struct rs_target *t, struct rs_strategy **out, struct rs_err *err)
{
	struct rs__survey s;
	int rc;

	if (t->strategy) /* says it all, shards and uneven pieces included */
		return rs_strategy_make(
			t->opts.target, t->strategy->params, t->strategy->n_params, out, err);
	if (rs__survey_run(t, &s, err) < 0)
		return -1;
	rc = make(t, &s, out, err);
	rs__survey_done(&s);
	return rc;
}
