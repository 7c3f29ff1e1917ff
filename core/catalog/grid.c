/*
 * grid.c - the geometry of equal cuts: which box of a tensor a cell is, and what shape a slice has.
 *
 * Three kinds share the code: equal cells; explicit borders on axis 0 (MindSpore's
 * param_split_shape); and axis 0 dealt out in interleaved blocks (its field-wise embeddings).
 * Format: docs/formats/mindspore.md, "Layouts". Refuses lengths that do not divide: padded shards
 * do not exist for these layouts, and a guess would move every later element.
 */
#include "reshardfs/catalog.h"

#include <inttypes.h>

/* The index of @cell along each axis: cells are numbered row-major over cuts. */
static void cell_index(const struct rs_grid *g, uint32_t cell, uint32_t idx[RS_MAX_AXES])
{
	for (uint32_t a = g->n_axes; a-- > 0;) {
		idx[a] = cell % g->cuts[a];
		cell /= g->cuts[a];
	}
}

/* Into how many equal parts the length of an axis must divide. */
static uint64_t parts_of(const struct rs_grid *g, uint32_t axis)
{
	return (uint64_t)g->cuts[axis] * (axis == 0 ? g->fields : 1);
}

int rs_grid_fits(const struct rs_grid *g, const struct rs_shape *shape, struct rs_err *err)
{
	if (g->n_axes != shape->n_axes)
		return rs_fail(err, RS_USAGE, "%" PRIu32 " axes expected, shape is %s", g->n_axes,
			RS_SHAPE_SHOW(shape));
	for (uint32_t a = 0; a < g->n_axes; a++) {
		if (a == 0 && g->edges) {
			if (g->edges[g->cuts[0]] != shape->dims[0])
				return rs_fail(err, RS_USAGE,
					"dim 0 is %" PRIu64 ", its pieces add up to %" PRIu64,
					shape->dims[0], g->edges[g->cuts[0]]);
			continue;
		}
		if (shape->dims[a] % parts_of(g, a))
			return rs_fail(err, RS_USAGE,
				"dim %" PRIu32 " is %" PRIu64 ", not divisible by %" PRIu64, a,
				shape->dims[a], parts_of(g, a));
	}
	return 0;
}

struct rs_shape rs_grid_slice(const struct rs_grid *g, const struct rs_shape *shape, uint32_t cell)
{
	uint32_t idx[RS_MAX_AXES];
	struct rs_shape slice = *shape;

	cell_index(g, cell, idx);
	for (uint32_t a = 0; a < g->n_axes; a++)
		slice.dims[a] = a == 0 && g->edges ? g->edges[idx[0] + 1] - g->edges[idx[0]]
						   : shape->dims[a] / g->cuts[a];
	return slice;
}

int rs_grid_whole(const struct rs_grid *g, const struct rs_shape *slice, uint32_t cell,
	struct rs_shape *out, struct rs_err *err)
{
	uint32_t idx[RS_MAX_AXES];

	if (g->n_axes != slice->n_axes)
		return rs_fail(err, RS_CORRUPT,
			"a layout of %" PRIu32 " axes expected, the stored shape is %s", g->n_axes,
			RS_SHAPE_SHOW(slice));
	cell_index(g, cell, idx);
	*out = *slice;
	for (uint32_t a = 0; a < g->n_axes; a++) {
		if (a == 0 && g->edges) {
			uint64_t rows = g->edges[idx[0] + 1] - g->edges[idx[0]];
			if (slice->dims[0] != rows)
				return rs_fail(err, RS_CORRUPT,
					"%" PRIu64
					" rows expected by param_split_shape, stored are %" PRIu64,
					rows, slice->dims[0]);
			out->dims[0] = g->edges[g->cuts[0]];
		} else if (!rs_mul(slice->dims[a], g->cuts[a], &out->dims[a])) {
			return rs_fail(err, RS_LIMIT, "dim %" PRIu32 " overflows 64 bits", a);
		}
	}
	if (g->n_axes && slice->dims[0] % g->fields)
		return rs_fail(err, RS_CORRUPT,
			"%" PRIu64 " rows stored, not divisible by %" PRIu32 " fields",
			slice->dims[0], g->fields);
	return 0;
}

struct rs_box rs_grid_box(const struct rs_grid *g, const struct rs_shape *shape, uint32_t cell,
	uint32_t field, struct rs_box *at)
{
	uint32_t idx[RS_MAX_AXES];
	struct rs_box box = {.n_axes = g->n_axes};

	cell_index(g, cell, idx);
	*at = box;
	for (uint32_t a = 0; a < g->n_axes; a++) {
		if (a == 0 && g->edges) {
			box.origin[0] = g->edges[idx[0]];
			box.len[0] = g->edges[idx[0] + 1] - g->edges[idx[0]];
		} else {
			box.len[a] = shape->dims[a] / parts_of(g, a);
			box.origin[a] = box.len[a] * idx[a];
		}
		at->len[a] = box.len[a];
	}
	if (field) { /* block f of axis 0 starts after f blocks of every cell, at f blocks of ours
		      */
		box.origin[0] += field * box.len[0] * g->cuts[0];
		at->origin[0] = field * box.len[0];
	}
	return box;
}

/* The cells [lo, hi) along @axis that may meet the box, which has elements. */
static void cell_range(const struct rs_grid *g, const struct rs_shape *shape,
	const struct rs_box *box, uint32_t axis, uint32_t *lo, uint32_t *hi)
{
	uint64_t end = box->origin[axis] + box->len[axis];

	*lo = 0;
	*hi = g->cuts[axis];
	if (axis == 0 && g->fields > 1)
		return;
	if (axis == 0 && g->edges) {
		while (*lo + 1 < *hi && g->edges[*lo + 1] <= box->origin[0])
			++*lo;
		while (*hi - 1 > *lo && g->edges[*hi - 1] >= end)
			--*hi;
		return;
	}
	uint64_t len = shape->dims[axis] / g->cuts[axis];
	*lo = (uint32_t)(box->origin[axis] / len);
	*hi = (uint32_t)((end - 1) / len) + 1;
}

int rs_grid_meet(const struct rs_grid *g, const struct rs_shape *shape, const struct rs_box *box,
	rs_cell_fn visit, void *arg, struct rs_err *err)
{
	uint32_t lo[RS_MAX_AXES], hi[RS_MAX_AXES], at[RS_MAX_AXES];

	if (rs_box_count(box) == 0)
		return 0;
	for (uint32_t a = 0; a < g->n_axes; a++) {
		cell_range(g, shape, box, a, &lo[a], &hi[a]);
		at[a] = lo[a];
	}
	for (;;) {
		uint32_t cell = 0, a = g->n_axes;
		for (uint32_t i = 0; i < g->n_axes; i++)
			cell = cell * g->cuts[i] + at[i];
		int stop = visit(arg, cell, err);
		if (stop)
			return stop;
		while (a > 0 && ++at[a - 1] == hi[a - 1]) { /* count up, last axis fastest */
			at[a - 1] = lo[a - 1];
			a--;
		}
		if (a == 0)
			return 0;
	}
}

void rs_piece_row_major(struct rs_piece *p)
{
	uint64_t step = 1;
	for (uint32_t a = p->box.n_axes; a-- > 0;) {
		p->stride[a] = step;
		step *= p->box.len[a];
	}
}
