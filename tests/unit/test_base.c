/*
 * test_base.c - errors, strings, arenas and notes: what can be told without a disk. Files and
 * directories have test_files.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reshardfs/base.h"
#include "tests/lib/fault.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

/* -------------------------------------------------------------------- errors */

static void fail_fills_the_error(void **state)
{
	struct rs_err err = {.hint = "an older hint", .sys = EIO};

	(void)state;
	assert_int_equal(rs_fail(&err, RS_CORRUPT, "%s@%d: expected %s", "f", 8, "x"), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_int_equal(err.sys, 0);
	assert_string_equal(err.msg, "f@8: expected x");
	assert_string_equal(err.hint, "");
	assert_int_equal(rs_hint(&err, "do %s", "this"), -1);
	assert_string_equal(err.hint, "do this");
	assert_int_equal(rs_err_prefix(&err, "rank %u", 3u), -1);
	assert_string_equal(err.msg, "rank 3: f@8: expected x");
	assert_string_equal(err.hint, "do this");
}

static void fail_sys_appends_the_reason(void **state)
{
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_fail_sys(&err, ENOSPC, "f: cannot grow"), -1);
	assert_int_equal(err.code, RS_IO);
	assert_int_equal(err.sys, ENOSPC);
	assert_string_equal(err.msg, "f: cannot grow: No space left on device");
}

static void nobody_listens(void **state)
{
	(void)state;
	assert_int_equal(rs_fail(NULL, RS_IO, "x"), -1);
	assert_int_equal(rs_fail_sys(NULL, EIO, "x"), -1);
	assert_int_equal(rs_hint(NULL, "x"), -1);
	assert_int_equal(rs_err_prefix(NULL, "x"), -1);
}

static void long_messages_are_cut(void **state)
{
	char text[2000];
	struct rs_err err;

	(void)state;
	memset(text, 'm', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	rs_fail(&err, RS_USAGE, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_string_equal(err.msg + sizeof(err.msg) - 4, "...");
	rs_hint(&err, "%s", text);
	assert_int_equal(strlen(err.hint), sizeof(err.hint) - 1);
	rs_err_prefix(&err, "%s", "front");
	assert_memory_equal(err.msg, "front: mmm", 10);
	assert_string_equal(err.msg + sizeof(err.msg) - 4, "...");
	rs_fail_sys(&err, EIO, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

/* A message is cut between characters, whatever byte the limit falls on. */
static void cuts_keep_utf8_whole(void **state)
{
	struct rs_err err;

	(void)state;
	for (size_t shift = 0; shift < 4; shift++) {
		char text[1000];
		size_t n = shift;

		memset(text, 'a', shift);
		for (; n + 4 < sizeof(text); n += 3)
			memcpy(text + n, "\xE2\x82\xAC", 3); /* the Euro sign */
		text[n] = 0;
		rs_fail(&err, RS_USAGE, "%s", text);
		assert_true(rs_utf8_ok(rs_str(err.msg)));
		rs_err_prefix(&err, "%.*s", (int)shift, "abcd");
		assert_true(rs_utf8_ok(rs_str(err.msg)));
	}
}

static void control_bytes_never_reach_a_message(void **state)
{
	struct rs_err err;

	(void)state;
	rs_fail(&err, RS_USAGE, "a\x1b[31m\nb\x7f");
	assert_string_equal(err.msg, "a?[31m?b?");
}

/* The old message may be an argument of the new one. */
static void an_error_can_quote_itself(void **state)
{
	struct rs_err err;

	(void)state;
	rs_fail(&err, RS_IO, "inner");
	rs_hint(&err, "help");
	rs_fail(&err, RS_USAGE, "outer (%s, %s)", err.msg, err.hint);
	assert_string_equal(err.msg, "outer (inner, help)");
}

static void codes_have_distinct_names(void **state)
{
	(void)state;
	for (int a = RS_OK; a <= RS_NOMEM; a++) {
		assert_string_not_equal(rs_code_name((enum rs_code)a), "unknown");
		for (int b = RS_OK; b < a; b++)
			assert_string_not_equal(
				rs_code_name((enum rs_code)a), rs_code_name((enum rs_code)b));
	}
}

/* ------------------------------------------------------------------- strings */

static void strings_sort_by_bytes(void **state)
{
	/* Ascending; U+FF5E sorts before U+1F600 in UTF-8, unlike in UTF-16. */
	static const char *const order[] = {
		"", "a", "a.b", "ab", "b", "\xC3\xA9", "\xEF\xBD\x9E", "\xF0\x9F\x98\x80"};

	(void)state;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
		for (size_t j = 0; j < sizeof(order) / sizeof(*order); j++) {
			int cmp = rs_str_cmp(rs_str(order[i]), rs_str(order[j]));

			assert_int_equal((cmp > 0) - (cmp < 0), (i > j) - (i < j));
			assert_int_equal(rs_str_eq(rs_str(order[i]), rs_str(order[j])), i == j);
		}
}

static void ends_and_starts(void **state)
{
	struct rs_str s = RS_STR("rank_12");

	(void)state;
	assert_true(rs_str_starts(s, "rank_"));
	assert_true(rs_str_starts(s, ""));
	assert_true(rs_str_starts(s, "rank_12"));
	assert_false(rs_str_starts(s, "rank_123"));
	assert_false(rs_str_starts(s, "Rank"));
	assert_true(rs_str_ends(s, "12"));
	assert_true(rs_str_ends(s, ""));
	assert_false(rs_str_ends(s, "xrank_12"));
	assert_false(rs_str_ends(s, "1"));
	assert_true(rs_str_starts((struct rs_str){NULL, 0}, ""));
	assert_true(rs_str_is(s, "rank_12"));
	assert_false(rs_str_is(s, "rank_1"));
}

static void decimal_numbers(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		uint64_t value;
	} rows[] = {
		{"0", true, 0},
		{"007", true, 7},
		{"18446744073709551615", true, UINT64_MAX},
		{"00018446744073709551615", true, UINT64_MAX},
		{"18446744073709551616", false, 0},
		{"99999999999999999999", false, 0},
		{"", false, 0},
		{"-1", false, 0},
		{"+1", false, 0},
		{" 1", false, 0},
		{"1 ", false, 0},
		{"1e3", false, 0},
		{"0x1", false, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t value = 99;

		if (rs_str_u64(rs_str(rows[i].text), &value) != rows[i].ok)
			fail_msg("'%s'", rows[i].text);
		if (rows[i].ok)
			assert_int_equal(value, rows[i].value);
		else
			assert_int_equal(value, 99); /* untouched */
	}
	assert_false(rs_str_u64((struct rs_str){"1\0002", 3}, &(uint64_t){0}));
}

static void utf8_is_judged(void **state)
{
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{"", true},
		{"plain", true},
		{"\xC2\x80", true},          /* U+0080, the least of two bytes */
		{"\xDF\xBF", true},          /* U+07FF */
		{"\xE0\xA0\x80", true},      /* U+0800 */
		{"\xED\x9F\xBF", true},      /* U+D7FF, before the surrogates */
		{"\xEE\x80\x80", true},      /* U+E000, behind them */
		{"\xEF\xBF\xBF", true},      /* U+FFFF */
		{"\xF0\x90\x80\x80", true},  /* U+10000 */
		{"\xF4\x8F\xBF\xBF", true},  /* U+10FFFF, the last */
		{"\xF4\x90\x80\x80", false}, /* U+110000 */
		{"\xF5\x80\x80\x80", false},
		{"\xC0\x80", false},         /* overlong NUL */
		{"\xC1\xBF", false},         /* overlong U+007F */
		{"\xE0\x9F\xBF", false},     /* overlong U+07FF */
		{"\xF0\x8F\xBF\xBF", false}, /* overlong U+FFFF */
		{"\xED\xA0\x80", false},     /* surrogate U+D800 */
		{"\xED\xBF\xBF", false},     /* surrogate U+DFFF */
		{"\x80", false},             /* continuation alone */
		{"a\xC3", false},            /* cut */
		{"\xE2\x82", false},
		{"\xF0\x9F\x98", false},
		{"\xC3(", false}, /* continuation missing */
		{"\xFF", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rs_utf8_ok(rs_str(rows[i].text)) != rows[i].ok)
			fail_msg("row %zu", i);
	assert_true(rs_utf8_ok((struct rs_str){"a\0b", 3}));
}

static void names_are_shown_safely(void **state)
{
	static const struct {
		struct rs_str name;
		const char *shown;
	} rows[] = {
		{RS_STR("layers.0.weight"), "layers.0.weight"},
		{RS_STR(""), ""},
		{RS_STR("a\nb\x1b[1m"), "a\\x0Ab\\x1B[1m"},
		{RS_STR("nul\0nul"), "nul\\x00nul"},
		{RS_STR("\x7f"), "\\x7F"},
		{RS_STR("\xC3\xA9\xFF"), "\xC3\xA9\\xFF"},
		{RS_STR("\xC2\x9B[1m"), "\\xC2\\x9B[1m"}, /* CSI of eight bits */
		{RS_STR("a\xE2\x80\xAE"
			"b"),
			"a\\xE2\\x80\\xAE"
			"b"}, /* right to left */
		{RS_STR("\xE2\x82\xAC"), "\xE2\x82\xAC"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_string_equal(RS_SHOW(rows[i].name), rows[i].shown);
}

/* For every size of buffer: terminated, inside, whole characters, "..." exactly when cut. */
static void shown_names_fit_every_buffer(void **state)
{
	struct rs_str name = RS_STR("w\xE2\x82\xAC\n\xFFxyz\xF0\x9F\x98\x80"
				    "end");
	const char *whole = "w\xE2\x82\xAC\\x0A\\xFFxyz\xF0\x9F\x98\x80"
			    "end";
	size_t len = strlen(whole);

	(void)state;
	for (size_t size = 1; size <= len + 8; size++) {
		char *buf = malloc(size); /* exact, so that the sanitizer sees a byte too many */

		assert_ptr_equal(rs_show(name, buf, size), buf);
		assert_true(strlen(buf) < size);
		assert_true(rs_utf8_ok(rs_str(buf)));
		if (size > len) {
			assert_string_equal(buf, whole);
		} else if (size > 3) {
			assert_true(rs_str_ends(rs_str(buf), "..."));
			assert_memory_equal(buf, whole, strlen(buf) - 3);
		}
		free(buf);
	}
}

/* ------------------------------------------------------------------- numbers */

static void sums_and_ranges_are_checked(void **state)
{
	uint64_t out;

	(void)state;
	assert_true(rs_add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
	assert_false(rs_add(UINT64_MAX, 1, &out));
	assert_true(rs_mul(UINT32_MAX, UINT32_MAX, &out));
	assert_false(rs_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
	assert_true(rs_range_ok(0, 0, 0));
	assert_true(rs_range_ok(10, 0, 10));
	assert_true(rs_range_ok(4, 6, 10));
	assert_false(rs_range_ok(4, 7, 10));
	assert_false(rs_range_ok(11, 0, 10));
	assert_false(rs_range_ok(8, UINT64_MAX - 4, 10));
}

/* -------------------------------------------------------------------- memory */

static void arena_gives_zeroed_aligned_memory(void **state)
{
	struct rs_arena *a = rs_arena_new(1 << 22, NULL);
	uint8_t *kept[300];

	(void)state;
	for (uint64_t i = 0; i < 300; i++) {
		uint64_t bytes = i * 37 % 3000;

		kept[i] = rs_arena_alloc(a, bytes, NULL);
		assert_non_null(kept[i]);
		assert_int_equal((uintptr_t)kept[i] % 16, 0);
		for (uint64_t k = 0; k < bytes; k++)
			assert_int_equal(kept[i][k], 0);
		memset(kept[i], (int)i, (size_t)bytes);
	}
	/* Nothing overlaps: every object still holds what was written. */
	for (uint64_t i = 0; i < 300; i++)
		for (uint64_t k = 0; k < i * 37 % 3000; k++)
			assert_int_equal(kept[i][k], (uint8_t)i);
	rs_arena_free(a);
	rs_arena_free(NULL);
}

static void arena_takes_big_and_small_in_turn(void **state)
{
	struct rs_arena *a = rs_arena_new(UINT64_MAX, NULL);
	char *small = rs_arena_copy(a, "small", 5, NULL);
	char *big = rs_arena_alloc(a, 3 << 20, NULL);
	char *after = rs_arena_copy(a, "after", 5, NULL);

	(void)state;
	assert_non_null(big);
	memset(big, 'x', 3 << 20);
	assert_string_equal(small, "small");
	assert_string_equal(after, "after");
	/* The big one has a block of its own; small ones go on in the first block. */
	assert_true(after > small && after - small < 4096);
	assert_int_equal(rs_arena_used(a), 16 + (3 << 20) + 16);
	/* Held is what the system gave: the first block whole, and all that describes them. */
	assert_true(rs_arena_held(a) > 4096 + (3 << 20) && rs_arena_held(a) < 8192 + (3 << 20));
	rs_arena_free(a);
}

static void arena_holds_to_its_limit(void **state)
{
	struct rs_err err;
	struct rs_arena *a = rs_arena_new(100, &err);

	(void)state;
	assert_non_null(rs_arena_alloc(a, 64, &err));
	assert_null(rs_arena_alloc(a, 33, &err)); /* 48 with rounding */
	assert_int_equal(err.code, RS_LIMIT);
	assert_text(err.msg, "limit of 100 bytes");
	assert_text(err.msg, "64 in use");
	assert_non_null(rs_arena_alloc(a, 32, &err)); /* a refusal costs nothing */
	assert_int_equal(rs_arena_used(a), 96);
	assert_null(rs_arena_alloc(a, UINT64_MAX, &err));
	assert_int_equal(err.code, RS_LIMIT);
	rs_arena_free(a);
}

static void arena_checks_products(void **state)
{
	struct rs_err err;
	struct rs_arena *a = rs_arena_new(UINT64_MAX, &err);

	(void)state;
	assert_null(rs_arena_array(a, UINT64_C(1) << 33, UINT64_C(1) << 33, &err));
	assert_int_equal(err.code, RS_LIMIT);
	assert_null(rs_arena_copy(a, "", UINT64_MAX, &err));
	assert_int_equal(err.code, RS_LIMIT);
	assert_null(rs_arena_alloc(a, UINT64_MAX - 4096, &err));
	assert_non_null(rs_arena_array(a, 0, 8, &err));
	assert_non_null(rs_arena_array(a, 3, 0, &err));
	rs_arena_free(a);
}

static void arena_copies_text(void **state)
{
	struct rs_arena *a = rs_arena_new(1 << 16, NULL);
	struct rs_str s;
	char longer[9000];

	(void)state;
	assert_memory_equal(rs_arena_copy(a, "a\0b", 3, NULL), "a\0b", 4);
	assert_string_equal(rs_arena_copy(a, NULL, 0, NULL), "");
	assert_int_equal(rs_arena_str(a, RS_STR("name"), &s, NULL), 0);
	assert_true(rs_str_is(s, "name"));
	assert_int_equal(s.ptr[s.len], 0);
	memset(longer, 'p', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	assert_string_equal(rs_arena_printf(a, NULL, "%s", longer), longer);
	assert_string_equal(rs_arena_printf(a, NULL, "rank_%d", 7), "rank_7");
	rs_arena_free(a);
}

static void heap_array_doubles(void **state)
{
	uint32_t *items = NULL;
	uint64_t cap = 0, grown = 0;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		uint64_t before = cap;

		assert_int_equal(rs_grow(&items, &cap, i + 1, sizeof(*items), NULL), 0);
		assert_true(cap > i);
		assert_int_equal(items[i], 0);
		grown += cap != before;
		items[i] = i + 1;
	}
	assert_int_equal(grown, 8); /* 8, 16, ... 1024 */
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(items[i], i + 1);
	rs_free(items);
}

static void heap_array_survives_failure(void **state)
{
	struct rs_err err;
	uint64_t *items = NULL, cap = 0;

	(void)state;
	assert_int_equal(rs_grow(&items, &cap, 8, sizeof(*items), &err), 0);
	items[7] = 77;
	fault_alloc(1);
	assert_int_equal(rs_grow(&items, &cap, 9, sizeof(*items), &err), -1);
	fault_clear();
	assert_int_equal(err.code, RS_NOMEM);
	assert_int_equal(cap, 8);
	assert_int_equal(items[7], 77);
	assert_int_equal(rs_grow(&items, &cap, UINT64_MAX, sizeof(*items), &err), -1);
	assert_int_equal(err.code, RS_NOMEM);
	assert_int_equal(items[7], 77);
	rs_free(items);
}

static void no_memory_is_told(void **state)
{
	struct rs_err err;
	struct rs_arena *a;

	(void)state;
	fault_alloc(1);
	assert_null(rs_arena_new(1000, &err));
	assert_int_equal(err.code, RS_NOMEM);
	fault_alloc(2);
	a = rs_arena_new(1000, &err);
	assert_non_null(a);
	assert_null(rs_arena_alloc(a, 10, &err));
	assert_int_equal(err.code, RS_NOMEM);
	assert_int_equal(rs_arena_used(a), 0);
	assert_non_null(rs_arena_alloc(a, 10, &err));
	rs_arena_free(a);
	fault_alloc(1);
	assert_null(rs_alloc(100, &err));
	assert_int_equal(err.code, RS_NOMEM);
	assert_text(err.msg, "100 bytes");
	fault_clear();
	assert_null(rs_alloc(UINT64_MAX, &err));
	rs_free(rs_alloc(0, &err));
	rs_free(NULL);
}

/* --------------------------------------------------------------------- notes */

static void notes_are_kept_once(void **state)
{
	struct rs_notes notes = {0};

	(void)state;
	rs_note(NULL, "nobody reads this");
	rs_note(&notes, "tensor '%s' is left out", "a");
	rs_note(&notes, "tensor '%s' is left out", "b\n");
	rs_note(&notes, "tensor '%s' is left out", "a");
	assert_int_equal(notes.n, 2);
	assert_string_equal(notes.items[0], "tensor 'a' is left out");
	assert_string_equal(notes.items[1], "tensor 'b?' is left out");
	rs_notes_done(&notes);
	assert_int_equal(notes.n, 0);
	assert_null(notes.items);
}

static void notes_do_not_grow_for_ever(void **state)
{
	struct rs_notes notes = {0};

	(void)state;
	for (int i = 0; i < 500; i++)
		rs_note(&notes, "remark %d", i);
	rs_note(&notes, "remark 3"); /* stands there already */
	assert_int_equal(notes.n, 500);
	for (int i = 0; i < 1000; i++)
		rs_note(&notes, "later remark %d", i);
	assert_int_equal(notes.n, 501);
	assert_text(notes.items[500], "left out");
	rs_notes_done(&notes);
}

static void notes_without_memory_are_dropped(void **state)
{
	struct rs_notes notes = {0};

	(void)state;
	for (uint64_t n = 1; n <= 2; n++) {
		fault_alloc(n);
		rs_note(&notes, "remark");
		assert_true(fault_hit());
		assert_int_equal(notes.n, 0);
		rs_notes_done(&notes);
	}
	fault_clear();
	rs_note(&notes, "remark");
	assert_int_equal(notes.n, 1);
	rs_notes_done(&notes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fail_fills_the_error),
		cmocka_unit_test(fail_sys_appends_the_reason),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(long_messages_are_cut),
		cmocka_unit_test(cuts_keep_utf8_whole),
		cmocka_unit_test(control_bytes_never_reach_a_message),
		cmocka_unit_test(an_error_can_quote_itself),
		cmocka_unit_test(codes_have_distinct_names),
		cmocka_unit_test(strings_sort_by_bytes),
		cmocka_unit_test(ends_and_starts),
		cmocka_unit_test(decimal_numbers),
		cmocka_unit_test(utf8_is_judged),
		cmocka_unit_test(names_are_shown_safely),
		cmocka_unit_test(shown_names_fit_every_buffer),
		cmocka_unit_test(sums_and_ranges_are_checked),
		cmocka_unit_test(arena_gives_zeroed_aligned_memory),
		cmocka_unit_test(arena_takes_big_and_small_in_turn),
		cmocka_unit_test(arena_holds_to_its_limit),
		cmocka_unit_test(arena_checks_products),
		cmocka_unit_test(arena_copies_text),
		cmocka_unit_test(heap_array_doubles),
		cmocka_unit_test(heap_array_survives_failure),
		cmocka_unit_test(no_memory_is_told),
		cmocka_unit_test(notes_are_kept_once),
		cmocka_unit_test(notes_do_not_grow_for_ever),
		cmocka_unit_test(notes_without_memory_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
