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

void rs_piece_row_major(struct rs_piece *p)
{
	uint64_t step = 1;
	for (uint32_t a = p->box.n_axes; a-- > 0;) {
		p->stride[a] = step;
		step *= p->box.len[a];
	}
}
