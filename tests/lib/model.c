/*
 * model.c - a catalog of labelled tensors in memory, one unit and one file; see model.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/model.h"

#define KEPT_BYTES (64ull << 20)

static int open_file(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	const struct model *m = self;
	(void)err;
	rs_file_memory(m->bytes, m->file_bytes, path, out);
	out->id = (struct rs_identity){.size = m->file_bytes};
	return 0;
}

void model_init(struct model *m)
{
	struct rs_err err = {0};

	memset(m, 0, sizeof(*m));
	m->arena = rs_arena_new(1ull << 30, &err);
	assert_non_null(m->arena);
	m->source.cat = rs_catalog_new(1ull << 30, &err);
	assert_non_null(m->source.cat);
	m->source.opts.path = "memory";
	m->source.container = "safetensors";
	m->source.n_ranks = 1;
	m->source.without_ranks = true;
	m->bytes = calloc(KEPT_BYTES, 1);
}

/* Room in the file, and an entry for it. */
static const struct rs_entry *add_entry(
	struct model *m, const char *name, enum rs_dtype dtype, const struct rs_shape *shape)
{
	struct rs_entry *e = RS_NEW(m->arena, struct rs_entry, NULL);
	struct rs_span *span = RS_NEW(m->arena, struct rs_span, NULL);

	assert_non_null(e);
	assert_non_null(span);
	*e = (struct rs_entry){
		.name = rs_str(name), .dtype = dtype, .shape = *shape, .n_spans = 1, .spans = span};
	assert_true(rs_shape_bytes(shape, dtype, &e->bytes));
	*span = (struct rs_span){.off = m->file_bytes, .len = e->bytes};
	m->file_bytes += e->bytes;
	return e;
}

static struct rs_tensor *add_tensor(
	struct model *m, const char *name, enum rs_dtype dtype, const struct rs_shape *shape)
{
	struct rs_tensor *t = &m->tensors[m->n];

	assert_true(m->n < MODEL_TENSORS);
	m->at[m->n] = m->file_bytes;
	*t = (struct rs_tensor){.name = rs_str(rs_arena_copy(m->arena, name, strlen(name), NULL)),
		.dtype = dtype,
		.shape = *shape,
		.order = m->n++};
	return t;
}

uint32_t model_add(struct model *m, const char *name, enum rs_dtype dtype, uint32_t n_axes, ...)
{
	struct rs_shape shape = {.n_axes = n_axes};
	struct rs_piece *piece = RS_NEW(m->arena, struct rs_piece, NULL);
	uint64_t count;
	va_list dims;

	va_start(dims, n_axes);
	for (uint32_t a = 0; a < n_axes; a++)
		shape.dims[a] = va_arg(dims, unsigned int);
	va_end(dims);
	struct rs_tensor *t = add_tensor(m, name, dtype, &shape);
	uint64_t at = m->file_bytes;
	*piece = (struct rs_piece){
		.box = rs_box_whole(&shape), .entry = add_entry(m, t->name.ptr, dtype, &shape)};
	rs_piece_row_major(piece);
	t->pieces = piece;
	t->n_pieces = 1;
	assert_true(rs_shape_count(&shape, &count));
	for (uint64_t i = 0; dtype == RS_DT_I32 && i < count; i++) {
		uint32_t label = t->order << 20 | (uint32_t)i;
		assert_true(i < 1u << 20 && at + 4 * i + 4 <= KEPT_BYTES);
		memcpy(m->bytes + at + 4 * i, &label, 4);
	}
	return t->order;
}

uint32_t model_add_data(struct model *m, const char *name, const struct rs_shape *shape,
	uint32_t dim, const uint32_t *const *data, uint32_t n_pieces)
{
	struct rs_tensor *t = add_tensor(m, name, RS_DT_I32, shape);
	struct rs_piece *pieces = RS_NEW_N(m->arena, struct rs_piece, n_pieces, NULL);
	struct rs_shape slice = *shape;

	assert_int_equal(slice.dims[dim] % n_pieces, 0);
	slice.dims[dim] /= n_pieces;
	for (uint32_t i = 0; i < n_pieces; i++) {
		uint64_t at = m->file_bytes;
		pieces[i] = (struct rs_piece){.box = rs_box_whole(&slice),
			.entry = add_entry(m, t->name.ptr, RS_DT_I32, &slice)};
		pieces[i].box.origin[dim] = i * slice.dims[dim];
		rs_piece_row_major(&pieces[i]);
		assert_true(m->file_bytes <= KEPT_BYTES);
		memcpy(m->bytes + at, data[i], m->file_bytes - at);
	}
	t->pieces = pieces;
	t->n_pieces = n_pieces;
	return t->order;
}

void model_seal(struct model *m)
{
	struct rs_source_file file = {.path = "model", .id = {.size = m->file_bytes}};
	struct rs_err err = {0};
	uint32_t unit;

	assert_int_equal(rs_catalog_add_unit(m->source.cat, "model", &file, 1, &unit, &err), 0);
	rs_catalog_set_loader(m->source.cat, (struct rs_loader){open_file, NULL, NULL, m});
	for (uint32_t i = 0; i < m->n; i++)
		assert_int_equal(rs_catalog_add_tensor(m->source.cat, &m->tensors[i], &err), 0);
	if (rs_catalog_seal(m->source.cat, &err) < 0)
		fail_msg("%s", err.msg);
}

void model_done(struct model *m)
{
	rs_catalog_free(m->source.cat);
	rs_arena_free(m->arena);
	free(m->bytes);
}

static uint32_t number_of(const struct model *m, const char *name)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (rs_str_is(m->tensors[i].name, name))
			return i;
	fail_msg("the model has no '%s'", name);
	return 0;
}

uint32_t model_label(const struct model *m, const char *name, uint64_t element)
{
	return number_of(m, name) << 20 | (uint32_t)element;
}

/* -------------------------------------------------------------------- plans */

char *run_text(struct rs_arena *arena, const char *text)
{
	char *copy = rs_arena_copy(arena, text, strlen(text), NULL);

	assert_non_null(copy);
	for (char *c = copy; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	return copy;
}

int run_open_sizes(struct run *r, struct model *m, const char *text, const struct rs__axis *sizes,
	uint32_t n_sizes)
{
	memset(r, 0, sizeof(*r));
	r->t.arena = rs_arena_new(1ull << 30, &r->err);
	assert_non_null(r->t.arena);
	r->t.source = &m->source;
	r->t.opts.target = "plan.json";
	r->t.ops = &rs__target_plan;
	if (rs__rules_open(&r->t, rs_str(run_text(r->t.arena, text)), "plan.json", sizes, n_sizes,
		    &r->err) < 0)
		return -1;
	if (r->t.n_ranks > 65536) /* nobody looks at so many ranks one by one */
		return rs_target_check(&r->t, NULL, 0, &r->err);
	uint64_t *ranks = RS_NEW_N(r->t.arena, uint64_t, r->t.n_ranks, NULL);
	for (uint64_t i = 0; i < r->t.n_ranks; i++)
		ranks[i] = i;
	return rs_target_check(&r->t, ranks, r->t.n_ranks, &r->err);
}

int run_open(struct run *r, struct model *m, const char *text)
{
	return run_open_sizes(r, m, text, NULL, 0);
}

void run_done(struct run *r)
{
	rs_notes_done(&r->t.notes);
	rs_arena_free(r->t.arena);
}

/* -------------------------------------------------------------------- ranks */

void rank_open(struct rank *k, struct run *r, struct model *m, uint64_t rank)
{
	struct rs_err err = {0};

	*k = (struct rank){.m = m, .arena = rs_arena_new(1ull << 30, &err)};
	assert_non_null(k->arena);
	if (rs_target_list(&r->t, rank, k->arena, &k->list, NULL, &err) < 0)
		fail_msg("rank %u: %s", (unsigned int)rank, err.msg);
}

void rank_done(struct rank *k)
{
	rs_arena_free(k->arena);
}

const struct rs_wanted *rank_find(const struct rank *k, const char *name)
{
	for (uint64_t i = 0; i < k->list.n; i++)
		if (rs_str_is(k->list.items[i].name, name))
			return &k->list.items[i];
	return NULL;
}

const struct rs_wanted *rank_want(const struct rank *k, const char *name)
{
	const struct rs_wanted *w = rank_find(k, name);

	if (!w)
		fail_msg("the rank does not hold '%s'", name);
	return w;
}

void rank_shape(const struct rank *k, const char *name, uint32_t n_axes, ...)
{
	const struct rs_wanted *w = rank_want(k, name);
	struct rs_shape shape = {.n_axes = n_axes};
	va_list dims;

	va_start(dims, n_axes);
	for (uint32_t a = 0; a < n_axes; a++)
		shape.dims[a] = va_arg(dims, unsigned int);
	va_end(dims);
	if (!rs_shape_eq(&w->shape, &shape))
		fail_msg("'%s' is %s, expected %s", name, RS_SHAPE_SHOW(&w->shape),
			RS_SHAPE_SHOW(&shape));
}

static struct rs_nest *nest_of(const struct rank *k, const struct rs_wanted *w)
{
	struct rs_err err = {0};
	struct rs_nest *nest = NULL;

	if (rs_plan_nest(k->m->source.cat, w, k->arena, &nest, &err) < 0)
		fail_msg("%s", err.msg);
	return nest;
}

uint32_t *rank_data(const struct rank *k, const char *name, uint64_t *n)
{
	const struct rs_wanted *w = rank_want(k, name);
	const struct rs_nest *nest = nest_of(k, w);
	uint8_t *data = calloc(nest->bytes + 4, 1);
	struct rs_walk walk;
	struct rs_rows rows;

	assert_int_equal(rs_wanted_stored(w), RS_DT_I32);
	rs_walk_init(&walk, k->m->source.cat, nest, 0, nest->bytes);
	while (rs_walk_next(&walk, &rows))
		for (uint64_t i = 0; i < rows.count && rows.file != RS_ROWS_ZERO; i++)
			memcpy(data + rows.target_off + i * rows.width,
				k->m->bytes + rows.off + i * rows.pitch, rows.width);
	*n = nest->bytes / 4;
	return (uint32_t *)(void *)data;
}

int model_origin(const struct rank *k, const char *name, uint64_t i, uint64_t *element)
{
	const struct rs_wanted *w = rank_want(k, name);
	const struct rs_nest *nest = nest_of(k, w);
	uint64_t bytes = rs_dtype_bits(rs_wanted_stored(w)) / 8;
	struct rs_walk walk;
	struct rs_rows rows;
	uint32_t t = 0;

	rs_walk_init(&walk, k->m->source.cat, nest, i * bytes, bytes);
	assert_true(rs_walk_next(&walk, &rows));
	*element = 0;
	if (rows.file == RS_ROWS_ZERO)
		return -1;
	while (t + 1 < k->m->n && k->m->at[t + 1] <= rows.off)
		t++;
	*element = (rows.off - k->m->at[t]) / bytes;
	return (int)t;
}
