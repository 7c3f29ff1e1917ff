/*
 * table.c - the header of a unit: finding an entry by name, and telling equal headers.
 *
 * Ranks of one stage have the same names, shapes and offsets, so thousands of units share
 * a handful of tables (catalog.c). Refuses a name that stands twice: nobody could say which is
 * meant.
 */
#include "core/catalog/internal.h"

#include <inttypes.h>
#include <stdlib.h>

static int by_name(const void *a, const void *b, void *entries)
{
	const struct rs_entry *e = entries;
	return rs_str_cmp(e[*(const uint32_t *)a].name, e[*(const uint32_t *)b].name);
}

int rs_table_finish(struct rs_table *t, const char *file, struct rs_err *err)
{
	if (t->n_entries > RS_MAX_TENSORS)
		return rs_fail(err, RS_LIMIT, "%s: %" PRIu64 " tensors, the limit is %d", file,
			t->n_entries, RS_MAX_TENSORS);
	uint32_t *order = RS_NEW_N(t->arena, uint32_t, t->n_entries, err);
	/* qsort_r wants a mutable cookie; the entries are only compared. */
	struct rs_entry *scratch = (struct rs_entry *)(uintptr_t)t->entries;
	if (!order)
		return -1;
	for (uint64_t i = 0; i < t->n_entries; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, t->n_entries, sizeof(*order), by_name, scratch);
	for (uint64_t i = 1; i < t->n_entries; i++)
		if (rs_str_eq(t->entries[order[i - 1]].name, t->entries[order[i]].name))
			return rs_fail(err, RS_CORRUPT, "%s: tensor '%s' stands twice", file,
				RS_SHOW(t->entries[order[i]].name));
	t->by_name = order;
	return 0;
}

const struct rs_entry *rs_table_find(const struct rs_table *t, struct rs_str name)
{
	uint64_t lo = 0, hi = t->n_entries;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		const struct rs_entry *e = &t->entries[t->by_name[mid]];
		int order = rs_str_cmp(name, e->name);
		if (order == 0)
			return e;
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

/* FNV-1a: the hash only speeds up a full comparison, so collisions cost time and nothing else. */
static uint64_t mix(uint64_t h, const void *p, size_t len)
{
	const uint8_t *b = p;
	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * 0x100000001b3u;
	return h;
}

uint64_t rs__table_hash(const struct rs_table *t)
{
	uint64_t h = mix(0xcbf29ce484222325u, &t->n_entries, sizeof(t->n_entries));
	for (uint64_t i = 0; i < t->n_entries; i++) {
		const struct rs_entry *e = &t->entries[i];
		h = mix(h, e->name.ptr, e->name.len);
		h = mix(h, e->shape.dims, e->shape.n_axes * sizeof(e->shape.dims[0]));
		if (e->n_spans)
			h = mix(h, &e->spans[0].off, sizeof(e->spans[0].off));
	}
	return h;
}

static bool entry_eq(const struct rs_entry *a, const struct rs_entry *b)
{
	if (a->dtype != b->dtype || a->zero_dims != b->zero_dims || a->bytes != b->bytes ||
		a->swap != b->swap || a->fortran != b->fortran || a->latin1 != b->latin1 ||
		a->n_spans != b->n_spans || !rs_shape_eq(&a->shape, &b->shape) ||
		!rs_str_eq(a->name, b->name))
		return false;
	for (uint32_t i = 0; i < a->n_spans; i++)
		if (a->spans[i].file != b->spans[i].file || a->spans[i].off != b->spans[i].off ||
			a->spans[i].len != b->spans[i].len)
			return false;
	return true;
}

bool rs__table_eq(const struct rs_table *a, const struct rs_table *b)
{
	if (a->n_entries != b->n_entries || a->n_files != b->n_files || a->n_meta != b->n_meta ||
		a->crc != b->crc || a->deduplicated != b->deduplicated ||
		a->leading_space != b->leading_space)
		return false;
	for (uint32_t i = 0; i < a->n_files; i++)
		if (a->file_bytes[i] != b->file_bytes[i])
			return false;
	for (uint64_t i = 0; i < a->n_meta; i++)
		if (!rs_str_eq(a->meta[i].key, b->meta[i].key) ||
			!rs_str_eq(a->meta[i].value, b->meta[i].value))
			return false;
	for (uint64_t i = 0; i < a->n_entries; i++)
		if (!entry_eq(&a->entries[i], &b->entries[i]))
			return false;
	return true;
}
