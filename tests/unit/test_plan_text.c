/*
 * test_plan_text.c - the text of plans: numbers, patterns, and what is no plan at all.
 *
 * Every refused text has a row with the words that its writer must see: the place in the
 * document, what was expected, and what would do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/model.h"

static void expect_words(
	const struct rs_err *err, enum rs_code code, const char *words, const char *what)
{
	if (err->code != code)
		fail_msg("%s: %s instead of %s: %s", what, rs_code_name(err->code),
			rs_code_name(code), err->msg);
	if (!strstr(err->msg, words) && !strstr(err->hint, words))
		fail_msg("%s: no '%s' in: %s (%s)", what, words, err->msg, err->hint);
}

/* ------------------------------------------------------------------ numbers */

static void numbers_count(void **state)
{
	static struct rs_var own[] = {
		{{"g", 1}, 4}, {{"d", 1}, 64}, {{"nq", 2}, 32}, {{"zero", 4}, 0}, {{"x_1", 3}, 7}};
	static const struct {
		const char *expr;
		enum rs_code code;
		uint64_t value;
		const char *words;
	} rows[] = {
		{"0", RS_OK, 0, ""},
		{"42", RS_OK, 42, ""},
		{"g", RS_OK, 4, ""},
		{"g*d", RS_OK, 256, ""},
		{" ( nq + 2 * g ) * d ", RS_OK, 2560, ""},
		{"nq/g", RS_OK, 8, ""},
		{"1 + 2 * 3", RS_OK, 7, ""},
		{"(1 + 2) * 3", RS_OK, 9, ""},
		{"10 - 3 - 2", RS_OK, 5, ""},
		{"100 / 5 / 2", RS_OK, 10, ""},
		{"2 * 3 / 6", RS_OK, 1, ""},
		{"3 - 5 + 4", RS_OK, 2, ""},
		{"((((((((g))))))))", RS_OK, 4, ""},
		{"x_1", RS_OK, 7, ""},
		{"zero * 5", RS_OK, 0, ""},
		{"(1 - 3) / (0 - 1)", RS_OK, 2, ""},
		{"9223372036854775807", RS_OK, INT64_MAX, ""},
		{"5 / 2", RS_USAGE, 0, "has a rest"},
		{"g / zero", RS_USAGE, 0, "divides 4 by 0"},
		{"3 - 5", RS_USAGE, 0, "3 - 5 = -2"},
		{"m * 2", RS_USAGE, 0, "nothing sets 'm'"},
		{"", RS_USAGE, 0, "found the end"},
		{"1 +", RS_USAGE, 0, "found the end"},
		{"(1", RS_USAGE, 0, "expected ')'"},
		{"1)", RS_USAGE, 0, "found ')'"},
		{"1 2", RS_USAGE, 0, "found '2'"},
		{"2g", RS_USAGE, 0, "found 'g'"},
		{"-1", RS_USAGE, 0, "found '-1'"},
		{"1 % 2", RS_USAGE, 0, "found '% 2'"},
		{"g.d", RS_USAGE, 0, "found '.d'"},
		{"9223372036854775808", RS_LIMIT, 0, "63 bits"},
		{"9223372036854775807 + 1", RS_LIMIT, 0, "63 bits"},
		{"9223372036854775807 * 2", RS_LIMIT, 0, "63 bits"},
		{"(0 - 9223372036854775807 - 1) / (0 - 1)", RS_LIMIT, 0, "63 bits"},
	};
	struct rs__vars vars = {.own = own, .n = 5};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs__num num = {.expr = rs_str(rows[i].expr), .where = "here"};
		struct rs_err err = {0};
		uint64_t value = 0;
		int rc = rs__expr_check(num.expr, num.where, &err);

		if (rc == 0)
			rc = rs__num_value(&num, &vars, &value, &err);
		expect_words(&err, rows[i].code, rows[i].words, rows[i].expr);
		assert_int_equal(rc, rows[i].code == RS_OK ? 0 : -1);
		if (rc == 0)
			assert_int_equal(value, rows[i].value);
	}
}

/* Brackets without end are refused before they use up the stack. */
static void deep_brackets_have_a_limit(void **state)
{
	static char deep[100001];
	struct rs_err err = {0};
	(void)state;

	memset(deep, '(', sizeof(deep) - 1);
	assert_int_equal(rs__expr_check(rs_str(deep), "here", &err), -1);
	expect_words(&err, RS_LIMIT, "open brackets", "brackets");
}

static void variables_come_from_the_config(void **state)
{
	static struct rs_var config_vars[] = {{{"hidden_size", 11}, 4096},
		{{"intermediate_size", 17}, 14336}, {{"num_attention_heads", 19}, 32},
		{{"num_key_value_heads", 19}, 8}, {{"num_hidden_layers", 17}, 32},
		{{"vocab_size", 10}, 128256}, {{"num_local_experts", 17}, 8},
		{{"moe_intermediate_size", 21}, 512}};
	static struct rs_var own[] = {{{"V", 1}, 1000}};
	static const struct {
		const char *name;
		int64_t value;
	} rows[] = {{"h", 4096}, {"f", 14336}, {"d", 128}, {"nq", 32}, {"g", 8}, {"L", 32},
		{"V", 1000}, {"E", 8}, {"moe_intermediate_size", 512}};
	struct rs_config config = {.vars = config_vars, .n_vars = 8};
	struct rs__vars vars = {.own = own, .n = 1, .config = &config};
	int64_t value;
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_true(rs__vars_find(&vars, rs_str(rows[i].name), &value));
		assert_int_equal(value, rows[i].value);
	}
	assert_false(rs__vars_find(&vars, rs_str("unset"), &value));
	/* Without a number of groups every head is one; a head's size may be stated. */
	config.vars[3] = (struct rs_var){{"head_dim", 8}, 256};
	assert_true(rs__vars_find(&vars, rs_str("g"), &value));
	assert_int_equal(value, 32);
	assert_true(rs__vars_find(&vars, rs_str("d"), &value));
	assert_int_equal(value, 256);
	/* A size of a head that is no integer is nobody's guess. */
	config.vars[3].name = rs_str("other");
	config.vars[0].value = 4097;
	assert_false(rs__vars_find(&vars, rs_str("d"), &value));
}

/* ----------------------------------------------------------------- patterns */

static const struct rs__range two_ranges[] = {
	{.name = {"N", 1}, .renumber = true}, {.name = {"E", 1}}};

static void compile(struct rs_arena *arena, struct rs__pattern *p, struct rs__captures *c,
	bool open, const char *text)
{
	struct rs_err err = {0};

	*p = (struct rs__pattern){.text = rs_str(text), .where = "here"};
	if (rs__pattern_compile(p, c, open, two_ranges, 2, arena, &err) < 0)
		fail_msg("%s: %s", text, err.msg);
}

/* "a=1 b=x": the captures with their values. */
static const char *show(const struct rs__captures *c, const struct rs__value *v, char *buf)
{
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < c->n; i++)
		n += (size_t)snprintf(buf + n, 200 - n, "%s%.*s=%.*s", n ? " " : "",
			(int)c->at[i].name.len, c->at[i].name.ptr, (int)v[i].text.len,
			v[i].text.ptr);
	return buf;
}

static void patterns_match(void **state)
{
	static const struct {
		const char *pattern, *name, *values; /* values NULL: no match */
	} rows[] = {
		{"a.b", "a.b", ""},
		{"a.b", "a.bc", NULL},
		{"a.b", "xa.b", NULL},
		{"a.b", "", NULL},
		{"m.{x}.w", "m.q.w", "x=q"},
		{"m.{x}.w", "m..w", NULL},
		{"m.{x}.w", "m.q.r.w", NULL},
		{"m.{x}.w", "m.q.w.w", NULL},
		{"{x}", "whole", "x=whole"},
		{"{x}", "two.parts", NULL},
		{"{x}.{y}", "two.parts", "x=two y=parts"},
		{"l.{N}.w", "l.12.w", "N=12"},
		{"l.{N}.w", "l.0.w", "N=0"},
		{"l.{N}.w", "l.012.w", NULL},
		{"l.{N}.w", "l.x.w", NULL},
		{"l.{N}.w", "l.-1.w", NULL},
		{"l.{N}.w", "l.18446744073709551616.w", NULL},
		{"l.{n}.w", "l.012.w", "n=012"},
		{"w{N}", "w7", "N=7"},
		{"w{N}x", "w7x", "N=7"},
		{"{norm}_layernorm.w", "input_layernorm.w", "norm=input"},
		{"{norm}_layernorm.w", "post_attention_layernorm.w", "norm=post_attention"},
		{"{a}_{b}", "x_y_z", "a=x_y b=z"}, /* the first takes what it can */
		{"{a}{b}", "xyz", "a=xy b=z"},
		{"{a}.{a}", "x.x", "a=x"},
		{"{a}.{a}", "x.y", NULL},
		{"{a}{a}", "xyxy", "a=xy"},
		{"{a}-{a}", "aa-aa-aa", NULL},
		{"{N}{x}", "12a", "N=12 x=a"},
		{"{N}.{E}", "3.4", "N=3 E=4"},
	};
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs__captures c = {0};
		struct rs__value values[RS__CAPTURES];
		struct rs__pattern p;
		struct rs_err err = {0};
		char buf[200];

		compile(arena, &p, &c, true, rows[i].pattern);
		int rc = rs__pattern_match(&p, &c, rs_str(rows[i].name), values, &err);
		if (rc != (rows[i].values != NULL))
			fail_msg("'%s' and '%s': %d", rows[i].pattern, rows[i].name, rc);
		if (rc)
			assert_string_equal(show(&c, values, buf), rows[i].values);
	}
	rs_arena_free(arena);
}

/* A name made to have a pattern tried in millions of ways is told so. */
static void matching_has_a_limit(void **state)
{
	static char name[4001];
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	struct rs__captures c = {0};
	struct rs__value values[RS__CAPTURES];
	struct rs__pattern p;
	struct rs_err err = {0};
	(void)state;

	memset(name, '_', sizeof(name) - 1);
	compile(arena, &p, &c, true, "{a}_{b}_{c}_{d}x{e}");
	assert_int_equal(rs__pattern_match(&p, &c, rs_str(name), values, &err), -1);
	expect_words(&err, RS_LIMIT, "too many ways", "match");
	rs_arena_free(arena);
}

static void patterns_make_names(void **state)
{
	static const struct {
		const char *to, *global, *local; /* N is 17, and 1 in its share; E is 4 and 0 */
	} rows[] = {
		{"plain", "plain", "plain"},
		{"l.{N}.{x}", "l.17.q", "l.1.q"},
		{"l.{N.g}.w", "l.17.w", "l.17.w"},
		{"l.{N.l}.w", "l.17.w", "l.1.w"},
		{"e{E}", "e4", "e4"},
		{"e{E.l}", "e4", "e0"},
		{"{N.g}/{N.l}/{N}", "17/17/17", "17/1/1"},
	};
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	struct rs__captures c = {0};
	struct rs__value values[RS__CAPTURES];
	struct rs__pattern from, to;
	struct rs_err err = {0};
	uint32_t local[RS__CAPTURES] = {1, 0, 0};
	struct rs_str name;
	(void)state;

	compile(arena, &from, &c, true, "{N}.{E}.{x}");
	assert_int_equal(rs__pattern_match(&from, &c, rs_str("17.4.q"), values, &err), 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		compile(arena, &to, &c, false, rows[i].to);
		assert_int_equal(
			rs__pattern_fill(&to, &c, two_ranges, values, NULL, arena, &name, &err), 0);
		assert_string_equal(name.ptr, rows[i].global);
		assert_int_equal(
			rs__pattern_fill(&to, &c, two_ranges, values, local, arena, &name, &err),
			0);
		assert_string_equal(name.ptr, rows[i].local);
	}
	rs_arena_free(arena);
}

static void bad_patterns_are_refused(void **state)
{
	static const struct {
		const char *text;
		bool open;
		const char *words;
	} rows[] = {
		{"a.{N", true, "braces in pairs"},
		{"a.N}", true, "braces in pairs"},
		{"a}{b", true, "braces in pairs"},
		{"a.{}", true, "a name in braces"},
		{"a.{1x}", true, "a name in braces"},
		{"a.{x y}", true, "a name in braces"},
		{"a.{{x}}", true, "a name in braces"},
		{"a.{N.l}", true, "without .g or .l"},
		{"a.{y}", false, "must stand in \"from\""},
		{"a.{x.l}", false, "expected a range before"},
		{"a.{N.q}", false, "a name in braces"},
	};
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs__captures c = {0};
		struct rs__pattern known,
			p = {.text = rs_str(rows[i].text), .where = "plan.json: rules[0].to"};
		struct rs_err err = {0};

		compile(arena, &known, &c, true, "{x}.{N}");
		assert_int_equal(
			rs__pattern_compile(&p, &c, rows[i].open, two_ranges, 2, arena, &err), -1);
		expect_words(&err, RS_USAGE, rows[i].words, rows[i].text);
		assert_non_null(strstr(err.msg, "rules[0].to"));
	}
	rs_arena_free(arena);
}

/* ---------------------------------------------------------------- bad plans */

#define HEAD                                                                                       \
	"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'pp', 'size': 2}, {'name': 'tp', "         \
	"'size': 4}]}, 'files': {'path': 'rank_{rank}/m.safetensors', 'format': "                  \
	"'safetensors'}, "
#define RANGE "'ranges': {'N': {'axis': 'pp', 'count': 4}}, "
#define RULES(text) HEAD RANGE "'strict': {'unmatched': 'drop'}, 'rules': [" text "]}"
#define STRICT(text) HEAD RANGE "'rules': [" text "]}"
#define MESH(text)                                                                                 \
	"{'reshard_plan': 1, 'mesh': " text ", 'files': {'path': 'r{rank}', 'format': 'ckpt'}, "   \
	"'rules': []}"
#define FILES(text)                                                                                \
	"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'tp', 'size': 4}]}, 'files': " text        \
	", 'rules': []}"

static void texts_that_are_no_plans_are_refused(void **state)
{
	static const struct {
		const char *text;
		enum rs_code code;
		const char *words;
	} rows[] = {
		/* not JSON, not this language */
		{"", RS_USAGE, "plan.json"},
		{"{", RS_USAGE, "plan.json@"},
		{"[]", RS_USAGE, "expected an object, found an array"},
		{"{'reshard_plan': 1} x", RS_USAGE, "plan.json@"},
		{"{'reshard_plan': 1, 'reshard_plan': 1}", RS_USAGE, "'reshard_plan' twice"},
		{"{'reshard_plan': 1}", RS_USAGE, "expected a member 'mesh'"},
		{"{'rules': []}", RS_USAGE, "expected a member 'reshard_plan'"},
		{"{'reshard_plan': 2}", RS_UNSUPPORTED, "expected version 1, found 2"},
		{"{'reshard_plan': '1'}", RS_USAGE, "reshard_plan: expected 1, found '1'"},
		{"{'reshard_plan': 1, 'rulez': []}", RS_USAGE,
			"unknown member 'rulez'; known are reshard_plan vars mesh files strict "
			"ranges rules"},
		/* mesh */
		{MESH("{}"), RS_USAGE, "mesh: expected a member 'axes'"},
		{MESH("{'axes': []}"), RS_USAGE, "mesh.axes: expected 1 to 16 axes"},
		{MESH("{'axes': [{'name': 'tp'}]}"), RS_USAGE,
			"mesh.axes[0]: expected a member 'size'"},
		{MESH("{'axes': [{'name': 'tp', 'size': 0}]}"), RS_USAGE, "size from 1"},
		{MESH("{'axes': [{'name': 'tp', 'size': 1.5}]}"), RS_USAGE, "found 1.5"},
		{MESH("{'axes': [{'name': 'tp', 'size': -2}]}"), RS_USAGE, "found -2"},
		{MESH("{'axes': [{'name': 'rank', 'size': 2}]}"), RS_USAGE,
			"'rank' is no name for an axis"},
		{MESH("{'axes': [{'name': 't p', 'size': 2}]}"), RS_USAGE,
			"'t p' is no name for an axis"},
		{MESH("{'axes': [{'name': 'tp', 'size': 2}, {'name': 'tp', 'size': 2}]}"), RS_USAGE,
			"axis 'tp' stands twice"},
		{MESH("{'axes': [{'name': 'a', 'size': 65536}, {'name': 'b', 'size': 65536}]}"),
			RS_LIMIT, "ranks"},
		{MESH("{'axes': [{'name': 'a', 'size': 2, 'stride': 1}]}"), RS_USAGE,
			"unknown member 'stride'; known are name size"},
		/* files */
		{FILES("{'path': 'x'}"), RS_USAGE, "expected a member 'format'"},
		{FILES("{'path': 'x', 'format': 'onnx'}"), RS_USAGE,
			"one of safetensors ckpt pdparams pt, found 'onnx'"},
		{FILES("{'path': 'r{rank}', 'format': 'pt'}"), RS_UNSUPPORTED, "pt files"},
		{FILES("{'path': '/etc/x', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': '../x', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': 'a//x', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': 'a/', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': 'a/./x', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': 'a b', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': 'a{', 'format': 'ckpt'}"), RS_USAGE, "files: path: expected"},
		{FILES("{'path': '', 'format': 'ckpt'}"), RS_USAGE, "not empty"},
		{FILES("{'path': 'a{pp}', 'format': 'ckpt'}"), RS_USAGE,
			"'{pp}': expected {rank} or an axis"},
		{FILES("{'path': 'a', 'format': 'ckpt', 'metadata': {'a': 1}}"), RS_USAGE,
			"files.metadata.a: expected a string, found 1"},
		{FILES("{'path': 'a', 'format': 'ckpt', 'max_bytes': '5G'}"), RS_USAGE,
			"files.max_bytes"},
		/* vars, strict, ranges */
		{HEAD "'vars': {'d': 1.5}, 'rules': []}", RS_USAGE, "vars.d"},
		{HEAD "'vars': {'d d': 1}, 'rules': []}", RS_USAGE, "no name for a variable"},
		{HEAD "'strict': {'unmatched': 'keep'}, 'rules': []}", RS_USAGE,
			"strict.unmatched: expected one of error drop replicate, found 'keep'"},
		{HEAD "'strict': {'overlap': 'error'}, 'rules': []}", RS_USAGE,
			"unknown member 'overlap'"},
		{HEAD "'ranges': {'N': {}}, 'rules': []}", RS_USAGE,
			"ranges.N: expected a member 'axis'"},
		{HEAD "'ranges': {'N': {'axis': 'ep'}}, 'rules': []}", RS_USAGE,
			"ranges.N.axis: unknown axis 'ep'; the mesh has pp tp"},
		{HEAD "'ranges': {'N': {'axis': 'pp', 'count': 4, 'sizes': [2, 2]}}, 'rules': []}",
			RS_USAGE, "one of 'count', 'sizes' and 'lists'"},
		{HEAD "'ranges': {'N': {'axis': 'pp', 'sizes': [2, 2, 2]}}, 'rules': []}", RS_USAGE,
			"3 items for axis 'pp' of 2"},
		{HEAD "'ranges': {'N': {'axis': 'pp', 'lists': [[0], [-1]]}}, 'rules': []}",
			RS_USAGE, "ranges.N.lists[1][0]"},
		{HEAD "'ranges': {'N': {'axis': 'pp', 'count': '4 +'}}, 'rules': []}", RS_USAGE,
			"ranges.N.count: '4 +': expected a number"},
		{HEAD "'ranges': {'N': {'axis': 'pp', 'local': 1}}, 'rules': []}", RS_USAGE,
			"ranges.N.local: expected true or false"},
		/* rules */
		{RULES("{}"), RS_USAGE, "rules[0]: expected either 'to' or 'drop'"},
		{RULES("{'to': 'a', 'drop': 'b'}"), RS_USAGE, "either 'to' or 'drop'"},
		{RULES("{'to': 'a'}"), RS_USAGE, "expected 'from', 'concat' or 'alias_of'"},
		{RULES("{'from': 'a'}"), RS_USAGE, "either 'to' or 'drop'"},
		{RULES("{'to': 'a', 'from': 'b', 'concat': {'dim': 0, 'parts': [{'from': 'c'}]}}"),
			RS_USAGE, "expected 'from', 'concat' or 'alias_of'"},
		{RULES("{'drop': 'a', 'cut': [{'dim': 0, 'axis': 'tp'}]}"), RS_USAGE,
			"'drop' and slice, transpose, trim, pad or cut exclude"},
		{RULES("{'drop': 'a', 'on': {'pp': 'first'}}"), RS_USAGE, "'drop' stands alone"},
		{RULES("{'to': 'a', 'from': 'a', 'cuts': []}"), RS_USAGE,
			"rules[0]: unknown member 'cuts'; known are to from drop concat"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': {'dim': 0, 'axis': 'tp'}}"), RS_USAGE,
			"rules[0].cut: expected an array, found an object"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 0}]}"), RS_USAGE,
			"rules[0].cut[0]: expected a member 'axis'"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 8, 'axis': 'tp'}]}"), RS_USAGE,
			"rules[0].cut[0].dim: expected the number of an axis, 0 to 7, found 8"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': -1, 'axis': 'tp'}]}"), RS_USAGE,
			"found -1"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 0, 'axis': 'tq'}]}"), RS_USAGE,
			"rules[0].cut[0].axis: unknown axis 'tq'; the mesh has pp tp"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 0, 'axis': 'tp', 'few': "
		       "'some'}]}"),
			RS_USAGE, "one of error replicate, found 'some'"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 'd'}]}"),
			RS_USAGE, "rules[0].cut[0].unit: 'd': nothing sets 'd'"},
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 0}]}"),
			RS_USAGE, "whole units of 0"},
		{RULES("{'to': 'a', 'from': 'a', 'slice': [[0, 1]]}"), RS_USAGE,
			"rules[0].slice[0]: expected [dim, start, stop]"},
		{RULES("{'to': 'a', 'from': 'a', 'slice': [[0, 1, -2]]}"), RS_USAGE,
			"rules[0].slice[0][2]"},
		{RULES("{'to': 'a', 'from': 'a', 'slice': [[0, 5, 3]]}"), RS_USAGE,
			"[5, 3) of dim 0"},
		{RULES("{'to': 'a', 'from': 'a', 'slice': [[0, 0, 9]]}"), RS_USAGE,
			"[0, 9) of dim 0, which is 8"},
		{RULES("{'to': 'a', 'from': 'a', 'slice': [[2, 0, 1]]}"), RS_USAGE,
			"dim 2 of a tensor that is [8, 4]"},
		{RULES("{'to': 'a', 'from': 'a', 'groups': 2}"), RS_USAGE, "here is no slice"},
		{RULES("{'to': 'a', 'from': 'a', 'groups': 3, 'slice': [[0, 0, 1]]}"), RS_USAGE,
			"expected 3 equal groups"},
		{RULES("{'to': 'a', 'from': 'a', 'groups': 2, 'slice': [[0, 0, 5]]}"), RS_USAGE,
			"which is 4 in a group"},
		{RULES("{'to': 'a', 'from': 'a', 'transpose': [0, 0]}"), RS_USAGE,
			"rules[0].transpose: expected every axis once"},
		{RULES("{'to': 'a', 'from': 'a', 'transpose': []}"), RS_USAGE, "every axis once"},
		{RULES("{'to': 'a', 'from': 'a', 'transpose': [0, 2, 1]}"), RS_USAGE,
			"3 axes in the plan, a tensor that is [8, 4]"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0}}"), RS_USAGE,
			"rules[0].pad: expected either 'to' or 'multiple'"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'to': 9, 'multiple': 3}}"),
			RS_USAGE, "either 'to' or 'multiple'"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'to': 9, 'fill': 'one'}}"),
			RS_USAGE, "one of zero last, found 'one'"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'to': 7}}"), RS_USAGE,
			"dim 0 is 8, expected at most 7"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'multiple': 0}}"), RS_USAGE,
			"a multiple above 0"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'to': 9007199254740991}, "
		       "'stack':"
		       " {'dim': 0, 'over': 'M'}}"),
			RS_USAGE, "'over' is 'M', which is no range"},
		{RULES("{'to': 'a', 'from': 'a', 'pad': {'dim': 0, 'to': '9000000000 * "
		       "900000000'}}"),
			RS_LIMIT, "does not fit 64 bits"},
		{RULES("{'to': 'a', 'from': 'a', 'trim': {'dim': 0, 'to': 9}}"), RS_USAGE,
			"dim 0 is 8, expected at least 9"},
		{RULES("{'to': 'a', 'concat': {'dim': 0, 'parts': []}}"), RS_USAGE,
			"rules[0].concat.parts: expected at least one part"},
		{RULES("{'to': 'a', 'concat': {'dim': 0, 'parts': [{}]}}"), RS_USAGE,
			"rules[0].concat.parts[0]: expected a member 'from'"},
		{RULES("{'to': 'a', 'concat': {'dim': 0, 'parts': [{'from': 'a'}, {'from': "
		       "'b'}]}}"),
			RS_USAGE, "expected parts that fit each other"},
		{RULES("{'to': 'a', 'concat': {'dim': 2, 'parts': [{'from': 'a'}]}}"), RS_USAGE,
			"rules[0].concat: dim 2 of a tensor"},
		{RULES("{'to': 'a', 'concat': {'dim': 0, 'groups': 3, 'parts': [{'from': 'a'}]}}"),
			RS_USAGE, "expected 3 equal groups"},
		{RULES("{'to': 'a', 'concat': {'dim': 0, 'parts': [{'from': 'l.{N}.w'}, {'from': "
		       "'{x}'}]}}"),
			RS_USAGE, "one part whose 'from' has all the captures"},
		{RULES("{'to': 'a.{y}', 'from': 'l.{N}.w'}"), RS_USAGE, "rules[0].to"},
		{RULES("{'to': 'a', 'from': 'l.{N}.w'}"), RS_USAGE, "'a' would be made from 'l."},
		{RULES("{'to': 'a', 'from': '{x}'}"), RS_USAGE, "'a' would be made from"},
		{RULES("{'to': 'a.{N}', 'from': 'l.{N}.w', 'stack': {'dim': 0, 'over': 'N'}}"),
			RS_USAGE, "'{N}' in 'to' is stacked away"},
		{RULES("{'to': 'a', 'from': 'a', 'stack': {'dim': 0, 'over': 'N'}}"), RS_USAGE,
			"'{N}' belongs in 'from'"},
		{RULES("{'to': 'a.{N}', 'from': 'l.{N}.w', 'stack': {'dim': 0, 'over': 'N', "
		       "'split':"
		       " true}}"),
			RS_USAGE, "belongs in 'to' alone"},
		{RULES("{'to': 'a.{N}', 'from': 'b', 'stack': {'dim': 0, 'over': 'N', 'split': "
		       "true}}"),
			RS_USAGE, "dim 0 of [2] is no 4 of 'N'"},
		{RULES("{'to': 'a', 'from': 'l.{N}.w', 'stack': {'dim': 3, 'over': 'N'}}"),
			RS_USAGE, "no room for a dim 3"},
		{RULES("{'to': 'a', 'from': 'a', 'on': {'pp': 'middle'}}"), RS_USAGE,
			"rules[0].on.pp: expected first, last or a list"},
		{RULES("{'to': 'a', 'from': 'a', 'on': {'pp': [2]}}"), RS_USAGE,
			"coordinate 2 of an axis of 2"},
		{RULES("{'to': 'a', 'from': 'a', 'on': {'ep': 'first'}}"), RS_USAGE,
			"unknown axis 'ep'"},
		{RULES("{'to': 'a', 'from': 'a', 'on': ['pp']}"), RS_USAGE, "an object of axes"},
		{RULES("{'to': 'a', 'from': 'a', 'dtype': 'F8'}"), RS_USAGE,
			"one of keep F32 F16 BF16, found 'F8'"},
		{RULES("{'to': 'a', 'from': 'a', 'dtype': 'BF16'}"), RS_UNSUPPORTED,
			"I32 cannot be shown as BF16"},
		{RULES("{'to': 'a', 'alias_of': 'b', 'from': 'c'}"), RS_USAGE,
			"'alias_of' and from exclude each other"},
		{RULES("{'to': 'a', 'from': 'a', 'block': [1]}"), RS_USAGE, "belong together"},
		{RULES("{'to': 'a', 'from': 'a', 'scale_of': 'w'}"), RS_USAGE, "belong together"},
		{RULES("{'to': 'a', 'from': 'a', 'scale_of': 'w', 'block': [0]}"), RS_USAGE,
			"block lengths above 0"},
		{RULES("{'to': 'a', 'from': 'a', 'scale_of': 'w', 'block': [2], 'transpose': [0]}"),
			RS_USAGE, "'scale_of' and slice, transpose"},
		{RULES("{'to': 'a', 'from': 'a', 'optional': 'yes'}"), RS_USAGE,
			"rules[0].optional: expected true or false, found 'yes'"},
		/* a source that the plan does not fit */
		{RULES("{'to': 'a', 'from': 'a', 'cut': [{'dim': 1, 'axis': 'tp', 'unit': 3}]}"),
			RS_USAGE, "dim 1 is 4, expected whole units of 3"},
		{RULES("{'to': 'x', 'from': 'x'}"), RS_MISSING,
			"rules[0]: no source tensor is called 'x'"},
		{RULES("{'to': 'a', 'alias_of': 'x'}"), RS_MISSING, "no target is called 'x'"},
		{STRICT("{'to': 'a', 'from': 'a'}"), RS_MISSING,
			"tensor 'b' and 4 more: no rule takes it to any rank"},
		{STRICT("{'to': 'a', 'from': 'a'}, {'drop': 'b'}, {'to': 'l.{N}.w', 'from': "
			"'l.{N}.w'}"),
			RS_OK, ""},
		{RULES("{'to': 's', 'concat': {'dim': 0, 'parts': [{'from': 'b'}, {'from': "
		       "'x'}]}}"),
			RS_MISSING, "rules[0]: wants tensor 'x', which no source file stores"},
		{RULES("{'to': 'a', 'from': 'a', 'scale_of': 'x', 'block': [2, 2]}"), RS_MISSING,
			"scale_of: no target is called 'x'"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		static struct model m;
		struct run r;

		model_init(&m);
		model_add(&m, "a", RS_DT_I32, 2, 8, 4);
		model_add(&m, "b", RS_DT_I32, 1, 2);
		for (unsigned int n = 0; n < 4; n++) {
			char name[16];
			snprintf(name, sizeof(name), "l.%u.w", n);
			model_add(&m, name, RS_DT_I32, 1, 4);
		}
		model_seal(&m);
		int rc = run_open(&r, &m, rows[i].text);
		expect_words(&r.err, rows[i].code, rows[i].words, rows[i].text);
		assert_int_equal(rc, rows[i].code == RS_OK ? 0 : -1);
		run_done(&r);
		model_done(&m);
	}
}

static void plans_are_told_by_a_key(void **state)
{
	(void)state;
	assert_true(rs__plan_is(RS_STR("{\"reshard_plan\": 1}")));
	assert_true(rs__plan_is(RS_STR(" \n\t{ \"rules\": [], \"reshard_plan\": 1")));
	assert_false(rs__plan_is(RS_STR("")));
	assert_false(rs__plan_is(RS_STR("{\"parallel_layout_item\": {}}")));
	assert_false(rs__plan_is(RS_STR("[\"reshard_plan\"]")));
	assert_false(rs__plan_is(RS_STR("\x08 reshard_plan")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_count),
		cmocka_unit_test(deep_brackets_have_a_limit),
		cmocka_unit_test(variables_come_from_the_config),
		cmocka_unit_test(patterns_match),
		cmocka_unit_test(matching_has_a_limit),
		cmocka_unit_test(patterns_make_names),
		cmocka_unit_test(bad_patterns_are_refused),
		cmocka_unit_test(texts_that_are_no_plans_are_refused),
		cmocka_unit_test(plans_are_told_by_a_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
