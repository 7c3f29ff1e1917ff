/*
 * cut_list.c - what a target rank holds, and in which order.
 *
 * The rank starts from the files of the source ranks with its own local number, one per needed
 * stage, in file order: a tensor that both strategies place is cut anew; one that belongs to other
 * target stages is left to them; anything else (counters, learning rates, text) is copied as
 * stored. Then come tensors that these files lack because redundancy was removed, by name. A source
 * without ranks is gone through in its own order. Format: docs/formats/mindspore.md, "What a target
 * rank holds".
 */
#include "core/target/cut.h"

#include <inttypes.h>

struct filling {
	const struct rs_target *t;
	uint32_t stage, local;
	/* the files to start from, one per needed source stage */
	const struct rs_table **tables;
	uint32_t *units;
	uint32_t n_tables;
	struct rs__list list;
	struct rs_notes *notes;
};

/* Did one of the first @n files have the name? Then the entry was dealt with there. */
static bool seen(const struct filling *f, uint32_t n, struct rs_str name)
{
	for (uint32_t i = 0; i < n; i++)
		if (rs_table_find(f->tables[i], name))
			return true;
	return false;
}

static int add_cut(struct filling *f, const struct rs_tensor *tensor, const struct rs_grid *grid,
	bool zero_dims, struct rs_err *err)
{
	uint32_t cell = grid->cell_of[f->local];

	if (rs__cut_fits(f->t, tensor, grid, err) < 0)
		return -1;
	if (grid->fields > RS_MAX_RUNS)
		return rs_fail(err, RS_LIMIT, "tensor '%s': %" PRIu32 " fields, the limit is %u",
			RS_SHOW(tensor->name), grid->fields, RS_MAX_RUNS);
	struct rs_part *parts = RS_NEW_N(f->list.arena, struct rs_part, grid->fields, err);
	if (!parts)
		return -1;
	for (uint32_t i = 0; i < grid->fields; i++) {
		struct rs_box from = rs_grid_box(grid, &tensor->shape, cell, i, &parts[i].box);
		parts[i].kind = RS_PART_COPY;
		parts[i].source = tensor;
		memcpy(parts[i].origin, from.origin, sizeof(from.origin));
	}
	struct rs_wanted want = {.name = tensor->name,
		.dtype = tensor->dtype,
		.zero_dims = zero_dims,
		.shape = rs_grid_slice(grid, &tensor->shape, cell),
		.parts = parts,
		.n_parts = grid->fields,
		.prefer = f->local % rs_catalog_stage_devices(f->t->source->cat)};
	return rs__list_add(&f->list, &want, err);
}

/* A tensor of the source that no stage of the target names: default= decides. */
static int add_unknown(struct filling *f, uint32_t unit, const struct rs_entry *e,
	struct rs_str name, struct rs_err *err)
{
	const struct rs__cut *cut = f->t->priv;
	const struct rs_tensor *tensor = rs_catalog_find(f->t->source->cat, name);

	switch (tensor ? f->t->opts.unknown : RS_DEFAULT_KEEP) {
	case RS_DEFAULT_DROP:
		return 0;
	case RS_DEFAULT_REPLICATE:
		return add_cut(f, tensor, cut->whole[tensor->shape.n_axes], e->zero_dims, err);
	case RS_DEFAULT_ERROR: /* refused by rs_target_check already */
	case RS_DEFAULT_KEEP:
		break;
	}
	return rs__list_entry(&f->list, unit, e, name, err);
}

static int add_entry(struct filling *f, uint32_t unit, const struct rs_entry *e, struct rs_err *err)
{
	const struct rs_grid *grid;
	struct rs_str name;
	int kept = rs_source_name(f->t->source, e->name, f->list.arena, &name, err);

	if (kept <= 0)
		return kept;
	bool placed = rs__cut_source_knows(f->t, e->name);
	bool known = rs__cut_target_knows(f->t, name);
	if (rs__cut_grid(f->t, f->stage, name, e->shape.n_axes, &grid, err) < 0)
		return -1;
	if (placed && known && !grid)
		return 0; /* it lives in other stages of the target */
	if (!placed || e->dtype == RS_DT_STR)
		return rs__list_entry(&f->list, unit, e, name, err);
	if (!grid)
		return add_unknown(f, unit, e, name, err);
	const struct rs_tensor *tensor = rs_catalog_find(f->t->source->cat, name);
	if (!tensor)
		return rs_fail(err, RS_MISSING,
			"tensor '%s': %s stores a slice, but no rank of the first slice's replica "
			"group does",
			RS_SHOW(e->name), rs_catalog_unit(f->t->source->cat, unit)->name);
	return add_cut(f, tensor, grid, e->zero_dims, err);
}

/* Tensors that the stage wants and that none of the files to start from has. */
static int add_elsewhere(struct filling *f, struct rs_err *err)
{
	struct rs_catalog *cat = f->t->source->cat;

	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(cat, i);
		const struct rs_grid *grid;
		bool zero_dims;

		if (seen(f, f->n_tables, rs_tensor_stored(tensor)))
			continue;
		if (rs__cut_grid(f->t, f->stage, tensor->name, tensor->shape.n_axes, &grid, err) <
			0)
			return -1;
		if (!grid)
			continue;
		if (rs__zero_dims(cat, tensor, f->local, &zero_dims, err) < 0)
			return -1;
		if (add_cut(f, tensor, grid, zero_dims, err) < 0)
			return -1;
	}
	return 0;
}

/*
 * A tensor of a source without ranks. What has no layout goes to every rank as it is, also where
 * the target names it, because nobody knows whether it was cut.
 */
static int add_whole(struct filling *f, const struct rs_tensor *tensor, struct rs_err *err)
{
	const struct rs__cut *cut = f->t->priv;
	const struct rs_grid *grid = NULL;

	if (!tensor->unplaced &&
		rs__cut_grid(f->t, f->stage, tensor->name, tensor->shape.n_axes, &grid, err) < 0)
		return -1;
	if (!grid && !tensor->unplaced) {
		if (rs__cut_target_knows(f->t, tensor->name))
			return 0; /* it lives in other stages of the target */
		if (f->t->opts.unknown == RS_DEFAULT_DROP ||
			(f->t->opts.unknown == RS_DEFAULT_KEEP && f->t->source->strategy_selects))
			return 0;
	}
	return add_cut(f, tensor, grid ? grid : cut->whole[tensor->shape.n_axes], false, err);
}

static int add_all_whole(struct filling *f, struct rs_err *err)
{
	const struct rs_catalog *cat = f->t->source->cat;
	const struct rs_tensor **tensors;

	if (rs__source_order(cat, f->list.arena, &tensors, err) < 0)
		return -1;
	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++)
		if (add_whole(f, tensors[i], err) < 0)
			return -1;
	return 0;
}

static int look_for_missing(struct filling *f, struct rs_err *err)
{
	const struct rs__cut *cut = f->t->priv;

	for (uint64_t i = 0; i < cut->n_params[f->stage]; i++) {
		struct rs_str name = f->t->strategy->params[cut->params[f->stage][i]].name;
		int has = rs_catalog_find(f->t->source->cat, name) != NULL;
		for (uint32_t k = 0; k < f->n_tables && has == 0; k++)
			has = rs__cut_has(f->t, f->tables[k], name, err);
		if (has == 0)
			has = rs__cut_left_out(f->t, name, err);
		if (has < 0 ||
			(has == 0 && rs__cut_missing(f->t, f->stage, name, f->notes, err) < 0))
			return -1;
	}
	return 0;
}

static int load_tables(struct filling *f, uint64_t rank, struct rs_err *err)
{
	const struct rs__cut *cut = f->t->priv;
	struct rs_catalog *cat = f->t->source->cat;
	uint32_t devices = rs_catalog_stage_devices(cat), n = cut->n_source_stages[f->stage];

	f->tables = RS_NEW_N(f->list.arena, const struct rs_table *, n, err);
	f->units = RS_NEW_N(f->list.arena, uint32_t, n, err);
	if (!f->tables || !f->units)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = (uint64_t)cut->stages[f->stage][i] * devices + f->local % devices;
		f->units[i] = rs_catalog_rank_unit(cat, from);
		if (f->units[i] == RS_NO_UNIT)
			return rs__missing_rank(f->t, from, rank, err);
		f->tables[i] = rs_catalog_table(cat, f->units[i], err);
		if (!f->tables[i])
			return -1;
	}
	f->n_tables = n;
	return 0;
}

/* Start from the files of the source ranks with this local number. */
static int add_ranks(struct filling *f, uint64_t rank, struct rs_err *err)
{
	if (load_tables(f, rank, err) < 0)
		return -1;
	for (uint32_t i = 0; i < f->n_tables; i++)
		for (uint64_t e = 0; e < f->tables[i]->n_entries; e++) {
			const struct rs_entry *entry = &f->tables[i]->entries[e];
			if (!seen(f, i, entry->name) && add_entry(f, f->units[i], entry, err) < 0)
				return -1;
		}
	return add_elsewhere(f, err);
}

int rs__cut_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err)
{
	const struct rs__cut *cut = t->priv;
	struct filling f = {.t = t,
		.stage = (uint32_t)(rank / cut->devices),
		.local = (uint32_t)(rank % cut->devices),
		.list.arena = arena,
		.notes = notes};

	if ((t->source->without_ranks ? add_all_whole(&f, err) : add_ranks(&f, rank, err)) < 0 ||
		look_for_missing(&f, err) < 0)
		return -1;
	out->items = f.list.items;
	out->n = f.list.n;
	return 0;
}
