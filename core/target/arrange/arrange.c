/*
 * arrange.c - from what ranks hold to files of a tree: which there are, where they stand, what they
 * are called.
 *
 *   rank      rank_R/NAME, one a rank, or what a plan's files.path says
 *   hf        the whole tensors of target=full at the root, cut by size, with an index
 *   unified   the same as MindSpore's unified_safetensors does it (arrange_unified.c)
 *   vllm      model-rank-R-part-P.safetensors at the root
 *
 * hf and vllm also show the files that go with the weights (config.json, tokenizers) as they are.
 * Refuses layouts that do not fit the target, and two files of one name.
 * Read next: arrange.h, for who does what; core/view/tree.c, where the files get inodes.
 */
#include "core/target/arrange/arrange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HF_MAX_FILE 5000000000u /* 5GB of huggingface_hub: powers of ten */
#define ALIGN_MAX (1u << 20)
#define MAX_OUTPUTS (1u << 20) /* in one directory: numbers of files are 20 bits of an inode */

static const char *const layout_names[] = {
	[RS_ARRANGE_RANK] = "rank",
	[RS_ARRANGE_HF] = "hf",
	[RS_ARRANGE_UNIFIED] = "unified",
	[RS_ARRANGE_VLLM] = "vllm",
};

/* ---------------------------------------------------------------- before headers */

static int check_align(const struct rs_target *t, struct rs_err *err)
{
	uint64_t align = t->files.align;

	if (align == 0 || (align >= 8 && align <= ALIGN_MAX && (align & (align - 1)) == 0))
		return 0;
	return rs_fail(err, RS_USAGE,
		"files.align: expected a power of two from 8 to %u, found %" PRIu64, ALIGN_MAX,
		align);
}

/* An index lists what safetensors files hold. */
static int check_index(const struct rs_target *t, struct rs_err *err)
{
	if (!t->files.index || strcmp(t->container, "safetensors") == 0)
		return 0;
	return rs_fail(
		err, RS_USAGE, "files.index: expected format safetensors, found %s", t->container);
}

int rs__arrange_open(struct rs_target *t, struct rs_err *err)
{
	enum rs_arrangement layout = t->opts.layout;
	const char *name = layout_names[layout];

	if (check_align(t, err) < 0)
		return -1;
	if (layout == RS_ARRANGE_RANK) {
		if (t->opts.max_file && !t->files.path) {
			rs_fail(err, RS_USAGE, "max_file=: expected layout=hf, unified or vllm");
			return rs_hint(err, "a rank has one file; plans say files.max_bytes");
		}
		return check_index(t, err);
	}
	if (layout != RS_ARRANGE_VLLM && t->ops != &rs__target_full) {
		rs_fail(err, RS_USAGE, "layout=%s: expected target=full, found target=%s", name,
			RS_SHOW(rs_str(t->opts.target)));
		return rs_hint(err, "it shows whole tensors, which no rank cuts");
	}
	if (t->opts.container && strcmp(t->opts.container, "safetensors") != 0)
		return rs_fail(err, RS_USAGE, "layout=%s: expected format=safetensors, found %s",
			name, RS_SHOW(rs_str(t->opts.container)));
	t->container = "safetensors";
	t->files = (struct rs_files){.align = t->files.align};
	/* Readers of these trees know "pt" and perhaps nothing else. */
	if (layout != RS_ARRANGE_UNIFIED)
		t->mindspore = false;
	return 0;
}

/* ----------------------------------------------------------------------- outputs */

int rs__output_add(struct rs__arranging *a, const struct rs_output *o, struct rs_err *err)
{
	if (rs_grow(&a->items, &a->cap, a->n + 1, sizeof(*a->items), err) < 0)
		return -1;
	a->items[a->n++] = *o;
	return 0;
}

int rs__add_companions(struct rs__arranging *a, struct rs_err *err)
{
	const struct rs_source *source = a->t->source;
	const uint64_t n_ours = a->n;

	for (uint64_t i = 0; i < source->n_companions; i++) {
		struct rs_output o = {.kind = RS_OUTPUT_COPY,
			.at_root = true,
			.unit = source->companions[i].unit};
		bool taken = false;

		o.name = rs__name_escape(a->t->arena, rs_str(source->companions[i].name), err);
		if (!o.name)
			return -1;
		for (uint64_t k = 0; k < n_ours && !taken; k++)
			taken = strcmp(a->items[k].name, o.name) == 0;
		if (!taken && rs__output_add(a, &o, err) < 0)
			return -1;
	}
	return 0;
}

/* ----------------------------------------------------------------------- layouts */

/* A plan names its files; name= may rename those that stand alone in rank_R/. */
static const char *path_of_rank(const struct rs__arranging *a, struct rs_err *err)
{
	static const char dir[] = "rank_{rank}/";
	const struct rs_target *t = a->t;
	const char *path = t->files.path;

	if (path && !a->name)
		return path;
	if (!path || strncmp(path, dir, sizeof(dir) - 1) == 0)
		return rs_arena_printf(
			t->arena, err, "%s%s", dir, a->name ? a->name : t->container_default_name);
	rs_fail(err, RS_USAGE, "name=: the plan names its files (%s)", RS_SHOW(rs_str(path)));
	rs_hint(err, "leave name= out, or files.path of the plan");
	return NULL;
}

static int arrange_rank(struct rs__arranging *a, struct rs_err *err)
{
	const struct rs_target *t = a->t;
	const char *path = path_of_rank(a, err);

	t->arranged->limit = t->opts.max_file ? t->opts.max_file : t->files.max_bytes;
	return path ? rs__arrange_path(a, path, err) : -1;
}

static int arrange_vllm(struct rs__arranging *a, struct rs_err *err)
{
	a->t->arranged->limit = a->t->opts.max_file;
	a->parts_from_0 = true;
	if (rs__arrange_path(a, "model-rank-{rank}", err) < 0)
		return -1;
	return rs__add_companions(a, err);
}

/* The whole list, once for all files. */
int rs__list_whole(struct rs__arranging *a, uint32_t **part_of, struct rs_err *err)
{
	struct rs_target *t = a->t;
	struct rs_list *list = RS_NEW(t->arena, struct rs_list, err);

	if (!list || rs_target_list(t, 0, t->arena, list, &t->notes, err) < 0)
		return -1;
	*part_of = RS_NEW_N(t->arena, uint32_t, list->n, err);
	if (!*part_of)
		return -1;
	t->arranged->whole = list;
	t->arranged->part_of = *part_of;
	return 0;
}

static int add_hf_index(struct rs__arranging *a, const uint32_t *part_of, struct rs_err *err)
{
	const struct rs_list *list = a->t->arranged->whole;
	struct rs_output o = {
		.kind = RS_OUTPUT_TEXT, .at_root = true, .name = "model.safetensors.index.json"};
	struct rs__mapped *map = rs_alloc(rs_max(list->n, 1) * sizeof(*map), err);
	uint64_t n = 0, total = 0, bytes;
	int rc = map ? 0 : -1;

	for (uint64_t i = 0; rc == 0 && i < list->n; i++) {
		if (!rs__item_stored(&list->items[i]))
			continue;
		rc = rs__item_bytes(&list->items[i], &bytes, err);
		if (rc == 0 && !rs_add(total, bytes, &total))
			rc = rs_fail(err, RS_LIMIT, "expected fewer than 2^64 bytes of tensors");
		map[n++] = (struct rs__mapped){list->items[i].name, a->items[part_of[i]].name};
	}
	if (rc == 0)
		rc = rs__index_hf(map, n, total, a->t->arena, &o.text, err);
	rs_free(map);
	return rc < 0 ? -1 : rs__output_add(a, &o, err);
}

static int arrange_hf(struct rs__arranging *a, struct rs_err *err)
{
	uint64_t limit = a->t->opts.max_file ? a->t->opts.max_file : HF_MAX_FILE;
	uint32_t *part_of, n_parts;

	if (rs__list_whole(a, &part_of, err) < 0 ||
		rs__split(a->t->arranged->whole, limit, part_of, &n_parts, err) < 0)
		return -1;
	for (uint32_t p = 0; p < n_parts; p++) {
		struct rs_output o = {.kind = RS_OUTPUT_LIST, .at_root = true, .part = p};

		o.name = rs__part_name(a->t->arena, "model.safetensors", p, n_parts, err);
		if (!o.name || rs__output_add(a, &o, err) < 0)
			return -1;
	}
	if (n_parts > 1 && add_hf_index(a, part_of, err) < 0)
		return -1;
	return rs__add_companions(a, err);
}

/* --------------------------------------------------------------------------- all */

static int by_place(const void *a, const void *b)
{
	const struct rs_output *x = a, *y = b;

	if (x->at_root != y->at_root)
		return x->at_root ? -1 : 1;
	if (!x->at_root && x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Sorted by place: equal names are neighbours, and so are the files of a directory. */
static int check_names(const struct rs__arranging *a, struct rs_err *err)
{
	uint64_t in_dir = 1;

	for (uint64_t i = 1; i < a->n; i++) {
		const struct rs_output *x = &a->items[i - 1], *y = &a->items[i];
		bool same = x->at_root == y->at_root && (x->at_root || x->rank == y->rank);

		if (same && strcmp(x->name, y->name) == 0)
			return rs_fail(err, RS_USAGE, "two files would be called '%s'", x->name);
		in_dir = same ? in_dir + 1 : 1;
		if (in_dir > MAX_OUTPUTS - 16)
			return rs_fail(err, RS_LIMIT,
				"expected fewer than %u files in one directory; larger parts "
				"(max_file=) make fewer",
				MAX_OUTPUTS);
	}
	return 0;
}

static int keep(struct rs__arranging *a, struct rs_err *err)
{
	struct rs_output *outputs = RS_NEW_N(a->t->arena, struct rs_output, a->n, err);

	if (!outputs)
		return -1;
	if (a->n > 0) {
		qsort(a->items, a->n, sizeof(*a->items), by_place);
		memcpy(outputs, a->items, a->n * sizeof(*outputs));
	}
	if (check_names(a, err) < 0)
		return -1;
	a->t->outputs = outputs;
	a->t->n_outputs = a->n;
	return 0;
}

int rs_target_arrange(struct rs_target *t, const uint64_t *ranks, uint64_t n, const char *name,
	struct rs_err *err)
{
	static int (*const layouts[])(struct rs__arranging *, struct rs_err *) = {
		[RS_ARRANGE_RANK] = arrange_rank,
		[RS_ARRANGE_HF] = arrange_hf,
		[RS_ARRANGE_UNIFIED] = rs__arrange_unified,
		[RS_ARRANGE_VLLM] = arrange_vllm,
	};
	struct rs__arranging a = {.t = t, .ranks = ranks, .n_ranks = n, .name = name};
	int rc = -1;

	t->arranged = RS_NEW(t->arena, struct rs_arranged, err);
	if (t->arranged && layouts[t->opts.layout](&a, err) == 0)
		rc = keep(&a, err);
	rs_free(a.items);
	return rc;
}

uint64_t rs_target_lead(const struct rs_target *t, uint64_t rank)
{
	const struct rs_arranged *a = t->arranged;

	for (uint64_t low = 0, high = a->n_shown; low < high;) {
		uint64_t mid = low + (high - low) / 2;

		if (a->shown[mid] == rank)
			return a->leads[mid];
		if (a->shown[mid] < rank)
			low = mid + 1;
		else
			high = mid;
	}
	return rank;
}

/* ----------------------------------------------------------------- list of a file */

static int list_copy(struct rs_target *t, uint32_t unit, struct rs_arena *arena,
	struct rs_list *out, struct rs_err *err)
{
	struct rs__list list = {.arena = arena};

	if (rs__list_file(&list, t->source->cat, unit, err) < 0)
		return -1;
	*out = (struct rs_list){.items = list.items, .n = list.n, .raw = true};
	return 0;
}

static int list_part(struct rs_target *t, const struct rs_output *o, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err)
{
	const struct rs_arranged *a = t->arranged;
	uint32_t *part_of, n_parts;
	struct rs_list all;

	if (a->whole)
		return rs__select(a->whole, a->part_of, o->part, arena, out, err);
	if (a->limit == 0)
		return rs_target_list(t, o->rank, arena, out, notes, err);
	if (rs_target_list(t, o->rank, arena, &all, notes, err) < 0)
		return -1;
	part_of = RS_NEW_N(arena, uint32_t, all.n, err);
	if (!part_of || rs__split(&all, a->limit, part_of, &n_parts, err) < 0)
		return -1;
	return rs__select(&all, part_of, o->part, arena, out, err);
}

int rs_target_output(struct rs_target *t, const struct rs_output *output, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err)
{
	*out = (struct rs_list){0};
	if (output->kind == RS_OUTPUT_TEXT)
		return 0;
	if (output->kind == RS_OUTPUT_COPY)
		return list_copy(t, output->unit, arena, out, err);
	if (list_part(t, output, arena, out, notes, err) < 0)
		return -1;
	out->align = t->files.align;
	if (t->files.n_meta > 0 && out->n_meta == 0) {
		out->meta = t->files.meta;
		out->n_meta = t->files.n_meta;
	}
	return 0;
}
