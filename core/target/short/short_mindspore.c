/*
 * short_mindspore.c - what a source strategy says without saying it: which cuts are tp, ep and dp.
 *
 *   dev [2, 4], map [0, -1]   cut over ranks 1 apart: tp, of size 4
 *   dev [2, 4], map [1, -1]   cut over ranks 4 apart, where tp has 4: ep, if the target names it,
 *                             else dp
 *
 * Strategies have no names for device dimensions, but ranks are numbered with tp innermost, so the
 * distance of neighbours tells. A tensor that was meant to be cut by dp, and was written where dp
 * was 1, looks as if tp alone cut it: right bytes, perhaps not the layout of a training run.
 * Refuses every other distance, and one role with two sizes. Fields and uneven pieces are of
 * the source alone: the target cuts the same axes evenly. Read next: short_make.c.
 */
#include "core/target/short/short.h"

#include <inttypes.h>
#include <stdlib.h>

/* What is known of a role, and who showed it first. */
struct sight {
	uint64_t size;
	const struct rs__subject *user;
	const struct rs_layout *layout;
};
/* A layout of the source and its way. */
struct known {
	const struct rs_layout *layout;
	struct rs__way *way;
	bool read;
};
struct reading {
	struct rs_target *t;
	const struct rs__short *s;
	struct known *known; /* by address */
	uint64_t n_known;
	struct sight tp, outer;
};

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct known *)a)->layout;
	uintptr_t y = (uintptr_t)((const struct known *)b)->layout;
	return (x > y) - (x < y);
}

static struct known *known_of(const struct reading *r, const struct rs_layout *l)
{
	const struct known key = {.layout = l};
	return bsearch(&key, r->known, r->n_known, sizeof(key), by_address);
}

/* Distance of neighbours along the device dimension that map value @m names. */
static uint64_t stride_of(const struct rs_layout *l, int32_t m)
{
	uint64_t stride = 1;
	for (uint32_t d = l->n_dev - (uint32_t)m; d < l->n_dev; d++)
		stride *= l->dev[d];
	return stride;
}

static uint32_t extent_of(const struct rs_layout *l, int32_t m)
{
	return l->dev[l->n_dev - 1 - (uint32_t)m];
}

/* ------------------------------------------------------------------------ refusals */

static int refuse_size(const struct reading *r, const char *role, const struct rs__subject *u,
	const struct rs_layout *l, const struct sight *before, struct rs_err *err)
{
	rs_fail(err, RS_USAGE,
		"target %s: expected one size of %s in the source, found tensor '%s' cut by %s and "
		"'%s' by %s",
		r->t->opts.target, role, rs_show(before->user->tensor->name, (char[80]){0}, 80),
		rs_layout_show(before->layout, (char[80]){0}, 80),
		rs_show(u->tensor->name, (char[80]){0}, 80), rs_layout_show(l, (char[80]){0}, 80));
	return rs_hint(err, "give the strategy of the target");
}

static int refuse_stride(const struct reading *r, const struct rs__subject *u,
	const struct rs_layout *l, uint64_t stride, struct rs_err *err)
{
	const struct sight *tp = &r->tp;

	if (tp->user)
		rs_fail(err, RS_USAGE,
			"target %s: tensor '%s', %s, is cut over ranks %" PRIu64
			" apart: expected 1 (tp), or %" PRIu64 " (ep or dp), as '%s', %s, shows",
			r->t->opts.target, rs_show(u->tensor->name, (char[80]){0}, 80),
			rs_layout_show(l, (char[80]){0}, 80), stride, tp->size,
			rs_show(tp->user->tensor->name, (char[80]){0}, 80),
			rs_layout_show(tp->layout, (char[80]){0}, 80));
	else
		rs_fail(err, RS_USAGE,
			"target %s: tensor '%s', %s, is cut over ranks %" PRIu64
			" apart, and no tensor over neighbours: nothing tells tp from dp",
			r->t->opts.target, RS_SHOW(u->tensor->name),
			rs_layout_show(l, (char[80]){0}, 80), stride);
	return rs_hint(err, "give the strategy of the target");
}

/* ---------------------------------------------------------------------------- roles */

static int see(const struct reading *r, struct sight *sight, const char *role, uint32_t extent,
	const struct rs__subject *u, const struct rs_layout *l, struct rs_err *err)
{
	if (sight->user && sight->size != extent)
		return refuse_size(r, role, u, l, sight, err);
	if (!sight->user)
		*sight = (struct sight){extent, u, l};
	return 0;
}

/* First pass: who is cut over neighbours tells the size of tp. */
static int see_tp(struct reading *r, const struct rs__subject *u, const struct rs_layout *l,
	struct rs_err *err)
{
	for (uint32_t i = 0; i < l->map_first[l->n_axes]; i++) {
		int32_t m = l->map[i];
		if (m != RS_MAP_NONE && extent_of(l, m) > 1 && stride_of(l, m) == 1 &&
			see(r, &r->tp, "tp", extent_of(l, m), u, l, err) < 0)
			return -1;
	}
	return 0;
}

/* Second pass: every cut gets its role. */
static int read_way(struct reading *r, const struct rs__subject *u, const struct rs_layout *l,
	struct rs__way *way, struct rs_err *err)
{
	enum rs__role outer = r->s->named[RS__EP] ? RS__EP : RS__DP;
	uint32_t end = 0;

	way->n_axes = l->n_axes;
	way->shard = l->opt_step != 0 && l->opt_size != 0;
	for (uint32_t a = 0; a < l->n_axes; a++) {
		for (uint32_t i = l->map_first[a]; i < l->map_first[a + 1]; i++) {
			int32_t m = l->map[i];
			if (m == RS_MAP_NONE || extent_of(l, m) == 1)
				continue;
			uint64_t stride = stride_of(l, m);
			if (stride == 1) {
				way->roles[end++] = RS__TP;
				continue;
			}
			if (!r->tp.user || stride != r->tp.size)
				return refuse_stride(r, u, l, stride, err);
			if (see(r, &r->outer, rs__role_names[outer], extent_of(l, m), u, l, err) <
				0)
				return -1;
			way->roles[end++] = (uint8_t)outer;
		}
		way->first[a + 1] = end;
	}
	return 0;
}

static int read_ways(struct reading *r, struct rs__subjects *all, struct rs_err *err)
{
	const struct rs_strategy *src = r->t->source->strategy;

	for (int pass = 0; pass < 2; pass++)
		for (uint64_t i = 0; i < all->n; i++) {
			struct rs__subject *u = &all->at[i];
			const uint32_t *first;
			rs_strategy_stages(src, rs_tensor_stored(u->tensor), &first);
			struct known *k = known_of(r, src->params[*first].layout);
			if (pass == 1)
				u->way = k->way;
			if (k->read == (pass == 0))
				continue;
			k->read = pass == 0;
			if ((pass == 0 ? see_tp(r, u, k->layout, err)
				       : read_way(r, u, k->layout, k->way, err)) < 0)
				return -1;
		}
	return 0;
}

/* ------------------------------------------------------------------------- subjects */

static int collect(const struct rs_target *t, struct rs__subjects *out, struct rs_err *err)
{
	const struct rs_strategy *src = t->source->strategy;
	const struct rs_catalog *cat = t->source->cat;

	out->at = RS_NEW_N(t->arena, struct rs__subject, rs_catalog_n_tensors(cat), err);
	if (!out->at)
		return -1;
	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(cat, i);
		const uint32_t *first;
		uint32_t n = rs_strategy_stages(src, rs_tensor_stored(tensor), &first);
		if (n == 0)
			continue; /* no layout: copied as stored */
		uint32_t *from = RS_NEW_N(t->arena, uint32_t, n, err);
		if (!from)
			return -1;
		for (uint32_t k = 0; k < n; k++)
			from[k] = src->params[first[k]].stage;
		out->at[out->n++] =
			(struct rs__subject){.tensor = tensor, .from = from, .n_from = n};
	}
	return 0;
}

int rs__short_mindspore(struct rs_target *t, const struct rs__short *s, struct rs__subjects *out,
	struct rs_err *err)
{
	const struct rs_strategy *src = t->source->strategy;
	struct rs__way *ways = RS_NEW_N(t->arena, struct rs__way, src->n_layouts, err);
	struct reading r = {.t = t, .s = s, .n_known = src->n_layouts};
	int rc = -1;

	*out = (struct rs__subjects){.n_stages = src->n_stages};
	if (!ways || collect(t, out, err) < 0)
		return -1;
	r.known = rs_alloc(src->n_layouts * sizeof(*r.known), err);
	if (r.known) {
		for (uint64_t i = 0; i < src->n_layouts; i++)
			r.known[i] = (struct known){src->layouts[i], &ways[i], false};
		qsort(r.known, r.n_known, sizeof(*r.known), by_address);
		rc = read_ways(&r, out, err);
	}
	rs_free(r.known);
	return rc;
}
