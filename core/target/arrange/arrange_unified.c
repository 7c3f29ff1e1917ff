/*
 * arrange_unified.c - the directory that mindspore.unified_safetensors writes:
 *
 *   part0.safetensors ...     whole tensors that have a layout, spread by size
 *   param_name_map.json       which is where
 *   hyper_param.safetensors   what has no layout: counters, learning rates
 *
 * Gradients in accumulation (accu_grads...) are no weights and are left out, as there.
 * Format: docs/formats/mindspore.md, "Unified directories". Read next: arrange_split.c.
 */
#include "core/target/arrange/arrange.h"
#include "core/target/cut.h"

#include <inttypes.h>

#define PART_BYTES (3ull << 30) /* at four bytes an element */

/* ------------------------------------------------------------------- what goes where */

/* The tensor behind an item that has a layout, or NULL. Where nothing is cut, all have one. */
static const struct rs_tensor *placed(const struct rs_target *t, const struct rs_wanted *item)
{
	const struct rs_tensor *tensor = rs_catalog_find(t->source->cat, item->name);

	if (item->dtype == RS_DT_STR || !tensor || tensor->unplaced ||
		!rs__cut_source_knows(t, rs_tensor_stored(tensor)))
		return NULL;
	return tensor;
}

static bool is_gradient(const struct rs_wanted *item)
{
	return rs_str_starts(item->name, "accu_grads");
}

/* Parts are given out by rs__spread to what is not RS__NO_PART; the others are marked afterwards.
 */
static void choose(struct rs_target *t, const struct rs_list *list, uint32_t *part_of)
{
	const struct rs_wanted *first = NULL;
	uint64_t n = 0;

	for (uint64_t i = 0; i < list->n; i++) {
		const struct rs_wanted *item = &list->items[i];
		bool weight = placed(t, item) != NULL;

		part_of[i] = weight && !is_gradient(item) ? 0 : RS__NO_PART;
		if (weight && is_gradient(item) && n++ == 0)
			first = item;
	}
	if (first)
		rs_note(&t->notes,
			"'%s' and %" PRIu64
			" more are left out: gradients in accumulation are no weights",
			RS_SHOW(first->name), n - 1);
}

/* Mark as part @hyper what has no layout; how many tensors that are. Texts go along, if any. */
static uint64_t choose_hyper(
	struct rs_target *t, const struct rs_list *list, uint32_t *part_of, uint32_t hyper)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < list->n; i++) {
		const struct rs_wanted *item = &list->items[i];

		if (part_of[i] != RS__NO_PART || placed(t, item))
			continue;
		part_of[i] = hyper;
		n += rs__item_stored(item);
	}
	for (uint64_t i = 0; n == 0 && i < list->n; i++)
		if (!rs__item_stored(&list->items[i]))
			rs_note(&t->notes, "text '%s' is left out: safetensors holds tensors only",
				RS_SHOW(list->items[i].name));
	return n;
}

/* ---------------------------------------------------------------------- total_size */

/* Elements of all slices that the ranks of a stage hold. */
static bool stage_elements(
	const struct rs_tensor *tensor, const struct rs_grid *grid, uint64_t *sum)
{
	struct rs_shape slice;
	uint64_t n;

	if (!grid->edges) { /* all slices are equal */
		slice = rs_grid_slice(grid, &tensor->shape, 0);
		return rs_shape_count(&slice, &n) && rs_mul(n, grid->n_holders, &n) &&
		       rs_add(*sum, n, sum);
	}
	for (uint32_t h = 0; h < grid->n_holders; h++) {
		slice = rs_grid_slice(grid, &tensor->shape, grid->cell_of[h]);
		if (!rs_shape_count(&slice, &n) || !rs_add(*sum, n, sum))
			return false;
	}
	return true;
}

/* Elements of all slices in all ranks that have a layout for the tensor: replicas count. */
static bool add_elements(const struct rs_target *t, const struct rs_tensor *tensor, uint64_t *sum)
{
	const struct rs_strategy *src = t->source->strategy;
	const struct rs__cut *cut = t->priv;
	const uint32_t *at;
	uint32_t stages;
	uint64_t n;

	if (!src)
		return rs_shape_count(&tensor->shape, &n) && rs_add(*sum, n, sum);
	stages = rs_strategy_stages(src, rs_tensor_stored(tensor), &at);
	for (uint32_t s = 0; s < stages; s++) {
		const struct rs_layout *l = src->params[at[s]].layout;

		if (l->n_axes == tensor->shape.n_axes && l->n_axes > 0) {
			if (!stage_elements(tensor,
				    cut->source.grids[rs__layouts_index(&cut->source, l)], sum))
				return false;
		} else if (!rs_shape_count(&tensor->shape, &n) ||
			   !rs_mul(n, src->stage_devices, &n) || !rs_add(*sum, n, sum)) {
			return false;
		}
	}
	return true;
}

/* MindSpore counts four bytes an element in the slices of all rank files. */
static int count_total(const struct rs_target *t, const struct rs_list *list, const uint64_t *items,
	uint64_t n, uint64_t *total, struct rs_err *err)
{
	uint64_t elements = 0;

	for (uint64_t i = 0; i < n; i++)
		if (!add_elements(t, placed(t, &list->items[items[i]]), &elements))
			return rs_fail(err, RS_LIMIT, "expected fewer than 2^62 elements");
	if (!rs_mul(elements, 4, total))
		return rs_fail(err, RS_LIMIT, "expected fewer than 2^62 elements");
	return 0;
}

/* ------------------------------------------------------------------------- outputs */

/* The map goes part by part, in each by falling size: a stable sort of @items by part. */
static struct rs__mapped *map_parts(struct rs__arranging *a, const uint64_t *items, uint64_t n,
	uint32_t n_parts, struct rs_err *err)
{
	const struct rs_arranged *all = a->t->arranged;
	struct rs__mapped *map = rs_alloc(rs_max(n, 1) * sizeof(*map), err);
	uint64_t *first = rs_alloc(((uint64_t)n_parts + 1) * sizeof(*first), err);

	if (!map || !first) {
		rs_free(map);
		rs_free(first);
		return NULL;
	}
	for (uint64_t i = 0; i < n; i++)
		first[all->part_of[items[i]] + 1]++;
	for (uint32_t p = 0; p < n_parts; p++)
		first[p + 1] += first[p];
	for (uint64_t i = 0; i < n; i++) {
		uint32_t part = all->part_of[items[i]];

		map[first[part]++] =
			(struct rs__mapped){all->whole->items[items[i]].name, a->items[part].name};
	}
	rs_free(first);
	return map;
}

static int add_map(struct rs__arranging *a, const uint64_t *items, uint64_t n, uint32_t n_parts,
	struct rs_err *err)
{
	struct rs_output o = {
		.kind = RS_OUTPUT_TEXT, .at_root = true, .name = "param_name_map.json"};
	struct rs__mapped *map = map_parts(a, items, n, n_parts, err);
	uint64_t total = 0;
	int rc = map ? count_total(a->t, a->t->arranged->whole, items, n, &total, err) : -1;

	if (rc == 0)
		rc = rs__index_unified(map, n, total, a->t->arena, &o.text, err);
	rs_free(map);
	return rc < 0 ? -1 : rs__output_add(a, &o, err);
}

int rs__arrange_unified(struct rs__arranging *a, struct rs_err *err)
{
	uint64_t limit = a->t->opts.max_file ? a->t->opts.max_file : PART_BYTES, *items, n;
	struct rs_output hyper = {
		.kind = RS_OUTPUT_LIST, .at_root = true, .name = "hyper_param.safetensors"};
	const struct rs_list *list;
	uint32_t *part_of, n_parts;

	if (rs__list_whole(a, &part_of, err) < 0)
		return -1;
	list = a->t->arranged->whole;
	choose(a->t, list, part_of);
	if (rs__spread(list, limit, part_of, &n_parts, a->t->arena, &items, &n, err) < 0)
		return -1;
	for (uint32_t p = 0; p < n_parts; p++) {
		struct rs_output o = {.kind = RS_OUTPUT_LIST, .at_root = true, .part = p};

		o.name = rs_arena_printf(a->t->arena, err, "part%u.safetensors", p);
		if (!o.name || rs__output_add(a, &o, err) < 0)
			return -1;
	}
	if (add_map(a, items, n, n_parts, err) < 0)
		return -1;
	hyper.part = n_parts;
	if (choose_hyper(a->t, list, part_of, n_parts) == 0)
		return 0;
	return rs__output_add(a, &hyper, err);
}
