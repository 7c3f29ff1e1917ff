/*
 * arrange_split.c - which tensor goes to which file, where a list comes apart into several.
 *
 *   limit 10, sizes 4 5 12 1 3:   4 5 1 | 12 | 3      in order; 12 stands alone and ends nothing
 *                                 part 1  0   2       numbered as they are finished
 *
 * Both rules are those of the writers whose trees are imitated, so that names of files agree with
 * trees from elsewhere. Counts bytes of tensors, not of headers. Read next: arrange.c.
 */
#include "core/target/arrange/arrange.h"

#include <stdlib.h>

int rs__item_bytes(const struct rs_wanted *item, uint64_t *bytes, struct rs_err *err)
{
	if (rs_shape_bytes(&item->shape, item->dtype, bytes))
		return 0;
	return rs_fail(err, RS_LIMIT,
		"tensor '%s': expected whole bytes and fewer than 2^64 bits, found %s of %s",
		RS_SHOW(item->name), RS_SHAPE_SHOW(&item->shape), rs_dtype_name(item->dtype));
}

/* ------------------------------------------------------------- in order, by size */

/* A growing part has no number before it is finished. */
struct splitting {
	uint32_t *number; /* heap: of each group */
	uint32_t n_groups, n_parts;
	uint32_t open; /* the group that grows, or RS__NO_PART */
	uint64_t held; /* its bytes */
};

static void finish_open(struct splitting *s)
{
	if (s->open != RS__NO_PART)
		s->number[s->open] = s->n_parts++;
	s->open = RS__NO_PART;
	s->held = 0;
}

/* The group of a tensor of @bytes. */
static uint32_t place(struct splitting *s, uint64_t bytes, uint64_t limit)
{
	if (limit && bytes > limit) {
		s->number[s->n_groups] = s->n_parts++;
		return s->n_groups++;
	}
	if (limit && bytes > limit - s->held)
		finish_open(s);
	if (s->open == RS__NO_PART)
		s->open = s->n_groups++;
	s->held += limit ? bytes : 0;
	return s->open;
}

int rs__split(const struct rs_list *list, uint64_t limit, uint32_t *part_of, uint32_t *n_parts,
	struct rs_err *err)
{
	struct splitting s = {.open = RS__NO_PART};
	uint64_t bytes;

	if (list->n >= RS__NO_PART)
		return rs_fail(err, RS_LIMIT, "expected fewer than 2^32 tensors");
	s.number = rs_alloc(rs_max(list->n, 1) * sizeof(*s.number), err);
	if (!s.number)
		return -1;
	for (uint64_t i = 0; i < list->n; i++) {
		part_of[i] = RS__NO_PART;
		if (!rs__item_stored(&list->items[i]))
			continue;
		if (rs__item_bytes(&list->items[i], &bytes, err) < 0) {
			rs_free(s.number);
			return -1;
		}
		part_of[i] = place(&s, bytes, limit);
	}
	finish_open(&s);
	/* What no tensor file holds goes to the first part, so that one file tells of it. */
	for (uint64_t i = 0; i < list->n; i++)
		part_of[i] = part_of[i] == RS__NO_PART ? 0 : s.number[part_of[i]];
	rs_free(s.number);
	*n_parts = s.n_parts ? s.n_parts : 1;
	return 0;
}

/* ------------------------------------------------------------------ to the smallest */

struct sized {
	const struct rs_wanted *item;
	uint64_t index, bytes;
};

static int by_falling_size(const void *a, const void *b)
{
	const struct sized *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return rs_str_cmp(x->item->name, y->item->name);
}

/* MindSpore counts four bytes for an element, whatever its type. */
static int measure(const struct rs_list *list, const uint32_t *part_of, struct sized *sized,
	uint64_t *n, uint64_t *total, struct rs_err *err)
{
	uint64_t count;

	*n = *total = 0;
	if (list->n >= RS__NO_PART)
		return rs_fail(err, RS_LIMIT, "expected fewer than 2^32 tensors");
	for (uint64_t i = 0; i < list->n; i++) {
		const struct rs_wanted *item = &list->items[i];
		struct sized s = {.item = item, .index = i};

		if (part_of[i] == RS__NO_PART)
			continue;
		if (!rs_shape_count(&item->shape, &count) || !rs_mul(count, 4, &s.bytes) ||
			!rs_add(*total, s.bytes, total))
			return rs_fail(err, RS_LIMIT,
				"tensor '%s': expected fewer than 2^62 elements",
				RS_SHOW(item->name));
		sized[(*n)++] = s;
	}
	return 0;
}

/* Parts as a heap: heap[0] is the first of the smallest. */
struct heap {
	uint32_t *heap;
	uint64_t *load; /* by part */
	uint32_t n;
};

static bool less(const struct heap *h, uint32_t a, uint32_t b)
{
	uint32_t x = h->heap[a], y = h->heap[b];

	return h->load[x] != h->load[y] ? h->load[x] < h->load[y] : x < y;
}

/* The smallest part takes @bytes and finds its new place. */
static uint32_t add_to_smallest(struct heap *h, uint64_t bytes)
{
	uint32_t part = h->heap[0];

	h->load[part] += bytes;
	for (uint32_t at = 0;;) {
		uint32_t child = 2 * at + 1;

		if (child + 1 < h->n && less(h, child + 1, child))
			child++;
		if (child >= h->n || !less(h, child, at))
			return part;
		h->heap[at] = h->heap[child];
		h->heap[child] = part;
		at = child;
	}
}

int rs__spread(const struct rs_list *list, uint64_t limit, uint32_t *part_of, uint32_t *n_parts,
	struct rs_arena *arena, uint64_t **by_size, uint64_t *n_by_size, struct rs_err *err)
{
	struct sized *sized = rs_alloc(rs_max(list->n, 1) * sizeof(*sized), err);
	struct heap h = {0};
	uint64_t n, total, parts;
	int rc = -1;

	if (!sized || measure(list, part_of, sized, &n, &total, err) < 0)
		goto out;
	parts = rs_min(total / limit + (total % limit != 0), n);
	h.n = (uint32_t)(n > 0 ? rs_max(parts, 1) : 0);
	h.heap = rs_alloc(rs_max(h.n, 1) * sizeof(*h.heap), err);
	h.load = rs_alloc(rs_max(h.n, 1) * sizeof(*h.load), err);
	*by_size = RS_NEW_N(arena, uint64_t, n, err);
	if (!h.heap || !h.load || !*by_size)
		goto out;
	for (uint32_t p = 0; p < h.n; p++)
		h.heap[p] = p;
	qsort(sized, n, sizeof(*sized), by_falling_size);
	for (uint64_t i = 0; i < n; i++) {
		part_of[sized[i].index] = add_to_smallest(&h, sized[i].bytes);
		(*by_size)[i] = sized[i].index;
	}
	*n_parts = h.n;
	*n_by_size = n;
	rc = 0;
out:
	rs_free(sized);
	rs_free(h.heap);
	rs_free(h.load);
	return rc;
}

int rs__select(const struct rs_list *list, const uint32_t *part_of, uint32_t part,
	struct rs_arena *arena, struct rs_list *out, struct rs_err *err)
{
	struct rs_wanted *items;
	uint64_t n = 0;

	for (uint64_t i = 0; i < list->n; i++)
		n += part_of[i] == part;
	items = RS_NEW_N(arena, struct rs_wanted, n, err);
	if (!items)
		return -1;
	*out = *list;
	out->items = items;
	out->n = n;
	for (uint64_t i = 0; i < list->n; i++)
		if (part_of[i] == part)
			*items++ = list->items[i];
	return 0;
}
