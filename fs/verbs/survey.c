/*
 * survey.c - looks at every header of a source and at whether they fit together.
 *
 *   load all headers -> describe tensors by the sample -> hold each file against them -> cover
 *
 * A bad file is one error and the others are looked at all the same; slices that no file stores
 * are looked for when every file could be read, since otherwise they say the same thing again.
 * Read next: inspect.c (the printing), core/catalog/pieces.c (who stores a slice).
 */
#include "survey.h"

#include <inttypes.h>
#include <stdlib.h>

#define SCRATCH_BYTES (UINT64_C(1) << 30)
#define COMPACT_AT 65536 /* names gathered before duplicates are thrown out */

struct work {
	struct survey *s;
	struct rs_catalog *cat;
	const uint64_t *unit_rank;
	struct rs_err *unit_errs; /* per unit */
	uint8_t *uncovered;       /* per tensor */
};

static int add_error(struct survey *s, const struct rs_err *what, struct rs_err *err)
{
	/* One cause may be found on two ways: by loading a file and by describing the sample. */
	for (uint64_t i = 0; i < s->n_errors; i++)
		if (strcmp(s->errors[i].msg, what->msg) == 0)
			return 0;
	if (rs_grow(&s->errors, &s->cap_errors, s->n_errors + 1, sizeof(*s->errors), err) < 0)
		return -1;
	s->errors[s->n_errors++] = *what;
	return 0;
}

static int add_unit_errors(struct work *w, struct rs_err *err)
{
	for (uint32_t u = 0; u < rs_catalog_n_units(w->cat); u++)
		if (w->unit_errs[u].code != RS_OK && add_error(w->s, &w->unit_errs[u], err) < 0)
			return -1;
	return 0;
}

/* ---------------------------------------------------------------- unit by unit */

static void load_unit(void *arg, uint64_t i)
{
	struct work *w = arg;

	rs_catalog_table(w->cat, (uint32_t)i, &w->unit_errs[i]);
}

static int nothing(void *arg, const struct rs_piece *piece, struct rs_err *err)
{
	(void)arg;
	(void)piece;
	(void)err;
	return 0;
}

/* Is @e what holder @local of the grid of @t must store? */
static int check_slice(struct work *w, const struct rs_tensor *t, uint32_t local,
	const struct rs_entry *e, struct rs_err *err)
{
	uint32_t cell = t->grid->cell_of[local];
	struct rs_shape slice = rs_grid_slice(t->grid, &t->shape, cell);
	struct rs_box box, at;

	if (e->dtype == t->dtype && rs_shape_eq(&e->shape, &slice))
		return 0;
	/* The catalog words this best: it knows which file told the shape. */
	box = rs_grid_box(t->grid, &t->shape, cell, 0, &at);
	if (rs_catalog_pieces(w->cat, t, &box, local, nothing, NULL, err) < 0)
		return -1;
	return rs_fail(err, RS_CORRUPT, "tensor '%s': expected %s %s, found %s %s",
		RS_SHOW(t->name), rs_dtype_name(t->dtype), RS_SHAPE_SHOW(&slice),
		rs_dtype_name(e->dtype), RS_SHAPE_SHOW(&e->shape));
}

static void check_unit(void *arg, uint64_t i)
{
	struct work *w = arg;
	struct rs_err *err = &w->unit_errs[i];
	const struct rs_table *table;

	if (err->code != RS_OK)
		return;
	table = rs_catalog_table(w->cat, (uint32_t)i, err);
	for (uint64_t k = 0; table != NULL && k < table->n_entries; k++) {
		const struct rs_entry *e = &table->entries[k];
		const struct rs_tensor *t = rs_catalog_find(w->cat, e->name);
		uint64_t rank = w->unit_rank[i];

		if (t == NULL || t->grid == NULL || rank == UINT64_MAX || rank < t->first_rank)
			continue;
		/* A later stage may store the tensor, too: the lowest one owns it. */
		if (rank - t->first_rank >= t->grid->n_holders)
			continue;
		if (check_slice(w, t, (uint32_t)(rank - t->first_rank), e, err) < 0)
			return;
	}
}

/* -------------------------------------------------------------- tensor by tensor */

static int cover(struct work *w, uint64_t i, struct rs_err *err)
{
	const struct rs_tensor *t = rs_catalog_tensor(w->cat, i);
	struct rs_box whole = rs_box_whole(&t->shape);

	return rs_catalog_pieces(w->cat, t, &whole, RS_PREFER_NONE, nothing, NULL, err);
}

static void cover_tensor(void *arg, uint64_t i)
{
	struct work *w = arg;

	w->uncovered[i] = cover(w, i, NULL) < 0;
}

/* A missing rank leaves a hole in most tensors: the first is told, the rest is counted. */
static int cover_all(struct work *w, struct rs_err *err)
{
	uint64_t n = rs_catalog_n_tensors(w->cat), bad = 0, first = 0;
	struct rs_err why = {0};

	w->uncovered = rs_alloc(rs_max(n, 1), err);
	if (w->uncovered == NULL)
		return -1;
	fs__parallel(n, cover_tensor, w);
	for (uint64_t i = n; i-- > 0;) {
		bad += w->uncovered[i];
		first = w->uncovered[i] ? i : first;
	}
	rs_free(w->uncovered);
	if (bad == 0 || cover(w, first, &why) == 0)
		return 0;
	if (bad > 1)
		rs_err_prefix(&why, "the first of %" PRIu64 " incomplete tensors", bad);
	return add_error(w->s, &why, err);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* Axes that the tensor map cuts; what the optimizer shard cuts further is no matter of tp. */
static void count_cuts(struct survey *s, const struct rs_tensor *t)
{
	uint32_t devices = rs_catalog_stage_devices(s->src->cat);
	const struct rs_layout *l = NULL;

	if (s->src->strategy != NULL)
		l = rs_strategy_find(s->src->strategy, t->first_rank / devices, t->name);
	if (l == NULL || l->n_axes != t->shape.n_axes)
		return;
	for (uint32_t a = 0; a < l->n_axes; a++) {
		bool cut = false;

		for (uint32_t m = l->map_first[a]; m < l->map_first[a + 1]; m++)
			if (l->map[m] >= 0 && (uint32_t)l->map[m] < l->n_dev)
				cut |= l->dev[l->n_dev - 1 - (uint32_t)l->map[m]] > 1;
		if (cut && t->shape.dims[a] > 0)
			s->cut_gcd = gcd(t->shape.dims[a], s->cut_gcd);
	}
}

static void count_tensor(struct survey *s, const struct rs_tensor *t)
{
	const struct rs_grid *g = t->grid;
	struct survey_dtype *d = &s->dtypes[t->dtype];
	uint64_t bytes;

	s->n_placed++;
	d->tensors++;
	if (rs_shape_bytes(&t->shape, t->dtype, &bytes))
		d->bytes += bytes;
	for (uint32_t c = 0; g != NULL && c < g->n_cells; c++) {
		uint32_t holders = g->first[c + 1] - g->first[c];

		s->replicas_max = holders > s->replicas_max ? holders : s->replicas_max;
		if (s->replicas_min == 0 || holders < s->replicas_min)
			s->replicas_min = holders;
	}
	count_cuts(s, t);
}

/* ------------------------------------------------ names that no tensor stands for */

struct names {
	const struct rs_entry **items; /* heap */
	uint64_t n, cap, n_distinct;
};

static int by_name(const void *a, const void *b)
{
	const struct rs_entry *const *x = a, *const *y = b;

	return rs_str_cmp((*x)->name, (*y)->name);
}

static void compact(struct names *names)
{
	uint64_t n = 0;

	if (names->n > 0)
		qsort(names->items, (size_t)names->n, sizeof(*names->items), by_name);
	for (uint64_t i = 0; i < names->n; i++)
		if (n == 0 || !rs_str_eq(names->items[i]->name, names->items[n - 1]->name))
			names->items[n++] = names->items[i];
	names->n = names->n_distinct = n;
}

static int count_unit(
	struct survey *s, const struct rs_table *table, struct names *names, struct rs_err *err)
{
	s->n_crc += table->crc;
	s->n_deduplicated += table->deduplicated;
	for (uint64_t k = 0; k < table->n_entries; k++) {
		const struct rs_entry *e = &table->entries[k];

		s->dtypes[e->dtype].bytes_on_disk += e->bytes;
		if (s->known && e->dtype != RS_DT_STR && rs_catalog_find(s->src->cat, e->name))
			continue;
		if (rs_grow(&names->items, &names->cap, names->n + 1, sizeof(*names->items), err) <
			0)
			return -1;
		names->items[names->n++] = e;
		if (names->n >= 2 * names->n_distinct + COMPACT_AT)
			compact(names);
	}
	return 0;
}

static int count_all(struct work *w, struct rs_err *err)
{
	struct survey *s = w->s;
	struct names names = {0};
	int rc = 0;

	for (uint64_t i = 0; s->known && i < rs_catalog_n_tensors(w->cat); i++)
		count_tensor(s, rs_catalog_tensor(w->cat, i));
	for (uint32_t u = 0; rc == 0 && u < rs_catalog_n_units(w->cat); u++) {
		const struct rs_table *table = NULL;

		if (rs_catalog_loaded(w->cat, u))
			table = rs_catalog_table(w->cat, u, NULL);
		if (table != NULL)
			rc = count_unit(s, table, &names, err);
	}
	compact(&names);
	s->n_others = names.n;
	for (uint64_t i = 0; i < names.n; i++) {
		s->dtypes[names.items[i]->dtype].tensors++;
		s->dtypes[names.items[i]->dtype].bytes += names.items[i]->bytes;
	}
	rs_free(names.items);
	for (int d = 0; d < RS_DT_COUNT; d++)
		s->bytes += s->dtypes[d].bytes;
	return rc;
}

/* ------------------------------------------------------------------------- survey */

static int look(struct work *w, struct rs_err *err)
{
	struct survey *s = w->s;
	uint32_t n_units = rs_catalog_n_units(w->cat);
	struct rs_err why = {0};
	bool described;

	fs__parallel(n_units, load_unit, w);
	if (add_unit_errors(w, err) < 0)
		return -1;
	described = rs_source_describe(s->src, 0, &why) == 0;
	if (!described && add_error(s, &why, err) < 0)
		return -1;
	s->known = described && (s->src->strategy != NULL || s->src->n_ranks == 1);
	if (s->known) {
		fs__parallel(n_units, check_unit, w);
		if (add_unit_errors(w, err) < 0)
			return -1;
	}
	if (s->known && s->n_errors == 0 && cover_all(w, err) < 0)
		return -1;
	return count_all(w, err);
}

int fs__survey_run(struct survey *s, struct rs_source *src, struct rs_err *err)
{
	struct work w = {.s = s, .cat = src->cat};
	uint32_t n_units = rs_catalog_n_units(src->cat), *file_unit;
	struct rs_arena *arena = rs_arena_new(SCRATCH_BYTES, err);
	uint64_t *unit_rank;
	int rc = -1;

	*s = (struct survey){.src = src, .n_found = fs__source_n_units(src)};
	s->bytes_on_disk = fs__source_bytes_on_disk(src);
	if (arena == NULL)
		return -1;
	w.unit_errs = rs_alloc(rs_max(n_units, 1) * sizeof(*w.unit_errs), err);
	if (w.unit_errs != NULL &&
		fs__catalog_owners(src->cat, arena, &file_unit, &unit_rank, err) == 0) {
		w.unit_rank = unit_rank;
		rc = look(&w, err);
	}
	rs_free(w.unit_errs);
	rs_arena_free(arena);
	return rc;
}

void fs__survey_done(struct survey *s)
{
	rs_free(s->errors);
	s->errors = NULL;
}
