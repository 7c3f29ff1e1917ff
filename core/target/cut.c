/*
 * cut.c - targets that cut whole tensors: a MindSpore strategy, and `full`, which cuts nothing.
 *
 * Opening prepares what every rank asks again and again: the grid of each distinct layout,
 * the parameters of each stage, and the source stages that have anything for it. After that
 * the target is read-only. What a rank holds: cut_list.c; what is refused before
 * a mount exists: cut_check.c; who is asked: cut_needs.c.
 */
#include "core/target/cut.h"

#include <inttypes.h>
#include <stdlib.h>

static bool is_full(const char *target)
{
	return strcmp(target, "full") == 0;
}

static bool is_strategy(const char *target)
{
	struct rs_file file;
	struct rs_dir *dir;
	bool yes;

	if (rs_dir_open(target, NULL, true, &dir, NULL) == 0) {
		rs_dir_close(dir);
		return true; /* a directory of stage files; reading it tells what is wrong */
	}
	if (rs_file_open(target, NULL, &file, NULL) < 0)
		return false;
	yes = rs_strategy_is(&file);
	rs_file_close(&file);
	return yes;
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const struct rs_layout *const *)a;
	uintptr_t y = (uintptr_t) * (const struct rs_layout *const *)b;
	return x < y ? -1 : x > y;
}

uint32_t rs__layouts_index(const struct rs__layouts *set, const struct rs_layout *l)
{
	const struct rs_layout **at =
		bsearch(&l, set->layouts, set->n, sizeof(set->layouts[0]), by_address);
	return (uint32_t)(at - set->layouts); /* every layout of the strategy is in its set */
}

static int collect_layouts(const struct rs_strategy *s, struct rs_arena *arena,
	struct rs__layouts *set, struct rs_err *err)
{
	set->layouts = RS_NEW_N(arena, const struct rs_layout *, s->n_layouts, err);
	if (!set->layouts)
		return -1;
	set->n = (uint32_t)s->n_layouts;
	for (uint32_t i = 0; i < set->n; i++)
		set->layouts[i] = s->layouts[i];
	if (set->n)
		qsort(set->layouts, set->n, sizeof(set->layouts[0]), by_address);
	set->grids = RS_NEW_N(arena, struct rs_grid *, set->n, err);
	if (!set->grids)
		return -1;
	for (uint32_t i = 0; i < set->n; i++)
		if (rs_layout_grid(set->layouts[i], set->layouts[i]->n_axes, arena, &set->grids[i],
			    err) < 0)
			return rs_err_prefix(err, "%s", s->path);
	return 0;
}

/* Sort the parameters of the target by stage. */
static int collect_params(struct rs_target *t, struct rs__cut *cut, struct rs_err *err)
{
	const struct rs_strategy *s = t->strategy;

	cut->params = RS_NEW_N(t->arena, const uint32_t *, cut->n_stages, err);
	cut->n_params = RS_NEW_N(t->arena, uint64_t, cut->n_stages, err);
	if (!cut->params || !cut->n_params)
		return -1;
	for (uint64_t i = 0; s && i < s->n_params; i++)
		cut->n_params[s->params[i].stage]++;
	for (uint32_t stage = 0; stage < cut->n_stages; stage++) {
		uint32_t *list = RS_NEW_N(t->arena, uint32_t, cut->n_params[stage], err);
		uint64_t n = 0;
		if (!list)
			return -1;
		for (uint64_t i = 0; s && i < s->n_params; i++)
			if (s->params[i].stage == stage)
				list[n++] = (uint32_t)i;
		cut->params[stage] = list;
	}
	return 0;
}

static int collect_names(struct rs_target *t, struct rs__cut *cut, struct rs_err *err)
{
	const struct rs_strategy *src = t->source->strategy;
	struct rs_str *names = RS_NEW_N(t->arena, struct rs_str, src->n_params, err);

	if (!names)
		return -1;
	for (uint64_t i = 0; i < src->n_params; i++) {
		int kept = rs_source_name(t->source, src->params[i].name, t->arena, &names[i], err);
		if (kept < 0)
			return -1;
		if (!kept)
			names[i] = (struct rs_str){0};
	}
	cut->names = names;
	return 0;
}

/*
 * The source stages whose files a target stage starts from: those that place a name which it
 * wants, or which no stage of the target knows.
 */
static int collect_stages(
	struct rs_target *t, struct rs__cut *cut, uint32_t stage, struct rs_err *err)
{
	const struct rs_strategy *src = t->source->strategy;
	uint32_t n_stages = rs_catalog_n_stages(t->source->cat);
	uint8_t *used = RS_NEW_N(t->arena, uint8_t, n_stages, err);
	uint32_t *list = RS_NEW_N(t->arena, uint32_t, n_stages, err);
	bool common = !src;

	if (!used || !list)
		return -1;
	for (uint64_t i = 0; src && i < src->n_params; i++) {
		struct rs_str name = cut->names[i];
		if (!name.ptr)
			continue;
		bool wanted = !t->strategy || rs_strategy_find(t->strategy, stage, name);
		if (wanted || !rs__cut_target_knows(t, name))
			used[src->params[i].stage] = 1;
		common |= wanted;
	}
	if (!src)
		used[0] = 1;
	if (!common) {
		rs_fail(err, RS_USAGE,
			"target %s: stage %" PRIu32 " names no parameter of the source strategy %s",
			t->opts.target, stage, src->path);
		return rs_hint(err, "the two strategies describe different models, or one of them "
				    "names its parameters with another prefix");
	}
	cut->n_source_stages[stage] = 0;
	for (uint32_t s = 0; s < n_stages; s++)
		if (used[s])
			list[cut->n_source_stages[stage]++] = s;
	cut->stages[stage] = list;
	return 0;
}

/* A source of several files without a strategy has no whole tensors to cut. */
int rs__source_whole(const struct rs_target *t, struct rs_err *err)
{
	if (t->source->strategy || t->source->n_ranks == 1)
		return 0;
	rs_fail(err, RS_USAGE, "%s: %" PRIu64 " ranks and no strategy that tells how they are cut",
		t->source->opts.path, t->source->n_ranks);
	return rs_hint(err, "name the strategy that wrote them with -o src_strategy=PATH; "
			    "target=same needs none");
}

int rs__cut_open(struct rs_target *t, struct rs_err *err)
{
	struct rs__cut *cut = RS_NEW(t->arena, struct rs__cut, err);
	const struct rs_strategy *s = t->strategy;

	if (!cut || rs__source_whole(t, err) < 0)
		return -1;
	t->priv = cut;
	cut->n_stages = s ? s->n_stages : 1;
	cut->devices = s ? s->stage_devices : 1;
	t->stage_devices = cut->devices;
	t->n_ranks = (uint64_t)cut->n_stages * cut->devices;
	t->mindspore = s || t->source->mindspore;
	for (uint32_t a = 0; a <= RS_MAX_AXES; a++) {
		cut->whole[a] = rs_grid_single(a, cut->devices, t->arena, err);
		if (!cut->whole[a])
			return -1;
	}
	if (s && collect_layouts(s, t->arena, &cut->target, err) < 0)
		return -1;
	if (t->source->strategy &&
		(collect_layouts(t->source->strategy, t->arena, &cut->source, err) < 0 ||
			collect_names(t, cut, err) < 0))
		return -1;
	if (collect_params(t, cut, err) < 0)
		return -1;
	cut->stages = RS_NEW_N(t->arena, const uint32_t *, cut->n_stages, err);
	cut->n_source_stages = RS_NEW_N(t->arena, uint32_t, cut->n_stages, err);
	if (!cut->stages || !cut->n_source_stages)
		return -1;
	for (uint32_t stage = 0; stage < cut->n_stages; stage++)
		if (collect_stages(t, cut, stage, err) < 0)
			return -1;
	return 0;
}

static int open_strategy(struct rs_target *t, struct rs_err *err)
{
	if (rs_strategy_read(t->opts.target, &t->strategy, err) < 0 ||
		rs_strategy_check(t->strategy, err) < 0)
		return -1;
	return rs__cut_open(t, err);
}

bool rs__cut_source_knows(const struct rs_target *t, struct rs_str name)
{
	const uint32_t *first;
	const struct rs_strategy *src = t->source->strategy;
	return !src || rs_strategy_stages(src, name, &first) > 0;
}

bool rs__cut_target_knows(const struct rs_target *t, struct rs_str name)
{
	const uint32_t *first;
	return !t->strategy || rs_strategy_stages(t->strategy, name, &first) > 0;
}

int rs__cut_left_out(const struct rs_target *t, struct rs_str name, struct rs_err *err)
{
	struct rs_arena *scratch;
	struct rs_str ignored;
	int kept;

	if (!t->source->names)
		return 0;
	scratch = rs_arena_new(1u << 20, err);
	kept = scratch ? rs_source_name(t->source, name, scratch, &ignored, err) : -1;
	rs_arena_free(scratch);
	return kept < 0 ? -1 : !kept;
}

int rs__cut_has(const struct rs_target *t, const struct rs_table *table, struct rs_str name,
	struct rs_err *err)
{
	struct rs_arena *scratch;
	struct rs_str known;
	int has = 0;

	if (!t->source->names)
		return rs_table_find(table, name) != NULL;
	scratch = rs_arena_new(UINT64_C(1) << 30, err);
	if (!scratch)
		return -1;
	for (uint64_t i = 0; i < table->n_entries && has == 0; i++) {
		has = rs_source_name(t->source, table->entries[i].name, scratch, &known, err);
		if (has == 1 && !rs_str_eq(known, name))
			has = 0;
	}
	rs_arena_free(scratch);
	return has;
}

int rs__cut_grid(const struct rs_target *t, uint32_t stage, struct rs_str name, uint32_t n_axes,
	const struct rs_grid **out, struct rs_err *err)
{
	const struct rs__cut *cut = t->priv;
	const struct rs_layout *l;

	*out = cut->whole[n_axes];
	if (!t->strategy)
		return 0;
	l = rs_strategy_find(t->strategy, stage, name);
	if (!l) {
		*out = NULL;
		return 0;
	}
	if (l->n_axes == 0 || n_axes == 0)
		return 0; /* replicated; a 0-d tensor is never cut */
	if (l->n_axes != n_axes)
		return rs_fail(err, RS_USAGE,
			"target %s: tensor '%s' has %" PRIu32 " axes, its tensor map has %" PRIu32,
			t->opts.target, RS_SHOW(name), n_axes, l->n_axes);
	*out = cut->target.grids[rs__layouts_index(&cut->target, l)];
	return 0;
}

int rs__cut_fits(const struct rs_target *t, const struct rs_tensor *tensor,
	const struct rs_grid *grid, struct rs_err *err)
{
	if (rs_grid_fits(grid, &tensor->shape, err) == 0)
		return 0;
	rs_err_prefix(err, "target %s: tensor '%s'", t->opts.target, RS_SHOW(tensor->name));
	return rs_hint(err,
		"the whole tensor is %s; slices of these layouts are equal, so each cut "
		"must divide its axis",
		RS_SHAPE_SHOW(&tensor->shape));
}

int rs__cut_missing(const struct rs_target *t, uint32_t stage, struct rs_str name,
	struct rs_notes *notes, struct rs_err *err)
{
	if (t->opts.missing == RS_MISSING_SKIP) {
		rs_note(notes,
			"'%s': wanted by the target, stored by no source file: left out "
			"(missing=skip)",
			RS_SHOW(name));
		return 0;
	}
	rs_fail(err, RS_MISSING,
		"tensor '%s': stage %" PRIu32 " of target %s wants it, no source file stores it",
		RS_SHOW(name), stage, t->opts.target);
	return rs_hint(err, "is the target's strategy of another model? If the source has weights "
			    "only and the strategy is of training: -o missing=skip leaves such "
			    "tensors out and lists them");
}

const struct rs_target_ops rs__target_full = {
	.name = "full",
	.is = is_full,
	.open = rs__cut_open,
	.check = rs__cut_check,
	.needs = rs__cut_needs,
	.list = rs__cut_list,
};

const struct rs_target_ops rs__target_strategy = {
	.name = "strategy",
	.is = is_strategy,
	.open = open_strategy,
	.check = rs__cut_check,
	.needs = rs__cut_needs,
	.list = rs__cut_list,
};
