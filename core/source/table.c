/*
 * table.c - the headers of several files of one unit, joined: what load_segmented_checkpoints does.
 *
 * A later file's entry replaces an earlier one of the same name and keeps its place, so that the
 * order of the first file stays the order of the whole. Refuses nothing of its own; names that
 * stand twice inside one file were refused by its reader. Next: mindspore.c, which picks the files.
 */
#include "reshardfs/source.h"

#include <inttypes.h>
#include <stdlib.h>

#define JOINED_MAX_BYTES (UINT64_C(256) << 20)

/* An entry or metadata key on its way into the joined table. */
struct ref {
	struct rs_str name;
	uint64_t seq; /* place in the concatenation of all parts */
	uint32_t part;
	const struct rs_entry *entry;
	const struct rs_meta *meta;
};

static int by_name(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	int order = rs_str_cmp(x->name, y->name);
	return order ? order : (x->seq > y->seq) - (x->seq < y->seq);
}

static int by_seq(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Keep one of each name: the content of the last at the place of the first. Returns how many. */
static uint64_t settle(struct ref *refs, uint64_t n)
{
	uint64_t kept = 0;

	if (n == 0)
		return 0;
	qsort(refs, n, sizeof(*refs), by_name);
	for (uint64_t i = 0; i < n; i++) {
		if (kept && rs_str_eq(refs[kept - 1].name, refs[i].name)) {
			uint64_t place = refs[kept - 1].seq;
			refs[kept - 1] = refs[i];
			refs[kept - 1].seq = place;
		} else {
			refs[kept++] = refs[i];
		}
	}
	qsort(refs, kept, sizeof(*refs), by_seq);
	return kept;
}

/* Copy an entry; its spans count files from the first of @part on. */
static int copy_entry(struct rs_arena *arena, const struct ref *ref, uint32_t first_file,
	struct rs_entry *out, struct rs_err *err)
{
	struct rs_span *spans = RS_NEW_N(arena, struct rs_span, ref->entry->n_spans, err);

	if (!spans)
		return -1;
	*out = *ref->entry;
	for (uint32_t i = 0; i < out->n_spans; i++) {
		spans[i] = ref->entry->spans[i];
		spans[i].file += first_file;
	}
	out->spans = spans;
	return rs_arena_str(arena, ref->name, &out->name, err);
}

static int join_entries(struct rs_table *t, struct rs_table *const *parts, uint32_t n,
	const uint32_t *first_file, struct ref *refs, struct rs_err *err)
{
	uint64_t total = 0;

	for (uint32_t p = 0; p < n; p++)
		for (uint64_t i = 0; i < parts[p]->n_entries; i++, total++)
			refs[total] = (struct ref){.name = parts[p]->entries[i].name,
				.seq = total,
				.part = p,
				.entry = &parts[p]->entries[i]};
	total = settle(refs, total);
	struct rs_entry *entries = RS_NEW_N(t->arena, struct rs_entry, total, err);
	if (!entries)
		return -1;
	for (uint64_t i = 0; i < total; i++)
		if (copy_entry(t->arena, &refs[i], first_file[refs[i].part], &entries[i], err) < 0)
			return -1;
	t->entries = entries;
	t->n_entries = total;
	return 0;
}

static int join_meta(struct rs_table *t, struct rs_table *const *parts, uint32_t n,
	struct ref *refs, struct rs_err *err)
{
	uint64_t total = 0;

	for (uint32_t p = 0; p < n; p++)
		for (uint64_t i = 0; i < parts[p]->n_meta; i++, total++)
			refs[total] = (struct ref){.name = parts[p]->meta[i].key,
				.seq = total,
				.meta = &parts[p]->meta[i]};
	total = settle(refs, total);
	struct rs_meta *meta = RS_NEW_N(t->arena, struct rs_meta, total, err);
	if (!meta)
		return -1;
	for (uint64_t i = 0; i < total; i++)
		if (rs_arena_str(t->arena, refs[i].name, &meta[i].key, err) < 0 ||
			rs_arena_str(t->arena, refs[i].meta->value, &meta[i].value, err) < 0)
			return -1;
	t->meta = meta;
	t->n_meta = total;
	return 0;
}

/* The files of all parts, one behind the other, and what any of them says of itself. */
static int join_files(struct rs_table *t, struct rs_table *const *parts, uint32_t n,
	uint32_t *first_file, struct rs_err *err)
{
	uint64_t n_files = 0;

	for (uint32_t p = 0; p < n; p++) {
		first_file[p] = (uint32_t)n_files;
		n_files += parts[p]->n_files;
		t->crc |= parts[p]->crc;
		t->deduplicated |= parts[p]->deduplicated;
		t->leading_space |= parts[p]->leading_space;
	}
	if (n_files > UINT32_MAX)
		return rs_fail(err, RS_LIMIT, "%" PRIu64 " files in one unit", n_files);
	uint64_t *bytes = RS_NEW_N(t->arena, uint64_t, n_files, err);
	if (!bytes)
		return -1;
	t->file_bytes = bytes;
	t->n_files = (uint32_t)n_files;
	for (uint32_t p = 0; p < n; p++)
		for (uint32_t f = 0; f < parts[p]->n_files; f++)
			*bytes++ = parts[p]->file_bytes[f];
	return 0;
}

static struct rs_table *new_table(struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(JOINED_MAX_BYTES, err);
	struct rs_table *t = arena ? RS_NEW(arena, struct rs_table, err) : NULL;

	if (t)
		t->arena = arena;
	else
		rs_arena_free(arena);
	return t;
}

int rs_table_join(struct rs_table **parts, uint32_t n, struct rs_table **out, struct rs_err *err)
{
	struct rs_table *t = NULL;
	struct ref *refs = NULL;
	uint32_t *first_file = NULL;
	uint64_t most = 0;
	int status = -1;

	if (n == 1) {
		*out = parts[0];
		return 0;
	}
	for (uint32_t p = 0; p < n; p++)
		most += parts[p]->n_entries + parts[p]->n_meta;
	t = new_table(err);
	refs = rs_alloc(most * sizeof(*refs), err);
	first_file = rs_alloc((uint64_t)n * sizeof(*first_file), err);
	if (!t || !refs || !first_file || join_files(t, parts, n, first_file, err) < 0 ||
		join_entries(t, parts, n, first_file, refs, err) < 0 ||
		join_meta(t, parts, n, refs, err) < 0 ||
		rs_table_finish(t, "the joined files", err) < 0)
		goto out;
	*out = t;
	status = 0;
out:
	if (status < 0 && t)
		rs_arena_free(t->arena);
	for (uint32_t p = 0; p < n; p++)
		rs_arena_free(parts[p]->arena);
	rs_free(first_file);
	rs_free(refs);
	return status;
}
