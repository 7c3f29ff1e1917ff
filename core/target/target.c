/*
 * target.c - the table of target kinds, and what all of them share.
 *
 * A kind is told by its word or by the first bytes of a file; to add one is a file in this folder
 * and a line in `kinds`. Refuses a target that no kind knows, with the words that would be
 * understood.
 */
#include "core/target/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct rs_target_ops *const kinds[] = {
	&rs__target_full,
	&rs__target_same,
	&rs__target_short,
	&rs__target_strategy,
	&rs__target_plan,
};

static int copy_options(
	struct rs_target *t, const struct rs_target_options *opts, struct rs_err *err)
{
	t->opts = *opts;
	t->opts.target = rs_arena_copy(t->arena, opts->target, strlen(opts->target), err);
	t->container = opts->container               ? opts->container
		       : t->source->target_container ? t->source->target_container
						     : t->source->container;
	t->container = rs_arena_copy(t->arena, t->container, strlen(t->container), err);
	if (!t->opts.target || !t->container)
		return -1;
	t->opts.container = opts->container ? t->container : NULL;
	if (opts->plan)
		t->opts.plan = rs_arena_copy(t->arena, opts->plan, strlen(opts->plan), err);
	return !opts->plan || t->opts.plan ? 0 : -1;
}

/* A kind may say its own; else files are called as the framework that wrote them calls them. */
static int choose_name(struct rs_target *t, struct rs_err *err)
{
	const char *stem = t->mindspore ? "checkpoint_{rank}" : "model";

	if (strcmp(t->container, "pdparams") == 0)
		stem = "model_state"; /* what Paddle's loaders look for */
	if (!t->container_default_name)
		t->container_default_name =
			rs_arena_printf(t->arena, err, "%s.%s", stem, t->container);
	return t->container_default_name ? 0 : -1;
}

int rs_target_open(const struct rs_target_options *opts, struct rs_source *source,
	struct rs_target **out, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(1u << 30, err);
	struct rs_target *t = arena ? RS_NEW(arena, struct rs_target, err) : NULL;

	if (!t) {
		rs_arena_free(arena);
		return -1;
	}
	t->arena = arena;
	t->source = source;
	if (copy_options(t, opts, err) < 0)
		goto fail;
	for (size_t i = 0; !t->ops && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i]->is(t->opts.target))
			t->ops = kinds[i];
	if (!t->ops && access(t->opts.target, F_OK) < 0 && strchr(t->opts.target, '/')) {
		rs_fail_sys(err, errno, "target %s: cannot be read", t->opts.target);
		if (err)
			err->code = RS_USAGE;
		goto fail;
	}
	if (!t->ops) {
		rs_fail(err, RS_USAGE,
			"target '%s': expected full, same, a short target such as tp4.pp2, or the "
			"path of a strategy or plan",
			RS_SHOW(rs_str(t->opts.target)));
		rs_hint(err,
			"a strategy file begins with byte 0x08, or is JSON with "
			"parallel_layout_item (reshardfs strategy show FILE); a plan is JSON with "
			"reshard_plan");
		goto fail;
	}
	if (t->ops->open(t, err) < 0 || rs__arrange_open(t, err) < 0 || choose_name(t, err) < 0)
		goto fail;
	t->bound = !t->ops->bind;
	*out = t;
	return 0;
fail:
	rs_target_close(t);
	return -1;
}

void rs_target_close(struct rs_target *t)
{
	if (!t)
		return;
	rs_strategy_free(t->strategy);
	rs_notes_done(&t->notes);
	rs_arena_free(t->arena);
}

uint32_t rs_target_local(const struct rs_target *t, uint64_t rank)
{
	uint64_t devices = t->stage_devices ? t->stage_devices : t->n_ranks;
	return (uint32_t)(rank % devices % rs_catalog_stage_devices(t->source->cat));
}

int rs_target_bind(struct rs_target *t, struct rs_err *err)
{
	if (!t->bound && t->ops->bind && t->ops->bind(t, err) < 0)
		return -1;
	t->bound = true;
	return 0;
}

int rs_target_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	if (rs_target_bind(t, err) < 0 || rs__cast_check(t, err) < 0)
		return -1;
	return t->ops->check(t, ranks, n, err);
}

int rs_target_needs(struct rs_target *t, uint64_t rank, uint8_t *source_ranks, struct rs_err *err)
{
	return t->ops->needs(t, rank, err, source_ranks);
}

int rs_target_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err)
{
	*out = (struct rs_list){0};
	if (t->ops->list(t, rank, arena, out, notes, err) < 0)
		return -1;
	if (out->raw)
		return 0;
	if (t->source->names && rs__list_unique(t, out, err) < 0)
		return -1;
	return rs__cast_list(t, out, arena, err);
}

int rs__list_add(struct rs__list *l, const struct rs_wanted *w, struct rs_err *err)
{
	if (l->n == l->cap) {
		uint64_t cap = l->cap ? l->cap * 2 : 64;
		struct rs_wanted *items = RS_NEW_N(l->arena, struct rs_wanted, cap, err);
		if (!items)
			return -1;
		if (l->n)
			memcpy(items, l->items, l->n * sizeof(*items));
		l->items = items;
		l->cap = cap;
	}
	l->items[l->n++] = *w;
	return 0;
}

struct rs_tensor *rs__entry_tensor(
	struct rs_arena *arena, uint32_t unit, const struct rs_entry *e, struct rs_err *err)
{
	struct rs_piece *piece = RS_NEW(arena, struct rs_piece, err);
	struct rs_tensor *tensor = RS_NEW(arena, struct rs_tensor, err);

	if (!piece || !tensor)
		return NULL;
	*piece = (struct rs_piece){.box = rs_box_whole(&e->shape), .unit = unit, .entry = e};
	rs_piece_row_major(piece);
	*tensor = (struct rs_tensor){.name = e->name,
		.dtype = e->dtype,
		.shape = e->shape,
		.pieces = piece,
		.n_pieces = 1,
		.witness = unit};
	return tensor;
}

int rs__list_entry(struct rs__list *l, uint32_t unit, const struct rs_entry *e, struct rs_str name,
	struct rs_err *err)
{
	const struct rs_tensor *tensor = rs__entry_tensor(l->arena, unit, e, err);

	if (!tensor || rs__list_tensor(l, tensor, err) < 0)
		return -1;
	l->items[l->n - 1].name = name;
	l->items[l->n - 1].zero_dims = e->zero_dims;
	return 0;
}

static int note_zero_dims(void *arg, const struct rs_piece *piece, struct rs_err *err)
{
	(void)err;
	*(bool *)arg = piece->entry->zero_dims;
	return 1;
}

int rs__zero_dims(struct rs_catalog *cat, const struct rs_tensor *t, uint32_t prefer, bool *out,
	struct rs_err *err)
{
	struct rs_box whole = rs_box_whole(&t->shape);

	*out = false;
	if (t->shape.n_axes > 0)
		return 0;
	return rs_catalog_pieces(cat, t, &whole, prefer, note_zero_dims, out, err) < 0 ? -1 : 0;
}

int rs__list_tensor(struct rs__list *l, const struct rs_tensor *tensor, struct rs_err *err)
{
	struct rs_part *part = RS_NEW(l->arena, struct rs_part, err);

	if (!part)
		return -1;
	*part = (struct rs_part){
		.kind = RS_PART_COPY, .box = rs_box_whole(&tensor->shape), .source = tensor};
	struct rs_wanted want = {.name = tensor->name,
		.dtype = tensor->dtype,
		.shape = tensor->shape,
		.parts = part,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	return rs__list_add(l, &want, err);
}

static int by_order(const void *a, const void *b)
{
	const struct rs_tensor *const *x = a, *const *y = b;

	if ((*x)->order != (*y)->order)
		return (*x)->order < (*y)->order ? -1 : 1;
	return rs_str_cmp((*x)->name, (*y)->name);
}

int rs__source_order(const struct rs_catalog *cat, struct rs_arena *arena,
	const struct rs_tensor ***out, struct rs_err *err)
{
	uint64_t n = rs_catalog_n_tensors(cat);
	const struct rs_tensor **list = RS_NEW_N(arena, const struct rs_tensor *, n, err);

	if (!list)
		return -1;
	for (uint64_t i = 0; i < n; i++)
		list[i] = rs_catalog_tensor(cat, i);
	if (n)
		qsort(list, n, sizeof(*list), by_order);
	*out = list;
	return 0;
}

/* The ranks that are there, as "0-3,5", for a message. */
static void show_ranks(const struct rs_catalog *cat, uint64_t n, char *buf, size_t size)
{
	size_t at = 0;
	for (uint64_t r = 0; r < n && at + 32 < size; r++) {
		uint64_t last = r;
		if (rs_catalog_rank_unit(cat, r) == RS_NO_UNIT)
			continue;
		while (last + 1 < n && rs_catalog_rank_unit(cat, last + 1) != RS_NO_UNIT)
			last++;
		at += (size_t)snprintf(buf + at, size - at, "%s%" PRIu64, at ? "," : "", r);
		if (last > r)
			at += (size_t)snprintf(buf + at, size - at, "-%" PRIu64, last);
		r = last;
	}
}

int rs__missing_rank(
	const struct rs_target *t, uint64_t rank, uint64_t wanted_by, struct rs_err *err)
{
	const struct rs_source *src = t->source;
	char found[160] = "none";

	show_ranks(src->cat, src->n_ranks, found, sizeof(found));
	rs_fail(err, RS_MISSING,
		"%s: rank %" PRIu64 " of %" PRIu64 " missing (expected rank_%" PRIu64
		"/*.%s, found ranks %s); target rank %" PRIu64 " takes from it",
		src->opts.path, rank, src->n_ranks, rank, src->container, found, wanted_by);
	return rs_hint(err, "on another node? gather the directories first; or -o ranks=... if the "
			    "target ranks you need do not use it");
}
