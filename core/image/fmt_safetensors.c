/*
 * fmt_safetensors.c - the .safetensors file as the reference library writes it, byte for byte.
 *
 *   8 bytes   N, little-endian: bytes of the header with its padding
 *   N bytes   {"__metadata__":{...},"name":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},...}
 *             compact JSON, spaces behind it up to a multiple of 8 (or what a plan's align asks)
 *   rest      the tensors without gaps: dtype descending in the enumeration, then name ascending
 *
 * The one freedom that the reference leaves (the order of several metadata keys comes from a hash
 * map) is settled by sorting, so that a file has the same bytes on every mount.
 * Leaves texts out with a note. Refuses names that JSON cannot carry, and a header over the
 * 100 000 000 bytes at which every reader stops.
 * Format: docs/formats/safetensors.md, section 4; metadata: docs/formats/mindspore.md, section 2.
 * Read next: sink.c, which receives this.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/image/internal.h"

#define HEADER_MAX 100000000u   /* million, not MiB: the reference's own number */
#define METADATA "__metadata__" /* the one key that is no tensor */

/* What is written, in the order of writing. The list itself stays as it is. */
struct entry_meta {
	struct rs_meta pair;
	uint64_t at; /* when it was added: the later of two equal keys counts */
};
struct order {
	const struct rs_wanted *items;
	uint64_t *index; /* heap */
	uint64_t n;
	struct entry_meta *meta; /* heap */
	uint64_t n_meta, cap_meta;
};

/* The format stores a qint4x2 pair as the byte that it is; a metadata entry remembers the rest. */
static enum rs_dtype stored_dtype(const struct rs_wanted *item)
{
	return item->dtype == RS_DT_INT4X2 ? RS_DT_I8 : item->dtype;
}

/* ----------------------------------------------------------------- ordering */

static int compare_items(const void *a, const void *b, void *arg)
{
	const struct order *o = arg;
	const struct rs_wanted *left = &o->items[*(const uint64_t *)a];
	const struct rs_wanted *right = &o->items[*(const uint64_t *)b];

	if (stored_dtype(left) != stored_dtype(right))
		return stored_dtype(left) > stored_dtype(right) ? -1 : 1;
	return rs_str_cmp(left->name, right->name);
}

/* A name becomes a JSON key beside the reserved one, so it must be text and not be that one. */
static int check_name(const struct rs_wanted *item, struct rs_err *err)
{
	if (!rs_utf8_ok(item->name))
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '%s': expected a name in UTF-8, as safetensors requires",
			RS_SHOW(item->name));
	if (rs_str_is(item->name, METADATA))
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '" METADATA "': safetensors keeps this name for itself");
	return 0;
}

static int order_items(
	const struct rs_list *list, struct order *o, struct rs_notes *notes, struct rs_err *err)
{
	o->index = rs_alloc(rs_max(list->n, 1) * sizeof(*o->index), err);
	if (!o->index)
		return -1;
	for (uint64_t i = 0; i < list->n; i++) {
		const struct rs_wanted *item = &list->items[i];

		if (item->dtype == RS_DT_STR) {
			rs_note(notes, "text '%s' is left out: safetensors holds tensors only",
				RS_SHOW(item->name));
			continue;
		}
		if (check_name(item, err) < 0)
			return -1;
		o->index[o->n++] = i;
	}
	qsort_r(o->index, o->n, sizeof(*o->index), compare_items, o);
	return 0;
}

/* ----------------------------------------------------------------- metadata */

static int add_meta(struct order *o, struct rs_str key, struct rs_str value, struct rs_err *err)
{
	if (!rs_utf8_ok(key) || !rs_utf8_ok(value))
		return rs_fail(err, RS_UNSUPPORTED,
			"metadata '%s': expected UTF-8, as safetensors requires", RS_SHOW(key));
	if (rs_grow(&o->meta, &o->cap_meta, o->n_meta + 1, sizeof(*o->meta), err) < 0)
		return -1;
	o->meta[o->n_meta] = (struct entry_meta){{key, value}, o->n_meta};
	o->n_meta++;
	return 0;
}

static int compare_meta(const void *a, const void *b)
{
	const struct entry_meta *left = a, *right = b;
	int by_key = rs_str_cmp(left->pair.key, right->pair.key);

	if (by_key != 0)
		return by_key;
	return left->at > right->at ? -1 : 1;
}

/* The file's own metadata if the list keeps it, else the framework's word; and every Int4. */
static int order_meta(
	const struct rs_list *list, bool mindspore, struct order *o, struct rs_err *err)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < list->n_meta; i++)
		if (add_meta(o, list->meta[i].key, list->meta[i].value, err) < 0)
			return -1;
	if (list->n_meta == 0 &&
		add_meta(o, RS_STR("format"), mindspore ? RS_STR("ms") : RS_STR("pt"), err) < 0)
		return -1;
	for (uint64_t i = 0; i < o->n; i++) {
		const struct rs_wanted *item = &o->items[o->index[i]];

		if (item->dtype == RS_DT_INT4X2 && add_meta(o, item->name, RS_STR("Int4"), err) < 0)
			return -1;
	}
	qsort(o->meta, o->n_meta, sizeof(*o->meta), compare_meta);
	for (uint64_t i = 1; i < o->n_meta; i++)
		if (!rs_str_eq(o->meta[kept].pair.key, o->meta[i].pair.key))
			o->meta[++kept] = o->meta[i];
	o->n_meta = kept + 1;
	return 0;
}

/* ------------------------------------------------------------------- header */

/* Text on its way to a sink; the first failure sticks, so that a line of output is one line here.
 */
struct text {
	struct rs_sink *to;
	struct rs_err *err;
	bool failed;
};

static void put(struct text *t, const char *bytes, uint64_t len)
{
	if (!t->failed && rs_sink_bytes(t->to, bytes, len, t->err) < 0)
		t->failed = true;
}

static void puts_text(struct text *t, const char *s)
{
	put(t, s, strlen(s));
}

static void put_uint(struct text *t, uint64_t value)
{
	char digits[24];

	put(t, digits, (uint64_t)snprintf(digits, sizeof(digits), "%" PRIu64, value));
}

/* A byte that JSON must escape, written as the reference does: the short form where there is one.
 */
static void put_escape(struct text *t, unsigned char c)
{
	static const char shorts[] = {
		['"'] = '"',
		['\\'] = '\\',
		['\b'] = 'b',
		['\t'] = 't',
		['\n'] = 'n',
		['\f'] = 'f',
		['\r'] = 'r',
	};
	char out[8];
	int len;

	if (shorts[c])
		len = snprintf(out, sizeof(out), "\\%c", shorts[c]);
	else
		len = snprintf(out, sizeof(out), "\\u%04x", c);
	put(t, out, (uint64_t)len);
}

/* Everything from 0x20 on but the quote and the backslash goes out as it is, 0x7f and UTF-8 too. */
static void put_string(struct text *t, struct rs_str s)
{
	size_t plain = 0;

	puts_text(t, "\"");
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		put(t, s.ptr + plain, i - plain);
		put_escape(t, c);
		plain = i + 1;
	}
	put(t, s.ptr + plain, s.len - plain);
	puts_text(t, "\"");
}

static void put_metadata(struct text *t, const struct order *o)
{
	puts_text(t, "\"" METADATA "\":{");
	for (uint64_t i = 0; i < o->n_meta; i++) {
		puts_text(t, i ? "," : "");
		put_string(t, o->meta[i].pair.key);
		puts_text(t, ":");
		put_string(t, o->meta[i].pair.value);
	}
	puts_text(t, "}");
}

static void put_tensor(struct text *t, const struct rs_wanted *item, uint64_t begin, uint64_t end)
{
	puts_text(t, ",");
	put_string(t, item->name);
	puts_text(t, ":{\"dtype\":\"");
	puts_text(t, rs_dtype_name(stored_dtype(item)));
	puts_text(t, "\",\"shape\":[");
	for (uint32_t a = 0; a < item->shape.n_axes; a++) {
		puts_text(t, a ? "," : "");
		put_uint(t, item->shape.dims[a]);
	}
	puts_text(t, "],\"data_offsets\":[");
	put_uint(t, begin);
	puts_text(t, ",");
	put_uint(t, end);
	puts_text(t, "]}");
}

/* The JSON without length and padding. */
static int emit_json(const struct order *o, struct rs_sink *to, struct rs_err *err)
{
	struct text t = {.to = to, .err = err};
	uint64_t begin = 0;

	puts_text(&t, "{");
	put_metadata(&t, o);
	for (uint64_t i = 0; i < o->n && !t.failed; i++) {
		const struct rs_wanted *item = &o->items[o->index[i]];
		uint64_t bytes, end;

		if (rs__wanted_bytes(item, &bytes, err) < 0)
			return -1;
		if (!rs_add(begin, bytes, &end))
			return rs_fail(err, RS_LIMIT,
				"tensor '%s': expected a file below 2^63 bytes",
				RS_SHOW(item->name));
		put_tensor(&t, item, begin, end);
		begin = end;
	}
	puts_text(&t, "}");
	return t.failed ? -1 : 0;
}

/* Spaces that make the tensors begin at a multiple of @align, 8 bytes of length included. */
static int emit_padding(uint64_t padding, struct rs_sink *to, struct rs_err *err)
{
	static const char spaces[] =
		"                                                               ";

	for (uint64_t n; padding > 0; padding -= n) {
		n = rs_min(padding, sizeof(spaces) - 1);
		if (rs_sink_bytes(to, spaces, n, err) < 0)
			return -1;
	}
	return 0;
}

/* The length comes first, so the text is made twice: once to be counted. */
static int emit_header(
	const struct order *o, uint64_t align, struct rs_sink *to, struct rs_err *err)
{
	struct rs_sink sum = rs__sink_measure();
	uint64_t padding, header;
	uint8_t length[8];

	if (emit_json(o, &sum, err) < 0)
		return -1;
	padding = (0 - (sum.size + sizeof(length))) % (align ? align : 8);
	header = sum.size + padding;
	if (header > HEADER_MAX) {
		rs_fail(err, RS_LIMIT,
			"expected a header of at most %u bytes, found %" PRIu64 " for %" PRIu64
			" tensors",
			HEADER_MAX, header, o->n);
		return rs_hint(
			err, "safetensors readers stop at this size; ask for -o format=ckpt");
	}
	for (uint32_t i = 0; i < 8; i++)
		length[i] = (uint8_t)(header >> (8 * i));
	if (rs_sink_bytes(to, length, sizeof(length), err) < 0 || emit_json(o, to, err) < 0)
		return -1;
	return emit_padding(padding, to, err);
}

static int emit_data(const struct order *o, struct rs_sink *to, struct rs_err *err)
{
	for (uint64_t i = 0; i < o->n; i++) {
		uint64_t bytes;

		if (rs__wanted_bytes(&o->items[o->index[i]], &bytes, err) < 0 ||
			rs_sink_slice(to, o->index[i], 0, bytes, err) < 0)
			return -1;
	}
	return 0;
}

static int emit(const struct rs_list *list, bool mindspore, struct rs_sink *to,
	struct rs_notes *notes, struct rs_err *err)
{
	struct order o = {.items = list->items};
	int rc = -1;

	if (list->raw)
		return rs__list_raw(list, to, err);
	if (order_items(list, &o, notes, err) < 0 || order_meta(list, mindspore, &o, err) < 0)
		goto out;
	if (emit_header(&o, list->align, to, err) < 0 || emit_data(&o, to, err) < 0)
		goto out;
	rc = 0;
out:
	rs_free(o.index);
	rs_free(o.meta);
	return rc;
}

const struct rs_format_ops rs__format_safetensors = {
	.name = "safetensors",
	.suffix = ".safetensors",
	.emit = emit,
};
