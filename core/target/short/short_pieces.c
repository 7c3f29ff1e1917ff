/*
 * short_pieces.c - how sources without a strategy are cut, for short targets.
 *
 * A Paddle checkpoint lists the pieces of every key, so the axis along which they have different
 * origins is the one that tp cuts, and their number is its size. A source of whole tensors tells
 * nothing, and so only dp and pp can be asked of it. Refuses keys with two cut axes or stored in
 * flattened ranges, and two sizes of tp. Read next: short_make.c.
 */
#include "core/target/short/short.h"

#include <inttypes.h>
#include <stdlib.h>

#define UNCUT RS_MAX_AXES /* no axis is cut */

struct counting {
	const struct rs_target *t;
	uint64_t tp; /* 0: not seen */
	const struct rs_tensor *tp_user;
	struct rs__way *ways[RS_MAX_AXES + 1][RS_MAX_AXES + 1]; /* by number of axes, cut axis */
};

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* How many different origins the pieces have along @axis. @scratch: one a piece. */
static uint64_t origins(const struct rs_tensor *tensor, uint32_t axis, uint64_t *scratch)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < tensor->n_pieces; i++)
		scratch[i] = tensor->pieces[i].box.origin[axis];
	qsort(scratch, tensor->n_pieces, sizeof(*scratch), by_value);
	for (uint32_t i = 1; i < tensor->n_pieces; i++)
		n += scratch[i] != scratch[i - 1];
	return n;
}

static int find_axis(
	struct counting *c, const struct rs_tensor *tensor, uint32_t *axis, struct rs_err *err)
{
	uint64_t *scratch, count = 1;

	*axis = UNCUT;
	for (uint32_t i = 0; i < tensor->n_pieces; i++)
		if (tensor->pieces[i].stored) {
			rs_fail(err, RS_USAGE,
				"target %s: key '%s' is stored in flattened ranges, which follow "
				"no "
				"axis",
				c->t->opts.target, RS_SHOW(tensor->name));
			return rs_hint(err, "give a strategy, or the rules: -o plan=FILE");
		}
	if (tensor->n_pieces < 2)
		return 0;
	scratch = rs_alloc(tensor->n_pieces * sizeof(*scratch), err);
	if (!scratch)
		return -1;
	for (uint32_t a = 0; a < tensor->shape.n_axes; a++) {
		uint64_t n = origins(tensor, a, scratch);
		if (n > 1 && *axis != UNCUT) {
			rs_free(scratch);
			rs_fail(err, RS_USAGE,
				"target %s: key '%s' is cut along axes %" PRIu32 " and %" PRIu32
				": expected one axis, that of tp",
				c->t->opts.target, RS_SHOW(tensor->name), *axis, a);
			return rs_hint(err, "give a strategy, or the rules: -o plan=FILE");
		}
		if (n > 1) {
			*axis = a;
			count = n;
		}
	}
	rs_free(scratch);
	if (*axis == UNCUT)
		return 0;
	if (c->tp && c->tp != count) {
		rs_fail(err, RS_USAGE,
			"target %s: key '%s' is cut in %" PRIu64 ", key '%s' in %" PRIu64
			": expected one size of tp",
			c->t->opts.target, RS_SHOW(tensor->name), count, RS_SHOW(c->tp_user->name),
			c->tp);
		return rs_hint(err, "give a strategy, or the rules: -o plan=FILE");
	}
	c->tp = count;
	c->tp_user = tensor;
	return 0;
}

static struct rs__way *way_of(
	struct counting *c, uint32_t n_axes, uint32_t axis, struct rs_err *err)
{
	struct rs__way **way = &c->ways[n_axes][axis];

	if (*way)
		return *way;
	*way = RS_NEW(c->t->arena, struct rs__way, err);
	if (!*way)
		return NULL;
	(*way)->n_axes = n_axes;
	for (uint32_t a = 0; a < n_axes; a++)
		(*way)->first[a + 1] = (*way)->first[a] + (a == axis);
	(*way)->roles[0] = RS__TP;
	return *way;
}

int rs__short_pieces(struct rs_target *t, const struct rs__short *s, struct rs__subjects *out,
	struct rs_err *err)
{
	static const uint32_t only_stage[] = {0};
	const struct rs_catalog *cat = t->source->cat;
	struct counting c = {.t = t};
	(void)s;

	*out = (struct rs__subjects){.n_stages = 1};
	out->at = RS_NEW_N(t->arena, struct rs__subject, rs_catalog_n_tensors(cat), err);
	if (!out->at)
		return -1;
	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(cat, i);
		struct rs__subject *u = &out->at[out->n];
		uint32_t axis;

		if (tensor->unplaced)
			continue;
		if (find_axis(&c, tensor, &axis, err) < 0)
			return -1;
		*u = (struct rs__subject){.tensor = tensor, .from = only_stage, .n_from = 1};
		u->way = way_of(&c, tensor->shape.n_axes, axis, err);
		if (!u->way)
			return -1;
		out->n++;
	}
	return 0;
}
