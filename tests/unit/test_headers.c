/*
 * test_headers.c - the headers of .ckpt and .safetensors files, from bytes built here.
 *
 * .ckpt files are put together field by field, so that the format can be read off; safetensors rows
 * are their JSON text. Tables hold what is accepted beside what is refused, with the code and the
 * words of the refusal. Next: test_source.c, where files stand in trees.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "reshardfs/source.h"
#include "tests/lib/fault.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

typedef int (*header_fn)(const struct rs_file *, struct rs_table **, struct rs_err *);

static void assert_refused(
	const char *row, const struct rs_err *err, enum rs_code code, const char *words)
{
	if (err->code != code || !strstr(err->msg, words))
		fail_msg("row '%s': expected %s with \"%s\", got %s: %s", row, rs_code_name(code),
			words, rs_code_name(err->code), err->msg);
}

/* Bytes under construction; big enough for every row. */
struct bytes {
	uint8_t at[4096];
	size_t n;
};

static void put(struct bytes *b, const void *p, size_t n)
{
	assert_true(n <= sizeof(b->at) - b->n);
	memcpy(b->at + b->n, p, n);
	b->n += n;
}

static void put_varint(struct bytes *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		put(b, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
	put(b, &(uint8_t){(uint8_t)v}, 1);
}

static void put_int(struct bytes *b, uint32_t field, uint64_t v)
{
	put_varint(b, field << 3 | 0);
	put_varint(b, v);
}

static void put_part(struct bytes *b, uint32_t field, const void *p, size_t n)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, n);
	put(b, p, n);
}

static void put_text(struct bytes *b, uint32_t field, const char *text)
{
	put_part(b, field, text, strlen(text));
}

/* A Value: tag, dims (UINT64_MAX ends), type, and @n content bytes of value @fill. */
static void put_value(struct bytes *b, const char *tag, const uint64_t *dims, const char *type,
	size_t n, int fill)
{
	struct bytes tensor = {.n = 0}, value = {.n = 0};
	uint8_t content[2048];

	assert_true(n <= sizeof(content));
	memset(content, fill, sizeof(content));
	for (; *dims != UINT64_MAX; dims++)
		put_int(&tensor, 1, *dims);
	put_text(&tensor, 2, type);
	put_part(&tensor, 3, content, n);
	put_text(&value, 1, tag);
	put_part(&value, 2, tensor.at, tensor.n);
	put_part(b, 1, value.at, value.n);
}
#define DIMS(...) ((const uint64_t[]){__VA_ARGS__ __VA_OPT__(, ) UINT64_MAX})

static int read_bytes(
	header_fn read, const void *bytes, size_t n, struct rs_table **out, struct rs_err *err)
{
	struct rs_file file;

	rs_file_memory(bytes, n, "file", &file);
	return read(&file, out, err);
}

static struct rs_table *ckpt(const struct bytes *b)
{
	struct rs_err err = {0};
	struct rs_table *t = NULL;

	if (read_bytes(rs_ckpt_header, b->at, b->n, &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static const struct rs_entry *entry(const struct rs_table *t, const char *name)
{
	const struct rs_entry *e = rs_table_find(t, rs_str(name));

	if (!e)
		fail_msg("no entry '%s'", name);
	return e;
}

/* --------------------------------------------------------------------- .ckpt, good */

/* The vector of docs/formats/mindspore.md: w Float32 [1,2], step Int32 0-d, tag "ab". */
static const uint8_t vector[] = {
	0x0a,
	0x1c, /* Value, 28 bytes */
	0x0a,
	0x01,
	'w', /*   tag */
	0x12,
	0x17, /*   tensor, 23 bytes */
	0x08,
	0x01,
	0x08,
	0x02, /*     dims 1, 2 */
	0x12,
	0x07,
	'F',
	'l',
	'o',
	'a',
	't',
	'3',
	'2', /*     tensor_type */
	0x1a,
	0x08,
	0x00,
	0x00,
	0x80,
	0x3f,
	0x00,
	0x00,
	0x00,
	0x40, /* content */
	0x0a,
	0x15,
	0x0a,
	0x04,
	's',
	't',
	'e',
	'p',
	0x12,
	0x0d, /* no dims: 0-d */
	0x12,
	0x05,
	'I',
	'n',
	't',
	'3',
	'2',
	0x1a,
	0x04,
	7,
	0,
	0,
	0,
	0x0a,
	0x18,
	0x0a,
	0x03,
	't',
	'a',
	'g',
	0x12,
	0x11,
	0x08,
	0x00, /* dims 0: a text */
	0x12,
	0x03,
	's',
	't',
	'r',
	0x1a,
	0x08,
	'a',
	0,
	0,
	0,
	'b',
	0,
	0,
	0,
};

static void the_vector_reads_as_described(void **state)
{
	struct rs_err err = {0};
	struct rs_table *t;

	(void)state;
	assert_int_equal(read_bytes(rs_ckpt_header, vector, sizeof(vector), &t, &err), 0);
	assert_int_equal(t->n_entries, 3);
	assert_int_equal(t->n_files, 1);
	assert_int_equal(t->file_bytes[0], sizeof(vector));
	assert_false(t->crc);

	const struct rs_entry *w = &t->entries[0];
	assert_true(rs_str_is(w->name, "w"));
	assert_int_equal(w->dtype, RS_DT_F32);
	assert_int_equal(w->shape.n_axes, 2);
	assert_int_equal(w->shape.dims[0], 1);
	assert_int_equal(w->shape.dims[1], 2);
	assert_int_equal(w->bytes, 8);
	assert_int_equal(w->n_spans, 1);
	assert_int_equal(w->spans[0].off, 22);
	assert_int_equal(w->spans[0].len, 8);

	const struct rs_entry *step = entry(t, "step");
	assert_int_equal(step->shape.n_axes, 0);
	assert_false(step->zero_dims);
	assert_int_equal(step->spans[0].off, 49);

	const struct rs_entry *tag = entry(t, "tag");
	assert_int_equal(tag->dtype, RS_DT_STR);
	assert_int_equal(tag->shape.n_axes, 1);
	assert_int_equal(tag->shape.dims[0], 2);
	assert_int_equal(tag->spans[0].off, sizeof(vector) - 8);
	rs_arena_free(t->arena);
}

static void a_checksum_is_noted_and_stripped(void **state)
{
	static const uint8_t trailer[] = {
		'c', 'r', 'c', '_', 'n', 'u', 'm', 0, 0, 0, 0, 0, 0, 0x54, 0xa8, 0xb9, 0xf8};
	struct bytes b = {.n = 0};

	(void)state;
	put(&b, vector, 30);
	put(&b, trailer, sizeof(trailer));
	struct rs_table *t = ckpt(&b);
	assert_true(t->crc);
	assert_int_equal(t->n_entries, 1);
	assert_int_equal(t->file_bytes[0], 47);
	rs_arena_free(t->arena);
}

static void parts_of_one_tag_are_one_entry(void **state)
{
	struct bytes b = {.n = 0};

	(void)state;
	put_value(&b, "a", DIMS(1), "Int8", 1, 0);
	/* 10 bytes of Int16 [5], cut inside an element, as the byte rule does. */
	put_value(&b, "big", DIMS(5), "Int16", 3, 1);
	put_value(&b, "big", DIMS(5), "Int16", 3, 2);
	put_value(&b, "big", DIMS(5), "Int16", 4, 3);
	put_value(&b, "z", DIMS(1), "Int8", 1, 9);
	struct rs_table *t = ckpt(&b);
	assert_int_equal(t->n_entries, 3);
	const struct rs_entry *e = entry(t, "big");
	assert_int_equal(e->bytes, 10);
	assert_int_equal(e->n_spans, 3);
	for (uint32_t i = 0; i < 3; i++)
		for (uint64_t k = 0; k < e->spans[i].len; k++)
			assert_int_equal(b.at[e->spans[i].off + k], i + 1);
	assert_int_equal(e->spans[2].len, 4);
	assert_int_equal(b.at[entry(t, "z")->spans[0].off], 9);
	rs_arena_free(t->arena);
}

static void zero_dims_have_three_meanings(void **state)
{
	struct bytes b = {.n = 0};

	(void)state;
	put_value(&b, "old scalar", DIMS(0), "Float64", 8, 0);
	put_value(&b, "new scalar", DIMS(), "Float32", 4, 0);
	put_value(&b, "one", DIMS(1), "Int32", 4, 0);
	put_value(&b, "empty", DIMS(0), "Float32", 0, 0);
	put_value(&b, "empty 2-d", DIMS(3, 0), "Float32", 0, 0);
	put_value(&b, "text", DIMS(0), "str", 12, 0);
	struct rs_table *t = ckpt(&b);
	assert_true(entry(t, "old scalar")->zero_dims);
	assert_int_equal(entry(t, "old scalar")->shape.n_axes, 0);
	assert_false(entry(t, "new scalar")->zero_dims);
	assert_int_equal(entry(t, "new scalar")->shape.n_axes, 0);
	assert_int_equal(entry(t, "one")->shape.n_axes, 1);
	assert_int_equal(entry(t, "empty")->shape.n_axes, 1);
	assert_int_equal(entry(t, "empty")->n_spans, 0);
	assert_int_equal(entry(t, "empty 2-d")->shape.n_axes, 2);
	assert_int_equal(entry(t, "text")->shape.dims[0], 3);
	rs_arena_free(t->arena);
}

/* What other writers do: packed dims, prefixed type, fields out of order, fields of the future. */
static void other_writers_are_understood(void **state)
{
	struct bytes tensor = {.n = 0}, value = {.n = 0}, b = {.n = 0};

	(void)state;
	put_part(&tensor, 3, "0123456789ab", 12);
	put_int(&tensor, 9, 77);
	put_text(&tensor, 2, "mindspore.float16");
	put_part(&tensor, 1, "\x02\x03", 2);
	put_part(&value, 2, tensor.at, tensor.n);
	put_text(&value, 15, "unknown");
	put_text(&value, 1, "w");
	put_part(&b, 1, value.at, value.n);
	struct rs_table *t = ckpt(&b);
	const struct rs_entry *e = entry(t, "w");
	assert_int_equal(e->dtype, RS_DT_F16);
	assert_int_equal(e->shape.n_axes, 2);
	assert_int_equal(e->shape.dims[1], 3);
	assert_memory_equal(b.at + e->spans[0].off, "0123456789ab", 12);
	rs_arena_free(t->arena);
}

/* ---------------------------------------------------------------------- .ckpt, bad */

static void build_nothing(struct bytes *b)
{
	(void)b;
}
static void build_cut(struct bytes *b)
{
	put(b, vector, sizeof(vector) - 1);
}
static void build_half(struct bytes *b)
{
	put(b, vector, sizeof(vector) / 2);
}
static void build_appended(struct bytes *b)
{
	put(b, vector, sizeof(vector));
	put(b, "X", 1);
}
static void build_trailing_field(struct bytes *b)
{
	put(b, vector, sizeof(vector));
	put_int(b, 2, 5);
}
static void build_wrong_wire(struct bytes *b)
{
	put_int(b, 1, 5);
}
static void build_twice(struct bytes *b)
{
	put_value(b, "w", DIMS(1), "Int8", 1, 0);
	put_value(b, "x", DIMS(1), "Int8", 1, 0);
	put_value(b, "w", DIMS(1), "Int8", 1, 0);
}
static void build_adjacent_twice(struct bytes *b)
{
	put_value(b, "w", DIMS(1), "Int8", 1, 0);
	put_value(b, "w", DIMS(1), "Int8", 1, 0);
}
static void build_part_type(struct bytes *b)
{
	put_value(b, "w", DIMS(4), "Int8", 2, 0);
	put_value(b, "w", DIMS(4), "UInt8", 2, 0);
}
static void build_part_dims(struct bytes *b)
{
	put_value(b, "w", DIMS(4), "Int8", 2, 0);
	put_value(b, "w", DIMS(2, 2), "Int8", 2, 0);
}
static void build_short(struct bytes *b)
{
	put_value(b, "w\x1b[31m", DIMS(2, 3), "Float32", 20, 0);
}
static void build_overflow(struct bytes *b)
{
	put_value(b, "w", DIMS(1ull << 62, 8), "Int8", 4, 0);
}
static void build_negative(struct bytes *b)
{
	put_value(b, "w", DIMS(UINT64_MAX - 1), "Int8", 4, 0);
}
static void build_nine_axes(struct bytes *b)
{
	put_value(b, "w", DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), "Int8", 1, 0);
}
static void build_unknown_type(struct bytes *b)
{
	put_value(b, "w", DIMS(1), "Complex64", 8, 0);
}
static void build_long_type(struct bytes *b)
{
	char type[1000];

	memset(type, 'F', sizeof(type) - 1);
	type[sizeof(type) - 1] = 0;
	put_value(b, "w", DIMS(1), type, 8, 0);
}
static void build_text_bytes(struct bytes *b)
{
	put_value(b, "t", DIMS(0), "str", 6, 0);
}
static void build_text_dims(struct bytes *b)
{
	put_value(b, "t", DIMS(3), "str", 8, 0);
}
static void build_old_scalar(struct bytes *b)
{
	put_value(b, "s", DIMS(0), "Float32", 8, 0);
}
static void build_map(struct bytes *b)
{
	struct bytes value = {.n = 0};

	put_text(&value, 1, "table");
	put_part(&value, 3, "\x0a\x00", 2);
	put_part(b, 1, value.at, value.n);
}
static void build_no_tag(struct bytes *b)
{
	struct bytes value = {.n = 0};

	put_part(&value, 2, "", 0);
	put_part(b, 1, value.at, value.n);
}
static void build_no_tensor(struct bytes *b)
{
	struct bytes value = {.n = 0};

	put_text(&value, 1, "w");
	put_part(b, 1, value.at, value.n);
}
static void build_no_content(struct bytes *b)
{
	struct bytes tensor = {.n = 0}, value = {.n = 0};

	put_text(&tensor, 2, "Int8");
	put_text(&value, 1, "w");
	put_part(&value, 2, tensor.at, tensor.n);
	put_part(b, 1, value.at, value.n);
}
static void build_two_tags(struct bytes *b)
{
	struct bytes value = {.n = 0};

	put_text(&value, 1, "w");
	put_text(&value, 1, "v");
	put_part(b, 1, value.at, value.n);
}
static void build_encrypted(struct bytes *b)
{
	put(b, "\xd8\x5e\x3a\x7f..........", 14);
}
static void build_converted(struct bytes *b)
{
	put(b, "\x0a\xef\xbf\xbd\x01\x0a\x01w", 8);
}
static void build_long_varint(struct bytes *b)
{
	put(b, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12);
}
static void build_huge_length(struct bytes *b)
{
	put(b, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01zz", 13);
}
static void build_group(struct bytes *b)
{
	put(b, "\x0b\x0c", 2);
}

static const struct {
	const char *name;
	void (*build)(struct bytes *);
	enum rs_code code;
	const char *words;
} bad_ckpt[] = {
	{"empty", build_nothing, RS_CORRUPT, "empty file"},
	{"one byte short", build_cut, RS_CORRUPT, "file@53: field 1"},
	{"half", build_half, RS_CORRUPT, "file@"},
	{"one byte more", build_appended, RS_CORRUPT, "file@80: "},
	{"a field behind", build_trailing_field, RS_CORRUPT, "found field 2, wire type 0"},
	{"wrong wire type", build_wrong_wire, RS_CORRUPT, "found field 1, wire type 0"},
	{"name again", build_twice, RS_CORRUPT, "'w' stands twice"},
	{"name again at once", build_adjacent_twice, RS_CORRUPT,
		"expected 1 bytes for Int8 [1], found 2"},
	{"part of another type", build_part_type, RS_CORRUPT, "'w': a part of type UInt8"},
	{"part of other dims", build_part_dims, RS_CORRUPT, "'w': a part with other dims"},
	{"short content", build_short, RS_CORRUPT,
		"'w\\x1B[31m': expected 24 bytes for Float32 [2, 3], found 20"},
	{"overflow", build_overflow, RS_CORRUPT, "overflows 64 bits"},
	{"negative", build_negative, RS_CORRUPT, "expected dims >= 0, found -2"},
	{"nine axes", build_nine_axes, RS_LIMIT, "RS_MAX_AXES"},
	{"unknown type", build_unknown_type, RS_UNSUPPORTED, "'w': tensor_type 'Complex64'"},
	{"long type", build_long_type, RS_UNSUPPORTED, "tensor_type 'FFF"},
	{"text of 6 bytes", build_text_bytes, RS_CORRUPT, "4 bytes a character, found 6"},
	{"text with dims", build_text_dims, RS_CORRUPT, "expected 2 characters"},
	{"[0] is one element", build_old_scalar, RS_CORRUPT, "expected 4 bytes for Float32 []"},
	{"hash table", build_map, RS_UNSUPPORTED, "'table': a map parameter"},
	{"no tag", build_no_tag, RS_CORRUPT, "expected a tag"},
	{"no tensor", build_no_tensor, RS_CORRUPT, "'w': expected a tensor"},
	{"no content", build_no_content, RS_CORRUPT, "expected tensor_content, found none"},
	{"two tags", build_two_tags, RS_CORRUPT, "tag stands twice"},
	{"encrypted", build_encrypted, RS_UNSUPPORTED, "AES-GCM"},
	{"text conversion", build_converted, RS_CORRUPT, "text conversion"},
	{"11-byte varint", build_long_varint, RS_CORRUPT, "varint"},
	{"length of 2^64", build_huge_length, RS_CORRUPT, "found a length of"},
	{"group", build_group, RS_CORRUPT, "wire type"},
};

static void bad_ckpt_files_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad_ckpt); i++) {
		struct bytes b = {.n = 0};
		struct rs_err err = {0};
		struct rs_table *t = NULL;

		bad_ckpt[i].build(&b);
		if (read_bytes(rs_ckpt_header, b.at, b.n, &t, &err) == 0)
			fail_msg("row '%s' was accepted", bad_ckpt[i].name);
		assert_refused(bad_ckpt[i].name, &err, bad_ckpt[i].code, bad_ckpt[i].words);
		/* Without an error to fill it is refused all the same. */
		assert_int_equal(read_bytes(rs_ckpt_header, b.at, b.n, &t, NULL), -1);
	}
}

static void a_name_of_70_kb_is_over_the_limit(void **state)
{
	static uint8_t file[80000];
	struct bytes head = {.n = 0};
	struct rs_err err = {0};
	struct rs_table *t;
	size_t n;

	(void)state;
	put_varint(&head, 1 << 3 | 2);
	put_varint(&head, 70004);
	put_varint(&head, 1 << 3 | 2);
	put_varint(&head, 70000);
	memcpy(file, head.at, head.n);
	n = head.n + 70000;
	memset(file + head.n, 'n', 70000);
	assert_int_equal(read_bytes(rs_ckpt_header, file, n, &t, &err), -1);
	assert_refused("70 kB", &err, RS_LIMIT, "RS_MAX_NAME");
}

/* --------------------------------------------------------------------- safetensors */

/* A file: the length, @json, @data bytes. */
static uint8_t *safetensors_file(const char *json, size_t json_bytes, size_t data, size_t *n)
{
	uint8_t *file = calloc(1, 8 + json_bytes + data + 1);

	assert_non_null(file);
	for (size_t i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)json_bytes >> 8 * i);
	memcpy(file + 8, json, json_bytes);
	*n = 8 + json_bytes + data;
	return file;
}

static int safetensors(
	const char *json, size_t json_bytes, size_t data, struct rs_table **t, struct rs_err *err)
{
	size_t n;
	uint8_t *file = safetensors_file(json, json_bytes, data, &n);
	int status = read_bytes(rs_safetensors_header, file, n, t, err);

	free(file);
	return status;
}

#define T(dtype, shape, begin, end)                                                                \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void entries_come_in_offset_order(void **state)
{
	static const char json[] = "{\"c\":" T("F32", "[2]", 9, 17) ",\"a\":" T(
		"U8", "[9]", 0, 9) ",\"n\\u0061me\":" T("I64", "[]", 17, 25) ",\"z0\":" T("F16",
		"[0,4]", 9, 9) ",\"b0\":" T("F16", "[4,0]", 9, 9) "}  ";
	static const char *const order[] = {"a", "b0", "z0", "c", "name"};
	struct rs_err err = {0};
	struct rs_table *t = NULL;
	const uint64_t data = 8 + sizeof(json) - 1;

	(void)state;
	if (safetensors(json, sizeof(json) - 1, 25, &t, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(t->n_entries, COUNT(order));
	for (size_t i = 0; i < COUNT(order); i++)
		assert_true(rs_str_is(t->entries[i].name, order[i]));
	const struct rs_entry *c = entry(t, "c");
	assert_int_equal(c->dtype, RS_DT_F32);
	assert_int_equal(c->shape.dims[0], 2);
	assert_int_equal(c->n_spans, 1);
	assert_int_equal(c->spans[0].off, data + 9);
	assert_int_equal(c->spans[0].len, 8);
	assert_int_equal(entry(t, "z0")->n_spans, 0);
	assert_int_equal(entry(t, "z0")->bytes, 0);
	assert_int_equal(entry(t, "name")->shape.n_axes, 0);
	assert_int_equal(t->file_bytes[0], data + 25);
	assert_false(t->leading_space);
	rs_arena_free(t->arena);
}

static void metadata_tells_what_mindspore_adds(void **state)
{
	static const char json[] = " {\"__metadata__\":{\"format\":\"np\",\"q\":\"Int4\",\"remove_"
				   "redundancy\":\"True\","
				   "\"w\":\"Int4\",\"crc_num\":\"12\",\"format\":\"ms\"},\"q\":" T(
					   "I8", "[2]", 0, 2) ",\"w\":" T("U8", "[2]", 2, 4) "}";
	struct rs_err err = {0};
	struct rs_table *t = NULL;

	(void)state;
	if (safetensors(json, sizeof(json) - 1, 4, &t, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(entry(t, "q")->dtype, RS_DT_INT4X2);
	assert_int_equal(entry(t, "w")->dtype, RS_DT_U8); /* not what Int4 is stored as */
	assert_true(t->deduplicated);
	assert_true(t->crc);
	assert_true(t->leading_space);
	assert_int_equal(
		t->n_meta, 5); /* in file order; of a key that stands twice the last value */
	assert_true(rs_str_is(t->meta[0].key, "format"));
	assert_true(rs_str_is(t->meta[0].value, "ms"));
	assert_true(rs_str_is(t->meta[4].key, "crc_num"));
	rs_arena_free(t->arena);
}

#define ONE "{\"a\":" T("U8", "[2]", 0, 2) "}"
#define ROW(text) text, sizeof(text) - 1

/* code RS_OK: accepted. Observed of the reference implementation, except where it says "ours". */
static const struct {
	const char *name, *json;
	size_t json_bytes, data;
	enum rs_code code;
	const char *words;
} safetensors_rows[] = {
	{"plain", ROW(ONE), 2, RS_OK, ""},
	{"no tensors", ROW("{}"), 0, RS_OK, ""},
	{"space around", ROW("\t\r\n {}\t\r\n "), 0, RS_OK, ""},
	{"metadata null", ROW("{\"__metadata__\":null}"), 0, RS_OK, ""},
	{"metadata last", ROW("{\"a\":" T("U8", "[]", 0, 1) ",\"__metadata__\":{}}"), 1, RS_OK, ""},
	{"array form", ROW("{\"a\":[\"U8\",[2],[0,2]]}"), 2, RS_OK, ""},
	{"empty name", ROW("{\"\":" T("U8", "[2]", 0, 2) "}"), 2, RS_OK, ""},
	{"names in two cases",
		ROW("{\"a\":" T("U8", "[1]", 0, 1) ",\"A\":" T("U8", "[1]", 1, 2) "}"), 2, RS_OK,
		""},
	{"unknown field",
		ROW("{\"a\":{\"dtype\":\"U8\",\"stride\":[{\"x\":1.5e3}],\"shape\":[2],"
		    "\"data_offsets\":[0,2]}}"),
		2, RS_OK, ""},
	{"zero before overflow", ROW("{\"a\":" T("U8", "[0,9223372036854775808,4]", 0, 0) "}"), 0,
		RS_OK, ""},
	{"4-bit pair", ROW("{\"a\":" T("F4", "[2,3]", 0, 3) "}"), 3, RS_OK, ""},

	{"empty header", ROW(""), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"not an object", ROW("[]"), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"null", ROW("null"), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"two objects", ROW("{}{}"), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"NUL padding", ROW("{}\0"), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"byte order mark", ROW("\xef\xbb\xbf{}"), 0, RS_CORRUPT, "InvalidHeaderDeserialization"},
	{"not UTF-8", ROW("{\"\xff\":1}"), 0, RS_CORRUPT, "InvalidHeader: file@10: expected UTF-8"},
	{"raw NUL in key", ROW("{\"a\0b\":" T("U8", "[2]", 0, 2) "}"), 2, RS_CORRUPT,
		"InvalidHeaderDeserialization"},
	{"NUL in key (ours)", ROW("{\"a\\u0000b\":" T("U8", "[2]", 0, 2) "}"), 2, RS_CORRUPT,
		"'a\\x00b': InvalidHeader: a NUL"},
	{"lone surrogate", ROW("{\"\\ud800\":" T("U8", "[2]", 0, 2) "}"), 2, RS_CORRUPT,
		"InvalidHeaderDeserialization"},
	{"trailing comma", ROW("{\"a\":" T("U8", "[2]", 0, 2) ",}"), 2, RS_CORRUPT,
		"InvalidHeaderDeserialization"},
	{"duplicate (ours)",
		ROW("{\"a\":" T("U8", "[2]", 0, 2) ",\"\\u0061\":" T("U8", "[2]", 0, 2) "}"), 2,
		RS_CORRUPT, "'a' stands twice"},
	{"metadata twice", ROW("{\"__metadata__\":{},\"__metadata__\":{}}"), 0, RS_CORRUPT,
		"__metadata__ stands twice"},
	{"metadata list", ROW("{\"__metadata__\":[]}"), 0, RS_CORRUPT, "an object of strings"},
	{"metadata number", ROW("{\"__metadata__\":{\"a\":1}}"), 0, RS_CORRUPT,
		"a string in __metadata__"},
	{"tensor is a number", ROW("{\"a\":1}"), 0, RS_CORRUPT,
		"'a': InvalidHeaderDeserialization"},
	{"dtype twice",
		ROW("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"
		    "}}"),
		2, RS_CORRUPT, "dtype stands twice"},
	{"no shape", ROW("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}"), 2, RS_CORRUPT,
		"expected shape, found none"},
	{"one offset", ROW("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}"), 2,
		RS_CORRUPT, "data_offsets"},
	{"three offsets", ROW("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,2]}}"),
		2, RS_CORRUPT, "data_offsets"},
	{"short array form", ROW("{\"a\":[\"U8\",[2]]}"), 2, RS_CORRUPT,
		"InvalidHeaderDeserialization"},
	{"offset 1.5", ROW("{\"a\":" T("U8", "[2]", 0, 1.5) "}"), 2, RS_CORRUPT, "'a': Invalid"},
	{"offset 2e0", ROW("{\"a\":" T("U8", "[2]", 0, 2e0) "}"), 2, RS_CORRUPT, "'a': Invalid"},
	{"offset -1", ROW("{\"a\":" T("U8", "[2]", -1, 1) "}"), 2, RS_CORRUPT, "'a': Invalid"},
	{"offset \"2\"", ROW("{\"a\":" T("U8", "[2]", 0, "2") "}"), 2, RS_CORRUPT, "'a': Invalid"},
	{"offset 2^64", ROW("{\"a\":" T("U8", "[2]", 0, 18446744073709551616) "}"), 2, RS_CORRUPT,
		"'a': Invalid"},
	{"shape -0", ROW("{\"a\":" T("U8", "[-0]", 0, 2) "}"), 2, RS_CORRUPT, "'a': Invalid"},
	{"lower case", ROW("{\"a\":" T("f32", "[2]", 0, 8) "}"), 8, RS_UNSUPPORTED, "dtype 'f32'"},
	{"our own word", ROW("{\"a\":" T("Int4", "[2]", 0, 2) "}"), 2, RS_UNSUPPORTED,
		"dtype 'Int4'"},
	{"nine axes (ours)", ROW("{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}"), 1, RS_LIMIT,
		"RS_MAX_AXES"},
	{"not at 0", ROW("{\"a\":" T("U8", "[1]", 1, 2) "}"), 2, RS_CORRUPT, "'a': InvalidOffset"},
	{"hole", ROW("{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}"), 3,
		RS_CORRUPT,
		"'b': InvalidOffset: expected data_offsets that begin at 1, found [2, 3]"},
	{"overlap", ROW("{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}"), 3,
		RS_CORRUPT, "'b': InvalidOffset"},
	{"shared range", ROW("{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}"), 2,
		RS_CORRUPT, "'b': InvalidOffset"},
	{"empty inside another",
		ROW("{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[0]", 2, 2) "}"), 4,
		RS_CORRUPT, "'b': InvalidOffset"},
	{"reversed", ROW("{\"a\":" T("U8", "[2]", 2, 0) "}"), 2, RS_CORRUPT, "'a': InvalidOffset"},
	{"above 2^53", ROW("{\"a\":" T("U8", "[2]", 9007199254740993, 9007199254740995) "}"), 2,
		RS_CORRUPT, "[9007199254740993, 9007199254740995]"},
	{"overflow before zero", ROW("{\"a\":" T("U8", "[9223372036854775808,4,0]", 0, 0) "}"), 0,
		RS_CORRUPT, "'a': ValidationOverflow"},
	{"bits overflow", ROW("{\"a\":" T("F64", "[2305843009213693952]", 0, 8) "}"), 8, RS_CORRUPT,
		"'a': ValidationOverflow"},
	{"half a byte", ROW("{\"a\":" T("F4", "[3]", 0, 2) "}"), 2, RS_CORRUPT,
		"'a': MisalignedSlice"},
	{"size of another shape", ROW("{\"a\":" T("F32", "[2,3]", 0, 20) "}"), 20, RS_CORRUPT,
		"'a': TensorInvalidInfo: expected 24 bytes for [2, 3] of F32, found data_offsets "
		"[0, 20]"},
	{"one byte short", ROW(ONE), 1, RS_CORRUPT,
		"MetadataIncompleteBuffer: expected 2 data bytes behind the header, found 1"},
	{"one byte more", ROW(ONE), 3, RS_CORRUPT, "MetadataIncompleteBuffer: expected 2"},
	{"2^60 bytes", ROW("{\"a\":" T("U8", "[1152921504606846976]", 0, 1152921504606846976) "}"),
		2, RS_CORRUPT, "MetadataIncompleteBuffer: expected 1152921504606846976"},
};

static void safetensors_rows_agree_with_the_reference(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(safetensors_rows); i++) {
		struct rs_err err = {0};
		struct rs_table *t = NULL;
		int status = safetensors(safetensors_rows[i].json, safetensors_rows[i].json_bytes,
			safetensors_rows[i].data, &t, &err);

		if (status == 0)
			rs_arena_free(t->arena);
		if (safetensors_rows[i].code == RS_OK && status < 0)
			fail_msg("row '%s': %s", safetensors_rows[i].name, err.msg);
		if (safetensors_rows[i].code == RS_OK)
			continue;
		if (status == 0)
			fail_msg("row '%s' was accepted", safetensors_rows[i].name);
		assert_refused(safetensors_rows[i].name, &err, safetensors_rows[i].code,
			safetensors_rows[i].words);
		assert_int_equal(
			safetensors(safetensors_rows[i].json, safetensors_rows[i].json_bytes,
				safetensors_rows[i].data, &t, NULL),
			-1);
	}
}

static void lengths_of_the_header_are_checked(void **state)
{
	static const struct {
		const char *name, *bytes;
		size_t n;
		const char *words;
	} rows[] = {
		{"7 bytes", "\2\0\0\0\0\0\0", 7, "HeaderTooSmall: expected 8"},
		{"past the end", "\3\0\0\0\0\0\0\0{}", 10,
			"InvalidHeaderLength: expected a header of 3"},
		{"over the cap", "\1\xe1\xf5\5\0\0\0\0{}", 10, "HeaderTooLarge"},
		{"2^63", "\0\0\0\0\0\0\0\x80{}", 10, "HeaderTooLarge"},
		{"LFS pointer", "version https://git-lfs.github.com/spec/v1\nsize 77\n", 51,
			"Git LFS"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct rs_err err = {0};
		struct rs_table *t = NULL;

		assert_int_equal(
			read_bytes(rs_safetensors_header, rows[i].bytes, rows[i].n, &t, &err), -1);
		assert_refused(rows[i].name, &err, RS_CORRUPT, rows[i].words);
	}
}

static void deep_nesting_is_refused(void **state)
{
	static char json[20008];
	struct rs_err err = {0};
	struct rs_table *t;

	(void)state;
	memcpy(json, "{\"a\":", 5);
	memset(json + 5, '[', sizeof(json) - 5);
	assert_int_equal(safetensors(json, sizeof(json), 0, &t, &err), -1);
	assert_refused("depth", &err, RS_CORRUPT, "InvalidHeaderDeserialization");
}

/* ------------------------------------------------------------------------ large headers */

/* @n empty tensors with names from @first on, counted by @step modulo n: any order of names. */
static char *many_tensors(size_t n, size_t step, size_t *len)
{
	char *json = malloc(n * 80 + 3), *to = json;

	assert_non_null(json);
	*to++ = '{';
	for (size_t i = 0; i < n; i++)
		to += sprintf(to,
			"%s\"t%07zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
			i ? "," : "", i * step % n, i * step % n, i * step % n + 1);
	*to++ = '}';
	*len = (size_t)(to - json);
	return json;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may keep the machine busy */
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Doubling the header must not take four times as long, in whatever order it lists tensors. */
static void time_grows_with_the_header(void **state)
{
	static const size_t steps[] = {1, 7919};
	double took[2];

	(void)state;
	for (size_t s = 0; s < COUNT(steps); s++) {
		for (size_t k = 0; k < 2; k++) {
			size_t n = 40000u << k, len;
			char *json = many_tensors(n, steps[s], &len);
			struct rs_err err = {0};
			struct rs_table *t = NULL;
			double begin = seconds();

			if (safetensors(json, len, n, &t, &err) < 0)
				fail_msg("%s", err.msg);
			took[k] = seconds() - begin;
			assert_int_equal(t->n_entries, n);
			for (size_t i = 1; i < n; i++)
				assert_true(
					t->entries[i - 1].spans->off < t->entries[i].spans->off);
			rs_arena_free(t->arena);
			free(json);
		}
		if (took[1] > 3.5 * took[0] + 0.2)
			fail_msg("%g s, twice as large %g s", took[0], took[1]);
	}
}

/* ------------------------------------------------------------------------------- join */

static void later_files_win_and_keep_the_place(void **state)
{
	struct bytes one = {.n = 0}, two = {.n = 0};
	struct rs_err err = {0};
	struct rs_table *parts[2], *t = NULL;

	(void)state;
	put_value(&one, "b", DIMS(1), "Int8", 1, 0);
	put_value(&one, "a", DIMS(2), "Int8", 2, 0);
	put_value(&two, "c", DIMS(1), "Int8", 1, 0);
	put_value(&two, "b", DIMS(3), "Int8", 3, 0);
	parts[0] = ckpt(&one);
	parts[1] = ckpt(&two);
	parts[1]->crc = true;
	assert_int_equal(rs_table_join(parts, 2, &t, &err), 0);
	assert_int_equal(t->n_entries, 3);
	assert_true(rs_str_is(t->entries[0].name, "b"));
	assert_true(rs_str_is(t->entries[1].name, "a"));
	assert_true(rs_str_is(t->entries[2].name, "c"));
	assert_int_equal(t->entries[0].bytes, 3);
	assert_int_equal(t->entries[0].spans[0].file, 1);
	assert_int_equal(t->entries[1].spans[0].file, 0);
	assert_int_equal(t->n_files, 2);
	assert_int_equal(t->file_bytes[0], one.n);
	assert_int_equal(t->file_bytes[1], two.n);
	assert_true(t->crc);
	assert_ptr_equal(rs_table_find(t, RS_STR("c")), &t->entries[2]);
	rs_arena_free(t->arena);
}

/* ------------------------------------------------------------------ failing allocations */

static void build_all(struct bytes *b)
{
	put(b, vector, sizeof(vector));
	put_value(b, "big", DIMS(5), "Int16", 3, 1);
	put_value(b, "big", DIMS(5), "Int16", 7, 2);
}

static void every_allocation_may_fail(void **state)
{
	static const char json[] = "{\"__metadata__\":{\"a\":\"\\n\",\"a\":\"2\"},\"b\":" T(
		"U8", "[1]", 1, 2) ",\"\\u0061\":" T("U8", "[1]", 0, 1) "}";
	struct bytes b = {.n = 0};
	size_t n_file;
	uint8_t *file = safetensors_file(json, sizeof(json) - 1, 2, &n_file);

	(void)state;
	build_all(&b);
	for (int kind = 0; kind < 3; kind++) {
		for (uint64_t n = 1;; n++) {
			struct rs_table *t = NULL, *parts[2] = {NULL, NULL};
			struct rs_err err = {0};
			int status;

			if (kind == 2) {
				parts[0] = ckpt(&b);
				parts[1] = ckpt(&b);
			}
			fault_alloc(n);
			if (kind == 0)
				status = read_bytes(rs_ckpt_header, b.at, b.n, &t, &err);
			else if (kind == 1)
				status = read_bytes(rs_safetensors_header, file, n_file, &t, &err);
			else
				status = rs_table_join(parts, 2, &t, &err);
			bool hit = fault_hit();
			fault_clear();
			if (status == 0)
				rs_arena_free(t->arena);
			if (!hit) {
				assert_int_equal(status, 0);
				assert_true(n > 3);
				break;
			}
			assert_int_equal(status, -1);
			assert_int_equal(err.code, RS_NOMEM);
		}
	}
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vector_reads_as_described),
		cmocka_unit_test(a_checksum_is_noted_and_stripped),
		cmocka_unit_test(parts_of_one_tag_are_one_entry),
		cmocka_unit_test(zero_dims_have_three_meanings),
		cmocka_unit_test(other_writers_are_understood),
		cmocka_unit_test(bad_ckpt_files_are_refused),
		cmocka_unit_test(a_name_of_70_kb_is_over_the_limit),
		cmocka_unit_test(entries_come_in_offset_order),
		cmocka_unit_test(metadata_tells_what_mindspore_adds),
		cmocka_unit_test(safetensors_rows_agree_with_the_reference),
		cmocka_unit_test(lengths_of_the_header_are_checked),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(time_grows_with_the_header),
		cmocka_unit_test(later_files_win_and_keep_the_place),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
