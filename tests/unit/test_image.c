/*
 * test_image.c - the target formats against bytes written out by hand.
 *
 * A format describes a file to a sink; the sink of this test writes the bytes down, so that no
 * catalog and no disk is needed. Large tensors are only measured. What is built from a source and
 * read back has test_image_build.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "reshardfs/image.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

#define MIB (1024 * 1024ull)
#define CHUNK (512 * MIB)

/* ------------------------------------------------------------ a sink on paper */

struct asked { /* what a format asked to be copied */
	uint64_t item, skip, len;
};
struct paper {
	struct rs_sink sink;
	const uint8_t *const *content; /* per item; NULL: only ask */
	uint8_t bytes[8192];
	uint64_t len;
	struct asked asked[16];
	uint32_t n_asked;
};

static int write_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err)
{
	struct paper *paper = (struct paper *)s;

	(void)err;
	assert_true(len <= sizeof(paper->bytes) - paper->len);
	memcpy(paper->bytes + paper->len, p, len);
	paper->len += len;
	return 0;
}

static int write_slice(
	struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err)
{
	struct paper *paper = (struct paper *)s;

	assert_true(paper->n_asked < 16);
	paper->asked[paper->n_asked++] = (struct asked){item, skip, len};
	return paper->content ? write_bytes(s, paper->content[item] + skip, len, err) : 0;
}

static int write_fill(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err)
{
	while (len--)
		write_bytes(s, &byte, 1, err);
	return 0;
}

static void paper_init(struct paper *paper, const uint8_t *const *content)
{
	memset(paper, 0, sizeof(*paper));
	paper->sink =
		(struct rs_sink){.bytes = write_bytes, .slice = write_slice, .fill = write_fill};
	paper->content = content;
}

static struct rs_wanted tensor(
	const char *name, enum rs_dtype dtype, uint32_t n_axes, uint64_t d0, uint64_t d1)
{
	return (struct rs_wanted){.name = rs_str(name),
		.dtype = dtype,
		.shape = {.n_axes = n_axes, .dims = {d0, d1}}};
}

/* The list as a file of @format, and the proof that measuring says the same size. */
static void render(const char *format, const struct rs_list *list, bool mindspore,
	const uint8_t *const *content, struct paper *paper, struct rs_notes *notes)
{
	const struct rs_format_ops *f = rs_format_find(format);
	struct rs_err err = {0};
	uint64_t size = 0;

	assert_non_null(f);
	paper_init(paper, content);
	if (f->emit(list, mindspore, &paper->sink, notes, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(paper->sink.size, paper->len);
	assert_int_equal(rs_format_measure(f, list, mindspore, &size, &err), 0);
	assert_int_equal(size, paper->len);
}

static void refuse(const char *format, const struct rs_list *list, enum rs_code code,
	const char *word, struct rs_err *err)
{
	uint64_t size;

	memset(err, 0, sizeof(*err));
	assert_int_equal(rs_format_measure(rs_format_find(format), list, true, &size, err), -1);
	assert_int_equal(err->code, code);
	assert_text(err->msg, word);
}

/* ------------------------------------------------------------------- .ckpt */

static const uint8_t w_content[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}; /* 1.0f, 2.0f */
static const uint8_t step_content[] = {7, 0, 0, 0};
static const uint8_t tag_content[] = {0x61, 0, 0, 0, 0x62, 0, 0, 0}; /* "ab" in UTF-32LE */

/* w Float32 [1, 2], step Int32 without axes, tag a text: the three kinds of Value. */
static void ckpt_bytes(void **state)
{
	static const uint8_t expected[] = {
		0x0a, 0x1c,                                    /* Value of 28 bytes */
		0x0a, 0x01, 'w',                               /* tag */
		0x12, 0x17,                                    /* tensor of 23 bytes */
		0x08, 0x01, 0x08, 0x02,                        /* dims 1, 2 */
		0x12, 0x07, 'F', 'l', 'o', 'a', 't', '3', '2', /* type */
		0x1a, 0x08, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40,   /* content */
		0x0a, 0x15,                                    /* Value of 21 bytes */
		0x0a, 0x04, 's', 't', 'e', 'p', 0x12, 0x0d,    /* tensor of 13 bytes, no dims */
		0x12, 0x05, 'I', 'n', 't', '3', '2',           /* type */
		0x1a, 0x04, 7, 0, 0, 0,                        /* content */
		0x0a, 0x18,                                    /* Value of 24 bytes */
		0x0a, 0x03, 't', 'a', 'g', 0x12, 0x11,         /* tensor of 17 bytes */
		0x08, 0x00,                                    /* a text says dims [0] */
		0x12, 0x03, 's', 't', 'r',                     /* type */
		0x1a, 0x08, 0x61, 0, 0, 0, 0x62, 0, 0, 0,      /* content */
	};
	const uint8_t *content[] = {w_content, step_content, tag_content};
	struct rs_wanted items[] = {
		tensor("w", RS_DT_F32, 2, 1, 2),
		tensor("step", RS_DT_I32, 0, 0, 0),
		tensor("tag", RS_DT_STR, 1, 2, 0),
	};
	struct paper paper;

	(void)state;
	render("ckpt", &(struct rs_list){.items = items, .n = 3}, true, content, &paper, NULL);
	assert_int_equal(paper.len, sizeof(expected));
	assert_memory_equal(paper.bytes, expected, sizeof(expected));
}

static void ckpt_scalar_keeps_the_form_of_its_source(void **state)
{
	static const uint8_t expected[] = {0x0a, 0x17, 0x0a, 0x04, 's', 't', 'e', 'p', 0x12, 0x0f,
		0x08, 0x00, 0x12, 0x05, 'I', 'n', 't', '3', '2', 0x1a, 0x04, 7, 0, 0, 0};
	const uint8_t *content[] = {step_content};
	struct rs_wanted item = tensor("step", RS_DT_I32, 0, 0, 0);
	struct paper paper;

	(void)state;
	item.zero_dims = true;
	render("ckpt", &(struct rs_list){.items = &item, .n = 1}, true, content, &paper, NULL);
	assert_int_equal(paper.len, sizeof(expected));
	assert_memory_equal(paper.bytes, expected, sizeof(expected));
}

static void ckpt_empty_text_is_one_zero_code_point(void **state)
{
	static const uint8_t expected[] = {0x0a, 0x12, 0x0a, 0x01, 't', 0x12, 0x0d, 0x08, 0x00,
		0x12, 0x03, 's', 't', 'r', 0x1a, 0x04, 0, 0, 0, 0};
	struct rs_wanted item = tensor("t", RS_DT_STR, 1, 0, 0);
	struct paper paper;

	(void)state;
	render("ckpt", &(struct rs_list){.items = &item, .n = 1}, true, NULL, &paper, NULL);
	assert_int_equal(paper.len, sizeof(expected));
	assert_memory_equal(paper.bytes, expected, sizeof(expected));
}

static void ckpt_leaves_out_what_has_no_elements(void **state)
{
	const uint8_t *content[] = {NULL, w_content};
	struct rs_wanted items[] = {
		tensor("void", RS_DT_F32, 2, 0, 4), tensor("w", RS_DT_F32, 2, 1, 2)};
	struct rs_list list = {.items = items, .n = 2};
	struct rs_notes notes = {0};
	struct paper paper;
	struct rs_err err;

	(void)state;
	render("ckpt", &list, true, content, &paper, &notes);
	assert_int_equal(paper.len, 30);
	assert_int_equal(notes.n, 1);
	assert_text(notes.items[0], "'void' [0, 4]");
	rs_notes_done(&notes);

	list.n = 1;
	refuse("ckpt", &list, RS_MISSING, "empty", &err);
	assert_text(err.hint, "ranks=");
}

static void ckpt_refuses_a_dtype_without_a_word(void **state)
{
	struct rs_wanted items[] = {
		tensor("w", RS_DT_F32, 2, 1, 2), tensor("layer.q", RS_DT_F8_E4M3, 1, 4, 0)};
	struct rs_err err;

	(void)state;
	refuse("ckpt", &(struct rs_list){.items = items, .n = 2}, RS_UNSUPPORTED, "'layer.q'",
		&err);
	assert_text(err.msg, "F8_E4M3");
	assert_text(err.hint, "safetensors");
}

/* Bytes of a varint, and of one Value by the formula of the format's description. */
static uint64_t vl(uint64_t x)
{
	uint64_t n = 1;

	for (; x >= 128; x /= 128)
		n++;
	return n;
}

static uint64_t value_size(uint64_t name, uint64_t type, uint64_t dims, uint64_t content)
{
	uint64_t t = dims + 2 + type + 1 + vl(content) + content;
	uint64_t v = 1 + vl(name) + name + 1 + vl(t) + t;

	return 1 + vl(v) + v;
}

static void check_chunks(struct rs_wanted item, uint64_t size, const uint64_t *len, uint32_t n)
{
	struct rs_list list = {.items = &item, .n = 1};
	struct rs_err err = {0};
	struct paper paper;
	uint64_t at = 0, measured = 0;

	paper_init(&paper, NULL);
	assert_int_equal(rs_format_find("ckpt")->emit(&list, true, &paper.sink, NULL, &err), 0);
	assert_int_equal(paper.sink.size, size);
	assert_int_equal(paper.n_asked, n);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(paper.asked[i].item, 0);
		assert_int_equal(paper.asked[i].skip, at);
		assert_int_equal(paper.asked[i].len, len[i]);
		at += len[i];
	}
	assert_int_equal(
		rs_format_measure(rs_format_find("ckpt"), &list, true, &measured, &err), 0);
	assert_int_equal(measured, size);
}

/* Content over 512 MiB: several Values of one name, each with the whole shape. */
static void ckpt_chunks(void **state)
{
	const uint64_t full = value_size(2, 5, 1 + 5, CHUNK); /* "UInt8", a 5-byte dim */

	(void)state;
	check_chunks(tensor("ww", RS_DT_U8, 1, CHUNK - 1, 0), value_size(2, 5, 1 + 5, CHUNK - 1),
		(uint64_t[]){CHUNK - 1}, 1);
	check_chunks(tensor("ww", RS_DT_U8, 1, CHUNK, 0), full, (uint64_t[]){CHUNK}, 1);
	check_chunks(tensor("ww", RS_DT_U8, 1, CHUNK + 1, 0), full + value_size(2, 5, 1 + 5, 1),
		(uint64_t[]){CHUNK, 1}, 2);
	check_chunks(
		tensor("ww", RS_DT_U8, 1, 2 * CHUNK, 0), 2 * full, (uint64_t[]){CHUNK, CHUNK}, 2);
	/* A border inside an element of 8 bytes and inside a row of 3: 1.5 GiB + 3 rows. */
	check_chunks(tensor("w", RS_DT_F64, 2, 64 * MIB + 1, 3),
		3 * value_size(1, 7, 1 + 4 + 2, CHUNK) + value_size(1, 7, 1 + 4 + 2, 24),
		(uint64_t[]){CHUNK, CHUNK, CHUNK, 24}, 4);
	/* A text, too. */
	check_chunks(tensor("t", RS_DT_STR, 1, 128 * MIB + 2, 0),
		value_size(1, 3, 2, CHUNK) + value_size(1, 3, 2, 8), (uint64_t[]){CHUNK, 8}, 2);
}

/* ------------------------------------------------------------- .safetensors */

/* The JSON of a rendered file, terminated. */
static const char *json_of(struct paper *paper)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < 8; i++)
		n |= (uint64_t)paper->bytes[i] << (8 * i);
	assert_int_equal(n % 8, 0);
	assert_true(8 + n <= paper->len);
	memmove(paper->bytes, paper->bytes + 8, n);
	paper->bytes[n] = '\0';
	return (const char *)paper->bytes;
}

static void safetensors_bytes(void **state)
{
	static const char expected[] =
		"\x90\0\0\0\0\0\0\0" /* 144 bytes of header: 138 of JSON, 6 spaces */
		"{\"__metadata__\":{\"format\":\"ms\"},"
		"\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}"
		"      "
		"\0\0\x80\x3f\0\0\0\x40"
		"\x07";
	const uint8_t *content[] = {step_content, w_content};
	struct rs_wanted items[] = {
		tensor("b", RS_DT_U8, 0, 0, 0), tensor("w", RS_DT_F32, 2, 1, 2)};
	const struct rs_wanted before[] = {items[0], items[1]};
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){.items = items, .n = 2}, true, content, &paper,
		NULL);
	assert_int_equal(paper.len, sizeof(expected) - 1);
	assert_memory_equal(paper.bytes, expected, sizeof(expected) - 1);
	assert_memory_equal(items, before, sizeof(before)); /* sorted on the side */
}

/* The sample of the format's description: wide types first, then names; [0, 4] keeps its place. */
static void safetensors_order(void **state)
{
	static const char expected[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"z\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]},"
		"\"h\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[20,20]},"
		"\"g\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[20,22]},"
		"\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[22,25]},"
		"\"d\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[25,26]}}";
	struct rs_wanted items[] = {
		tensor("c", RS_DT_U8, 1, 3, 0),
		tensor("d", RS_DT_BOOL, 1, 1, 0),
		tensor("b", RS_DT_F32, 1, 2, 0),
		tensor("h", RS_DT_BF16, 2, 0, 4),
		tensor("a", RS_DT_F32, 1, 1, 0),
		tensor("z", RS_DT_I64, 0, 0, 0),
		tensor("g", RS_DT_F16, 1, 1, 0),
	};
	static const uint64_t order[] = {5, 4, 2, 6, 0, 1};
	const uint8_t bytes[8] = {0};
	const uint8_t *content[7] = {bytes, bytes, bytes, bytes, bytes, bytes, bytes};
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){.items = items, .n = 7}, false, content, &paper,
		NULL);
	assert_string_equal(json_of(&paper), expected); /* 448 bytes: no padding at all */
	assert_int_equal(paper.n_asked, 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(paper.asked[i].item, order[i]);
}

static void safetensors_without_tensors(void **state)
{
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){0}, false, NULL, &paper, NULL);
	assert_int_equal(paper.len, 8 + 32);
	assert_string_equal(json_of(&paper), "{\"__metadata__\":{\"format\":\"pt\"}}");
}

/* Only quote, backslash and what is below 0x20 are escaped; 0x7f, '/' and UTF-8 are not. */
static void safetensors_escapes(void **state)
{
	struct rs_wanted item = tensor("q\"s\\/\b\t\n\f\r\x01\x1f\x7f\xc3\xa9", RS_DT_U8, 1, 0, 0);
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){.items = &item, .n = 1}, false, NULL, &paper, NULL);
	assert_text(json_of(&paper),
		",\"q\\\"s\\\\/\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\xc3\xa9\":{\"dtype\"");
}

/* A pair of 4-bit values is a byte to the format; metadata says what it was, keys sorted. */
static void safetensors_int4(void **state)
{
	struct rs_wanted items[] = {
		tensor("zq", RS_DT_INT4X2, 1, 0, 0),
		tensor("m", RS_DT_I8, 1, 0, 0),
		tensor("aq", RS_DT_INT4X2, 1, 0, 0),
	};
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){.items = items, .n = 3}, true, NULL, &paper, NULL);
	assert_text(json_of(&paper),
		"{\"__metadata__\":{\"aq\":\"Int4\",\"format\":\"ms\",\"zq\":\"Int4\"},"
		"\"aq\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]},"
		"\"m\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]},"
		"\"zq\":{\"dtype\":\"I8\"");
}

static void safetensors_keeps_own_metadata(void **state)
{
	const struct rs_meta meta[] = {
		{RS_STR("step"), RS_STR("1 \"2\"")},
		{RS_STR("q"), RS_STR("stale")},
		{RS_STR("format"), RS_STR("np")},
	};
	struct rs_wanted item = tensor("q", RS_DT_INT4X2, 1, 0, 0);
	struct rs_list list = {.items = &item, .n = 1, .meta = meta, .n_meta = 3};
	struct paper paper;

	(void)state;
	render("safetensors", &list, true, NULL, &paper, NULL);
	assert_text(json_of(&paper),
		"{\"__metadata__\":{\"format\":\"np\",\"q\":\"Int4\",\"step\":\"1 \\\"2\\\"\"},");
}

static void safetensors_leaves_out_texts(void **state)
{
	struct rs_wanted items[] = {
		tensor("tag", RS_DT_STR, 1, 2, 0), tensor("w", RS_DT_F32, 2, 1, 2)};
	const uint8_t *content[] = {tag_content, w_content};
	struct rs_notes notes = {0};
	struct paper paper;

	(void)state;
	render("safetensors", &(struct rs_list){.items = items, .n = 2}, true, content, &paper,
		&notes);
	assert_null(strstr(json_of(&paper), "tag"));
	assert_int_equal(paper.n_asked, 1);
	assert_int_equal(paper.asked[0].item, 1);
	assert_int_equal(notes.n, 1);
	assert_text(notes.items[0], "'tag'");
	rs_notes_done(&notes);
}

static void safetensors_refuses_names_that_json_cannot_carry(void **state)
{
	const struct rs_meta meta = {RS_STR("k"), RS_STR("\xff")};
	struct rs_wanted item = tensor("w\xff", RS_DT_U8, 1, 1, 0);
	struct rs_list list = {.items = &item, .n = 1};
	struct rs_err err;

	(void)state;
	refuse("safetensors", &list, RS_UNSUPPORTED, "UTF-8", &err);
	item.name = RS_STR("__metadata__");
	refuse("safetensors", &list, RS_UNSUPPORTED, "'__metadata__'", &err);
	item.name = RS_STR("w");
	list.meta = &meta;
	list.n_meta = 1;
	refuse("safetensors", &list, RS_UNSUPPORTED, "'k'", &err);
}

/* 1600 names of 62 KB: more header than any reader takes. */
static void safetensors_header_limit(void **state)
{
	enum { N = 1600, LEN = 62500 };
	struct rs_wanted *items = calloc(N, sizeof(*items));
	char *name = malloc(LEN);
	struct rs_list list = {.items = items, .n = N};
	uint64_t size = 0;
	struct rs_err err;

	(void)state;
	assert_non_null(items);
	assert_non_null(name);
	memset(name, 'n', LEN);
	for (uint32_t i = 0; i < N; i++) {
		items[i] = tensor("", RS_DT_U8, 1, 0, 0);
		items[i].name = (struct rs_str){name, LEN};
	}
	refuse("safetensors", &list, RS_LIMIT, "100000000", &err);
	assert_text(err.hint, "format=ckpt");
	list.n = N - 2;
	assert_int_equal(
		rs_format_measure(rs_format_find("safetensors"), &list, true, &size, &err), 0);
	assert_true(size < 100000000 + 8);
	free(name);
	free(items);
}

/* --------------------------------------------------------------- both of them */

static void raw_has_nothing_around_it(void **state)
{
	const uint8_t *content[] = {w_content};
	struct rs_wanted item = tensor("rank_0/x.ckpt", RS_DT_U8, 1, sizeof(w_content), 0);
	struct rs_list list = {.items = &item, .n = 1, .raw = true};

	(void)state;
	for (const char *const *name = rs_format_names(); *name; name++) {
		struct paper paper;

		render(*name, &list, true, content, &paper, NULL);
		assert_int_equal(paper.len, sizeof(w_content));
		assert_memory_equal(paper.bytes, w_content, sizeof(w_content));
	}
}

static void files_end_below_2_to_63(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct rs_wanted items[8];
	struct rs_list list = {.items = items, .n = 8};
	struct rs_err err;

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		items[i] = tensor(names[i], RS_DT_U8, 2, 1ull << 60, 1);
	refuse("safetensors", &list, RS_LIMIT, "2^63", &err);
	items[0] = tensor("a", RS_DT_F32, 2, 1ull << 62, 4);
	refuse("safetensors", &list, RS_LIMIT, "'a'", &err);
	refuse("ckpt", &list, RS_LIMIT, "'a'", &err);
}

static void formats_have_names(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (const char *const *name = rs_format_names(); *name; name++, n++) {
		assert_string_equal(rs_format_find(*name)->name, *name);
		assert_string_equal(rs_format_find(*name)->suffix + 1, *name);
	}
	assert_int_equal(n, 3);
	assert_null(rs_format_find("gguf"));
	assert_null(rs_format_find(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ckpt_bytes),
		cmocka_unit_test(ckpt_scalar_keeps_the_form_of_its_source),
		cmocka_unit_test(ckpt_empty_text_is_one_zero_code_point),
		cmocka_unit_test(ckpt_leaves_out_what_has_no_elements),
		cmocka_unit_test(ckpt_refuses_a_dtype_without_a_word),
		cmocka_unit_test(ckpt_chunks),
		cmocka_unit_test(safetensors_bytes),
		cmocka_unit_test(safetensors_order),
		cmocka_unit_test(safetensors_without_tensors),
		cmocka_unit_test(safetensors_escapes),
		cmocka_unit_test(safetensors_int4),
		cmocka_unit_test(safetensors_keeps_own_metadata),
		cmocka_unit_test(safetensors_leaves_out_texts),
		cmocka_unit_test(safetensors_refuses_names_that_json_cannot_carry),
		cmocka_unit_test(safetensors_header_limit),
		cmocka_unit_test(raw_has_nothing_around_it),
		cmocka_unit_test(files_end_below_2_to_63),
		cmocka_unit_test(formats_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
