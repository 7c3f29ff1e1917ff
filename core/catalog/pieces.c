/*
 * pieces.c - which stored pieces meet a box of a tensor, and who stores them.
 *
 * Of a grid the cells that meet the box are found by division, and each is asked of one holder: the
 * preferred rank, else the lowest that has it. Before a piece is handed out, the stored entry is
 * held against the tensor (dtype, slice shape), so that one odd file cannot shift bytes silently.
 */
#include "core/catalog/internal.h"

#include <inttypes.h>
#include <stdio.h>

/* The entry of @t in the unit of holder @h, or NULL: not there (@err clear) or an error. */
static const struct rs_entry *stored_by(struct rs_catalog *c, const struct rs_tensor *t, uint32_t h,
	uint32_t *unit, struct rs_err *err)
{
	*unit = rs_catalog_rank_unit(c, (uint64_t)t->first_rank + h);
	if (*unit == RS_NO_UNIT)
		return NULL;
	const struct rs_table *table = rs_catalog_table(c, *unit, err);
	return table ? rs_table_find(table, rs_tensor_stored(t)) : NULL;
}

static int check_entry(struct rs_catalog *c, const struct rs_tensor *t,
	const struct rs_shape *slice, const struct rs_entry *e, uint32_t unit, struct rs_err *err)
{
	if (e->dtype == t->dtype && rs_shape_eq(&e->shape, slice))
		return 0;
	rs_fail(err, RS_CORRUPT, "%s: tensor '%s': expected %s %s (by %s%s), found %s %s",
		rs_catalog_file_info(c, c->units[unit].pub.first_file)->path, RS_SHOW(t->name),
		rs_dtype_name(t->dtype), RS_SHAPE_SHOW(slice),
		t->grid ? rs_catalog_file_info(c, c->units[t->witness].pub.first_file)->path
			: "what lists the pieces",
		t->grid ? " and the strategy" : "", rs_dtype_name(e->dtype),
		RS_SHAPE_SHOW(&e->shape));
	return rs_hint(err, "a file of another run or step? compare with: reshardfs inspect");
}

static int nobody(const struct rs_catalog *c, const struct rs_tensor *t, uint32_t cell,
	const struct rs_box *box, struct rs_err *err)
{
	char ranks[160] = "";
	size_t at = 0;
	bool absent = false;

	for (uint32_t i = t->grid->first[cell]; i < t->grid->first[cell + 1]; i++) {
		uint64_t rank = (uint64_t)t->first_rank + t->grid->holders[i];
		absent |= rs_catalog_rank_unit(c, rank) == RS_NO_UNIT;
		if (at + 24 < sizeof(ranks))
			at += (size_t)snprintf(
				ranks + at, sizeof(ranks) - at, "%s%" PRIu64, at ? ", " : "", rank);
	}
	rs_fail(err, RS_MISSING, "tensor '%s': no file stores %s (expected in rank %s)",
		RS_SHOW(t->name), RS_BOX_SHOW(box), ranks);
	if (absent)
		return rs_hint(
			err, "a rank directory is missing: on another node? gather them first");
	return rs_hint(err, "the files of these ranks are there, but lack the tensor: "
			    "another step, or a strategy of another run?");
}

/* Find the one holder of a cell that we read: preferred, else lowest. */
static const struct rs_entry *choose(struct rs_catalog *c, const struct rs_tensor *t, uint32_t cell,
	uint32_t prefer, uint32_t *unit, struct rs_err *err)
{
	const struct rs_grid *g = t->grid;
	struct rs_err why = {0};
	const struct rs_entry *e = NULL;

	if (prefer < g->n_holders && g->cell_of[prefer] == cell)
		e = stored_by(c, t, prefer, unit, &why);
	for (uint32_t i = g->first[cell]; !e && !why.code && i < g->first[cell + 1]; i++)
		if (g->holders[i] != prefer)
			e = stored_by(c, t, g->holders[i], unit, &why);
	if (!e && why.code && err)
		*err = why;
	return why.code ? NULL : e;
}

static int visit_cell(struct rs_catalog *c, const struct rs_tensor *t, uint32_t cell,
	const struct rs_box *box, uint32_t prefer, rs_piece_fn visit, void *arg, struct rs_err *err)
{
	const struct rs_grid *g = t->grid;
	const struct rs_entry *e = NULL;
	uint32_t unit = RS_NO_UNIT;

	for (uint32_t f = 0; f < g->fields; f++) {
		struct rs_box at, common;
		struct rs_piece piece = {.box = rs_grid_box(g, &t->shape, cell, f, &at)};
		if (!rs_box_intersect(&piece.box, box, &common))
			continue;
		if (!e) {
			struct rs_err why = {0};
			struct rs_shape slice = rs_grid_slice(g, &t->shape, cell);
			e = choose(c, t, cell, prefer, &unit, &why);
			if (!e && why.code) {
				if (err)
					*err = why;
				return -1;
			}
			if (!e)
				return nobody(c, t, cell, &piece.box, err);
			if (check_entry(c, t, &slice, e, unit, err) < 0)
				return -1;
		}
		piece.unit = unit;
		piece.entry = e;
		rs_piece_row_major(&piece); /* blocks differ from the slice on axis 0 alone */
		piece.first = at.n_axes ? at.origin[0] * piece.stride[0] : 0;
		int stop = visit(arg, &piece, err);
		if (stop)
			return stop;
	}
	return 0;
}

struct asking {
	struct rs_catalog *cat;
	const struct rs_tensor *tensor;
	const struct rs_box *box;
	uint32_t prefer;
	rs_piece_fn visit;
	void *arg;
};

static int ask_cell(void *arg, uint32_t cell, struct rs_err *err)
{
	const struct asking *q = arg;
	return visit_cell(q->cat, q->tensor, cell, q->box, q->prefer, q->visit, q->arg, err);
}

/* Of pieces with equal boxes (replicas) only the first counts. */
static bool is_replica(const struct rs_tensor *t, uint32_t i)
{
	for (uint32_t k = 0; k < i && !t->distinct; k++)
		if (rs_box_eq(&t->pieces[k].box, &t->pieces[i].box))
			return true;
	return false;
}

/* Look up the entry of a listed piece, and hold it against what the list promised. */
static int resolve(
	struct rs_catalog *c, const struct rs_tensor *t, struct rs_piece *piece, struct rs_err *err)
{
	struct rs_shape shape = rs_box_shape(&piece->box);
	const struct rs_table *table = rs_catalog_table(c, piece->unit, err);
	uint64_t step = 1;

	if (!table)
		return rs_err_prefix(
			err, "tensor '%s' %s", RS_SHOW(t->name), RS_BOX_SHOW(&piece->box));
	piece->entry = rs_table_find(table, rs_tensor_stored(t));
	if (!piece->entry) {
		rs_fail(err, RS_MISSING, "%s: tensor '%s': expected %s of it here, found none",
			rs_catalog_unit(c, piece->unit)->name, RS_SHOW(t->name),
			RS_BOX_SHOW(&piece->box));
		return rs_hint(err, "the index and the data files are of different saves?");
	}
	if (check_entry(c, t, piece->stored ? piece->stored : &shape, piece->entry, piece->unit,
		    err) < 0)
		return -1;
	for (uint32_t a = 0; piece->entry->fortran && a < shape.n_axes; a++) {
		piece->stride[a] = step; /* column-major: the first axis is the fastest */
		step *= shape.dims[a];
	}
	return 0;
}

static int listed_pieces(struct rs_catalog *c, const struct rs_tensor *t, const struct rs_box *box,
	rs_piece_fn visit, void *arg, struct rs_err *err)
{
	for (uint32_t i = 0; i < t->n_pieces; i++) {
		struct rs_piece piece = t->pieces[i];
		struct rs_box common;
		if (!rs_box_intersect(&piece.box, box, &common) || is_replica(t, i))
			continue;
		if (!piece.entry && resolve(c, t, &piece, err) < 0)
			return -1;
		int stop = visit(arg, &piece, err);
		if (stop)
			return stop;
	}
	return 0;
}

int rs_catalog_pieces(struct rs_catalog *c, const struct rs_tensor *t, const struct rs_box *box,
	uint32_t prefer, rs_piece_fn visit, void *arg, struct rs_err *err)
{
	struct asking q = {c, t, box, prefer, visit, arg};
	return t->grid ? rs_grid_meet(t->grid, &t->shape, box, ask_cell, &q, err)
		       : listed_pieces(c, t, box, visit, arg, err);
}
