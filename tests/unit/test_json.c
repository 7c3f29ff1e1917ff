/*
 * test_json.c - JSON in its three forms: the strict pull reader, small trees, and the writer.
 *
 * Tables: a text with its tokens, or with the code and the words of its refusal. Beside them: a
 * text cut anywhere is refused, nesting has a limit, and the writer's output is read back.
 * Next: tests/fuzz/fuzz_json.c, the same reader under hostile bytes.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "reshardfs/codec.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define BYTES(literal) literal, sizeof(literal) - 1

/* Assert code and words of a refusal; print the row, so that a failure names its line. */
static void assert_refused(
	const char *row, const struct rs_err *err, enum rs_code code, const char *words)
{
	if (err->code != code || !strstr(err->msg, words))
		fail_msg("row '%s': expected %s with \"%s\", got %s: %s", row, rs_code_name(code),
			words, rs_code_name(err->code), err->msg);
}

/* -------------------------------------------------------------------------- JSON */

/* The tokens of a text: `{ k"a" u1 n-0 s"x" t f z [ ] } .`, strings with \n as they decode. */
static int tokens(
	struct rs_str text, uint64_t arena_bytes, char *to, size_t size, struct rs_err *err)
{
	static const char *const marks[] = {
		".", "{", "}", "[", "]", "k", "s", "u", "n", "t", "f", "z"};
	struct rs_arena *arena = rs_arena_new(arena_bytes, NULL);
	struct rs_json_token t;
	struct rs_json j;
	int rc;

	assert_non_null(arena);
	*to = 0;
	rs_json_init(&j, text, 500, "h.safetensors", arena, err);
	do {
		size_t at = strlen(to);

		rc = rs_json_next(&j, &t);
		if (rc < 0)
			break;
		if (t.type == RS_JSON_KEY || t.type == RS_JSON_STRING || t.type == RS_JSON_NUMBER)
			(void)snprintf(to + at, size - at, "%s\"%.*s\" ", marks[t.type],
				(int)t.text.len, t.text.ptr);
		else if (t.type == RS_JSON_UINT)
			(void)snprintf(to + at, size - at, "u%" PRIu64 " ", t.u);
		else
			(void)snprintf(to + at, size - at, "%s ", marks[t.type]);
	} while (t.type != RS_JSON_END);
	if (rc < 0) /* and it stays that way */
		assert_int_equal(rs_json_next(&j, &t), -1);
	else
		assert_int_equal(rs_json_next(&j, &t), 0);
	rs_arena_free(arena);
	return rc;
}

static const struct json_row {
	const char *text;
	size_t len;
	const char *tokens; /* of good ones */
	const char *words;  /* of bad ones */
} jsons[] = {
	{BYTES("{}"), "{ } .", NULL},
	{BYTES(" \t\r\n[ ] \n"), "[ ] .", NULL},
	{BYTES("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}"),
		"{ k\"a\" { k\"dtype\" s\"F32\" k\"shape\" [ u2 u3 ] k\"data_offsets\" [ u0 u24 ] "
		"} } .",
		NULL},
	{BYTES("[true,false,null]"), "[ t f z ] .", NULL},
	{BYTES("\"x\""), "s\"x\" .", NULL},
	{BYTES("\"\""), "s\"\" .", NULL},
	{BYTES("{\"\":0}"), "{ k\"\" u0 } .", NULL},
	{BYTES("[[],[{}],{\"a\":[]}]"), "[ [ ] [ { } ] { k\"a\" [ ] } ] .", NULL},
	{BYTES("{ \"a\" : 1 , \"a\" : 2 }"), "{ k\"a\" u1 k\"a\" u2 } .", NULL},
	/* Numbers: only plain digits that fit 64 bits are integers. */
	{BYTES("0"), "u0 .", NULL},
	{BYTES("18446744073709551615"), "u18446744073709551615 .", NULL},
	{BYTES("18446744073709551616"), "n\"18446744073709551616\" .", NULL},
	{BYTES("-0"), "n\"-0\" .", NULL},
	{BYTES("-12"), "n\"-12\" .", NULL},
	{BYTES("[1.0,1e3,1E+3,0.5e-7,-0.0]"),
		"[ n\"1.0\" n\"1e3\" n\"1E+3\" n\"0.5e-7\" n\"-0.0\" ] .", NULL},
	{BYTES("1e999999"), "n\"1e999999\" .", NULL},
	/* Strings: in place, or decoded. Lengths around 8 try the wide scan. */
	{BYTES("[\"1234567\",\"12345678\",\"123456789\"]"),
		"[ s\"1234567\" s\"12345678\" s\"123456789\" ] .", NULL},
	{BYTES("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "s\"\"\\/\b\f\n\r\t\" .", NULL},
	{BYTES("\"abcdefghij\\nklm\""), "s\"abcdefghij\nklm\" .", NULL},
	{BYTES("{\"\\u0061\":1}"), "{ k\"a\" u1 } .", NULL},
	{BYTES("\"\\u00e9\\u20AC\\uD83D\\uDE00\""), "s\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\" .",
		NULL},
	{BYTES("\"\\uffff\\ud7ff\\ue000\""), "s\"\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\" .", NULL},
	{BYTES("\"\xc3\xa9\xf0\x9f\x98\x80\x7f\""), "s\"\xc3\xa9\xf0\x9f\x98\x80\x7f\" .", NULL},

	{BYTES(""), NULL, "h.safetensors@500: expected a value, found the end of the text"},
	{BYTES("  "), NULL, "@502: expected a value"},
	{BYTES("\xef\xbb\xbf{}"), NULL, "@500: expected JSON, found a byte order mark"},
	{BYTES("{} x"), NULL, "@503: expected nothing after the value, found 'x'"},
	{BYTES("{}{}"), NULL, "@502: expected nothing after"},
	{BYTES("{}\0"), NULL, "@502: expected nothing after the value, found byte 0x00"},
	{BYTES("1 2"), NULL, "@502: expected nothing after"},
	{BYTES("{\"a\":1,}"), NULL, "@507: expected a key, found '}'"},
	{BYTES("[1,]"), NULL, "@503: expected a value, found ']'"},
	{BYTES("[,1]"), NULL, "expected a value or ']', found ','"},
	{BYTES("{,}"), NULL, "expected a key or '}', found ','"},
	{BYTES("[1 2]"), NULL, "@503: expected ',' or ']', found '2'"},
	{BYTES("{\"a\":1 \"b\":2}"), NULL, "expected ',' or '}', found '\"'"},
	{BYTES("{\"a\" 1}"), NULL, "@505: expected ':' after a key, found '1'"},
	{BYTES("{\"a\",1}"), NULL, "expected ':'"},
	{BYTES("{1:2}"), NULL, "expected a key or '}', found '1'"},
	{BYTES("{a:1}"), NULL, "expected a key or '}', found 'a'"},
	{BYTES("[1}"), NULL, "expected ',' or ']', found '}'"},
	{BYTES("{\"a\":1]"), NULL, "expected ',' or '}', found ']'"},
	{BYTES("[}"), NULL, "expected a value or ']', found '}'"},
	{BYTES("]"), NULL, "expected a value, found ']'"},
	{BYTES("[1/*x*/]"), NULL, "expected ',' or ']', found '/'"},
	{BYTES("//x\n1"), NULL, "expected a value, found '/'"},
	{BYTES("[1\v]"), NULL, "found byte 0x0b"},
	{BYTES("01"), NULL, "without leading zeros"},
	{BYTES("[-01]"), NULL, "without leading zeros"},
	{BYTES("00"), NULL, "without leading zeros"},
	{BYTES("1."), NULL, "expected a digit after the decimal point"},
	{BYTES("1.e3"), NULL, "expected a digit after the decimal point, found 'e'"},
	{BYTES(".5"), NULL, "expected a value, found '.'"},
	{BYTES("+1"), NULL, "expected a value, found '+'"},
	{BYTES("-"), NULL, "expected a digit"},
	{BYTES("-a"), NULL, "expected a digit, found 'a'"},
	{BYTES("1e"), NULL, "expected a digit in the exponent"},
	{BYTES("1e+"), NULL, "expected a digit in the exponent"},
	{BYTES("0x10"), NULL, "expected nothing after the value, found 'x'"},
	{BYTES("NaN"), NULL, "expected a value, found 'N'"},
	{BYTES("-Infinity"), NULL, "expected a digit, found 'I'"},
	{BYTES("tru"), NULL, "expected true"},
	{BYTES("truE"), NULL, "expected true"},
	{BYTES("nullx"), NULL, "expected nothing after the value, found 'x'"},
	{BYTES("'a'"), NULL, "expected a value, found '''"},
	{BYTES("\"abc"), NULL, "@504: expected the closing quote"},
	{BYTES("\"abcdefgh\\\""), NULL, "expected the closing quote"},
	{BYTES("\"abcdefgh\\"), NULL, "expected the closing quote"},
	{BYTES("\"a\nb\""), NULL, "@502: expected no raw control character in a string, found"},
	{BYTES("\"a\0b\""), NULL, "expected no raw control character in a string, found byte 0x00"},
	{BYTES("\"abcdefghijklmno\x1f\""), NULL, "found byte 0x1f"},
	{BYTES("\"a\\x41\""), NULL,
		"@503: expected one of \"\\/bfnrtu after a backslash, found 'x'"},
	{BYTES("\"\\\0\""), NULL, "after a backslash, found byte 0x00"},
	{BYTES("\"\\U0041\""), NULL, "after a backslash, found 'U'"},
	{BYTES("\"\\u12\""), NULL, "four hexadecimal digits"},
	{BYTES("\"\\u12g4\""), NULL, "four hexadecimal digits"},
	{BYTES("\"\\u+123\""), NULL, "four hexadecimal digits"},
	{BYTES("\"\\ud800\""), NULL, "expected a pair of surrogates"},
	{BYTES("\"\\udc00\""), NULL, "expected a pair of surrogates"},
	{BYTES("\"\\ud83dx\\ude00\""), NULL, "expected a pair of surrogates"},
	{BYTES("\"\\ud83d\\ud83d\""), NULL, "expected a pair of surrogates"},
	{BYTES("\"\\ud83d\\n12345\""), NULL, "expected a pair of surrogates"},
	{BYTES("\"\\ude00\\ud83d\""), NULL, "expected a pair of surrogates"},
	{BYTES("[\"\x80\"]"), NULL, "@502: expected UTF-8, found byte 0x80"},
	{BYTES("{\"a\":1}\xff"), NULL, "@507: expected UTF-8, found byte 0xff"},
	{BYTES("\"\xc3\xa9\xc0\x80\""), NULL, "@503: expected UTF-8, found byte 0xc0"},
	{BYTES("\"\xed\xa0\x80\""), NULL, "@501: expected UTF-8, found byte 0xed"},
	{BYTES("\"\xf4\x90\x80\x80\""), NULL, "expected UTF-8, found byte 0xf4"},
	{BYTES("\"\xe2\x82"), NULL, "@501: expected UTF-8, found byte 0xe2"},
	{BYTES("\xff\xfe{\0"), NULL, "@500: expected UTF-8, found byte 0xff"},
};

static void json_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(jsons); i++) {
		const struct json_row *row = &jsons[i];
		struct rs_err err = {0};
		char got[256], want[256];
		int rc = tokens(
			(struct rs_str){row->text, row->len}, 1 << 16, got, sizeof(got), &err);

		if (rc != (row->words ? -1 : 0))
			fail_msg("'%s': returned %d after %s: %s", row->text, rc, got, err.msg);
		if (row->words) {
			assert_refused(row->text, &err, RS_CORRUPT, row->words);
		} else {
			(void)snprintf(want, sizeof(want), "%s ", row->tokens);
			assert_string_equal(got, want);
		}
	}
}

/* What is cut anywhere is refused, and without a byte past the end being looked at. */
static void json_cut_anywhere_is_refused(void **state)
{
	static const char text[] =
		"{\"n\\u00e9\":[1,-2.5e+3,true,null],\"s\":\"\\ud83d\\ude00\",\"o\":{\"p\":\"q\"}}";

	(void)state;
	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		char *copy = malloc(len ? len : 1), got[256]; /* exact, for sanitizers */
		struct rs_err err = {0};

		assert_non_null(copy);
		memcpy(copy, text, len);
		assert_int_equal(
			tokens((struct rs_str){copy, len}, 4096, got, sizeof(got), &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		free(copy);
	}
}

/* @depth arrays, or objects with one key each, around a 0. */
static int nested(uint32_t depth, const char *opening, char closing, struct rs_err *err)
{
	size_t step = strlen(opening), len = depth * (step + 1) + 1, size = 8 * (size_t)depth + 64;
	char *text = malloc(len), *got = malloc(size);
	int rc;

	assert_non_null(text);
	assert_non_null(got);
	for (uint32_t i = 0; i < depth; i++)
		memcpy(text + i * step, opening, step);
	text[depth * step] = '0';
	memset(text + depth * step + 1, closing, depth);
	rc = tokens((struct rs_str){text, len}, 4096, got, size, err);
	free(text);
	free(got);
	return rc;
}

static void json_nesting_has_a_limit(void **state)
{
	struct rs_err err = {0};

	(void)state;
	assert_int_equal(nested(RS_JSON_DEPTH, "[", ']', &err), 0);
	assert_int_equal(nested(RS_JSON_DEPTH, "{\"a\":", '}', &err), 0);
	assert_int_equal(nested(RS_JSON_DEPTH + 1, "[", ']', &err), -1);
	assert_refused("[", &err, RS_CORRUPT, "@628: expected at most 128 levels of nesting");
	assert_int_equal(nested(RS_JSON_DEPTH + 1, "{\"a\":", '}', &err), -1);
	assert_refused("{", &err, RS_CORRUPT, "128 levels");
	assert_int_equal(nested(1000000, "[", ']', &err), -1);
}

static void json_strings_stay_in_place(void **state)
{
	struct rs_str text = RS_STR("[\"plain\",\"\\u0041\\u0000b\"]");
	struct rs_arena *arena = rs_arena_new(4096, NULL);
	struct rs_json_token t;
	struct rs_err err = {0};
	struct rs_json j;
	uint64_t used;

	(void)state;
	assert_non_null(arena);
	used = rs_arena_used(arena);
	rs_json_init(&j, text, 0, "f", arena, &err);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_ptr_equal(t.text.ptr, text.ptr + 2);
	assert_int_equal(t.off, 1);
	assert_int_equal(rs_arena_used(arena), used);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_int_equal(t.text.len, 3); /* counted, so a NUL is a character as any other */
	assert_memory_equal(t.text.ptr, "A\0b", 3);
	assert_int_equal(t.off, 9);
	rs_arena_free(arena);
}

static void json_arena_limit_is_told(void **state)
{
	char text[4096], got[256];
	struct rs_err err = {0};

	(void)state;
	memset(text, 'a', sizeof(text));
	text[0] = text[sizeof(text) - 1] = '"';
	memcpy(text + 1, "\\n", 2);
	assert_int_equal(
		tokens((struct rs_str){text, sizeof(text)}, 1024, got, sizeof(got), &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
}

static void json_skip_steps_over_one_value(void **state)
{
	struct rs_str text = RS_STR("{\"a\":[1,[2,{\"b\":3}]],\"c\":4,\"d\":{\"e\":{}},\"f\":5}");
	struct rs_arena *arena = rs_arena_new(4096, NULL);
	struct rs_err err = {0};
	struct rs_json_token t;
	struct rs_json j;
	char keys[8] = "";

	(void)state;
	assert_non_null(arena);
	for (int by_key = 0; by_key < 2; by_key++) {
		size_t n = 0;

		rs_json_init(&j, text, 0, "f", arena, &err);
		assert_int_equal(rs_json_next(&j, &t), 0);
		while (rs_json_next(&j, &t) == 0 && t.type == RS_JSON_KEY) {
			keys[n++] = *t.text.ptr;
			if (!by_key)
				assert_int_equal(rs_json_next(&j, &t), 0);
			assert_int_equal(rs_json_skip(&j, &t), 0);
		}
		assert_int_equal(t.type, RS_JSON_OBJECT_END);
		assert_string_equal(keys, "acdf");
	}
	/* The whole document, and one that breaks inside what is skipped. */
	rs_json_init(&j, text, 0, "f", arena, &err);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_int_equal(rs_json_skip(&j, &t), 0);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_int_equal(t.type, RS_JSON_END);
	rs_json_init(&j, RS_STR("[[1,[2,}]]"), 0, "f", arena, &err);
	assert_int_equal(rs_json_next(&j, &t), 0);
	assert_int_equal(rs_json_skip(&j, &t), -1);
	assert_int_equal(rs_json_skip(&j, &t), -1);
	rs_arena_free(arena);
}

/* ------------------------------------------------------------------- JSON trees */

static const struct {
	const char *text;
	size_t len;
	enum rs_code code;
	const char *words;
} bad_trees[] = {
	{BYTES(""), RS_CORRUPT, "p.json@0: expected a value"},
	{BYTES("{\"a\":01}"), RS_CORRUPT, "leading zeros"},
	{BYTES("{\"a\":1.}"), RS_CORRUPT, "decimal point"},
	{BYTES("{} trailing"), RS_CORRUPT, "nothing after the value"},
	{BYTES("\xef\xbb\xbf{}"), RS_CORRUPT, "byte order mark"},
	{BYTES("{\"a\":\"\t\"}"), RS_CORRUPT, "raw control"},
	{BYTES("{\"a\":1,\"b\":2,\"a\":3}"), RS_CORRUPT,
		"p.json@13: expected distinct keys, found 'a' twice (first at 1)"},
	{BYTES("{\"a\":1,\"\\u0061\":3}"), RS_CORRUPT, "found 'a' twice"},
	{BYTES("[{\"x\":{\"k\":1}},{\"x\":{\"k\":1,\"k\":1}}]"), RS_CORRUPT, "found 'k' twice"},
	{BYTES("{\"\":1,\"\":1}"), RS_CORRUPT, "found '' twice"},
	{BYTES("{\"a\\u0000b\":1}"), RS_CORRUPT, "p.json@1: expected a string without NUL"},
	{BYTES("[\"\\u0000\"]"), RS_CORRUPT, "p.json@1: expected a string without NUL"},
	{BYTES("[1234567890123456789012345678901234567890123456789012345678901234]"), RS_LIMIT,
		"p.json@1: expected a number of at most 63 characters, found 64"},
};

static void tree_refuses_what_cjson_would_take(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad_trees); i++) {
		struct cJSON dummy, *tree = &dummy;
		struct rs_err err = {0};

		assert_int_equal(rs_json_parse((struct rs_str){bad_trees[i].text, bad_trees[i].len},
					 "p.json", &tree, &err),
			-1);
		assert_null(tree);
		assert_refused(bad_trees[i].text, &err, bad_trees[i].code, bad_trees[i].words);
	}
}

static void tree_holds_the_document(void **state)
{
	static const char text[] = "{\"a\":[1,2,{\"a\":\"x\\u00e9\"}],\"A\":-7,\"b\":{\"a\":null}}";
	struct rs_err err = {0};
	struct cJSON *tree, *a;
	int64_t n;

	(void)state;
	assert_int_equal(rs_json_parse(RS_STR(text), "p.json", &tree, &err), 0);
	a = cJSON_GetObjectItemCaseSensitive(tree, "a");
	assert_int_equal(cJSON_GetArraySize(a), 3);
	assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(
				    cJSON_GetArrayItem(a, 2), "a")),
		"x\xc3\xa9");
	assert_true(rs_json_int(cJSON_GetObjectItemCaseSensitive(tree, "A"), &n));
	assert_int_equal(n, -7);
	cJSON_Delete(tree);
}

/* The block is exactly as long as the text, so that a byte read past it is seen by sanitizers. */
static void tree_reads_only_the_text(void **state)
{
	char *text = malloc(3);
	struct rs_err err = {0};
	struct cJSON *tree;
	int64_t n;

	(void)state;
	assert_non_null(text);
	memcpy(text, "123", 3);
	assert_int_equal(rs_json_parse((struct rs_str){text, 3}, "p", &tree, &err), 0);
	free(text);
	assert_true(rs_json_int(tree, &n));
	assert_int_equal(n, 123);
	cJSON_Delete(tree);
}

static const struct {
	const char *text;
	bool ok;
	int64_t value;
} ints[] = {
	{"0", true, 0},
	{"-0", true, 0},
	{"4096", true, 4096},
	{"-1", true, -1},
	{"1.0", true, 1},
	{"1e3", true, 1000},
	{"9007199254740991", true, INT64_C(9007199254740991)},
	{"-9007199254740991", true, -INT64_C(9007199254740991)},
	{"9007199254740992", false, 0}, /* 2^53, which 2^53 + 1 would be read as, too */
	{"9007199254740993", false, 0},
	{"-9007199254740992", false, 0},
	{"18446744073709551615", false, 0},
	{"1e400", false, 0},
	{"-1e400", false, 0},
	{"0.5", false, 0},
	{"\"1\"", false, 0},
	{"true", false, 0},
	{"null", false, 0},
	{"[1]", false, 0},
};

static void tree_integers_are_exact(void **state)
{
	int64_t n;

	(void)state;
	for (size_t i = 0; i < COUNT(ints); i++) {
		struct rs_err err = {0};
		struct cJSON *item;

		assert_int_equal(rs_json_parse(rs_str(ints[i].text), "p", &item, &err), 0);
		if (rs_json_int(item, &n) != ints[i].ok || (ints[i].ok && n != ints[i].value))
			fail_msg("'%s'", ints[i].text);
		cJSON_Delete(item);
	}
	assert_false(rs_json_int(NULL, &n)); /* a key that is not there */
}

static void tree_has_limits(void **state)
{
	enum { N = 4000001 };
	char *text = malloc(2 * N + 1);
	struct rs_err err = {0};
	struct cJSON *tree;

	(void)state;
	assert_non_null(text);
	for (uint32_t i = 0; i < N; i++)
		memcpy(text + 2 * i, i ? ",0" : "[0", 2);
	text[2 * N] = ']';
	assert_int_equal(rs_json_parse((struct rs_str){text, 2 * N + 1}, "p", &tree, &err), -1);
	assert_refused("values", &err, RS_LIMIT, "at most 4000000 values");
	/* The length alone is enough to say no; the text is not looked at. */
	assert_int_equal(
		rs_json_parse((struct rs_str){text, (64u << 20) + 1}, "p", &tree, &err), -1);
	assert_refused("text", &err, RS_LIMIT, "at most 67108864 bytes, found 67108865");
	free(text);
}

/* ----------------------------------------------------------------------- writer */

static void assert_text(struct rs_jsonw *w, const char *want)
{
	struct rs_err err = {0};
	uint64_t len;
	char *text = rs_jsonw_take(w, &len, &err);

	assert_non_null(text);
	assert_string_equal(text, want);
	assert_int_equal(len, strlen(want));
	rs_free(text);
}

static void write_sample(struct rs_jsonw *w)
{
	rs_jsonw_open(w, '{');
	rs_jsonw_key(w, RS_STR("a"));
	rs_jsonw_open(w, '[');
	rs_jsonw_uint(w, UINT64_MAX);
	rs_jsonw_int(w, INT64_MIN);
	rs_jsonw_open(w, '{');
	rs_jsonw_close(w, '}');
	rs_jsonw_close(w, ']');
	rs_jsonw_key(w, RS_STR("b"));
	rs_jsonw_bool(w, true);
	rs_jsonw_key(w, RS_STR("c"));
	rs_jsonw_null(w);
	rs_jsonw_key(w, RS_STR("d"));
	rs_jsonw_str(w, RS_STR("x"));
	rs_jsonw_close(w, '}');
}

static void writer_compact(void **state)
{
	struct rs_jsonw w;

	(void)state;
	rs_jsonw_init(&w, false);
	write_sample(&w);
	assert_text(&w,
		"{\"a\":[18446744073709551615,-9223372036854775808,{}],\"b\":true,\"c\":null,"
		"\"d\":\"x\"}");
}

static void writer_pretty(void **state)
{
	struct rs_jsonw w;

	(void)state;
	rs_jsonw_init(&w, true);
	write_sample(&w);
	assert_text(&w, "{\n"
			"  \"a\": [\n"
			"    18446744073709551615,\n"
			"    -9223372036854775808,\n"
			"    {}\n"
			"  ],\n"
			"  \"b\": true,\n"
			"  \"c\": null,\n"
			"  \"d\": \"x\"\n"
			"}");
}

static const struct {
	const char *bytes;
	size_t len;
	const char *want;
} strings[] = {
	{BYTES(""), "\"\""},
	{BYTES("plain"), "\"plain\""},
	{BYTES("\"\\/"), "\"\\\"\\\\/\""},
	{BYTES("\b\t\n\f\r"), "\"\\b\\t\\n\\f\\r\""},
	{BYTES("\0\x01\x1f\x7f"), "\"\\u0000\\u0001\\u001f\x7f\""},
	{BYTES("a\xc3\xa9\xf0\x9f\x98\x80z"), "\"a\xc3\xa9\xf0\x9f\x98\x80z\""},
	{BYTES("a\xffz"), "\"a\xef\xbf\xbdz\""},
	{BYTES("\xc3\xa9\xc3"), "\"\xc3\xa9\xef\xbf\xbd\""},
	{BYTES("\xed\xa0\x80\n"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\n\""},
};

static void writer_escapes_as_the_reference(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(strings); i++) {
		struct rs_jsonw w;

		rs_jsonw_init(&w, false);
		rs_jsonw_str(&w, (struct rs_str){strings[i].bytes, strings[i].len});
		assert_text(&w, strings[i].want);
	}
}

static void writer_doubles_read_back(void **state)
{
	static const struct {
		double value;
		const char *want;
	} rows[] = {{0.5, "0.5"}, {0.1, "0.1"}, {1e300, "1e+300"}, {-2, "-2"}, {1.0 / 3, NULL},
		{5e-324, NULL}, {(double)INFINITY, "null"}, {(double)NAN, "null"}};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct rs_err err = {0};
		struct rs_jsonw w;
		uint64_t len;
		char *text;

		rs_jsonw_init(&w, false);
		rs_jsonw_double(&w, rows[i].value);
		text = rs_jsonw_take(&w, &len, &err);
		assert_non_null(text);
		if (rows[i].want)
			assert_string_equal(text, rows[i].want);
		else
			assert_true(strtod(text, NULL) == rows[i].value);
		rs_free(text);
	}
}

static void writer_output_is_read_back(void **state)
{
	struct rs_str name = RS_STR("q\"\\\n\x01\xc3\xa9");
	struct rs_err err = {0};
	struct cJSON *tree;
	uint64_t len;
	char *text;

	(void)state;
	for (int pretty = 0; pretty < 2; pretty++) {
		struct rs_jsonw w;

		rs_jsonw_init(&w, pretty);
		rs_jsonw_open(&w, '{');
		rs_jsonw_key(&w, name);
		rs_jsonw_str(&w, name);
		rs_jsonw_close(&w, '}');
		text = rs_jsonw_take(&w, &len, &err);
		assert_non_null(text);
		assert_int_equal(rs_json_parse((struct rs_str){text, len}, "w", &tree, &err), 0);
		assert_string_equal(
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tree, name.ptr)),
			name.ptr);
		cJSON_Delete(tree);
		rs_free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_table),
		cmocka_unit_test(json_cut_anywhere_is_refused),
		cmocka_unit_test(json_nesting_has_a_limit),
		cmocka_unit_test(json_strings_stay_in_place),
		cmocka_unit_test(json_arena_limit_is_told),
		cmocka_unit_test(json_skip_steps_over_one_value),
		cmocka_unit_test(tree_refuses_what_cjson_would_take),
		cmocka_unit_test(tree_holds_the_document),
		cmocka_unit_test(tree_reads_only_the_text),
		cmocka_unit_test(tree_integers_are_exact),
		cmocka_unit_test(tree_has_limits),
		cmocka_unit_test(writer_compact),
		cmocka_unit_test(writer_pretty),
		cmocka_unit_test(writer_escapes_as_the_reference),
		cmocka_unit_test(writer_doubles_read_back),
		cmocka_unit_test(writer_output_is_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
