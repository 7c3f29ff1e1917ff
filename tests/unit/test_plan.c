/*
 * test_plan.c - the walk against a reader that copies one element at a time.
 *
 * Every case draws a layout, stores the slices of a tensor whose elements know their own place,
 * asks for a target made of random parts, and compares each byte of random stretches. The slices
 * are made from the definition of a layout (device coordinates, mixed radix, position among
 * replicas), one element at a time, without any code of the grid, so that the two can disagree.
 *
 * RS_CASES and RS_SEED change the number of cases and the seed, which is printed.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "reshardfs/layout.h"
#include "reshardfs/plan.h"

#define MAX_RANKS 48
#define MAX_ELEMENTS 1500
#define MAX_PARTS 6

static uint64_t random_state;

static uint64_t rnd(uint64_t n) /* [0, n) */
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

/* ------------------------------------------------------------ one stored tensor */

struct stored {
	struct rs_layout layout;
	int64_t split[MAX_RANKS];
	struct rs_shape whole;
	uint32_t devices, element_bytes, shards;
	uint32_t cuts[RS_MAX_AXES];                               /* by the map alone */
	uint32_t piece[MAX_RANKS][RS_MAX_AXES], shard[MAX_RANKS]; /* of each rank, once drawn */
	struct rs_shape slice[MAX_RANKS];
	uint8_t *content[MAX_RANKS]; /* NULL: the rank does not store it */
	bool absent[MAX_RANKS];      /* no directory */
	/* how rank r's content lies in its two files */
	uint8_t *file[MAX_RANKS][2];
	uint64_t file_bytes[MAX_RANKS][2];
	struct rs_span spans[MAX_RANKS][3];
	uint32_t n_spans[MAX_RANKS];
	struct rs_grid *grid;
	struct rs_arena *arena;
	struct rs_catalog *cat;
};

/* The value of byte @b of element @index of the whole tensor. */
static uint8_t value(uint64_t index, uint32_t b)
{
	uint64_t x = (index * 8 + b + 1) * 0x9e3779b97f4a7c15u;
	return (uint8_t)(x >> 56);
}

static uint64_t flat(const struct rs_shape *shape, const uint64_t *at)
{
	uint64_t index = 0;
	for (uint32_t a = 0; a < shape->n_axes; a++)
		index = index * shape->dims[a] + at[a];
	return index;
}

/* Next coordinate in row-major order; false after the last. */
static bool step(const struct rs_shape *shape, uint64_t *at)
{
	for (uint32_t a = shape->n_axes; a-- > 0;) {
		if (++at[a] < shape->dims[a])
			return true;
		at[a] = 0;
	}
	return false;
}

static void draw_layout(struct stored *s)
{
	struct rs_layout *l = &s->layout;
	uint32_t dims[RS_MAX_DEVICE_DIMS], n = 0;

	memset(l, 0, sizeof(*l));
	s->devices = 1;
	l->n_dev = 1 + (uint32_t)rnd(4);
	for (uint32_t d = 0; d < l->n_dev; d++) {
		do
			l->dev[d] = 1 + (uint32_t)rnd(4);
		while (s->devices * l->dev[d] > MAX_RANKS);
		s->devices *= l->dev[d];
	}
	/* Shuffle the device dimensions and deal some of them out to the axes. */
	for (uint32_t d = 0; d < l->n_dev; d++)
		dims[d] = d;
	for (uint32_t d = l->n_dev; d > 1; d--) {
		uint32_t k = (uint32_t)rnd(d), t = dims[k];
		dims[k] = dims[d - 1];
		dims[d - 1] = t;
	}
	l->n_axes = s->whole.n_axes;
	uint32_t at = 0;
	for (uint32_t a = 0; a < l->n_axes; a++) {
		l->map_first[a] = at;
		s->cuts[a] = 1;
		uint32_t take = (uint32_t)rnd(3);
		while (take-- && n < l->n_dev) {
			s->cuts[a] *= l->dev[dims[n]];
			l->map[at++] = (int32_t)(l->n_dev - 1 - dims[n++]);
		}
		if (at == l->map_first[a] || rnd(8) == 0)
			l->map[at++] = RS_MAP_NONE;
	}
	l->map_first[l->n_axes] = at;
}

/* What lies beyond plain cuts: an optimizer shard, fields or uneven rows. */
static void draw_special(struct stored *s)
{
	struct rs_layout *l = &s->layout;
	uint32_t pieces = 1, others = 1;

	for (uint32_t a = 0; a < s->whole.n_axes; a++) {
		pieces *= s->cuts[a];
		others *= a ? s->cuts[a] : 1;
	}
	s->shards = 1;
	if (s->whole.n_axes && rnd(3) == 0) {
		l->opt_step = 1;
		l->opt_size = rnd(2) ? -1 : 1 + (int32_t)rnd(s->devices / pieces);
		s->shards = l->opt_size < 0 ? s->devices / pieces : (uint32_t)l->opt_size;
	}
	uint32_t rows = s->whole.n_axes ? s->cuts[0] * s->shards : 1;
	if (s->whole.n_axes && others == 1 && rnd(4) == 0) {
		l->n_split = rows;
		for (uint32_t i = 0; i < rows; i++)
			s->split[i] = (int64_t)rnd(4);
		l->split = s->split;
	} else if (s->whole.n_axes && others == 1 && s->shards == 1 && rows == s->devices &&
		   rnd(2) == 0) {
		l->field = 1 + (uint32_t)rnd(3);
	}
}

static void draw_shape(struct stored *s)
{
	uint64_t elements = 1;

	for (uint32_t a = 0; a < s->whole.n_axes; a++) {
		uint64_t unit = s->cuts[a];
		if (a == 0)
			unit *= s->shards * (s->layout.field ? s->layout.field : 1);
		s->whole.dims[a] = unit * (rnd(30) ? 1 + rnd(4) : 0);
		while (elements * s->whole.dims[a] > MAX_ELEMENTS && s->whole.dims[a] > unit)
			s->whole.dims[a] -= unit;
		if (a == 0 && s->layout.n_split) {
			s->whole.dims[0] = 0;
			for (uint32_t i = 0; i < s->layout.n_split; i++)
				s->whole.dims[0] += (uint64_t)s->split[i];
		}
		elements *= s->whole.dims[a];
	}
}

/* The piece index of @rank along each axis, from the definition. */
static void pieces_of(const struct stored *s, uint32_t rank, uint32_t *index)
{
	const struct rs_layout *l = &s->layout;
	uint32_t where[RS_MAX_DEVICE_DIMS];

	for (uint32_t d = l->n_dev; d-- > 0;) {
		where[d] = rank % l->dev[d];
		rank /= l->dev[d];
	}
	for (uint32_t a = 0; a < l->n_axes; a++) {
		index[a] = 0;
		for (uint32_t i = l->map_first[a]; i < l->map_first[a + 1]; i++)
			if (l->map[i] != RS_MAP_NONE) {
				uint32_t d = l->n_dev - 1 - (uint32_t)l->map[i];
				index[a] = index[a] * l->dev[d] + where[d];
			}
	}
}

/* Position among the lower ranks with the same pieces, modulo the shards. */
static uint32_t shard_of(const struct stored *s, uint32_t rank)
{
	uint32_t mine[RS_MAX_AXES] = {0}, other[RS_MAX_AXES] = {0}, position = 0;

	pieces_of(s, rank, mine);
	for (uint32_t r = 0; r < rank; r++) {
		pieces_of(s, r, other);
		position += memcmp(mine, other, s->whole.n_axes * sizeof(*mine)) == 0;
	}
	return position % s->shards;
}

/* Is row @row of the whole tensor in piece @piece of @pieces of axis 0, and where in the slice? */
static bool row_in(const struct stored *s, uint32_t rank, uint64_t row, uint32_t piece,
	uint32_t pieces, uint64_t *at)
{
	const struct rs_layout *l = &s->layout;
	uint64_t n = s->whole.dims[0];

	if (l->field) {
		n /= (uint64_t)s->devices * l->field; /* full row (f * D + d) * n + j */
		uint64_t j = row % n, d = row / n % s->devices, f = row / n / s->devices;
		*at = f * n + j;
		return d == rank;
	}
	if (l->n_split) {
		uint64_t begin = 0;
		for (uint32_t i = 0; i < piece; i++)
			begin += (uint64_t)s->split[i];
		*at = row - begin;
		return row >= begin && row - begin < (uint64_t)s->split[piece];
	}
	*at = row % (n / pieces);
	return row / (n / pieces) == piece;
}

/* Does @rank hold element @at of the whole tensor? @local gets its place in the slice. */
static bool holds(const struct stored *s, uint32_t rank, const uint64_t *at, uint64_t *local)
{
	for (uint32_t a = 0; a < s->whole.n_axes; a++) {
		uint32_t pieces = s->cuts[a], piece = s->piece[rank][a];
		if (a == 0) {
			pieces *= s->shards;
			piece = piece * s->shards + s->shard[rank];
			if (!row_in(s, rank, at[0], piece, pieces, &local[0]))
				return false;
			continue;
		}
		uint64_t len = s->whole.dims[a] / pieces;
		if (at[a] / len != piece)
			return false;
		local[a] = at[a] % len;
	}
	return true;
}

static void make_slice(struct stored *s, uint32_t rank)
{
	uint64_t at[RS_MAX_AXES] = {0}, local[RS_MAX_AXES] = {0}, elements, count;

	s->slice[rank] = s->whole;
	pieces_of(s, rank, s->piece[rank]);
	s->shard[rank] = shard_of(s, rank);
	for (uint32_t a = 0; a < s->whole.n_axes; a++)
		s->slice[rank].dims[a] /= s->cuts[a] * (a == 0 ? s->shards : 1);
	if (s->layout.n_split)
		s->slice[rank].dims[0] =
			(uint64_t)s->split[s->piece[rank][0] * s->shards + s->shard[rank]];
	assert_true(rs_shape_count(&s->slice[rank], &elements));
	assert_true(rs_shape_count(&s->whole, &count));
	s->content[rank] = calloc(elements * s->element_bytes + 1, 1);
	if (count == 0)
		return;
	uint64_t stored = 0, index_whole = 0;
	do {
		if (holds(s, rank, at, local)) {
			uint64_t to = flat(&s->slice[rank], local);
			assert_true(to < elements);
			for (uint32_t b = 0; b < s->element_bytes; b++)
				s->content[rank][to * s->element_bytes + b] = value(index_whole, b);
			stored++;
		}
		index_whole++;
	} while (step(&s->whole, at));
	assert_int_equal(stored, elements);
}

/* Lay the content out over up to three spans in two files, with gaps. */
static void make_files(struct stored *s, uint32_t rank)
{
	uint64_t elements, total, done = 0;

	assert_true(rs_shape_count(&s->slice[rank], &elements));
	total = elements * s->element_bytes;
	for (int f = 0; f < 2; f++) {
		s->file_bytes[rank][f] = 0;
		s->file[rank][f] = calloc(total + 64, 1);
	}
	s->n_spans[rank] = total ? 1 + (uint32_t)rnd(3) : 0;
	for (uint32_t i = 0; i < s->n_spans[rank]; i++) {
		uint64_t len = i + 1 == s->n_spans[rank] ? total - done : rnd(total - done + 1);
		uint32_t f = (uint32_t)rnd(2);
		uint64_t off = s->file_bytes[rank][f] + rnd(5);
		s->spans[rank][i] = (struct rs_span){f, off, len};
		memcpy(s->file[rank][f] + off, s->content[rank] + done, len);
		s->file_bytes[rank][f] = off + len;
		done += len;
	}
}

/* ---------------------------------------------- a loader that serves from memory */

static int load_open(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	const struct stored *s = self;
	unsigned int rank, f;
	(void)err;
	assert_int_equal(sscanf(path, "%u/%u", &rank, &f), 2);
	rs_file_memory(s->file[rank][f], s->file_bytes[rank][f], path, out);
	out->id = (struct rs_identity){.size = s->file_bytes[rank][f]};
	return 0;
}

static int load_unit(void *self, const struct rs_unit *unit, const struct rs_file *const *files,
	struct rs_table **out, struct rs_err *err)
{
	const struct stored *s = self;
	uint32_t rank = (uint32_t)strtoul(unit->name, NULL, 10);
	struct rs_arena *arena = rs_arena_new(1 << 20, err);
	struct rs_table *t = RS_NEW(arena, struct rs_table, err);
	struct rs_entry *e = RS_NEW(arena, struct rs_entry, err);
	(void)files;
	*e = (struct rs_entry){.name = RS_STR("t"),
		.dtype = s->element_bytes == 1   ? RS_DT_U8
			 : s->element_bytes == 2 ? RS_DT_BF16
			 : s->element_bytes == 4 ? RS_DT_F32
						 : RS_DT_F64,
		.shape = s->slice[rank],
		.n_spans = s->n_spans[rank],
		.spans = s->spans[rank]};
	assert_true(rs_shape_bytes(&e->shape, e->dtype, &e->bytes));
	*t = (struct rs_table){.entries = e, .n_entries = s->content[rank] ? 1 : 0, .arena = arena};
	uint64_t *sizes = RS_NEW_N(arena, uint64_t, 2, err);
	sizes[0] = s->file_bytes[rank][0];
	sizes[1] = s->file_bytes[rank][1];
	t->file_bytes = sizes;
	t->n_files = 2;
	*out = t;
	return rs_table_finish(t, unit->name, err);
}

/* Keep one holder of each cell only, chosen by lot, as redundancy removal does; or lose ranks. */
static void drop_replicas(struct stored *s, const struct rs_grid *g, uint32_t how)
{
	for (uint32_t c = 0; c < g->n_cells; c++) {
		uint32_t n = g->first[c + 1] - g->first[c], keep = (uint32_t)rnd(n);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t rank = g->holders[g->first[c] + i];
			if (i == keep)
				continue;
			if (how == 1) {
				free(s->content[rank]);
				s->content[rank] = NULL;
				s->n_spans[rank] = 0;
			} else if (how == 2) {
				s->absent[rank] = rnd(2);
			}
		}
	}
}

static void make_catalog(struct stored *s)
{
	struct rs_err err = {0};
	uint32_t units[MAX_RANKS];

	s->arena = rs_arena_new(64 << 20, &err);
	s->cat = rs_catalog_new(64 << 20, &err);
	assert_non_null(s->cat);
	if (rs_layout_grid(&s->layout, s->whole.n_axes, s->arena, &s->grid, &err) < 0)
		fail_msg("%s: %s", rs_layout_show(&s->layout, (char[200]){0}, 200), err.msg);
	drop_replicas(s, s->grid, (uint32_t)rnd(3));
	for (uint32_t r = 0; r < s->devices; r++) {
		char name[16], path[2][24];
		struct rs_source_file files[2] = {0};
		snprintf(name, sizeof(name), "%u", r);
		for (int f = 0; f < 2; f++) {
			snprintf(path[f], sizeof(path[f]), "%u/%d", r, f);
			files[f] = (struct rs_source_file){
				.path = path[f], .id = {.size = s->file_bytes[r][f]}};
		}
		assert_int_equal(rs_catalog_add_unit(s->cat, name, files, 2, &units[r], &err), 0);
		if (s->absent[r])
			units[r] = RS_NO_UNIT;
	}
	rs_catalog_set_loader(s->cat, (struct rs_loader){load_open, load_unit, NULL, s});
	assert_int_equal(rs_catalog_set_ranks(s->cat, units, 1, s->devices, &err), 0);
	struct rs_tensor t = {.name = RS_STR("t"),
		.dtype = s->element_bytes == 1   ? RS_DT_U8
			 : s->element_bytes == 2 ? RS_DT_BF16
			 : s->element_bytes == 4 ? RS_DT_F32
						 : RS_DT_F64,
		.shape = s->whole,
		.grid = s->grid};
	assert_int_equal(rs_grid_fits(s->grid, &s->whole, &err), 0);
	assert_int_equal(rs_catalog_add_tensor(s->cat, &t, &err), 0);
	assert_int_equal(rs_catalog_seal(s->cat, &err), 0);
}

static void make_stored(struct stored *s)
{
	memset(s, 0, sizeof(*s));
	s->whole.n_axes = (uint32_t)rnd(5);
	s->element_bytes = 1u << rnd(4);
	draw_layout(s);
	draw_special(s);
	draw_shape(s);
	for (uint32_t r = 0; r < s->devices; r++) {
		make_slice(s, r);
		make_files(s, r);
	}
	make_catalog(s);
}

static void free_stored(struct stored *s)
{
	rs_catalog_free(s->cat);
	rs_arena_free(s->arena);
	for (uint32_t r = 0; r < s->devices; r++) {
		free(s->content[r]);
		free(s->file[r][0]);
		free(s->file[r][1]);
	}
}

/* ------------------------------------------------------------------ the target */

struct wish {
	struct rs_wanted want;
	struct rs_part parts[MAX_PARTS];
};

/*
 * A target of random parts: one axis is divided into stretches, each a box of the source that has
 * the same lengths on the other axes, or zeros. One part alone is a plain slice.
 */
static void draw_wish(const struct stored *s, struct wish *w)
{
	const struct rs_tensor *t = rs_catalog_tensor(s->cat, 0);
	uint32_t n_axes = s->whole.n_axes;
	uint32_t axis = n_axes ? (uint32_t)rnd(n_axes) : 0;
	uint32_t n = n_axes && rnd(2) ? 1 + (uint32_t)rnd(MAX_PARTS) : 1;
	struct rs_shape shape = {.n_axes = n_axes};
	uint64_t along = 0;

	for (uint32_t a = 0; a < n_axes; a++)
		shape.dims[a] = rnd(2) ? s->whole.dims[a] : rnd(s->whole.dims[a] + 1);
	for (uint32_t i = 0; i < n; i++) {
		struct rs_part *p = &w->parts[i];
		*p = (struct rs_part){.kind = rnd(6) ? RS_PART_COPY : RS_PART_ZERO, .source = t};
		p->box = rs_box_whole(&shape);
		if (n_axes) {
			if (n > 1)
				p->box.len[axis] = rnd(s->whole.dims[axis] + 1);
			p->box.origin[axis] = along;
			along += p->box.len[axis];
		}
		for (uint32_t a = 0; a < n_axes; a++)
			p->origin[a] = rnd(s->whole.dims[a] - p->box.len[a] + 1);
	}
	if (n_axes)
		shape.dims[axis] = along;
	w->want = (struct rs_wanted){.name = RS_STR("wish"),
		.dtype = t->dtype,
		.shape = shape,
		.parts = w->parts,
		.n_parts = n,
		.prefer = rnd(2) ? RS_PREFER_NONE : (uint32_t)rnd(s->devices)};
}

/*
 * One part whose axes are those of the source in another order, some left out (read at one place),
 * some new ones between them (repeated).
 */
static void draw_mapped_wish(const struct stored *s, struct wish *w)
{
	struct rs_part *p = &w->parts[0];
	uint32_t order[RS_MAX_AXES], n = s->whole.n_axes, at = 0;

	*p = (struct rs_part){.source = rs_catalog_tensor(s->cat, 0), .mapped = true};
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)rnd(i), t = order[k];
		order[k] = order[i - 1];
		order[i - 1] = t;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t dim = s->whole.dims[order[i]];
		if (rnd(4) == 0 && at + n < RS_MAX_AXES) {
			p->axis[at] = RS_AXIS_NONE;
			p->box.len[at++] = 1 + rnd(3);
		}
		if (dim && rnd(5) == 0) {
			p->origin[order[i]] = rnd(dim);
			continue;
		}
		p->axis[at] = (uint8_t)order[i];
		p->box.len[at] = rnd(dim + 1);
		p->origin[order[i]] = rnd(dim - p->box.len[at] + 1);
		at++;
	}
	p->box.n_axes = at;
	w->want = (struct rs_wanted){.name = RS_STR("wish"),
		.dtype = p->source->dtype,
		.shape = rs_box_shape(&p->box),
		.parts = w->parts,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
}

/* The element of the source behind element @at of the target; false: not in this part. */
static bool element_of(const struct rs_part *p, const uint64_t *at, uint64_t *from)
{
	memcpy(from, p->origin, sizeof(p->origin));
	for (uint32_t a = 0; a < p->box.n_axes; a++) {
		if (at[a] < p->box.origin[a] || at[a] - p->box.origin[a] >= p->box.len[a])
			return false;
		if (!p->mapped)
			from[a] += at[a] - p->box.origin[a];
		else if (p->axis[a] != RS_AXIS_NONE)
			from[p->axis[a]] += at[a] - p->box.origin[a];
	}
	return true;
}

/* The right bytes of the target, one element at a time. */
static uint8_t *expected(const struct stored *s, const struct wish *w, uint64_t *bytes)
{
	uint64_t at[RS_MAX_AXES] = {0}, count, index = 0;

	assert_true(rs_shape_count(&w->want.shape, &count));
	*bytes = count * s->element_bytes;
	uint8_t *out = calloc(*bytes + 1, 1);
	if (count == 0)
		return out;
	do {
		for (uint32_t i = 0; i < w->want.n_parts; i++) {
			const struct rs_part *p = &w->parts[i];
			uint64_t from[RS_MAX_AXES];
			if (element_of(p, at, from) && p->kind == RS_PART_COPY)
				for (uint32_t b = 0; b < s->element_bytes; b++)
					out[index * s->element_bytes + b] =
						value(flat(&s->whole, from), b);
		}
		index++;
	} while (step(&w->want.shape, at));
	return out;
}

static void gather(const struct stored *s, const struct rs_rows *rows, uint8_t *to)
{
	struct rs_err err = {0};
	if (rows->file == RS_ROWS_ZERO) {
		memset(to, 0, rows->width * rows->count);
		return;
	}
	const struct rs_file *file = rs_catalog_file(s->cat, rows->file, &err);
	assert_non_null(file);
	for (uint64_t i = 0; i < rows->count; i++) {
		uint64_t off = rows->off + i * rows->pitch;
		assert_true(rs_range_ok(off, rows->width, file->size));
		memcpy(to + i * rows->width, file->mem + off, rows->width);
	}
}

static void check_range(const struct stored *s, const struct rs_nest *nest, const uint8_t *right,
	uint64_t skip, uint64_t len)
{
	uint8_t *got = malloc(len + 1);
	uint64_t done = 0;
	struct rs_walk w;
	struct rs_rows rows;

	rs_walk_init(&w, s->cat, nest, skip, len);
	while (rs_walk_next(&w, &rows)) {
		assert_int_equal(rows.target_off, done);
		assert_true(rows.width > 0 && rows.count > 0);
		assert_true(rows.width * rows.count <= len - done);
		gather(s, &rows, got + done);
		done += rows.width * rows.count;
	}
	assert_int_equal(done, len);
	assert_memory_equal(got, right + skip, len);
	free(got);
}

static void walk_agrees_with_single_elements(void **state)
{
	const char *cases = getenv("RS_CASES"), *seed = getenv("RS_SEED");
	uint64_t n = cases ? strtoull(cases, NULL, 10) : 100000;
	uint64_t first = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	static struct stored s;
	(void)state;

	print_message("%" PRIu64 " cases, RS_SEED=%" PRIu64 "\n", n, first);
	for (uint64_t i = 0; i < n; i++) {
		struct rs_err err = {0};
		struct wish w;
		uint64_t bytes;
		struct rs_nest *nest;

		random_state = (first + i) * 0x9e3779b97f4a7c15u | 1;
		rnd(1);
		make_stored(&s);
		if (s.whole.n_axes && rnd(4) == 0)
			draw_mapped_wish(&s, &w);
		else
			draw_wish(&s, &w);
		struct rs_arena *arena = rs_arena_new(64 << 20, &err);
		if (rs_plan_nest(s.cat, &w.want, arena, &nest, &err) < 0)
			fail_msg("RS_SEED=%" PRIu64 " RS_CASES=1: %s", first + i, err.msg);
		uint8_t *right = expected(&s, &w, &bytes);
		assert_int_equal(nest->bytes, bytes);
		check_range(&s, nest, right, 0, bytes);
		for (int k = 0; k < 4 && bytes; k++) {
			uint64_t skip = rnd(bytes);
			check_range(&s, nest, right, skip, rnd(bytes - skip + 1));
		}
		free(right);
		rs_arena_free(arena);
		free_stored(&s);
	}
}

/* -------------------------------------------------- coverage, listed pieces, strides */

/* A catalog of one unit with one entry "t" of @elements one-byte elements, cut as @pieces say. */
struct listed {
	uint8_t bytes[64];
	struct rs_span span;
	struct rs_entry entry;
	struct rs_catalog *cat;
	struct rs_tensor tensor;
};

static int listed_open(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	struct listed *l = self;
	(void)err;
	rs_file_memory(l->bytes, sizeof(l->bytes), path, out);
	out->id = (struct rs_identity){.size = sizeof(l->bytes)};
	return 0;
}

static void make_listed(
	struct listed *l, struct rs_shape shape, struct rs_piece *pieces, uint32_t n)
{
	struct rs_err err = {0};
	uint32_t unit;
	struct rs_source_file file = {.path = "data", .id = {.size = sizeof(l->bytes)}};

	for (uint32_t i = 0; i < sizeof(l->bytes); i++)
		l->bytes[i] = (uint8_t)i;
	l->span = (struct rs_span){0, 0, sizeof(l->bytes)};
	l->entry = (struct rs_entry){.name = RS_STR("t"),
		.dtype = RS_DT_U8,
		.shape = {1, {sizeof(l->bytes)}},
		.bytes = sizeof(l->bytes),
		.n_spans = 1,
		.spans = &l->span};
	for (uint32_t i = 0; i < n; i++)
		pieces[i].entry = &l->entry;
	l->cat = rs_catalog_new(1 << 20, &err);
	rs_catalog_set_loader(l->cat, (struct rs_loader){listed_open, NULL, NULL, l});
	assert_int_equal(rs_catalog_add_unit(l->cat, "unit", &file, 1, &unit, &err), 0);
	l->tensor = (struct rs_tensor){.name = RS_STR("t"),
		.dtype = RS_DT_U8,
		.shape = shape,
		.pieces = pieces,
		.n_pieces = n};
}

static int nest_listed(
	struct listed *l, struct rs_arena *arena, struct rs_nest **nest, struct rs_err *err)
{
	struct rs_part part = {.box = rs_box_whole(&l->tensor.shape), .source = &l->tensor};
	struct rs_wanted want = {.name = RS_STR("t"),
		.dtype = l->tensor.dtype,
		.shape = l->tensor.shape,
		.parts = &part,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	return rs_plan_nest(l->cat, &want, arena, nest, err);
}

static void read_listed(struct listed *l, const struct rs_nest *nest, uint8_t *out)
{
	struct rs_walk w;
	struct rs_rows rows;
	struct rs_err err = {0};

	rs_walk_init(&w, l->cat, nest, 0, nest->bytes);
	while (rs_walk_next(&w, &rows))
		for (uint64_t i = 0; i < rows.count; i++)
			memcpy(out + rows.target_off + i * rows.width,
				rs_catalog_file(l->cat, rows.file, &err)->mem + rows.off +
					i * rows.pitch,
				rows.width);
}

#define BOX2(r, c, nr, nc)                                                                         \
	{                                                                                          \
		.n_axes = 2, .origin = {r, c}, .len = { nr, nc }                                   \
	}

static void a_hole_is_refused_with_its_box(void **state)
{
	struct rs_piece pieces[] = {
		{.box = BOX2(0, 0, 4, 3), .stride = {3, 1}},
		{.box = BOX2(0, 3, 2, 3), .first = 12, .stride = {3, 1}},
	};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {4, 6}}, pieces, 2);
	assert_int_equal(nest_listed(&l, arena, &nest, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_non_null(strstr(err.msg, "'t'"));
	assert_non_null(strstr(err.msg, "[2:4, 3:6]"));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

static void an_overlap_is_refused_with_its_box(void **state)
{
	struct rs_piece pieces[] = {
		{.box = BOX2(0, 0, 4, 4), .stride = {4, 1}},
		{.box = BOX2(0, 3, 4, 3), .first = 16, .stride = {3, 1}},
	};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {4, 6}}, pieces, 2);
	assert_int_equal(nest_listed(&l, arena, &nest, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_non_null(strstr(err.msg, "[0:4, 3:4]"));
	assert_non_null(strstr(err.msg, "twice"));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

static void equal_pieces_are_replicas(void **state)
{
	struct rs_piece pieces[] = {
		{.box = BOX2(0, 0, 2, 4), .first = 8, .stride = {4, 1}},
		{.box = BOX2(2, 0, 2, 4), .first = 0, .stride = {4, 1}},
		{.box = BOX2(0, 0, 2, 4), .first = 40, .stride = {4, 1}},
	};
	static const uint8_t right[16] = {8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	uint8_t got[16];
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {4, 4}}, pieces, 3);
	assert_int_equal(nest_listed(&l, arena, &nest, &err), 0);
	read_listed(&l, nest, got);
	assert_memory_equal(got, right, sizeof(right));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

/* A piece in Fortran order: element (i, j) of a 3 x 4 box is element i + 3 j of the content. */
static void strides_transpose(void **state)
{
	struct rs_piece piece = {.box = BOX2(0, 0, 3, 4), .first = 5, .stride = {1, 3}};
	static const uint8_t right[12] = {5, 8, 11, 14, 6, 9, 12, 15, 7, 10, 13, 16};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	uint8_t got[12];
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {3, 4}}, &piece, 1);
	assert_int_equal(nest_listed(&l, arena, &nest, &err), 0);
	read_listed(&l, nest, got);
	assert_memory_equal(got, right, sizeof(right));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

/* A flat element range [3, 9) of a 3 x 4 tensor is three boxes; the rest is stored elsewhere. */
static void flat_ranges_are_boxes(void **state)
{
	struct rs_piece pieces[] = {
		{.box = BOX2(0, 0, 1, 3), .first = 30, .stride = {3, 1}},
		{.box = BOX2(0, 3, 1, 1), .first = 0, .stride = {1, 1}},
		{.box = BOX2(1, 0, 1, 4), .first = 1, .stride = {4, 1}},
		{.box = BOX2(2, 0, 1, 1), .first = 5, .stride = {1, 1}},
		{.box = BOX2(2, 1, 1, 3), .first = 33, .stride = {3, 1}},
	};
	static const uint8_t right[12] = {30, 31, 32, 0, 1, 2, 3, 4, 5, 33, 34, 35};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	uint8_t got[12];
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {3, 4}}, pieces, 5);
	assert_int_equal(nest_listed(&l, arena, &nest, &err), 0);
	read_listed(&l, nest, got);
	assert_memory_equal(got, right, sizeof(right));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

/* Two F4 values share a byte: a cut between bytes is served, one inside a byte refused. */
static void sub_byte_types_are_cut_between_bytes(void **state)
{
	struct rs_piece piece = {.box = BOX2(0, 0, 4, 6), .stride = {6, 1}};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	uint8_t got[4];
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {4, 6}}, &piece, 1);
	l.tensor.dtype = RS_DT_F4;
	struct rs_part part = {.box = BOX2(0, 0, 4, 2), .source = &l.tensor, .origin = {0, 2}};
	struct rs_wanted want = {.name = RS_STR("t"),
		.dtype = RS_DT_F4,
		.shape = {2, {4, 2}},
		.parts = &part,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	assert_int_equal(rs_plan_nest(l.cat, &want, arena, &nest, &err), 0);
	assert_int_equal(nest->bytes, 4);
	read_listed(&l, nest, got);
	assert_memory_equal(got, ((uint8_t[]){1, 4, 7, 10}), 4);
	part.origin[1] = 1;
	assert_int_equal(rs_plan_nest(l.cat, &want, arena, &nest, &err), -1);
	assert_int_equal(err.code, RS_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "F4"));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

/* The cost of a column slice is one run, whatever the number of rows. */
static void a_column_slice_is_one_run(void **state)
{
	struct rs_piece piece = {.box = BOX2(0, 0, 8, 8), .stride = {8, 1}};
	struct listed l;
	struct rs_err err = {0};
	struct rs_nest *nest;
	struct rs_walk w;
	struct rs_rows rows;
	struct rs_arena *arena = rs_arena_new(1 << 20, &err);
	(void)state;

	make_listed(&l, (struct rs_shape){2, {8, 8}}, &piece, 1);
	struct rs_part part = {.box = BOX2(0, 0, 8, 2), .source = &l.tensor, .origin = {0, 4}};
	struct rs_wanted want = {.name = RS_STR("t"),
		.dtype = RS_DT_U8,
		.shape = {2, {8, 2}},
		.parts = &part,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	assert_int_equal(rs_plan_nest(l.cat, &want, arena, &nest, &err), 0);
	assert_int_equal(nest->n_runs, 1);
	rs_walk_init(&w, l.cat, nest, 0, 16);
	assert_true(rs_walk_next(&w, &rows));
	assert_int_equal(rows.off, 4);
	assert_int_equal(rows.pitch, 8);
	assert_int_equal(rows.width, 2);
	assert_int_equal(rows.count, 8);
	assert_false(rs_walk_next(&w, &rows));
	rs_catalog_free(l.cat);
	rs_arena_free(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hole_is_refused_with_its_box),
		cmocka_unit_test(an_overlap_is_refused_with_its_box),
		cmocka_unit_test(equal_pieces_are_replicas),
		cmocka_unit_test(strides_transpose),
		cmocka_unit_test(flat_ranges_are_boxes),
		cmocka_unit_test(sub_byte_types_are_cut_between_bytes),
		cmocka_unit_test(a_column_slice_is_one_run),
		cmocka_unit_test(walk_agrees_with_single_elements),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
