/*
 * rules_origin.c - what a source has, for rules: tensors, and entries that no layout places.
 *
 * Rules see whole tensors, whatever pieces they are stored in. In trees of ranks there are entries
 * beside them that no strategy knows (counters, texts); every rank has them, and each counts as one
 * whole tensor of the lowest rank of its stage. Refuses slices whose whole nobody can tell.
 * Read next: rules_bind.c.
 */
#include <stdlib.h>

#include "core/target/rules/rules.h"

static int by_name(const void *a, const void *b)
{
	const struct rs__origin *x = a, *y = b;
	return rs_str_cmp(x->name, y->name);
}

struct rs__origin *rs__origin_find(const struct rs__rules *r, struct rs_str name)
{
	struct rs__origin key = {.name = name};

	return r->n_origins ? bsearch(&key, r->origins, r->n_origins, sizeof(key), by_name) : NULL;
}

/* Origins under construction: a heap array. */
struct gathering {
	struct rs__binding *b;
	struct rs__origin *items;
	uint64_t n, cap, n_sorted;
};

static int gather(struct gathering *g, const struct rs_tensor *t, uint32_t stage)
{
	if (rs_grow(&g->items, &g->cap, g->n + 1, sizeof(*g->items), g->b->err) < 0)
		return -1;
	g->items[g->n++] = (struct rs__origin){
		.name = t->name, .tensor = t, .stage = stage, .dropped = RS__NONE};
	return 0;
}

/* Is there something of the name among the first @n, which are sorted? */
static bool gathered(const struct gathering *g, uint64_t n, struct rs_str name)
{
	struct rs__origin key = {.name = name};
	return n && bsearch(&key, g->items, n, sizeof(key), by_name);
}

/* Entries of one file that no layout places: each is a whole tensor. */
static int gather_loose(struct gathering *g, uint32_t stage, uint32_t unit)
{
	struct rs_target *t = g->b->t;
	const struct rs_strategy *s = t->source->strategy;
	const struct rs_table *table = rs_catalog_table(t->source->cat, unit, g->b->err);
	uint64_t known = g->n;
	const uint32_t *stages;

	if (!table)
		return -1;
	for (uint64_t i = 0; i < table->n_entries; i++) {
		const struct rs_entry *e = &table->entries[i];
		struct rs_str name;
		int kept = rs_source_name(t->source, e->name, t->arena, &name, g->b->err);
		if (kept < 0)
			return -1;
		if (!kept || gathered(g, known, name))
			continue;
		if (s && e->dtype != RS_DT_STR && rs_strategy_stages(s, e->name, &stages) > 0)
			return rs_fail(g->b->err, RS_MISSING,
				"tensor '%s': %s stores a slice, but no rank of the first slice's "
				"replica group does",
				RS_SHOW(e->name), rs_catalog_unit(t->source->cat, unit)->name);
		struct rs_tensor *whole = rs__entry_tensor(t->arena, unit, e, g->b->err);
		if (!whole)
			return -1;
		whole->name = name;
		whole->stored = e->name;
		if (gather(g, whole, stage) < 0)
			return -1;
	}
	if (g->n > known)
		qsort(g->items, g->n, sizeof(*g->items), by_name);
	return 0;
}

/* Of each stage the lowest rank that is there: every rank stores what has no layout. */
static int gather_stages(struct gathering *g)
{
	struct rs_catalog *cat = g->b->t->source->cat;
	uint32_t devices = rs_catalog_stage_devices(cat);

	for (uint32_t stage = 0; stage < rs_catalog_n_stages(cat); stage++) {
		uint32_t unit = RS_NO_UNIT;
		for (uint32_t l = 0; unit == RS_NO_UNIT && l < devices; l++)
			unit = rs_catalog_rank_unit(cat, (uint64_t)stage * devices + l);
		if (unit != RS_NO_UNIT && gather_loose(g, stage, unit) < 0)
			return -1;
	}
	return 0;
}

int rs__bind_origins(struct rs__binding *b)
{
	const struct rs_catalog *cat = b->t->source->cat;
	uint32_t devices = rs_catalog_stage_devices(cat);
	struct gathering g = {.b = b};
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < rs_catalog_n_tensors(cat); i++) {
		const struct rs_tensor *t = rs_catalog_tensor(cat, i);
		rc = gather(&g, t, t->grid ? t->first_rank / devices : 0);
	}
	if (rc == 0 && !b->t->source->without_ranks)
		rc = gather_stages(&g);
	if (rc == 0) {
		b->rules->origins = RS_NEW_N(b->t->arena, struct rs__origin, g.n, b->err);
		rc = b->rules->origins ? 0 : -1;
	}
	if (rc == 0) {
		if (g.n)
			memcpy(b->rules->origins, g.items, g.n * sizeof(*g.items));
		b->rules->n_origins = g.n;
	}
	rs_free(g.items);
	return rc;
}
