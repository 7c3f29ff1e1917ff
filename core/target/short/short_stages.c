/*
 * short_stages.c - which tensor of a short target goes to which pipeline stage.
 *
 *   pp2 of 4 layers    layers.0, layers.1 -> stage 0    layers.2, layers.3 -> stage 1
 *   embedding: stood in the first source stage -> stage 0; norm: in the last one -> stage 1
 *
 * The layer is the first component of digits between dots; what stands before it must end alike
 * for all ("adam_m.model.layers" and "model.layers"). With one source stage, the order of its file
 * says what comes before the layers and what behind them. Refuses whatever would be a guess.
 */
#include "core/target/short/short.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#define PREFIXES_MAX 32

struct staging {
	struct rs_target *t;
	const struct rs__short *s;
	struct rs__subjects *all;
	uint32_t n_stages; /* of the target */
	struct rs_str stem;
	const struct rs__subject *stem_user;
	uint64_t n_layers;
	struct rs_str prefixes[PREFIXES_MAX]; /* of optimizer copies: "adam_m." */
	uint32_t n_prefixes;
	const char *ordered_by;  /* what shows the order, for messages */
	uint32_t first, last;    /* order of the first and last entry of a layer */
	const uint32_t *numbers; /* 0, 1, ... n_stages - 1: lists of one stage point into it */
	const uint32_t *ends;    /* 0, n_stages - 1 */
};

/* "a.layers.12.w": stem "a.layers", layer 12. */
bool rs__layer_of(struct rs_str name, struct rs_str *stem, uint64_t *layer)
{
	for (size_t i = 1; i + 2 < name.len; i++) {
		size_t end = i + 1;

		if (name.ptr[i] != '.')
			continue;
		while (end < name.len && isdigit((unsigned char)name.ptr[end]))
			end++;
		if (end == i + 1 || end == name.len || name.ptr[end] != '.')
			continue;
		*stem = (struct rs_str){name.ptr, i};
		return rs_str_u64((struct rs_str){name.ptr + i + 1, end - i - 1}, layer) &&
		       *layer < UINT32_MAX;
	}
	return false;
}

/* Does @long_one end in "." and @stem, or equal it? */
static bool same_stem(struct rs_str long_one, struct rs_str stem)
{
	size_t rest = long_one.len - stem.len;

	if (long_one.len < stem.len || memcmp(long_one.ptr + rest, stem.ptr, stem.len) != 0)
		return false;
	return rest == 0 || long_one.ptr[rest - 1] == '.';
}

static void learn_prefix(struct staging *g, struct rs_str stem)
{
	struct rs_str prefix = {stem.ptr, stem.len - g->stem.len};

	for (uint32_t i = 0; i < g->n_prefixes; i++)
		if (rs_str_eq(g->prefixes[i], prefix))
			return;
	if (g->n_prefixes < PREFIXES_MAX)
		g->prefixes[g->n_prefixes++] = prefix;
}

static int find_stem(struct staging *g, struct rs_err *err)
{
	struct rs_str stem;
	uint64_t layer;

	for (uint64_t i = 0; i < g->all->n; i++)
		if (rs__layer_of(g->all->at[i].tensor->name, &stem, &layer) &&
			(!g->stem.ptr || stem.len < g->stem.len)) {
			g->stem = stem;
			g->stem_user = &g->all->at[i];
		}
	for (uint64_t i = 0; i < g->all->n; i++) {
		struct rs_str name = g->all->at[i].tensor->name;
		if (!rs__layer_of(name, &stem, &layer))
			continue;
		if (!same_stem(stem, g->stem)) {
			rs_fail(err, RS_USAGE,
				"target %s: tensors '%s' and '%s' count layers by two names, so "
				"nothing tells how they follow each other",
				g->t->opts.target, RS_SHOW(g->stem_user->tensor->name),
				RS_SHOW(name));
			return rs_hint(err, "give the strategy of the target");
		}
		if (stem.len > g->stem.len)
			learn_prefix(g, stem);
	}
	return 0;
}

static int count_layers(struct staging *g, struct rs_err *err)
{
	uint8_t *seen = rs_alloc(g->all->n + 1, err);
	uint64_t layer, hole = 0;
	struct rs_str stem;

	if (!seen)
		return -1;
	for (uint64_t i = 0; i < g->all->n; i++)
		if (rs__layer_of(g->all->at[i].tensor->name, &stem, &layer)) {
			g->n_layers = rs_max(g->n_layers, layer + 1);
			if (layer < g->all->n) /* a layer has a tensor: beyond is a hole */
				seen[layer] = 1;
		}
	while (hole < g->n_layers && seen[hole])
		hole++;
	rs_free(seen);
	if (g->n_layers == 0) {
		rs_fail(err, RS_USAGE, "target %s: no tensor of %s has a layer number in its name",
			g->t->opts.target, g->t->source->opts.path);
		return rs_hint(err, "give the strategy of the target, or leave out pp");
	}
	if (hole < g->n_layers)
		return rs_fail(err, RS_USAGE,
			"target %s: expected tensors of layers 0 to %" PRIu64
			", found none of layer %" PRIu64,
			g->t->opts.target, g->n_layers - 1, hole);
	if (g->n_layers % g->n_stages == 0)
		return 0;
	rs_fail(err, RS_USAGE,
		"target %s: %" PRIu64 " layers ('%s.0' ...) are not divisible by pp%" PRIu32,
		g->t->opts.target, g->n_layers, RS_SHOW(g->stem), g->n_stages);
	return rs_hint(err, "possible pp for this model: %s",
		rs__divisors(g->n_layers, 12, (char[96]){0}, 96));
}

/* ---------------------------------------------------- tensors that are in no layer */

static int by_name(const void *a, const void *b)
{
	const struct rs__subject *y = b;
	return rs_str_cmp(*(const struct rs_str *)a, y->tensor->name);
}

static const struct rs__subject *find(const struct rs__subjects *all, struct rs_str name)
{
	return bsearch(&name, all->at, all->n, sizeof(*all->at), by_name);
}

/* The weight that "adam_m.model.norm" belongs to, or the tensor itself. */
static const struct rs__subject *weight_of(const struct staging *g, const struct rs__subject *u)
{
	struct rs_str name = u->tensor->name;

	for (uint32_t i = 0; i < g->n_prefixes; i++) {
		struct rs_str p = g->prefixes[i];
		if (name.len <= p.len || memcmp(name.ptr, p.ptr, p.len) != 0)
			continue;
		const struct rs__subject *w =
			find(g->all, (struct rs_str){name.ptr + p.len, name.len - p.len});
		if (w)
			return w;
	}
	return u;
}

/* The header that shows the order of a tree of ranks: that of the sample. */
static const struct rs_table *sample(struct staging *g)
{
	struct rs_catalog *cat = g->t->source->cat;

	g->ordered_by = g->t->source->opts.path;
	for (uint64_t r = 0; r < rs_catalog_stage_devices(cat); r++) {
		uint32_t unit = rs_catalog_rank_unit(cat, r);
		if (unit == RS_NO_UNIT || !rs_catalog_loaded(cat, unit))
			continue;
		g->ordered_by = rs_catalog_unit(cat, unit)->name;
		return rs_catalog_table(cat, unit, NULL);
	}
	return NULL;
}

/* Where every tensor stands, and where the layers of the weights begin and end. */
static void find_order(struct staging *g)
{
	const struct rs_table *table = sample(g);
	struct rs_str stem;
	uint64_t layer;

	for (uint64_t i = 0; i < g->all->n; i++) {
		struct rs__subject *u = &g->all->at[i];
		const struct rs_entry *e =
			table ? rs_table_find(table, rs_tensor_stored(u->tensor)) : NULL;
		u->order = e ? (uint32_t)(e - table->entries) : UINT32_MAX;
		if (g->t->source->without_ranks)
			u->order = u->tensor->order;
	}
	g->first = UINT32_MAX;
	for (uint64_t i = 0; i < g->all->n; i++) {
		const struct rs__subject *u = &g->all->at[i];
		if (u->order == UINT32_MAX || !rs__layer_of(u->tensor->name, &stem, &layer) ||
			stem.len != g->stem.len)
			continue;
		g->first = u->order < g->first ? u->order : g->first;
		g->last = u->order > g->last ? u->order : g->last;
	}
}

/* By the order of the one source stage. */
static int place_by_order(struct staging *g, struct rs__subject *u, struct rs_err *err)
{
	const struct rs__subject *w = weight_of(g, u);
	bool before = w->order < g->first;

	if (w->order == UINT32_MAX || (!before && w->order < g->last)) {
		rs_fail(err, RS_USAGE,
			"target %s: tensor '%s' is in no layer and stands %s in %s: nothing tells "
			"its stage",
			g->t->opts.target, RS_SHOW(u->tensor->name),
			w->order == UINT32_MAX ? "nowhere" : "between the layers", g->ordered_by);
		return rs_hint(err, "give the strategy of the target");
	}
	u->stages = &g->numbers[before ? 0 : g->n_stages - 1];
	u->n_stages = 1;
	if (w == u)
		rs_note(&g->t->notes, "'%s' goes to stage %" PRIu32 ": it stands %s the layers",
			RS_SHOW(u->tensor->name), *u->stages, before ? "before" : "behind");
	return 0;
}

/* First stays first, last stays last. */
static int place_by_stage(struct staging *g, struct rs__subject *u, struct rs_err *err)
{
	uint32_t last = g->all->n_stages - 1;
	bool in_first = false, in_last = false;

	for (uint32_t i = 0; i < u->n_from; i++) {
		in_first |= u->from[i] == 0;
		in_last |= u->from[i] == last;
		if (u->from[i] != 0 && u->from[i] != last) {
			rs_fail(err, RS_USAGE,
				"target %s: tensor '%s' is in no layer and in source stage %" PRIu32
				" of 0 to %" PRIu32 ": nothing tells its new stage",
				g->t->opts.target, RS_SHOW(u->tensor->name), u->from[i], last);
			return rs_hint(err, "give the strategy of the target");
		}
	}
	u->stages = in_first ? g->ends : &g->ends[1];
	u->n_stages = in_first && in_last ? 2 : 1;
	return 0;
}

static int place(struct staging *g, struct rs__subject *u, struct rs_err *err)
{
	struct rs_str stem;
	uint64_t layer;

	if (!rs__layer_of(u->tensor->name, &stem, &layer))
		return g->all->n_stages == 1 ? place_by_order(g, u, err)
					     : place_by_stage(g, u, err);
	/* n_layers is below the number of tensors, so the product fits. */
	u->stages = &g->numbers[layer * g->n_stages / g->n_layers];
	u->n_stages = 1;
	return 0;
}

static int prepare_numbers(struct staging *g, struct rs_err *err)
{
	uint32_t *numbers = RS_NEW_N(g->t->arena, uint32_t, (uint64_t)g->n_stages + 2, err);

	if (!numbers)
		return -1;
	for (uint32_t i = 0; i < g->n_stages; i++)
		numbers[i] = i;
	numbers[g->n_stages + 1] = g->n_stages - 1;
	g->numbers = numbers;
	g->ends = &numbers[g->n_stages];
	return 0;
}

int rs__short_stages(struct rs_target *t, const struct rs__short *s, struct rs__subjects *all,
	struct rs_err *err)
{
	struct staging g = {.t = t, .s = s, .all = all, .n_stages = (uint32_t)s->size[RS__PP]};

	if (prepare_numbers(&g, err) < 0)
		return -1;
	if (g.n_stages == all->n_stages || g.n_stages == 1) {
		for (uint64_t i = 0; i < all->n; i++) {
			all->at[i].stages = g.n_stages == 1 ? g.numbers : all->at[i].from;
			all->at[i].n_stages = g.n_stages == 1 ? 1 : all->at[i].n_from;
		}
		return 0;
	}
	if (find_stem(&g, err) < 0 || count_layers(&g, err) < 0)
		return -1;
	find_order(&g);
	for (uint64_t i = 0; i < all->n; i++)
		if (place(&g, &all->at[i], err) < 0)
			return -1;
	return 0;
}
