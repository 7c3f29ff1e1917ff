/*
 * emit_survey.c - what every rank of a target holds, gathered tensor by tensor.
 *
 * The lists of all ranks are made one after the other and thrown away; what stays is a number a
 * tensor and rank: the cell that it holds. Refuses tensors that are put together from several
 * boxes, and slices of unequal size: neither plans made here nor strategies say those. Read next:
 * emit_digits.c.
 */
#include "core/target/emit/emit.h"

#include <inttypes.h>

#define CELLS_MAX (UINT64_C(1) << 28) /* of all tensors and ranks: a gigabyte */
#define LIST_BYTES (UINT64_C(1) << 30)

void rs__survey_done(struct rs__survey *s)
{
	for (uint64_t i = 0; i < s->n; i++)
		rs_free(s->items[i].cells);
	rs_free(s->items);
	rs_free(s->slots);
	*s = (struct rs__survey){0};
}

/* ---------------------------------------------------------------------- by name */

static uint64_t hash(struct rs_str name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < name.len; i++)
		h = (h ^ (uint8_t)name.ptr[i]) * UINT64_C(0x100000001b3);
	return h ^ (h >> 29);
}

static uint32_t *slot_of(const struct rs__survey *s, struct rs_str name)
{
	for (uint64_t i = hash(name);; i++) {
		uint32_t *slot = &s->slots[i & (s->n_slots - 1)];
		if (!*slot || rs_str_eq(s->items[*slot - 1].name, name))
			return slot;
	}
}

static int more_slots(struct rs__survey *s, struct rs_err *err)
{
	uint64_t n = s->n_slots ? s->n_slots * 2 : 1024;
	uint32_t *slots = rs_alloc(n * sizeof(*slots), err);

	if (!slots)
		return -1;
	rs_free(s->slots);
	s->slots = slots;
	s->n_slots = n;
	for (uint64_t i = 0; i < s->n; i++)
		*slot_of(s, s->items[i].name) = (uint32_t)i + 1;
	return 0;
}

/* The item called @name, new when it was not seen before. Names outlive the lists: see keep_name.
 */
static struct rs__seen *item_of(struct rs__survey *s, struct rs_str name, struct rs_err *err)
{
	uint64_t cells;

	if (2 * (s->n + 1) > s->n_slots && more_slots(s, err) < 0)
		return NULL;
	uint32_t *slot = slot_of(s, name);
	if (*slot)
		return &s->items[*slot - 1];
	if (!rs_mul(s->n + 1, s->n_ranks, &cells) || cells > CELLS_MAX) {
		rs_fail(err, RS_LIMIT, "%" PRIu64 " tensors on %" PRIu32 " ranks are too many",
			s->n + 1, s->n_ranks);
		return NULL;
	}
	if (rs_grow(&s->items, &s->cap, s->n + 1, sizeof(*s->items), err) < 0)
		return NULL;
	struct rs__seen *item = &s->items[s->n];
	*item = (struct rs__seen){.cells = rs_alloc(s->n_ranks * sizeof(uint32_t), err)};
	if (!item->cells)
		return NULL;
	for (uint32_t r = 0; r < s->n_ranks; r++)
		item->cells[r] = RS__ABSENT;
	*slot = (uint32_t)++s->n;
	return item;
}

/* ------------------------------------------------------------------------ slices */

static int refuse(
	const struct rs_target *t, struct rs_str name, const char *why, struct rs_err *err)
{
	rs_fail(err, RS_USAGE, "target %s: tensor '%s' %s", t->opts.target, RS_SHOW(name), why);
	return rs_hint(err, "only a target whose slices are equal boxes of source tensors can be "
			    "said this way");
}

/* Names of lists live as long as the lists; those of tensors, entries and this arena longer. */
static int keep_name(
	struct rs_target *t, struct rs__seen *item, const struct rs_wanted *w, struct rs_err *err)
{
	const struct rs_tensor *from = w->parts[0].source;

	if (rs_arena_str(t->arena, w->name, &item->name, err) < 0 ||
		rs_arena_str(t->arena, from->name, &item->from, err) < 0)
		return -1;
	return 0;
}

/* What is told of a tensor by the first rank that has it. */
static int describe(
	struct rs_target *t, struct rs__seen *item, const struct rs_wanted *w, struct rs_err *err)
{
	const struct rs_tensor *from = w->parts[0].source;
	const struct rs_strategy *src = t->source->strategy;
	const uint32_t *stages;

	item->whole = from->shape;
	item->dtype = w->dtype;
	item->stored = rs_wanted_stored(w);
	item->loose = rs_catalog_find(t->source->cat, from->name) != from;
	item->kept = item->loose && src && w->dtype != RS_DT_STR &&
		     rs_strategy_stages(src, rs_tensor_stored(from), &stages) > 0;
	for (uint32_t a = 0; a < item->whole.n_axes; a++) {
		uint64_t len = w->parts[0].box.len[a], dim = item->whole.dims[a];
		if (dim % (len ? len : 1) || (len ? dim / len : 1) > RS_MAX_CELLS)
			return refuse(t, w->name, "is not cut into equal slices", err);
		item->cuts[a] = len ? (uint32_t)(dim / len) : 1;
	}
	return 0;
}

static int add(struct rs_target *t, struct rs__survey *s, uint32_t rank, const struct rs_wanted *w,
	struct rs_err *err)
{
	const struct rs_part *p = w->parts;
	uint64_t before = s->n, cell = 0;

	if (w->n_parts != 1 || p->kind != RS_PART_COPY || p->mapped)
		return refuse(t, w->name, "is put together from several boxes", err);
	struct rs__seen *item = item_of(s, w->name, err);
	if (!item)
		return -1;
	if (s->n > before && (keep_name(t, item, w, err) < 0 || describe(t, item, w, err) < 0))
		return -1;
	if (w->dtype != item->dtype || p->box.n_axes != item->whole.n_axes ||
		!rs_str_eq(p->source->name, item->from))
		return refuse(t, w->name, "is not the same on all ranks", err);
	for (uint32_t a = 0; a < item->whole.n_axes; a++) {
		uint64_t len = p->box.len[a];
		if (p->source->shape.dims[a] != item->whole.dims[a] ||
			len * item->cuts[a] != item->whole.dims[a] ||
			p->origin[a] % (len ? len : 1))
			return refuse(t, w->name, "is not cut into equal slices", err);
		cell = cell * item->cuts[a] + (len ? p->origin[a] / len : 0);
	}
	item->cells[rank] = (uint32_t)cell;
	return 0;
}

static int add_rank(struct rs_target *t, struct rs__survey *s, uint32_t rank, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(LIST_BYTES, err);
	struct rs_list list = {0};
	int rc = arena ? t->ops->list(t, rank, arena, &list, NULL, err) : -1;

	if (rc == 0 && list.raw) {
		rs_fail(err, RS_USAGE, "target %s: files are shown as they are", t->opts.target);
		rc = rs_hint(err, "there is nothing that a plan or strategy would say of it");
	}
	for (uint64_t i = 0; rc == 0 && i < list.n; i++)
		rc = add(t, s, rank, &list.items[i], err);
	rs_arena_free(arena);
	return rc;
}

/* ------------------------------------------------------------------------- stages */

static bool same_in_stages(const struct rs__survey *s, uint32_t devices)
{
	for (uint64_t i = 0; i < s->n; i++)
		for (uint32_t r = 0; r < s->n_ranks; r++)
			if ((s->items[i].cells[r] == RS__ABSENT) !=
				(s->items[i].cells[r - r % devices] == RS__ABSENT))
				return false;
	return true;
}

static void find_stages(struct rs__survey *s)
{
	for (s->n_stages = 1; s->n_stages < s->n_ranks; s->n_stages++)
		if (s->n_ranks % s->n_stages == 0 && same_in_stages(s, s->n_ranks / s->n_stages))
			break;
	s->devices = s->n_ranks / s->n_stages;
}

int rs__survey_run(struct rs_target *t, struct rs__survey *out, struct rs_err *err)
{
	*out = (struct rs__survey){0};
	if (t->n_ranks > RS_MAX_CELLS)
		return rs_fail(
			err, RS_LIMIT, "target %s: %" PRIu64 " ranks", t->opts.target, t->n_ranks);
	out->n_ranks = (uint32_t)t->n_ranks;
	for (uint32_t r = 0; r < out->n_ranks; r++)
		if (add_rank(t, out, r, err) < 0) {
			rs__survey_done(out);
			return -1;
		}
	find_stages(out);
	return 0;
}
