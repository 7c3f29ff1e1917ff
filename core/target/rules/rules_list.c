/*
 * rules_list.c - what a rank holds under a plan, in which order, and who is asked for it.
 *
 * Every placement that is here becomes a wanted tensor with parts. They stand where their first
 * source tensor stands in the source: by stage and file for trees of ranks, by catalog order for
 * others; of one source, in the order of the rules. What no layout places is in every stage, and
 * stands in the first that the rank takes anything else from. Refuses casts that do not exist.
 * Read next: rules_value.c, where the parts come from.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/target/rules/rules.h"

/* What the rule says, or, for an alias that says nothing, the rule behind it. */
static enum rs_dtype dtype_of(const struct rs__placement *p)
{
	if (p->rule && p->rule->dtype)
		return p->rule->dtype;
	return p->instance->rule ? p->instance->rule->dtype : RS_DT_NONE;
}

int rs__placement_wanted(const struct rs__placement *p, const struct rs__view *v,
	struct rs_wanted *want, struct rs_err *err)
{
	enum rs_dtype to = dtype_of(p);
	uint64_t bytes;

	*want = (struct rs_wanted){.name = p->name, .dtype = v->dtype, .shape = v->shape};
	if (to && to != v->dtype) {
		if (!rs_cast_known(v->dtype, to))
			return rs_fail(err, RS_UNSUPPORTED,
				"%s: tensor '%s': %s cannot be shown as %s",
				(p->rule ? p->rule : p->instance->rule)->where, RS_SHOW(p->name),
				rs_dtype_name(v->dtype), rs_dtype_name(to));
		want->dtype = to;
		want->stored = v->dtype;
	}
	if (!rs_shape_bytes(&want->shape, want->dtype, &bytes))
		return rs_fail(err, RS_LIMIT, "tensor '%s': %s of %s does not fit 64 bits or bytes",
			RS_SHOW(p->name), RS_SHAPE_SHOW(&want->shape), rs_dtype_name(want->dtype));
	return 0;
}

/* A wanted tensor, and where its first source stands in the order of the source. */
struct item {
	uint64_t place;
	const struct rs__origin *loose; /* its first source, where no layout places that */
	struct rs_str first; /* the name of that source, which tells where the place does not */
	uint32_t rule;
	struct rs_wanted want;
};
struct listing {
	const struct rs_target *t;
	uint32_t local; /* of the source ranks that are asked first */
	struct rs_arena *arena;
	struct item *items; /* heap */
	uint64_t n, cap;
	struct rs_err *err;
};

#define NO_PLACE UINT64_MAX

/* The header that shows the order of a source stage: that of the local rank, else the lowest. */
static uint32_t unit_of_stage(const struct listing *l, uint32_t stage)
{
	const struct rs_catalog *cat = l->t->source->cat;
	uint64_t devices = rs_catalog_stage_devices(cat), base = stage * devices;
	uint32_t unit = rs_catalog_rank_unit(cat, base + l->local);

	for (uint64_t i = 0; unit == RS_NO_UNIT && i < devices; i++)
		unit = rs_catalog_rank_unit(cat, base + i);
	return unit;
}

/* Stages ascending, each in file order; what these files lack comes last, by name. */
static int place_of(const struct listing *l, const struct rs__origin *o, uint64_t *place)
{
	struct rs_catalog *cat = l->t->source->cat;
	const struct rs_table *table;
	const struct rs_entry *e;
	uint32_t unit;

	*place = o->tensor->order;
	if (l->t->source->without_ranks)
		return 0;
	*place = NO_PLACE;
	unit = unit_of_stage(l, o->stage);
	if (unit == RS_NO_UNIT)
		return 0;
	table = rs_catalog_table(cat, unit, l->err);
	if (!table)
		return -1;
	e = rs_table_find(table, rs_tensor_stored(o->tensor));
	if (e)
		*place = (uint64_t)o->stage << 32 | (uint64_t)(e - table->entries);
	return 0;
}

/* Is it an entry that no layout places, so that every stage stores it? */
static bool is_loose(const struct listing *l, const struct rs__origin *o)
{
	return !l->t->source->without_ranks && !o->tensor->grid;
}

/* Once all others have their places: the first stage that is taken from and has the entry. */
static int place_loose(struct listing *l)
{
	struct rs_catalog *cat = l->t->source->cat;
	uint32_t n_stages = rs_catalog_n_stages(cat);
	uint8_t *used = rs_alloc(n_stages, l->err);

	if (!used)
		return -1;
	for (uint64_t i = 0; i < l->n; i++)
		if (!l->items[i].loose && l->items[i].place != NO_PLACE)
			used[l->items[i].place >> 32] = 1;
	for (uint64_t i = 0; i < l->n; i++) {
		struct item *item = &l->items[i];
		const struct rs_entry *e = NULL;
		for (uint32_t stage = 0; item->loose && !e && stage < n_stages; stage++) {
			uint32_t unit = used[stage] ? unit_of_stage(l, stage) : RS_NO_UNIT;
			const struct rs_table *table =
				unit != RS_NO_UNIT ? rs_catalog_table(cat, unit, NULL) : NULL;
			e = table ? rs_table_find(table, rs_tensor_stored(item->loose->tensor))
				  : NULL;
			if (e)
				item->place =
					(uint64_t)stage << 32 | (uint64_t)(e - table->entries);
		}
	}
	rs_free(used);
	return 0;
}

static int add_item(struct listing *l, const struct rs__placement *p, const uint32_t *coords)
{
	struct rs_catalog *cat = l->t->source->cat;
	const struct rs__rules *r = l->t->priv;
	const struct rs__rule *rule = p->rule ? p->rule : p->instance->rule;
	const struct rs__origin *first;
	struct item item = {.rule = rule ? rule->index : RS__NONE};
	struct rs__view v;
	int rc;

	if (rs__placement_view(r, p, coords, &v, &first, l->err) < 0)
		return -1;
	rc = rs__placement_wanted(p, &v, &item.want, l->err);
	if (rc == 0)
		rc = rs__view_parts(&v, l->arena, &item.want.parts, &item.want.n_parts, l->err);
	rs__view_done(&v);
	item.want.prefer = l->local;
	item.first = first->name;
	if (rc == 0)
		rc = place_of(l, first, &item.place);
	item.loose = rc == 0 && is_loose(l, first) ? first : NULL;
	if (rc == 0 && item.want.shape.n_axes == 0)
		rc = rs__zero_dims(cat, first->tensor, l->local, &item.want.zero_dims, l->err);
	if (rc == 0)
		rc = rs_grow(&l->items, &l->cap, l->n + 1, sizeof(*l->items), l->err);
	if (rc == 0)
		l->items[l->n++] = item;
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	int order = (x->place > y->place) - (x->place < y->place);

	if (order == 0)
		order = rs_str_cmp(x->first, y->first);
	if (order == 0)
		order = (x->rule > y->rule) - (x->rule < y->rule);
	return order ? order : rs_str_cmp(x->want.name, y->want.name);
}

static int take_list(struct listing *l, struct rs_list *out)
{
	struct rs_wanted *items = RS_NEW_N(l->arena, struct rs_wanted, l->n, l->err);

	if (!items)
		return -1;
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), by_place);
	for (uint64_t i = 0; i < l->n; i++)
		items[i] = l->items[i].want;
	out->items = items;
	out->n = l->n;
	out->meta = l->t->files.meta;
	out->n_meta = l->t->files.n_meta;
	return 0;
}

int rs__rules_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err)
{
	const struct rs__rules *r = t->priv;
	struct listing l = {
		.t = t,
		.local = rs_target_local(t, rank),
		.arena = arena,
		.err = err,
	};
	uint32_t coords[RS__MESH_AXES];
	int rc = 0;

	(void)notes;
	rs__mesh_coords(&r->plan->mesh, rank, coords);
	for (uint64_t i = 0; rc == 0 && i < r->n_placements; i++)
		if (rs__placement_here(r, &r->placements[i], coords))
			rc = add_item(&l, &r->placements[i], coords);
	if (rc == 0 && !t->source->without_ranks)
		rc = place_loose(&l);
	if (rc == 0)
		rc = take_list(&l, out);
	rs_free(l.items);
	return rc;
}

/* ----------------------------------------------------------------------- needs */

/* The box of the source tensor behind a part. */
static struct rs_box box_behind(const struct rs_part *p)
{
	struct rs_box box = {.n_axes = p->source->shape.n_axes};

	for (uint32_t s = 0; s < box.n_axes; s++) {
		box.origin[s] = p->origin[s];
		box.len[s] = 1;
	}
	for (uint32_t a = 0; a < p->box.n_axes; a++) {
		uint32_t s = p->mapped ? p->axis[a] : a;
		if (s < box.n_axes)
			box.len[s] = p->box.len[a];
	}
	return box;
}

/* The ranks that store a tensor of one piece. */
static void mark_unit(const struct rs_target *t, uint32_t unit, uint8_t *source_ranks)
{
	for (uint64_t r = 0; r < t->source->n_ranks; r++)
		if (rs_catalog_rank_unit(t->source->cat, r) == unit)
			source_ranks[r] = 1;
}

static int mark_part(const struct rs_target *t, uint64_t rank, const struct rs_part *p,
	uint8_t *source_ranks, struct rs_err *err)
{
	struct rs__asking q = {.t = t, .rank = rank, .source_ranks = source_ranks};

	if (p->kind != RS_PART_COPY)
		return 0;
	if (!p->source->grid) {
		mark_unit(t, p->source->witness, source_ranks);
		return 0;
	}
	q.base = p->source->first_rank;
	q.match = rs_target_local(t, rank);
	q.grid = p->source->grid;
	q.shape = p->source->shape;
	q.box = box_behind(p);
	return rs__mark_holders(&q, err);
}

int rs__rules_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks)
{
	struct rs_arena *scratch;
	struct rs_list list = {0};
	int rc;

	if (t->source->without_ranks) {
		source_ranks[0] = 1;
		return 0;
	}
	scratch = rs_arena_new(1ull << 30, err);
	if (!scratch)
		return -1;
	rc = rs__rules_list(t, rank, scratch, &list, NULL, err);
	for (uint64_t i = 0; rc == 0 && i < list.n; i++)
		for (uint32_t k = 0; rc == 0 && k < list.items[i].n_parts; k++)
			rc = mark_part(t, rank, &list.items[i].parts[k], source_ranks, err);
	rs_arena_free(scratch);
	return rc;
}
