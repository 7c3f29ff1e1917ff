/*
 * test_pdparams.c - the .pdparams file against bytes written by hand: what is spelled out once and
 * named by number afterwards, where frames end, how pairs come in batches.
 *
 * tests/integration/test_pdparams.py holds the same code against pickle.dumps of CPython itself.
 * Format: docs/formats/pdparams.md.
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

/* A sink that keeps the text; payloads become the bytes of the item, all alike. */
struct paper {
	struct rs_sink sink; /* first */
	uint8_t *bytes;
	uint64_t len;
	const uint8_t *fill; /* per item, or NULL: zeros */
};

static int write_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err)
{
	struct paper *paper = (struct paper *)s;

	(void)err;
	paper->bytes = realloc(paper->bytes, paper->len + len);
	assert_non_null(paper->bytes);
	memcpy(paper->bytes + paper->len, p, len);
	paper->len += len;
	return 0;
}

static int write_slice(
	struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err)
{
	struct paper *paper = (struct paper *)s;
	uint8_t *content = malloc(len);
	int rc;

	assert_int_equal(skip, 0);
	assert_non_null(content);
	memset(content, paper->fill ? paper->fill[item] : 0, len);
	rc = write_bytes(s, content, len, err);
	free(content);
	return rc;
}

static int peek(struct rs_sink *s, uint64_t item, uint8_t *byte, struct rs_err *err)
{
	const struct paper *paper = (const struct paper *)s;

	(void)err;
	*byte = paper->fill[item];
	return 0;
}

static struct rs_wanted tensor(const char *name, enum rs_dtype dtype, uint32_t n_axes, uint64_t d0)
{
	return (struct rs_wanted){.name = rs_str(name),
		.dtype = dtype,
		.shape = {.n_axes = n_axes, .dims = {d0, 2, 1, 1, 1, 1}}};
}

static struct paper render(const struct rs_wanted *items, uint64_t n, const uint8_t *fill)
{
	struct rs_list list = {.items = items, .n = n};
	struct paper paper = {
		.sink = {.bytes = write_bytes, .slice = write_slice, .peek = fill ? peek : NULL},
		.fill = fill};
	struct rs_err err = {0};
	uint64_t size;

	if (rs_format_find("pdparams")->emit(&list, false, &paper.sink, NULL, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(paper.sink.size, paper.len);
	if (!fill) {
		assert_int_equal(
			rs_format_measure(rs_format_find("pdparams"), &list, false, &size, &err),
			0);
		assert_int_equal(size, paper.len);
	}
	return paper;
}

/* How often @what occurs. */
static uint32_t count(const struct paper *p, const char *what, uint64_t len)
{
	uint32_t n = 0;

	for (uint64_t i = 0; i + len <= p->len; i++)
		n += memcmp(p->bytes + i, what, len) == 0;
	return n;
}

static uint64_t le64(const uint8_t *p)
{
	uint64_t value = 0;

	for (int i = 8; i-- > 0;)
		value = value << 8 | p[i];
	return value;
}

/* ---------------------------------------------------------------------- bytes */

static void nothing_is_a_name_table(void **state)
{
	static const char want[] = "\x80\x04"                        /* PROTO 4 */
				   "\x95\x24\0\0\0\0\0\0\0"          /* FRAME of 36 bytes */
				   "}\x94"                           /* EMPTY_DICT, number 0 */
				   "\x8c\x1b"                        /* 27 bytes of text */
				   "StructuredToParameterName@@\x94" /* number 1 */
				   "}\x94"                           /* number 2 */
				   "s"                               /* SETITEM: a lone pair */
				   ".";                              /* STOP */
	struct paper p = render(NULL, 0, NULL);

	(void)state;
	assert_int_equal(p.len, sizeof(want) - 1);
	assert_memory_equal(p.bytes, want, p.len);
	free(p.bytes);
}

#define HEAD "\x8c\x15numpy.core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94"

/* Two float32 arrays: all words once, then numbers. */
static void arrays_share_their_words(void **state)
{
	static const char want[] =
		"}\x94("                                       /* 0: the dict; MARK */
		"\x8c\x01x\x94"                                /* 1: the key */
		HEAD                                           /* 2, 3, 4: a function */
		"\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94" /* 5, 6, 7: a class */
		"K\0\x85\x94"                                  /* 8: (0,) */
		"C\x01"
		"b\x94"              /* 9: b'b' */
		"\x87\x94R\x94"      /* 10: arguments; 11: an empty array */
		"(K\x01"             /* version of the state */
		"K\x03K\x02\x86\x94" /* 12: shape (3, 2) */
		"h\x05\x8c\x05"
		"dtype\x94\x93\x94" /* 13, 14: numpy.dtype */
		"\x8c\x02"
		"f4\x94\x89\x88\x87\x94R\x94" /* 15, 16; 17: dtype */
		"(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t\x94" /* 18, 19 */
		"b\x89" /* BUILD; False: row-major */
		"C\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x94" /* 20: the content */
		"t\x94"
		"b"                                                    /* 21: the state; BUILD */
		"\x8c\x01y\x94h\x04h\x07K\0\x85\x94h\x09\x87\x94R\x94" /* 22; 23, 24; 25 */
		"(K\x01)h\x11\x89" /* shape (), the same dtype */
		"C\x04\0\0\0\0\x94t\x94"
		"b"                                             /* 26, 27 */
		"\x8c\x1bStructuredToParameterName@@\x94}\x94(" /* 28, 29 */
		"h\x01h\x01h\x16h\x16uu.";
	const struct rs_wanted items[] = {
		tensor("x", RS_DT_F32, 2, 3), tensor("y", RS_DT_F32, 0, 0)};
	struct paper p = render(items, 2, NULL);

	(void)state;
	assert_int_equal(p.len, 11 + sizeof(want) - 1);
	assert_int_equal(le64(p.bytes + 3), sizeof(want) - 1);
	assert_memory_equal(p.bytes + 11, want, sizeof(want) - 1);
	free(p.bytes);
}

static void bfloat16_is_an_unsigned_of_two_bytes(void **state)
{
	const struct rs_wanted items[] = {
		tensor("a", RS_DT_BF16, 1, 2), tensor("b", RS_DT_U16, 1, 2)};
	struct paper p = render(items, 2, NULL);

	(void)state;
	assert_int_equal(count(&p, "\x8c\x02u2\x94", 5), 1); /* one dtype for both */
	assert_int_equal(count(&p,
				 "\x8c\x05"
				 "dtype",
				 7),
		1);
	free(p.bytes);
}

static void dims_take_the_shortest_form(void **state)
{
	static const struct {
		uint64_t dim;
		const char *form;
		uint64_t len;
	} rows[] = {
		{255, "K\xff", 2},
		{256, "M\x00\x01", 3},
		{65535, "M\xff\xff", 3},
		{65536, "J\x00\x00\x01\x00", 5},
		{0x7fffffff, "J\xff\xff\xff\x7f", 5},
		{0x80000000, "\x8a\x05\x00\x00\x00\x80\x00", 7},
		{0xffffffffff, "\x8a\x06\xff\xff\xff\xff\xff\x00", 8},
		{1ull << 56, "\x8a\x08\0\0\0\0\0\0\0\x01", 10},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs_wanted item = tensor("a", RS_DT_U8, 2, 0);
		char want[24];
		struct paper p;

		item.shape.dims[1] = rows[i].dim;
		memcpy(want, "(K\x01K\0", 5);
		memcpy(want + 5, rows[i].form, rows[i].len);
		memcpy(want + 5 + rows[i].len, "\x86\x94", 2);
		p = render(&item, 1, NULL);
		assert_int_equal(count(&p, want, rows[i].len + 7), 1);
		free(p.bytes);
	}
}

static void tuples_of_more_than_three_have_a_mark(void **state)
{
	static const char *const want[] = {"(K\x01)", "(K\x01K\x02\x85", "(K\x01K\x02K\x02\x86",
		"(K\x01K\x02K\x02K\x01\x87", "(K\x01(K\x02K\x02K\x01K\x01t"};

	(void)state;
	for (uint32_t n_axes = 0; n_axes < 5; n_axes++) {
		struct rs_wanted item = tensor("a", RS_DT_U8, n_axes, 2);
		struct paper p = render(&item, 1, NULL);

		assert_int_equal(count(&p, want[n_axes], strlen(want[n_axes])), 1);
		free(p.bytes);
	}
}

/* --------------------------------------------------------------------- frames */

/* Walk over frames and what lies between them; returns how many frames there are. */
static uint32_t walk_frames(const struct paper *p, uint64_t payload)
{
	uint64_t at = 2;
	uint32_t n = 0;

	while (at < p->len) {
		if (p->bytes[at] == 0x95) {
			at += 9 + le64(p->bytes + at + 1);
			n++;
		} else {
			assert_int_equal(p->bytes[at], 'B'); /* BINBYTES outside of frames */
			at += 5 + payload;
		}
	}
	assert_int_equal(at, p->len);
	return n;
}

static void long_payloads_stand_outside(void **state)
{
	struct rs_wanted items[] = {tensor("a", RS_DT_U8, 1, 65535),
		tensor("b", RS_DT_U8, 1, 65536), tensor("c", RS_DT_U8, 1, 65536)};
	struct paper p = render(items, 1, NULL);

	(void)state;
	/* The payload fills the frame: what comes next begins another. */
	assert_int_equal(walk_frames(&p, 0), 2);
	free(p.bytes);
	p = render(items + 1, 2, NULL);
	assert_int_equal(walk_frames(&p, 65536), 3);
	free(p.bytes);
}

static void a_payload_of_4_gib_has_a_long_length(void **state)
{
	const struct rs_wanted item = tensor("a", RS_DT_U8, 1, 1ull << 32);
	const struct rs_list list = {.items = &item, .n = 1};
	uint64_t size, less;

	(void)state;
	assert_int_equal(
		rs_format_measure(rs_format_find("pdparams"), &list, false, &size, NULL), 0);
	struct rs_wanted shorter = tensor("a", RS_DT_U8, 1, (1ull << 32) - 1);
	const struct rs_list list2 = {.items = &shorter, .n = 1};
	assert_int_equal(
		rs_format_measure(rs_format_find("pdparams"), &list2, false, &less, NULL), 0);
	/* One byte more, four of the length, and the dimension (LONG1, 5 bytes both). */
	assert_int_equal(size - less, 1 + 4);
}

static void pairs_come_in_batches(void **state)
{
	static const struct {
		uint32_t n, setitems; /* in both dicts; the outer one has n + 1 pairs */
	} rows[] = {{1, 1}, {2, 2}, {998, 2}, {999, 3}, {1000, 4}, {1001, 4}, {1999, 5}, {2000, 6}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs_wanted *items = calloc(rows[i].n, sizeof(*items));
		char(*names)[12] = calloc(rows[i].n, sizeof(*names));
		struct paper p;

		assert_non_null(items);
		assert_non_null(names);
		for (uint32_t k = 0; k < rows[i].n; k++) {
			snprintf(names[k], sizeof(names[k]), "T%u", k);
			items[k] = tensor(names[k], RS_DT_U8, 1, 0);
		}
		p = render(items, rows[i].n, NULL);
		/* Nothing else has a u: names and words of one-byte arrays lack it, but for these.
		 */
		assert_int_equal(count(&p, "u", 1) - count(&p, "nu", 2) - count(&p, "mu", 2) -
					 count(&p, "tu", 2) - count(&p, "ru", 2) -
					 count(&p, "\x8c\x02u1", 4),
			rows[i].setitems);
		free(p.bytes);
		free(names);
		free(items);
	}
}

/* --------------------------------------------------------------- single bytes */

static void equal_single_bytes_are_one_object(void **state)
{
	static const uint8_t fill[] = {7, 'b', 7, 8};
	const struct rs_wanted items[] = {tensor("w", RS_DT_U8, 0, 0), tensor("x", RS_DT_U8, 0, 0),
		tensor("y", RS_DT_BOOL, 0, 0), tensor("z", RS_DT_U8, 0, 0)};
	struct paper p = render(items, 4, fill);

	(void)state;
	assert_int_equal(count(&p, "C\x01\x07\x94", 4), 1);
	assert_int_equal(count(&p,
				 "C\x01"
				 "b\x94",
				 4),
		1);                                      /* the one of _reconstruct */
	assert_int_equal(count(&p, "\x89h\x09t", 4), 1); /* x names it */
	assert_int_equal(count(&p, "C\x01\x08\x94", 4), 1);
	free(p.bytes);
}

static void empty_contents_are_one_object(void **state)
{
	const struct rs_wanted items[] = {
		tensor("w", RS_DT_U8, 1, 0), tensor("x", RS_DT_F64, 1, 0)};
	struct paper p = render(items, 2, NULL);

	(void)state;
	assert_int_equal(count(&p, "C\0\x94", 3), 1);
	free(p.bytes);
}

/* Texts of one character are one object, too: a tensor may be called as the byte order. */
static void a_key_may_be_a_byte_order(void **state)
{
	const struct rs_wanted items[] = {
		tensor("<", RS_DT_F32, 1, 1), tensor("|", RS_DT_U8, 1, 2)};
	struct paper p = render(items, 2, NULL);

	(void)state;
	assert_int_equal(count(&p, "\x8c\x01<\x94", 4), 1);
	assert_int_equal(count(&p, "\x8c\x01|\x94", 4), 1);
	free(p.bytes);
}

/* -------------------------------------------------------------------- refusals */

static void refusals_name_the_tensor(void **state)
{
	static const struct {
		const char *name;
		enum rs_dtype dtype;
		enum rs_code code;
		const char *word;
	} rows[] = {
		{"q", RS_DT_F8_E4M3, RS_UNSUPPORTED, "'q'"},
		{"q", RS_DT_F4, RS_UNSUPPORTED, "numpy"},
		{"q", RS_DT_INT4X2, RS_UNSUPPORTED, "Int4"},
		{"\xff", RS_DT_U8, RS_UNSUPPORTED, "UTF-8"},
		{"StructuredToParameterName@@", RS_DT_U8, RS_UNSUPPORTED, "keep this name"},
		{"big", RS_DT_F64, RS_LIMIT, "'big'"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct rs_wanted item =
			tensor(rows[i].name, rows[i].dtype, 2, 1ull << (i == 5 ? 62 : 2));
		const struct rs_list list = {.items = &item, .n = 1};
		struct rs_err err = {0};
		uint64_t size;

		assert_int_equal(
			rs_format_measure(rs_format_find("pdparams"), &list, false, &size, &err),
			-1);
		assert_int_equal(err.code, rows[i].code);
		assert_text(err.msg, rows[i].word);
	}
}

static void texts_are_left_out_with_a_note(void **state)
{
	const struct rs_wanted item = tensor("motto", RS_DT_STR, 1, 3);
	const struct rs_list list = {.items = &item, .n = 1};
	struct paper paper = {.sink = {.bytes = write_bytes, .slice = write_slice}};
	struct rs_notes notes = {0};

	(void)state;
	assert_int_equal(
		rs_format_find("pdparams")->emit(&list, false, &paper.sink, &notes, NULL), 0);
	assert_int_equal(notes.n, 1);
	assert_text(notes.items[0], "'motto'");
	assert_int_equal(count(&paper, "motto", 5), 0);
	rs_notes_done(&notes);
	free(paper.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_a_name_table),
		cmocka_unit_test(arrays_share_their_words),
		cmocka_unit_test(bfloat16_is_an_unsigned_of_two_bytes),
		cmocka_unit_test(dims_take_the_shortest_form),
		cmocka_unit_test(tuples_of_more_than_three_have_a_mark),
		cmocka_unit_test(long_payloads_stand_outside),
		cmocka_unit_test(a_payload_of_4_gib_has_a_long_length),
		cmocka_unit_test(pairs_come_in_batches),
		cmocka_unit_test(equal_single_bytes_are_one_object),
		cmocka_unit_test(empty_contents_are_one_object),
		cmocka_unit_test(a_key_may_be_a_byte_order),
		cmocka_unit_test(refusals_name_the_tensor),
		cmocka_unit_test(texts_are_left_out_with_a_note),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
