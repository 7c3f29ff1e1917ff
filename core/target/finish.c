/*
 * finish.c - the last step for the list of every kind of target: names that rename= gave are told
 * apart, and floats are shown as dtype= wants them.
 *
 * Integers, booleans and texts stay as they are. Refuses eight-bit and smaller floats: what they
 * mean depends on scales beside them, and a cast of the bare numbers would be wrong weights.
 */
#include "core/target/internal.h"

#include <stdlib.h>

static enum rs_dtype wanted_dtype(enum rs_cast cast)
{
	static const enum rs_dtype dtypes[] = {
		[RS_CAST_KEEP] = RS_DT_NONE,
		[RS_CAST_F32] = RS_DT_F32,
		[RS_CAST_F16] = RS_DT_F16,
		[RS_CAST_BF16] = RS_DT_BF16,
	};
	return dtypes[cast];
}

static bool small_float(enum rs_dtype dt)
{
	switch (dt) {
	case RS_DT_F4:
	case RS_DT_F6_E2M3:
	case RS_DT_F6_E3M2:
	case RS_DT_F8_E5M2:
	case RS_DT_F8_E4M3:
	case RS_DT_F8_E8M0:
	case RS_DT_F8_E4M3FNUZ:
	case RS_DT_F8_E5M2FNUZ:
		return true;
	default:
		return false;
	}
}

static int refuse_small(
	struct rs_str name, enum rs_dtype from, enum rs_dtype to, struct rs_err *err)
{
	rs_fail(err, RS_UNSUPPORTED, "tensor '%s' is %s, which dtype=%s cannot cast", RS_SHOW(name),
		rs_dtype_name(from), rs_dtype_name(to));
	return rs_hint(err, "its values count with scales that stand beside it; leave it out with "
			    "-o exclude=PATTERN, or dtype= away");
}

int rs__cast_check(const struct rs_target *t, struct rs_err *err)
{
	enum rs_dtype to = wanted_dtype(t->opts.cast);

	for (uint64_t i = 0; to != RS_DT_NONE && i < rs_catalog_n_tensors(t->source->cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(t->source->cat, i);
		if (small_float(tensor->dtype))
			return refuse_small(tensor->name, tensor->dtype, to, err);
	}
	return 0;
}

int rs__cast_list(
	const struct rs_target *t, struct rs_list *list, struct rs_arena *arena, struct rs_err *err)
{
	enum rs_dtype to = wanted_dtype(t->opts.cast);
	struct rs_wanted *items;

	if (to == RS_DT_NONE)
		return 0;
	items = RS_NEW_N(arena, struct rs_wanted, list->n, err);
	if (!items)
		return -1;
	for (uint64_t i = 0; i < list->n; i++) {
		enum rs_dtype from = rs_wanted_stored(&list->items[i]);
		items[i] = list->items[i];
		if (small_float(from))
			return refuse_small(items[i].name, from, to, err);
		if (!rs_cast_known(from, to))
			continue;
		items[i].dtype = to;
		items[i].stored = from == to ? RS_DT_NONE : from;
	}
	list->items = items;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct rs_str *x = a, *y = b;
	return rs_str_cmp(*x, *y);
}

int rs__list_unique(const struct rs_target *t, const struct rs_list *list, struct rs_err *err)
{
	struct rs_str *names = rs_alloc((list->n + 1) * sizeof(*names), err);
	int rc = names ? 0 : -1;

	for (uint64_t i = 0; names && i < list->n; i++)
		names[i] = list->items[i].name;
	if (names && list->n)
		qsort(names, list->n, sizeof(*names), by_name);
	for (uint64_t i = 1; rc == 0 && i < list->n; i++)
		if (rs_str_eq(names[i - 1], names[i]))
			rc = rs_fail(err, RS_USAGE,
				"target %s: two tensors would be called '%s' after rename=",
				t->opts.target, RS_SHOW(names[i]));
	rs_free(names);
	return rc;
}
