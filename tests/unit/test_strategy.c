/*
 * test_strategy.c - MindSpore strategy files: both forms read, checked, looked up and written back.
 *
 * The vectors are the format, field by field; docs/formats/mindspore-strategy.md has the table.
 * Directories and merging are in test_strategy_dir.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "reshardfs/layout.h"
#include "tests/lib/fault.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

struct bytes {
	uint8_t data[8192];
	uint64_t len;
};

/*
 * "0801 12" and 'text' in quotes; blanks are for the eye. "(" and ")" are around a member whose
 * length, below 128, is put in front of it.
 */
static struct bytes hex(const char *text)
{
	struct bytes out = {.len = 0};
	uint64_t open[16], depth = 0;

	for (; *text; text++) {
		char pair[3] = {text[0], text[1], 0};

		if (*text == ' ')
			continue;
		if (*text == '(') {
			open[depth++] = out.len++;
			continue;
		}
		if (*text == ')') {
			depth--;
			out.data[open[depth]] = (uint8_t)(out.len - open[depth] - 1);
			continue;
		}
		if (*text == '\'') {
			while (*++text != '\'')
				out.data[out.len++] = (uint8_t)*text;
			continue;
		}
		assert_true(isxdigit((unsigned char)text[0]) && isxdigit((unsigned char)text[1]));
		out.data[out.len++] = (uint8_t)strtoul(pair, NULL, 16);
		text++;
	}
	return out;
}

static struct rs_strategy *read_ok(const void *bytes, uint64_t len)
{
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};

	if (rs_strategy_read_memory(bytes, len, "f.ckpt", &s, &err) < 0)
		fail_msg("%s", err.msg);
	assert_non_null(s);
	return s;
}

static struct rs_strategy *read_hex(const char *text)
{
	struct bytes b = hex(text);

	return read_ok(b.data, b.len);
}

static struct rs_strategy *read_text(const char *json)
{
	return read_ok(json, strlen(json));
}

static void expect_bytes(const struct rs_strategy *s, bool json, const void *want, uint64_t n)
{
	struct rs_err err = {0};
	uint64_t len;
	char *bytes;

	if (rs_strategy_encode(s, json, s->merged, &bytes, &len, &err) < 0)
		fail_msg("%s", err.msg);
	if (json && (len != n || memcmp(bytes, want, n) != 0))
		fail_msg("expected %s\n   found %s", (const char *)want, bytes);
	assert_int_equal(len, n);
	assert_memory_equal(bytes, want, n);
	rs_free(bytes);
}

static const struct rs_layout *find(const struct rs_strategy *s, uint32_t stage, const char *name)
{
	const struct rs_layout *l = rs_strategy_find(s, stage, rs_str(name));

	if (!l)
		fail_msg("no '%s' in stage %u", name, stage);
	return l;
}

/* ---------------------------------------------------------------------- protobuf */

#define MINUS_1 "ffffffffffffffffff01" /* always ten bytes */

/* One operator, one parameter `w`: dev [2, 4], map [0, -1], an optimizer shard over all. */
#define VECTOR                                                                                     \
	"08 01"                         /* current_stage 1: the first save */                      \
	" 12 1a"                        /* parallel_strategy_item */                               \
	"   0a 08 'MatMul_w'"           /*   node_name */                                          \
	"   12 0e"                      /*   parallel_strategys */                                 \
	"     08 00"                    /*     stage 0 */                                          \
	"     12 04 0802 0801"          /*     first input cut in [2, 1] */                        \
	"     12 04 0804 0801"          /*     second in [4, 1] */                                 \
	" 1a 2d"                        /* parallel_layout_item */                                 \
	"   0a 01 'w'"                  /*   param_name */                                         \
	"   12 28"                      /*   parallel_layouts */                                   \
	"     0a 04 0802 0804"          /*     dev_matrix [2, 4] */                                \
	"     12 0d 0800 08" MINUS_1    /*     tensor_map [0, -1] */                               \
	"     1a 00  22 00"             /*     no manual split */                                  \
	"     28 00  30 04  38" MINUS_1 /*     field 0, shard step 4, size -1 */

static void protobuf_vector_reads(void **state)
{
	struct rs_strategy *s = read_hex(VECTOR);
	const struct rs_operator *op = &s->operators[0];
	const struct rs_layout *l;

	(void)state;
	assert_false(s->json);
	assert_false(s->merged);
	assert_int_equal(s->current_stage, 1);
	assert_int_equal(s->file_stage, 0);
	assert_int_equal(s->n_operators, 1);
	assert_true(rs_str_is(op->name, "MatMul_w"));
	assert_int_equal(op->n_inputs, 2);
	assert_int_equal(op->n_cuts[1], 2);
	assert_int_equal(op->cuts[1][0], 4);
	assert_int_equal(op->cuts[1][1], 1);
	assert_int_equal(s->n_params, 1);
	l = find(s, 0, "w");
	assert_int_equal(l->n_dev, 2);
	assert_int_equal(l->dev[0], 2);
	assert_int_equal(l->dev[1], 4);
	assert_int_equal(l->n_axes, 2);
	assert_int_equal(l->map[l->map_first[0]], 0);
	assert_int_equal(l->map[l->map_first[1]], RS_MAP_NONE);
	assert_int_equal(l->map_first[2], 2);
	assert_false(l->nested);
	assert_int_equal(l->opt_step, 4);
	assert_int_equal(l->opt_size, -1);
	assert_int_equal(l->n_split + l->n_offsets + l->n_shape + l->field, 0);
	rs_strategy_free(s);
}

/* What is written back must be the same bytes: these are all forms that the framework writes. */
static void protobuf_comes_back_byte_for_byte(void **state)
{
	static const char *const files[] = {
		VECTOR,
		/* a manual split with offsets, field 3 */
		"0801 1a(0a('e') 12(0a(0802) 12(0800 08" MINUS_1 ") 1a(0803 0805) 22(0800 0803)"
		" 2803 3000 3800))",
		/* one list per axis: [2, 0] and [-1]; the matrix keeps its extent of 1 */
		"0801 1a(0a('n') 12(0a(0802 0801 0802) 12(0802 0800) 12(08" MINUS_1 ")"
		" 1a() 22() 2800 3000 3800))",
		/* a single list: a second, empty one says that it is no flat map */
		"0801 1a(0a('n') 12(0a(0802 0802) 12(0801 0800) 12() 1a() 22() 2800 3000 3800))",
		/* a tensor without axes */
		"0801 1a(0a('s') 12(0a(0808) 12() 1a() 22() 2800 3000 3800))",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct bytes b = hex(files[i]);
		struct rs_strategy *s = read_ok(b.data, b.len);

		expect_bytes(s, false, b.data, b.len);
		rs_strategy_free(s);
	}
}

static void protobuf_is_read_tolerantly(void **state)
{
	const struct rs_layout *l;
	struct rs_strategy *s;

	(void)state;
	/* a file of 1.x: no fields 3, 6, 7; and a field 9 from the future at every level */
	s = read_hex("0803 4a('?') 1a(4a() 0a('w') 12(4801 0a(0802 0804) 12(0801 0800) 22()))");
	l = find(s, 0, "w");
	assert_int_equal(l->opt_step, 0);
	assert_int_equal(l->opt_size, 0);
	assert_int_equal(l->map[1], 0);
	assert_int_equal(s->current_stage, 3);
	rs_strategy_free(s);

	/* packed integers */
	s = read_hex("0801 1a(0a('w') 12(0a(0a(02 04)) 12(0a(00 ffffffff0f 01 02 00))))");
	l = find(s, 0, "w");
	assert_int_equal(l->dev[1], 4);
	assert_int_equal(l->n_axes, 5);
	assert_int_equal(l->map[1], -1);
	assert_int_equal(l->map[3], 2);
	rs_strategy_free(s);

	/* an empty matrix: one device a stage, as in pure pipeline runs */
	s = read_hex("0801 1a(0a('w') 12(0a() 12() 1a() 22() 2800 3000))");
	l = find(s, 0, "w");
	assert_int_equal(l->n_dev, 1);
	assert_int_equal(l->dev[0], 1);
	rs_strategy_free(s);

	/* empty lists among several mean nothing: one axis, cut by dimensions 1 and 0 */
	s = read_hex("0801 1a(0a('w') 12(0a(0802 0802) 12() 12(0801 0800) 12()))");
	l = find(s, 0, "w");
	assert_true(l->nested);
	assert_int_equal(l->n_axes, 1);
	assert_int_equal(l->map_first[1], 2);
	rs_strategy_free(s);
}

/* ---------------------------------------------------------------------------- JSON */

#define JSON_VECTOR                                                                                \
	"{\"current_stage\":1,\"parallel_layout_item\":{\"model.w\":{\"dev_matrix\":[2,4],"        \
	"\"field\":0,\"opt_weight_shard_size\":-1,\"opt_weight_shard_step\":4,"                    \
	"\"tensor_map\":[0,-1],\"tensor_shape\":[64,32]}},\"parallel_strategy_item\":{"            \
	"\"MatMul_model.w\":{\"parallel_strategy\":[[2,1],[4,1]],\"stage\":0}}}"

#define LAYOUT(params) "{\"current_stage\":1,\"parallel_layout_item\":{" params "}}"

static void json_vector_reads_and_comes_back(void **state)
{
	struct rs_strategy *s = read_text(JSON_VECTOR);
	const struct rs_layout *l = find(s, 0, "model.w");

	(void)state;
	assert_true(s->json);
	assert_int_equal(l->opt_size, -1);
	assert_int_equal(l->n_shape, 2);
	assert_int_equal(l->shape[0], 64);
	assert_int_equal(l->map[1], -1);
	assert_int_equal(s->operators[0].cuts[1][0], 4);
	expect_bytes(s, true, JSON_VECTOR, sizeof(JSON_VECTOR) - 1);
	rs_strategy_free(s);
}

static void json_maps_may_be_nested(void **state)
{
	struct rs_strategy *s =
		read_text(LAYOUT("\"n\":{\"dev_matrix\":[2,1,2],\"tensor_map\":[[2,0],-1]}"));
	const struct rs_layout *l = find(s, 0, "n");
	struct rs_err err = {0};

	(void)state;
	assert_true(l->nested);
	assert_int_equal(l->n_axes, 2);
	assert_int_equal(l->map_first[1], 2);
	assert_int_equal(l->map_first[2], 3);
	assert_int_equal(l->map[2], -1);
	assert_int_equal(rs_strategy_check(s, &err), 0);
	assert_int_equal(s->stage_devices, 4);
	rs_strategy_free(s);
}

/* JSON sorts its keys and has no order of its own; what is said must survive in both directions. */
static void forms_convert_into_each_other(void **state)
{
	static const char *const layouts[] = {
		"\"a\":{\"dev_matrix\":[2,4],\"tensor_map\":[0,-1],\"opt_weight_shard_size\":-1,"
		"\"opt_weight_shard_step\":4}",
		"\"b\":{\"dev_matrix\":[2,1,2],\"tensor_map\":[[2,0],[-1]]}",
		"\"c\":{\"dev_matrix\":[4],\"tensor_map\":[[0]]}",
		"\"d\":{\"dev_matrix\":[2,2],\"tensor_map\":[[1,0]]}",
		"\"e\":{\"dev_matrix\":[2],\"tensor_map\":[0,-1],\"param_split_shape\":[3,5],"
		"\"indices_offset\":[0,3]}",
		"\"f\":{\"dev_matrix\":[2],\"tensor_map\":[],\"field\":3}",
		"\"0-x\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		"\"1-x\":{\"dev_matrix\":[2],\"tensor_map\":[-1]}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		char text[512];
		struct rs_strategy *a, *b, *c;
		struct rs_err err = {0};
		char *pb, *json;
		uint64_t pb_len, json_len;

		snprintf(text, sizeof(text), "{\"parallel_layout_item\":{%s}}", layouts[i]);
		a = read_text(text);
		assert_int_equal(rs_strategy_encode(a, false, a->merged, &pb, &pb_len, &err), 0);
		b = read_ok(pb, pb_len);
		assert_false(b->json);
		assert_int_equal(rs_strategy_same(a, b, &err), 0);
		assert_int_equal(rs_strategy_encode(b, true, b->merged, &json, &json_len, &err), 0);
		c = read_ok(json, json_len);
		assert_true(c->json);
		assert_int_equal(rs_strategy_same(b, c, &err), 0);
		assert_int_equal(a->merged, c->merged);
		expect_bytes(c, true, json, json_len);
		rs_free(pb);
		rs_free(json);
		rs_strategy_free(a);
		rs_strategy_free(b);
		rs_strategy_free(c);
	}
}

static void json_cannot_hold_everything(void **state)
{
	/* param_split_shape of 2^60 rows: fine in protobuf */
	struct rs_strategy *s = read_hex("0801 1a(0a('w') 12(0a(0801) 12(0800)"
					 " 1a(08808080808080808010)))");
	struct rs_err err = {0};
	uint64_t len;
	char *bytes;

	(void)state;
	assert_int_equal(find(s, 0, "w")->split[0], INT64_C(1) << 60);
	assert_int_equal(rs_strategy_encode(s, true, false, &bytes, &len, &err), -1);
	assert_int_equal(err.code, RS_UNSUPPORTED);
	assert_text(err.msg, "2^53");
	rs_strategy_free(s);

	/* a stage's file that begins with an operator of stage 1, but not in the order of names */
	s = read_hex("0801 12(0a('b') 12(0801)) 12(0a('a') 12(0802)) 1a(0a('w') 12())");
	assert_int_equal(s->file_stage, 1);
	assert_int_equal(rs_strategy_encode(s, true, false, &bytes, &len, &err), -1);
	assert_int_equal(err.code, RS_UNSUPPORTED);
	assert_text(err.msg, "'a' of stage 2");
	rs_strategy_free(s);
}

/* ------------------------------------------------------------------------- refused */

static void expect_refusal(const void *bytes, uint64_t len, enum rs_code code, const char *word)
{
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};

	if (rs_strategy_read_memory(bytes, len, "dir/f", &s, &err) == 0)
		fail_msg("accepted, expected '%s'", word);
	if (err.code != code)
		fail_msg("expected code %d for '%s', found %d: %s", code, word, err.code, err.msg);
	assert_null(s);
	assert_text(err.msg, "dir/f");
	assert_text(err.msg, word);
}

static void bad_protobuf_is_refused(void **state)
{
	static const struct {
		const char *file;
		enum rs_code code;
		const char *word;
	} rows[] = {
		{"0801", RS_CORRUPT, "found none"},
		{"0a00", RS_USAGE, "found a checkpoint"},
		/* lengths and wire types */
		{"0801 1a", RS_CORRUPT, "f@3"},
		{"0801 1a05 0a01'w'", RS_CORRUPT, "f@2"},
		{"0801 1a05 0a09'w' 1200", RS_CORRUPT, "f@4"},
		{"0801 1b", RS_CORRUPT, "wire type"},
		{"0801 18 01", RS_CORRUPT, "'parallel_layout_item'"},
		{"0901 00000000000000", RS_CORRUPT, "'current_stage'"},
		{"08 ffffffffffffffffffff 01", RS_CORRUPT, "f@1"},
		{"0801 0001", RS_CORRUPT, "field number"},
		/* members that say nothing */
		{"0801 1a(0a('w'))", RS_CORRUPT, "'w': expected a layout"},
		{"0801 12(0a('o'))", RS_CORRUPT, "'o': expected a strategy"},
		{"0801 12(0a('o') 12(08 ffffffff0f))", RS_CORRUPT, "'o': expected a stage"},
		{"0801 1a(12())", RS_CORRUPT, "has no name"},
		{"0801 1a(0a(ff) 12())", RS_CORRUPT, "\\xFF"},
		{"0801 1a(0a(6100) 12())", RS_CORRUPT, "UTF-8"},
		/* layouts */
		{"0801 1a(0a('w') 12(0a(0800)))", RS_CORRUPT, "positive extent"},
		{"0801 1a(0a('w') 12(0a() 0a()))", RS_CORRUPT, "one dev_matrix"},
		{"0801 1a(0a('w') 12(12(08feffffffffffffffff01)))", RS_CORRUPT, "found -2"},
		{"0801 1a(0a('w') 12(28" MINUS_1 "))", RS_CORRUPT, "field"},
		{"0801 1a(0a('w') 12(1a(08" MINUS_1 ")))", RS_CORRUPT, "param_split_shape"},
		{"0801 1a(0a('w') 12(12(0a(00000000 00000000 00))))", RS_LIMIT, "axes"},
		{"0801 1a(0a('w') 12(0a(0a(01010101 01010101 01010101 01010101 01))))", RS_LIMIT,
			"16 device dimensions"},
		/* the same name twice in a stage */
		{"0801 1a(0a('w') 12()) 1a(0a('w') 12())", RS_CORRUPT, "found two"},
		{"0801 1a(0a('1-w') 12()) 1a(0a('01-w') 12())", RS_CORRUPT, "stage 1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct bytes b = hex(rows[i].file);

		expect_refusal(b.data, b.len, rows[i].code, rows[i].word);
	}
}

static void bad_json_is_refused(void **state)
{
	static const struct {
		const char *text;
		enum rs_code code;
		const char *word;
	} rows[] = {
		{"{", RS_CORRUPT, ""},
		{"{}", RS_CORRUPT, "'parallel_layout_item'"},
		{"{\"parallel_layout_item\":[]}", RS_CORRUPT, "'parallel_layout_item'"},
		{"{\"parallel_layout_item\":{}}", RS_CORRUPT, "found none"},
		{"{\"parallel_layout_value_item\":{}}", RS_USAGE, "operator strategies only"},
		{LAYOUT("\"w\":1"), RS_CORRUPT, "['w']"},
		{LAYOUT("\"w\":{}"), RS_CORRUPT, "['w'].dev_matrix"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2]}"), RS_CORRUPT, "['w'].tensor_map"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2.5],\"tensor_map\":[]}"), RS_CORRUPT,
			"['w'].dev_matrix"},
		{LAYOUT("\"w\":{\"dev_matrix\":[0],\"tensor_map\":[]}"), RS_CORRUPT,
			"positive extent"},
		{LAYOUT("\"w\":{\"dev_matrix\":[4294967296],\"tensor_map\":[]}"), RS_CORRUPT,
			"positive extent"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[\"0\"]}"), RS_CORRUPT,
			"['w'].tensor_map"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[[]]}"), RS_CORRUPT, "found []"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[[[0]]]}"), RS_CORRUPT,
			"['w'].tensor_map"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[-2]}"), RS_CORRUPT, "-2"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[],\"field\":-1}"), RS_CORRUPT,
			"['w'].field"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[],"
			"\"opt_weight_shard_size\":2147483648}"),
			RS_CORRUPT, "opt_weight_shard_size"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[],\"tensor_shape\":[-1]}"),
			RS_CORRUPT, "tensor_shape"},
		{LAYOUT("\"w\":{\"dev_matrix\":[2],\"tensor_map\":[]},"
			"\"w\":{\"dev_matrix\":[2],\"tensor_map\":[]}"),
			RS_CORRUPT, "'w'"},
		{"{\"current_stage\":-1,\"parallel_layout_item\":{}}", RS_CORRUPT, "current_stage"},
		{"{\"parallel_layout_item\":{},\"parallel_strategy_item\":[]}", RS_CORRUPT,
			"parallel_strategy_item"},
		{"{\"parallel_layout_item\":{},\"parallel_strategy_item\":{\"o\":"
		 "{\"stage\":0,\"parallel_strategy\":[1]}}}",
			RS_CORRUPT, "['o'].parallel_strategy"},
		{"{\"parallel_layout_item\":{},\"parallel_strategy_item\":{\"o\":{\"stage\":\"0\"}}"
		 "}",
			RS_CORRUPT, "['o'].stage"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		expect_refusal(rows[i].text, strlen(rows[i].text), rows[i].code, rows[i].word);
}

/* Every file cut short is refused, except where a whole member ends. */
static void cut_files_are_refused(void **state)
{
	struct bytes b = hex(VECTOR);

	(void)state;
	for (uint64_t n = 1; n < b.len; n++) {
		struct rs_strategy *s = NULL;
		struct rs_err err = {0};

		assert_int_equal(rs_strategy_read_memory(b.data, n, "f", &s, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
	}
	for (uint64_t n = 1; n < sizeof(JSON_VECTOR) - 1; n++)
		expect_refusal(JSON_VECTOR, n, RS_CORRUPT, "");
}

static void what_stands_in_its_place_is_named(void **state)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n"
				  "oid sha256:00\nsize 14059\n";

	(void)state;
	expect_refusal(lfs, sizeof(lfs) - 1, RS_CORRUPT, "Git LFS");
	expect_refusal("", 0, RS_CORRUPT, "empty");
	expect_refusal("\x0a\xef\xbf\xbd\x01", 5, RS_CORRUPT, "text");
}

/* ------------------------------------------------------------------- names and stages */

#define NAMED(name) " 1a(0a('" name "') 12())"

static void names_tell_the_stage_when_all_carry_one(void **state)
{
	struct rs_strategy *s;
	const uint32_t *first;

	(void)state;
	s = read_hex("0801" NAMED("0-a-b") NAMED("12-z") NAMED("1-z"));
	assert_true(s->merged);
	find(s, 0, "a-b");
	find(s, 12, "z");
	assert_null(rs_strategy_find(s, 2, RS_STR("z")));
	assert_null(rs_strategy_find(s, 0, RS_STR("z")));
	assert_null(rs_strategy_find(s, 13, RS_STR("z")));
	assert_int_equal(rs_strategy_stages(s, RS_STR("z"), &first), 2);
	assert_int_equal(s->params[first[0]].stage, 1);
	assert_int_equal(s->params[first[1]].stage, 12);
	assert_int_equal(rs_strategy_stages(s, RS_STR("zz"), &first), 0);
	assert_int_equal(rs_strategy_stages(s, RS_STR("a"), &first), 0);
	rs_strategy_free(s);
}

static void other_dashes_are_part_of_a_name(void **state)
{
	static const char *const files[] = {
		"0801" NAMED("0-a-b") NAMED("x-z"), /* a merged file prefixes all or none */
		"0801" NAMED("0-"),
		"0801" NAMED("-a"),
		"0801" NAMED("+1-a"),
		"0801" NAMED("99999999999-a"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct rs_strategy *s = read_hex(files[i]);

		assert_false(s->merged);
		rs_strategy_free(s);
	}
	struct rs_strategy *s = read_hex(files[0]);
	find(s, 0, "0-a-b");
	find(s, 0, "x-z");
	rs_strategy_free(s);
}

static void a_stage_file_by_itself_is_the_whole(void **state)
{
	struct rs_strategy *s = read_hex("0802 12(0a('o') 12(0803)) 1a(0a('w') 12())");
	struct bytes want = hex("0801 12(0a('o') 12(0803))"
				" 1a(0a('3-w') 12(0a(0801) 12() 1a() 22() 2800 3000 3800))");
	struct rs_err err = {0};
	uint64_t len;
	char *bytes;

	(void)state;
	assert_int_equal(s->file_stage, 3);
	find(s, 3, "w");
	assert_int_equal(rs_strategy_encode(s, false, true, &bytes, &len, &err), 0);
	assert_int_equal(len, want.len);
	assert_memory_equal(bytes, want.data, len);
	rs_free(bytes);
	assert_int_equal(rs_strategy_check(s, &err), 0);
	assert_int_equal(s->n_stages, 1);
	find(s, 0, "w");
	rs_strategy_free(s);
}

static void equal_layouts_are_shared(void **state)
{
	struct rs_err err = {0};
	char *text = malloc(4000000);
	size_t at = 0;
	struct rs_strategy *s;

	(void)state;
	assert_non_null(text);
	at += (size_t)sprintf(text, "{\"parallel_layout_item\":{");
	for (int i = 0; i < 20000; i++)
		at += (size_t)snprintf(text + at, 200,
			"%s\"p%d\":{\"dev_matrix\":[8,%d],\"tensor_map\":[%d]}", i ? "," : "", i,
			i % 3 == 0 ? 4 : 2, i % 2);
	at += (size_t)snprintf(text + at, 10, "}}");
	s = read_ok(text, at);
	assert_int_equal(s->n_params, 20000);
	assert_int_equal(s->n_layouts, 4);
	assert_ptr_equal(find(s, 0, "p0"), find(s, 0, "p19998"));
	assert_ptr_equal(find(s, 0, "p1"), find(s, 0, "p7"));
	assert_int_equal(rs_strategy_check(s, &err), -1); /* 8 x 4 and 8 x 2 devices */
	assert_int_equal(err.code, RS_CORRUPT);
	rs_strategy_free(s);
	free(text);
}

/* ------------------------------------------------------------------------- checking */

static void check_proves_that_it_can_cut(void **state)
{
	static const struct {
		const char *params;
		enum rs_code code;
		const char *word, *also;
	} rows[] = {
		{"\"0-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"1-a\":{\"dev_matrix\":[2],\"tensor_map\":[-1]}",
			RS_OK, "", ""},
		{"\"0-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"2-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]}",
			RS_MISSING, "none of stage 1", "0 to 2"},
		{"\"1-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]}", RS_MISSING, "none of stage 0",
			""},
		{"\"4294967294-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]}", RS_MISSING,
			"none of stage 0", ""},
		{"\"0-a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"1-b\":{\"dev_matrix\":[4],\"tensor_map\":[0]}",
			RS_CORRUPT, "'b'", "4 devices, expected 2"},
		{"\"a\":{\"dev_matrix\":[2,4],\"tensor_map\":[2]}", RS_CORRUPT, "'a'", "2"},
		{"\"a\":{\"dev_matrix\":[2,4],\"tensor_map\":[0,0]}", RS_CORRUPT, "'a'", ""},
		{"\"a\":{\"dev_matrix\":[65536,65536,65536,65536,65536],\"tensor_map\":[]}",
			RS_LIMIT, "devices", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rs_err err = {0};
		struct rs_strategy *s;
		char text[512];

		snprintf(text, sizeof(text), "{\"parallel_layout_item\":{%s}}", rows[i].params);
		s = read_text(text);
		assert_int_equal(rs_strategy_check(s, &err), rows[i].code == RS_OK ? 0 : -1);
		if (err.code != rows[i].code)
			fail_msg("row %zu: expected code %d, found %d: %s", i, rows[i].code,
				err.code, err.msg);
		assert_text(err.msg, rows[i].word);
		assert_text(err.msg, rows[i].also);
		if (rows[i].code == RS_OK) {
			assert_int_equal(s->n_stages, 2);
			assert_int_equal(s->stage_devices, 2);
		}
		rs_strategy_free(s);
	}
}

static void same_names_the_first_difference(void **state)
{
	static const struct {
		const char *other, *word;
	} rows[] = {
		{"\"a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"b\":{\"dev_matrix\":[2],\"tensor_map\":[-1],\"tensor_shape\":[7]}",
			NULL},
		{"\"a\":{\"dev_matrix\":[2],\"tensor_map\":[0]}", "'b'"},
		{"\"a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"b\":{\"dev_matrix\":[2],\"tensor_map\":[0]}",
			"'b' of stage 0 is cut in two ways"},
		{"\"a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"aa\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		 "\"b\":{\"dev_matrix\":[2],\"tensor_map\":[-1]}",
			"'aa' of stage 0 is in the second only"},
	};
	struct rs_strategy *a = read_text(LAYOUT("\"a\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
						 "\"b\":{\"dev_matrix\":[2],\"tensor_map\":[-1]}"));

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rs_err err = {0};
		struct rs_strategy *b;
		char text[512];

		snprintf(text, sizeof(text), "{\"parallel_layout_item\":{%s}}", rows[i].other);
		b = read_text(text);
		assert_int_equal(rs_strategy_same(a, b, &err), rows[i].word ? -1 : 0);
		if (rows[i].word) {
			assert_int_equal(err.code, RS_USAGE);
			assert_text(err.msg, rows[i].word);
		}
		rs_strategy_free(b);
	}
	rs_strategy_free(a);
}

/* --------------------------------------------------------------- told from other files */

static void strategies_are_told_by_content(void **state)
{
	static const struct {
		const char *file;
		bool yes;
	} rows[] = {
		{VECTOR, true},
		{"0801", true},
		{"08 ffff03 1a05 0a", true},
		{"", false},
		{"08", false},
		{"0a1c 0a01'w'", false},
		/* safetensors: an eight-byte length that happens to begin with 08 */
		{"0800 0000 0000 0000 '{}      '", false},
		{"0812 0000 0000 0000 '{\"a\":'", false},
		{"0801 1200 0000 0000 '{\"a\":'", false},
		{"0892 0100 0000 0000 '{\"a\":'", false},
		{"'{\"parallel_layout_item\":{}}'", true},
		{"'{\"a\":[{\"b\":1}],\"parallel_layout_item\":'", true},
		{"'{\"a\":{\"parallel_layout_item\":{}}}'", false},
		{"'{\"weight_map\":{}}'", false},
		{"'[\"parallel_layout_item\"]'", false},
		{"'{'", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct bytes b = hex(rows[i].file);
		struct rs_file file;

		rs_file_memory(b.data, b.len, "f", &file);
		if (rs_strategy_is(&file) != rows[i].yes)
			fail_msg("row %zu: expected %d", i, rows[i].yes);
	}
}

/* -------------------------------------------------------------------------- robustness */

static void every_failed_allocation_is_told(void **state)
{
	struct bytes b = hex(VECTOR);

	(void)state;
	for (int form = 0; form < 2; form++)
		for (uint64_t n = 1;; n++) {
			struct rs_strategy *s = NULL;
			struct rs_err err = {0};
			uint64_t len;
			char *bytes;
			int ret;

			fault_alloc(n);
			ret = form ? rs_strategy_read_memory(
					     JSON_VECTOR, sizeof(JSON_VECTOR) - 1, "f", &s, &err)
				   : rs_strategy_read_memory(b.data, b.len, "f", &s, &err);
			if (ret == 0)
				ret = rs_strategy_encode(s, form, true, &bytes, &len, &err);
			if (!fault_hit()) {
				assert_int_equal(ret, 0);
				rs_free(bytes);
				rs_strategy_free(s);
				break;
			}
			assert_int_equal(ret, -1);
			assert_int_equal(err.code, RS_NOMEM);
			rs_strategy_free(s);
		}
	fault_clear();
}

/*
 * Files of real frameworks are no part of the project. Where a collection of them is at hand
 * (RESHARDFS_REAL_DATA), decoding and encoding one must give the same bytes.
 */
static void a_real_file_comes_back_byte_for_byte(void **state)
{
	const char *dir = getenv("RESHARDFS_REAL_DATA");
	struct rs_strategy *s;
	struct rs_err err = {0};
	struct rs_file file;
	uint8_t *bytes;
	char path[1024];

	(void)state;
	if (!dir)
		skip();
	snprintf(path, sizeof(path), "%s/mindspore/strategy_4_npus.ckpt", dir);
	assert_int_equal(rs_file_open(path, NULL, &file, &err), 0);
	bytes = malloc(file.size);
	assert_int_equal(rs_file_read(&file, 0, bytes, file.size, &err), 0);
	assert_true(rs_strategy_is(&file));
	s = read_ok(bytes, file.size);
	assert_true(s->merged);
	assert_int_equal(rs_strategy_check(s, &err), 0);
	assert_int_equal(s->n_stages, 2);
	assert_int_equal(s->stage_devices, 2);
	assert_int_equal(s->n_operators, 34);
	expect_bytes(s, false, bytes, file.size);
	rs_strategy_free(s);
	rs_file_close(&file);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(protobuf_vector_reads),
		cmocka_unit_test(protobuf_comes_back_byte_for_byte),
		cmocka_unit_test(protobuf_is_read_tolerantly),
		cmocka_unit_test(json_vector_reads_and_comes_back),
		cmocka_unit_test(json_maps_may_be_nested),
		cmocka_unit_test(forms_convert_into_each_other),
		cmocka_unit_test(json_cannot_hold_everything),
		cmocka_unit_test(bad_protobuf_is_refused),
		cmocka_unit_test(bad_json_is_refused),
		cmocka_unit_test(cut_files_are_refused),
		cmocka_unit_test(what_stands_in_its_place_is_named),
		cmocka_unit_test(names_tell_the_stage_when_all_carry_one),
		cmocka_unit_test(other_dashes_are_part_of_a_name),
		cmocka_unit_test(a_stage_file_by_itself_is_the_whole),
		cmocka_unit_test(equal_layouts_are_shared),
		cmocka_unit_test(check_proves_that_it_can_cut),
		cmocka_unit_test(same_names_the_first_difference),
		cmocka_unit_test(strategies_are_told_by_content),
		cmocka_unit_test(every_failed_allocation_is_told),
		cmocka_unit_test(a_real_file_comes_back_byte_for_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
