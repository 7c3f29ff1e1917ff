/*
 * rules_mesh.c - ranks, coordinates, and how an axis of the mesh deals things out.
 *
 *   axes pp 2, tp 4 (outermost first): rank 5 = 1 * 4 + 1 is pp 1, tp 1
 *
 * Two things are dealt out. Indices, such as layers over pp, by a range: equal shares of a count,
 * shares of given sizes, or lists. Rows of a tensor, by a cut: in units that stay whole, and where
 * they do not come out even as the plan says:
 *
 *   10 over 4:  chunk 3 3 3 1   balanced 3 3 2 2   pad 3 3 3 1 and 2 rows of zeros
 *
 * Refuses what does not divide unless told how, and says what would. Read next: rules_view.c.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>
#include <stdio.h>

/* --------------------------------------------------------------------- mesh */

uint32_t rs__mesh_find(const struct rs__mesh *m, struct rs_str name)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (rs_str_eq(m->axes[i].name, name))
			return i;
	return RS__NONE;
}

void rs__mesh_coords(const struct rs__mesh *m, uint64_t rank, uint32_t *coords)
{
	for (uint32_t a = m->n; a-- > 0;) {
		coords[a] = (uint32_t)(rank % m->axes[a].size);
		rank /= m->axes[a].size;
	}
}

int rs__mesh_use(struct rs__mesh *m, const struct rs__axis *sizes, uint32_t n, const char *name,
	struct rs_err *err)
{
	struct rs__mesh own = *m;

	m->n = 0;
	for (uint32_t i = 0; i < own.n; i++) {
		bool named = false;
		for (uint32_t k = 0; k < n; k++)
			named |= rs_str_eq(sizes[k].name, own.axes[i].name);
		if (!named)
			m->axes[m->n++] = (struct rs__axis){own.axes[i].name, 1};
	}
	for (uint32_t k = 0; k < n; k++) {
		if (rs__mesh_find(&own, sizes[k].name) == RS__NONE &&
			!rs_str_is(sizes[k].name, "dp")) {
			rs_fail(err, RS_USAGE, "%s: the plan knows no axis '%s'", name,
				RS_SHOW(sizes[k].name));
			return rs_hint(
				err, "only dp may come on top of a plan's axes: it replicates");
		}
		if (m->n == RS__MESH_AXES)
			return rs_fail(err, RS_LIMIT, "%s: more than %d axes", name, RS__MESH_AXES);
		m->axes[m->n++] = sizes[k];
	}
	return 0;
}

int rs__mesh_count(struct rs__mesh *m, const char *name, struct rs_err *err)
{
	m->n_ranks = 1;
	for (uint32_t a = 0; a < m->n; a++)
		if (!rs_mul(m->n_ranks, m->axes[a].size, &m->n_ranks) || m->n_ranks > RS_MAX_CELLS)
			return rs_fail(
				err, RS_LIMIT, "%s: mesh: more than %u ranks", name, RS_MAX_CELLS);
	return 0;
}

/* -------------------------------------------------------------- coordinates */

bool rs__coords_has(const struct rs__coords *c, uint32_t coord)
{
	uint32_t low = 0, n = c->n;

	if (!c->at)
		return true;
	while (n > 0) {
		uint32_t half = n / 2;
		if (c->at[low + half] == coord)
			return true;
		if (c->at[low + half] < coord) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return false;
}

int rs__coords_meet(const struct rs__coords *a, const struct rs__coords *b, struct rs_arena *arena,
	struct rs__coords *out, struct rs_err *err)
{
	uint32_t *both, n = 0;

	if (!a->at || !b->at) {
		*out = a->at ? *a : *b;
		return 0;
	}
	both = RS_NEW_N(arena, uint32_t, rs_min(a->n, b->n), err);
	if (!both)
		return -1;
	for (uint32_t i = 0; i < a->n; i++)
		if (rs__coords_has(b, a->at[i]))
			both[n++] = a->at[i];
	*out = (struct rs__coords){both, n};
	return 0;
}

/* ------------------------------------------------------------------ dealing */

/* What coordinate @c of @size gets of @n things: [*start, *stop). */
static void deal(
	enum rs__uneven how, uint64_t n, uint64_t size, uint64_t c, uint64_t *start, uint64_t *stop)
{
	uint64_t each = n / size, rest = n % size;

	if (how == RS__UNEVEN_BALANCED) {
		*start = c * each + rs_min(c, rest);
		*stop = *start + each + (c < rest);
		return;
	}
	each += rest > 0;
	*start = rs_min(c * each, n);
	*stop = rs_min(*start + each, n);
}

/* The hint for @n things that do not divide: the sizes of an axis that would do. */
static int hint_sizes(struct rs_str axis, uint64_t n, struct rs_err *err)
{
	char sizes[120] = "";
	size_t at = 0;

	for (uint64_t s = 1; s <= n && s <= 4096 && at + 12 < sizeof(sizes); s++)
		if (n % s == 0)
			at += (size_t)snprintf(sizes + at, sizeof(sizes) - at, " %" PRIu64, s);
	return rs_hint(
		err, "possible sizes of '%s' here:%s; or say \"uneven\"", RS_SHOW(axis), sizes);
}

int rs__cut_share(const struct rs__cut *cut, const struct rs__mesh *m, const struct rs__vars *vars,
	enum rs__uneven uneven, uint64_t len, uint32_t coord, struct rs__share *out,
	struct rs_err *err)
{
	const struct rs__axis *axis = &m->axes[cut->axis];
	uint64_t unit = 1, n, size = axis->size;

	if (cut->uneven != RS__UNEVEN_UNSAID)
		uneven = cut->uneven;
	if (cut->unit.where && rs__num_value(&cut->unit, vars, &unit, err) < 0)
		return -1;
	if (unit == 0 || len % unit)
		return rs_fail(err, RS_USAGE,
			"%s: dim %" PRIu32 " is %" PRIu64 ", expected whole units of %" PRIu64,
			cut->where, cut->dim, len, unit);
	n = len / unit;
	*out = (struct rs__share){0};
	if (cut->replicate && n > 0 && n < size) {
		if (size % n)
			return rs_fail(err, RS_USAGE,
				"%s: dim %" PRIu32 " has %" PRIu64 " units, which '%s' of %" PRIu64
				" cannot repeat evenly",
				cut->where, cut->dim, n, RS_SHOW(axis->name), size);
		out->start = coord / (size / n) * unit;
		out->stop = out->start + unit;
		return 0;
	}
	if (n % size && uneven <= RS__UNEVEN_ERROR) {
		rs_fail(err, RS_USAGE,
			"%s: dim %" PRIu32 " is %" PRIu64 "%s, not divisible by '%s' of %" PRIu64,
			cut->where, cut->dim, n, unit > 1 ? " units" : "", RS_SHOW(axis->name),
			size);
		if (n < size)
			return rs_hint(err, "\"few\": \"replicate\" gives the same unit to several "
					    "ranks");
		return hint_sizes(axis->name, n, err);
	}
	deal(uneven, n, size, coord, &out->start, &out->stop);
	if (uneven == RS__UNEVEN_PAD) {
		uint64_t each = n / size + (n % size > 0);
		out->pad = (each - (out->stop - out->start)) * unit;
	}
	out->start *= unit;
	out->stop *= unit;
	return 0;
}

/* ------------------------------------------------------------------- ranges */

/* Sizes or a count: shares that follow each other. */
static int share_out(struct rs__range *r, uint64_t size, enum rs__uneven uneven, uint64_t total,
	struct rs_arena *arena, struct rs_err *err)
{
	uint32_t *all = RS_NEW_N(arena, uint32_t, total, err);
	uint64_t start = 0, stop = 0;

	if (!all)
		return -1;
	for (uint64_t i = 0; i < total; i++)
		all[i] = (uint32_t)i;
	for (uint32_t c = 0; c < size; c++) {
		if (r->sizes) {
			start = stop;
			stop += r->sizes[c];
		} else {
			deal(uneven, total, size, c, &start, &stop);
		}
		r->shares[c] = (struct rs__coords){all + start, (uint32_t)(stop - start)};
	}
	return 0;
}

static int count_of(struct rs__range *r, const struct rs__axis *axis, const struct rs__vars *vars,
	enum rs__uneven uneven, uint64_t found, uint64_t *total, struct rs_err *err)
{
	*total = found;
	if (r->lists) {
		*total = 0;
		for (uint32_t c = 0; c < axis->size; c++)
			for (uint32_t i = 0; i < r->lists[c].n; i++)
				*total = rs_max(*total, (uint64_t)r->lists[c].at[i] + 1);
	} else if (r->sizes) {
		*total = 0;
		for (uint32_t c = 0; c < axis->size; c++)
			if (!rs_add(*total, r->sizes[c], total))
				*total = UINT64_MAX;
	} else if (r->count.where && rs__num_value(&r->count, vars, total, err) < 0) {
		return -1;
	}
	if (*total > RS_MAX_CELLS)
		return rs_fail(err, RS_LIMIT, "%s: more than %u indices", r->where, RS_MAX_CELLS);
	if (r->lists || r->sizes || *total % axis->size == 0 || uneven == RS__UNEVEN_CHUNK ||
		uneven == RS__UNEVEN_BALANCED)
		return 0;
	rs_fail(err, RS_USAGE, "%s: %" PRIu64 " indices, not divisible by '%s' of %" PRIu64,
		r->where, *total, RS_SHOW(axis->name), axis->size);
	return hint_sizes(axis->name, *total, err);
}

/* Turn shares around: who owns index i? */
static int find_owners(
	struct rs__range *r, uint64_t size, struct rs_arena *arena, struct rs_err *err)
{
	uint64_t n = 0;
	uint32_t *end;

	r->first = RS_NEW_N(arena, uint32_t, (uint64_t)r->total + 2, err);
	if (!r->first)
		return -1;
	/* end[i] runs from the first to behind the last owner of i, and so becomes first[i + 1]. */
	end = r->first + 1;
	for (uint32_t c = 0; c < size; c++)
		for (uint32_t i = 0; i < r->shares[c].n; i++, n++)
			end[r->shares[c].at[i] + 1]++;
	for (uint32_t i = 0; i < r->total; i++)
		end[i + 1] += end[i];
	r->owners = RS_NEW_N(arena, uint32_t, n, err);
	r->local = RS_NEW_N(arena, uint32_t, n, err);
	if (!r->owners || !r->local)
		return -1;
	for (uint32_t c = 0; c < size; c++)
		for (uint32_t i = 0; i < r->shares[c].n; i++) {
			uint32_t at = end[r->shares[c].at[i]]++;
			r->owners[at] = c;
			r->local[at] = i;
		}
	for (uint32_t i = 0; i < r->total; i++)
		for (uint32_t o = r->first[i] + 1; o < r->first[i + 1]; o++)
			if (r->owners[o] == r->owners[o - 1])
				return rs_fail(err, RS_USAGE,
					"%s: coordinate %" PRIu32 " has index %" PRIu32 " twice",
					r->where, r->owners[o], i);
	return 0;
}

int rs__range_bind(struct rs__range *r, const struct rs__mesh *m, const struct rs__vars *vars,
	enum rs__uneven uneven, uint64_t found, struct rs_arena *arena, struct rs_err *err)
{
	const struct rs__axis *axis = &m->axes[r->axis];
	uint64_t total;

	if (count_of(r, axis, vars, uneven, found, &total, err) < 0)
		return -1;
	r->total = (uint32_t)total;
	r->shares = r->lists;
	if (!r->shares) {
		r->shares = RS_NEW_N(arena, struct rs__coords, axis->size, err);
		if (!r->shares || share_out(r, axis->size, uneven, total, arena, err) < 0)
			return -1;
	}
	return find_owners(r, axis->size, arena, err);
}

bool rs__range_owns(const struct rs__range *r, uint64_t index)
{
	return index < r->total && r->first[index] < r->first[index + 1];
}
