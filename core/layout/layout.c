/*
 * layout.c - from a layout (device matrix, tensor map, optimizer shard) to the grid that it cuts.
 *
 *   dev [2, 4], map [0, -1], optimizer shard over all: 8 ranks, 16 rows
 *   map value 0 is the last device dimension: rank r holds rows block r % 4 of 4;
 *   ranks r and r + 4 would hold the same block, so it is cut once more in two:
 *   rank 0: rows 0-1, rank 1: 4-5, rank 2: 8-9, rank 3: 12-13, rank 4: 2-3, ...
 *
 * Refuses maps that name a device dimension which is not there, or one twice, and shards over more
 * ranks than there are replicas: such a cut leaves holes. Format: docs/formats/mindspore.md.
 */
#include "reshardfs/layout.h"

#include <inttypes.h>

uint64_t rs_layout_devices(const struct rs_layout *l)
{
	uint64_t n = 1;
	for (uint32_t d = 0; d < l->n_dev; d++)
		if (!rs_mul(n, l->dev[d], &n))
			return UINT64_MAX;
	return n;
}

static bool ints_eq(const void *a, const void *b, uint64_t n, size_t size)
{
	return n == 0 || memcmp(a, b, n * size) == 0;
}

bool rs_layout_eq(const struct rs_layout *a, const struct rs_layout *b)
{
	return a->n_dev == b->n_dev && a->n_axes == b->n_axes && a->opt_step == b->opt_step &&
	       a->opt_size == b->opt_size && a->field == b->field && a->n_split == b->n_split &&
	       ints_eq(a->dev, b->dev, a->n_dev, sizeof(a->dev[0])) &&
	       ints_eq(a->map_first, b->map_first, a->n_axes + 1, sizeof(a->map_first[0])) &&
	       ints_eq(a->map, b->map, a->map_first[a->n_axes], sizeof(a->map[0])) &&
	       ints_eq(a->split, b->split, a->n_split, sizeof(a->split[0]));
}

/* The device dimensions that cut each axis, outermost first, and how many pieces they make. */
struct cutting {
	uint32_t first[RS_MAX_AXES + 1];
	uint32_t dims[RS_MAX_DEVICE_DIMS];
	uint64_t pieces;
};

static int read_map(
	const struct rs_layout *l, struct rs_grid *g, struct cutting *cut, struct rs_err *err)
{
	uint32_t n = 0, used = 0;

	cut->pieces = 1;
	for (uint32_t a = 0; a < l->n_axes; a++) {
		uint64_t pieces = 1;
		cut->first[a] = n;
		for (uint32_t i = l->map_first[a]; i < l->map_first[a + 1]; i++) {
			int32_t m = l->map[i];
			if (m == RS_MAP_NONE)
				continue;
			if (m < 0 || (uint32_t)m >= l->n_dev)
				return rs_fail(err, RS_CORRUPT,
					"tensor map value %" PRId32 " of axis %" PRIu32
					" expected in [-1, %" PRIu32 "] for the device matrix",
					m, a, l->n_dev - 1);
			uint32_t dim = l->n_dev - 1 - (uint32_t)m;
			if (used & 1u << dim)
				return rs_fail(err, RS_CORRUPT,
					"device dimension %" PRIu32 " cuts two axes", dim);
			used |= 1u << dim;
			cut->dims[n++] = dim;
			pieces *= l->dev[dim]; /* distinct dimensions: at most the devices */
		}
		g->cuts[a] = (uint32_t)pieces;
		cut->pieces *= pieces;
	}
	cut->first[l->n_axes] = n;
	return 0;
}

/* The cell of @rank before any optimizer shard, row-major over the cuts so far. */
static uint32_t base_cell(const struct rs_layout *l, const struct rs_grid *g,
	const struct cutting *cut, uint32_t rank)
{
	uint32_t where[RS_MAX_DEVICE_DIMS] = {0}, cell = 0;

	for (uint32_t d = l->n_dev; d-- > 0;) {
		where[d] = rank % l->dev[d];
		rank /= l->dev[d];
	}
	for (uint32_t a = 0; a < l->n_axes; a++) {
		uint32_t index = 0;
		for (uint32_t i = cut->first[a]; i < cut->first[a + 1]; i++)
			index = index * l->dev[cut->dims[i]] + where[cut->dims[i]];
		cell = cell * g->cuts[a] + index;
	}
	return cell;
}

/*
 * Cut axis 0 once more over ranks that would hold the same slice: in blocks of S consecutive ones,
 * so a rank's piece is its position among its like, modulo S.
 * @seen: one counter per base cell. @inner: cells behind one step of axis 0.
 */
static void shard_rows(
	struct rs_grid *g, uint32_t *cell_of, uint32_t shards, uint32_t inner, uint32_t *seen)
{
	for (uint32_t r = 0; r < g->n_holders; r++) {
		uint32_t base = cell_of[r];
		uint32_t piece = seen[base]++ % shards;
		cell_of[r] = (base / inner * shards + piece) * inner + base % inner;
	}
	g->cuts[0] *= shards;
	g->n_cells *= shards;
}

static int apply_shard(const struct rs_layout *l, struct rs_grid *g, uint32_t *cell_of,
	struct rs_arena *arena, struct rs_err *err)
{
	uint32_t replicas = g->n_holders / g->n_cells;
	uint32_t shards = replicas;

	if (!l->opt_step || !l->opt_size || g->n_axes == 0)
		return 0;
	if (l->opt_size > 0)
		shards = (uint32_t)l->opt_size;
	if (l->opt_size < -1 || shards > replicas)
		return rs_fail(err, RS_CORRUPT,
			"opt_weight_shard_size %" PRId32 " expected in [-1, %" PRIu32
			"], the ranks that hold one slice",
			l->opt_size, replicas);
	uint32_t *seen = RS_NEW_N(arena, uint32_t, g->n_cells, err);
	if (!seen)
		return -1;
	shard_rows(g, cell_of, shards, g->n_cells / g->cuts[0], seen);
	return 0;
}

/* Axis 0 alone is cut, and only there can a layout be field-wise or uneven. */
static int check_rows_only(
	const struct rs_layout *l, const struct rs_grid *g, const char *what, struct rs_err *err)
{
	if (l->field && l->n_split)
		return rs_fail(err, RS_UNSUPPORTED, "field and param_split_shape together");
	if (g->n_axes == 0 || g->cuts[0] != g->n_cells)
		return rs_fail(
			err, RS_UNSUPPORTED, "%s with a cut of other axes than axis 0", what);
	return 0;
}

static int apply_field(
	const struct rs_layout *l, struct rs_grid *g, uint32_t *cell_of, struct rs_err *err)
{
	if (!l->field)
		return 0;
	if (check_rows_only(l, g, "field", err) < 0)
		return -1;
	if (g->n_cells != g->n_holders)
		return rs_fail(err, RS_UNSUPPORTED,
			"field over %" PRIu32 " pieces of %" PRIu32 " devices: expected one each",
			g->n_cells, g->n_holders);
	g->fields = l->field;
	for (uint32_t r = 0; r < g->n_holders; r++)
		cell_of[r] = r; /* field-wise slices are joined in rank order */
	return 0;
}

static int apply_split(
	const struct rs_layout *l, struct rs_grid *g, struct rs_arena *arena, struct rs_err *err)
{
	if (!l->n_split)
		return 0;
	if (check_rows_only(l, g, "param_split_shape", err) < 0)
		return -1;
	if (l->n_split != g->cuts[0])
		return rs_fail(err, RS_CORRUPT,
			"param_split_shape has %" PRIu32 " entries, expected %" PRIu32 " pieces",
			l->n_split, g->cuts[0]);
	uint64_t *edges = RS_NEW_N(arena, uint64_t, l->n_split + 1, err);
	if (!edges)
		return -1;
	for (uint32_t i = 0; i < l->n_split; i++)
		if (l->split[i] < 0 || !rs_add(edges[i], (uint64_t)l->split[i], &edges[i + 1]))
			return rs_fail(err, RS_CORRUPT,
				"param_split_shape entry %" PRIu32 " is %" PRId64, i, l->split[i]);
	g->edges = edges;
	return 0;
}

/* Turn cell_of around: the holders of each cell, ascending. */
static int index_holders(struct rs_grid *g, struct rs_arena *arena, struct rs_err *err)
{
	uint32_t *first = RS_NEW_N(arena, uint32_t, g->n_cells + 1, err);
	uint32_t *holders = RS_NEW_N(arena, uint32_t, g->n_holders, err);

	if (!first || !holders)
		return -1;
	for (uint32_t r = 0; r < g->n_holders; r++)
		first[g->cell_of[r] + 1]++;
	for (uint32_t c = 0; c < g->n_cells; c++)
		first[c + 1] += first[c];
	for (uint32_t r = g->n_holders; r-- > 0;) /* fill each cell from its end ... */
		holders[--first[g->cell_of[r] + 1]] = r;
	for (uint32_t c = 0; c < g->n_cells; c++) /* ... which leaves the begins one place late */
		first[c] = first[c + 1];
	first[g->n_cells] = g->n_holders;
	g->first = first;
	g->holders = holders;
	return 0;
}

struct rs_grid *rs_grid_single(
	uint32_t n_axes, uint32_t n_holders, struct rs_arena *arena, struct rs_err *err)
{
	struct rs_grid *g = RS_NEW(arena, struct rs_grid, err);
	if (!g)
		return NULL;
	*g = (struct rs_grid){.n_axes = n_axes, .fields = 1, .n_holders = n_holders, .n_cells = 1};
	for (uint32_t a = 0; a < RS_MAX_AXES; a++)
		g->cuts[a] = 1;
	g->cell_of = RS_NEW_N(arena, uint32_t, n_holders, err);
	return g->cell_of && index_holders(g, arena, err) == 0 ? g : NULL;
}

int rs_layout_grid(const struct rs_layout *l, uint32_t n_axes, struct rs_arena *arena,
	struct rs_grid **out, struct rs_err *err)
{
	uint64_t devices = rs_layout_devices(l);
	struct cutting cut;

	if (devices == 0)
		return rs_fail(err, RS_CORRUPT, "device matrix with a dimension of 0");
	if (devices > RS_MAX_CELLS)
		return rs_fail(err, RS_LIMIT, "%" PRIu64 " devices in a stage, the limit is %u",
			devices, RS_MAX_CELLS);
	struct rs_grid *g = rs_grid_single(n_axes, (uint32_t)devices, arena, err);
	if (!g)
		return -1;
	*out = g;
	if (l->n_axes == 0 || n_axes == 0)
		return 0;
	if (l->n_axes != n_axes)
		return rs_fail(err, RS_CORRUPT,
			"tensor map has %" PRIu32 " axes, the tensor has %" PRIu32, l->n_axes,
			n_axes);
	if (read_map(l, g, &cut, err) < 0)
		return -1;
	g->n_cells = (uint32_t)cut.pieces;
	uint32_t *cell_of = RS_NEW_N(arena, uint32_t, devices, err);
	if (!cell_of)
		return -1;
	for (uint32_t r = 0; r < g->n_holders; r++)
		cell_of[r] = base_cell(l, g, &cut, r);
	if (apply_shard(l, g, cell_of, arena, err) < 0 || apply_field(l, g, cell_of, err) < 0 ||
		apply_split(l, g, arena, err) < 0)
		return -1;
	g->cell_of = cell_of;
	return index_holders(g, arena, err);
}

const char *rs_layout_show(const struct rs_layout *l, char *buf, size_t size)
{
	size_t at = rs_append(buf, size, 0, "dev [");
	for (uint32_t d = 0; d < l->n_dev; d++)
		at = rs_append(buf, size, at, "%s%" PRIu32, d ? ", " : "", l->dev[d]);
	at = rs_append(buf, size, at, "] map [");
	for (uint32_t a = 0; a < l->n_axes; a++) {
		uint32_t n = l->map_first[a + 1] - l->map_first[a];
		at = rs_append(buf, size, at, "%s%s", a ? ", " : "", n > 1 ? "[" : "");
		for (uint32_t i = l->map_first[a]; i < l->map_first[a + 1]; i++)
			at = rs_append(buf, size, at, "%s%" PRId32, i > l->map_first[a] ? ", " : "",
				l->map[i]);
		if (n > 1)
			at = rs_append(buf, size, at, "]");
	}
	at = rs_append(buf, size, at, "]");
	if (l->opt_step && l->opt_size)
		at = rs_append(buf, size, at, " opt %" PRId32, l->opt_size);
	if (l->field)
		at = rs_append(buf, size, at, " field %" PRIu32, l->field);
	if (l->n_split)
		rs_append(buf, size, at, " in %" PRIu32 " uneven pieces", l->n_split);
	return buf;
}
