/*
 * safetensors.c - the header of a .safetensors file: names, types, shapes and byte ranges.
 *
 *   8 bytes N, little-endian | N bytes of JSON | the tensors, back to back
 *
 * Checks what the reference reader checks, in its order and with its error words, so that people
 * can search for them. Stricter in three points: a name that stands twice, a NUL in a name, and
 * shapes of more than RS_MAX_AXES axes are refused. Format: docs/formats/safetensors.md.
 * Next: safetensors_json.c.
 */
#include "core/source/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The reference's cap: 100 million, not 100 MiB. */
#define HEADER_CAP 100000000u

int rs__st_refuse(
	struct rs__st *p, const char *word, const struct rs_str *name, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	if (name)
		return rs_fail(p->err, RS_CORRUPT, "%s: tensor '%s': %s: %s", p->file->name,
			RS_SHOW(*name), word, text);
	return rs_fail(p->err, RS_CORRUPT, "%s: %s: %s", p->file->name, word, text);
}

/* ------------------------------------------------------------------ the frame */

/* Checks 1 to 3: the header lies in the file. */
static int read_text(struct rs__st *p)
{
	uint8_t prefix[RS__ST_PREFIX];
	struct rs_reader r;

	if (p->file->size < RS__ST_PREFIX)
		return rs__st_refuse(p, "HeaderTooSmall", NULL,
			"expected 8 bytes of header length, found a file of %" PRIu64 " bytes",
			p->file->size);
	if (rs_file_read(p->file, 0, prefix, sizeof(prefix), p->err) < 0)
		return -1;
	rs_read_init(&r, prefix, sizeof(prefix), 0, p->file->name, p->err);
	uint64_t header_bytes = rs_read_le64(&r, "header length");
	if (header_bytes > HEADER_CAP) {
		(void)rs__st_refuse(p, "HeaderTooLarge", NULL,
			"expected a header of at most %u bytes, found %" PRIu64, HEADER_CAP,
			header_bytes);
		return rs_hint(p->err, "is this a safetensors file at all?");
	}
	if (!rs_range_ok(RS__ST_PREFIX, header_bytes, p->file->size)) {
		(void)rs__st_refuse(p, "InvalidHeaderLength", NULL,
			"expected a header of %" PRIu64 " bytes, found a file of %" PRIu64 " bytes",
			header_bytes, p->file->size);
		return rs_hint(p->err, "the file looks cut off; an interrupted copy?");
	}
	char *text = rs_arena_alloc(p->arena, header_bytes + 1, p->err);
	if (!text || rs_file_read(p->file, RS__ST_PREFIX, text, header_bytes, p->err) < 0)
		return -1;
	p->text = (struct rs_str){text, header_bytes};
	p->data = RS__ST_PREFIX + header_bytes;
	return 0;
}

/* ----------------------------------------------------------------- offset order */

static int span_order(const struct rs_span *a, const struct rs_span *b)
{
	if (a->off != b->off)
		return a->off < b->off ? -1 : 1;
	return (a->len > b->len) - (a->len < b->len);
}

static int by_offset(const void *a, const void *b, void *arg)
{
	const struct rs__st *p = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = span_order(&p->spans[x], &p->spans[y]);
	return order ? order : rs_str_cmp(p->entries[x].name, p->entries[y].name);
}

/* entries[i] = entries[order[i]] for all i, in place: each cycle of the permutation once. */
static void permute(struct rs_entry *entries, uint32_t *order, uint64_t n)
{
	for (uint32_t start = 0; start < n; start++) {
		if (order[start] == start)
			continue;
		struct rs_entry first = entries[start];
		uint32_t at = start;
		while (order[at] != start) {
			uint32_t from = order[at];
			entries[at] = entries[from];
			order[at] = at;
			at = from;
		}
		entries[at] = first;
		order[at] = at;
	}
}

/* Entries by (begin, end, name). Nearly every writer lists them so; then nothing is moved. */
static int sort_entries(struct rs__st *p)
{
	uint32_t *order = rs_alloc(p->n_entries * sizeof(*order), p->err);
	bool sorted = true;

	if (!order)
		return -1;
	for (uint32_t i = 0; i < p->n_entries; i++) {
		order[i] = i;
		sorted &= i == 0 || by_offset(&order[i - 1], &order[i], p) <= 0;
	}
	if (!sorted) {
		qsort_r(order, p->n_entries, sizeof(*order), by_offset, p);
		permute(p->entries, order, p->n_entries);
	}
	rs_free(order);
	return 0;
}

/* Checks 6 to 9 of one tensor: it begins at @begin, and is as long as shape and dtype say. */
static int check_tensor(struct rs__st *p, struct rs_entry *e, uint64_t begin)
{
	uint64_t elements, bits;

	if (e->spans->off != begin || e->spans->len < begin)
		return rs__st_refuse(p, "InvalidOffset", &e->name,
			"expected data_offsets that begin at %" PRIu64 ", found [%" PRIu64
			", %" PRIu64 "]",
			begin, e->spans->off, e->spans->len);
	if (!rs_shape_count(&e->shape, &elements) ||
		!rs_mul(elements, rs_dtype_bits(e->dtype), &bits))
		return rs__st_refuse(p, "ValidationOverflow", &e->name,
			"expected a size that fits 64 bits, found %s of %s",
			RS_SHAPE_SHOW(&e->shape), rs_dtype_name(e->dtype));
	if (bits % 8)
		return rs__st_refuse(p, "MisalignedSlice", &e->name,
			"expected whole bytes, found %s of %s", RS_SHAPE_SHOW(&e->shape),
			rs_dtype_name(e->dtype));
	if (e->spans->len - begin != bits / 8)
		return rs__st_refuse(p, "TensorInvalidInfo", &e->name,
			"expected %" PRIu64 " bytes for %s of %s, found data_offsets [%" PRIu64
			", %" PRIu64 "]",
			bits / 8, RS_SHAPE_SHOW(&e->shape), rs_dtype_name(e->dtype), e->spans->off,
			e->spans->len);
	return 0;
}

/* Checks 6 to 10; then spans become offsets in the file. */
static int place(struct rs__st *p)
{
	uint64_t end = 0, need;

	for (uint64_t i = 0; i < p->n_entries; i++) {
		struct rs_entry *e = &p->entries[i];
		if (check_tensor(p, e, end) < 0)
			return -1;
		e->bytes = e->spans->len - end;
		e->n_spans = e->bytes > 0;
		end = e->spans->len;
	}
	if (rs_add(p->data, end, &need) && need == p->file->size) {
		for (uint64_t i = 0; i < p->n_entries; i++)
			p->spans[i] = (struct rs_span){.off = p->data + p->spans[i].off,
				.len = p->spans[i].len - p->spans[i].off};
		return 0;
	}
	(void)rs__st_refuse(p, "MetadataIncompleteBuffer", NULL,
		"expected %" PRIu64 " data bytes behind the header, found %" PRIu64
		" (a file of %" PRIu64 " bytes)",
		end, p->file->size - p->data, p->file->size);
	return rs_hint(
		p->err, end > p->file->size - p->data
				? "the file is shorter than its header says; an interrupted copy?"
				: "bytes behind the last tensor: damaged, or appended to");
}

/* ------------------------------------------------------------------- metadata */

static int by_key(const void *a, const void *b, void *arg)
{
	const struct rs_meta *meta = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = rs_str_cmp(meta[x].key, meta[y].key);
	return order ? order : (x > y) - (x < y);
}

/* A key that stands twice: the last value counts, as in the reference, at the place of the first.
 */
static int settle_metadata(struct rs__st *p)
{
	uint32_t *order = rs_alloc(p->n_meta * sizeof(*order), p->err);
	uint64_t kept = 0;

	if (!order)
		return -1;
	for (uint32_t i = 0; i < p->n_meta; i++)
		order[i] = i;
	if (p->n_meta)
		qsort_r(order, p->n_meta, sizeof(*order), by_key, p->meta);
	for (uint64_t i = 1, first = 0; i < p->n_meta; i++) {
		if (!rs_str_eq(p->meta[order[first]].key, p->meta[order[i]].key)) {
			first = i;
			continue;
		}
		p->meta[order[first]].value = p->meta[order[i]].value;
		p->meta[order[i]].key.ptr = NULL;
	}
	rs_free(order);
	for (uint64_t i = 0; i < p->n_meta; i++)
		if (p->meta[i].key.ptr)
			p->meta[kept++] = p->meta[i];
	p->n_meta = kept;
	return 0;
}

/* What MindSpore says in the metadata: 4-bit tensors, removed redundancy, a checksum. */
static int apply_metadata(struct rs__st *p, struct rs_table *t)
{
	if (settle_metadata(p) < 0)
		return -1;
	for (uint64_t i = 0; i < p->n_meta; i++) {
		const struct rs_meta *m = &p->meta[i];
		const struct rs_entry *e;

		if (rs_str_is(m->key, "remove_redundancy"))
			t->deduplicated = rs_str_is(m->value, "True");
		else if (rs_str_is(m->key, "crc_num"))
			t->crc = true;
		if (rs_str_is(m->value, "Int4") && (e = rs_table_find(t, m->key)) != NULL &&
			e->dtype == RS_DT_I8)
			p->entries[e - p->entries].dtype = RS_DT_INT4X2;
	}
	t->meta = p->meta;
	t->n_meta = p->n_meta;
	return 0;
}

/* ------------------------------------------------------------------- all of it */

static int fill_table(struct rs__st *p, struct rs_table *t)
{
	uint64_t *bytes = RS_NEW(p->arena, uint64_t, p->err);

	if (!bytes)
		return -1;
	*bytes = p->file->size;
	t->file_bytes = bytes;
	t->n_files = 1;
	t->leading_space = p->text.len && p->text.ptr[0] != '{';
	t->entries = p->entries;
	t->n_entries = p->n_entries;
	/* Before the offsets: a name that stands twice would look like an overlap. */
	if (rs_table_finish(t, p->file->name, p->err) < 0 || place(p) < 0)
		return -1;
	return apply_metadata(p, t);
}

int rs_safetensors_header(const struct rs_file *file, struct rs_table **out, struct rs_err *err)
{
	struct rs__st p = {.file = file, .err = err};
	struct rs_table *t;

	if (rs_sniff_foreign(file, err) < 0)
		return -1;
	p.arena = rs_arena_new(RS__ST_MAX_BYTES, err);
	t = p.arena ? RS_NEW(p.arena, struct rs_table, err) : NULL;
	if (!t)
		goto fail;
	t->arena = p.arena;
	if (read_text(&p) < 0 || rs__st_parse(&p) < 0 || sort_entries(&p) < 0 ||
		fill_table(&p, t) < 0)
		goto fail;
	*out = t;
	return 0;
fail:
	rs_arena_free(p.arena);
	return -1;
}
