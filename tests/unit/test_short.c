/*
 * test_short.c - short targets: words, roles of a source strategy, stages by layer, refusals; the
 * names that only=, exclude= and rename= leave; plans and strategies that say a target.
 *
 * The source is a model in memory with a strategy from JSON text, so a row of a table shows all
 * that an answer follows from. What the files hold in the end: tests/integration/test_short.py.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/target/emit/emit.h"
#include "core/target/short/presets.h"
#include "core/target/short/short.h"
#include "tests/lib/fault.h"
#include "tests/lib/model.h"

static struct model m;

/* ------------------------------------------------------------------------- words */

static void words_are_told_from_paths(void **state)
{
	static const char *const yes[] = {"tp4", "tp4.pp2", "tp4.ep2.dp8.pp2.opt8", "opt",
		"tp2.opt", "opt4.tp2", "zz9", "mp16"};
	static const char *const no[] = {"", ".", "tp", "tp0", "tp04", "tp4.", ".tp4", "tp4..pp2",
		"TP4", "tp4/x", "./tp4", "strategy.ckpt", "tp4.json", "4tp", "tp-4", "opt0",
		"tp4 "};
	(void)state;

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		if (!rs__short_is(rs_str(yes[i])))
			fail_msg("'%s' is a short target", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		if (rs__short_is(rs_str(no[i])))
			fail_msg("'%s' is no short target", no[i]);
}

static void words_are_read(void **state)
{
	struct rs__short s;
	struct rs_err err = {0};
	(void)state;

	assert_int_equal(rs__short_parse(rs_str("mp4.ep2.dp8.pp3.opt2"), &s, &err), 0);
	assert_int_equal(s.n_words, 4);
	assert_true(rs_str_is(s.words[0].name, "tp"));
	assert_int_equal(s.n_ranks, 4 * 2 * 8 * 3);
	assert_true(s.opt && s.opt_size == 2);
	assert_int_equal(rs__short_roles(&s, RS_STR("x"), &err), 0);
	assert_int_equal(s.size[RS__TP], 4);
	assert_int_equal(s.size[RS__EP], 2);
	assert_int_equal(s.size[RS__DP], 8);
	assert_int_equal(s.size[RS__PP], 3);
	assert_int_equal(rs__short_parse(rs_str("dp2.opt"), &s, &err), 0);
	assert_true(s.opt && s.opt_size == 0);
	assert_int_equal(rs__short_parse(rs_str("dp2.opt1"), &s, &err), 0);
	assert_false(s.opt); /* one shard is none */
}

static void words_are_refused(void **state)
{
	static const struct {
		const char *text;
		enum rs_code code;
		const char *words;
	} rows[] = {
		{"tp4.tp2", RS_USAGE, "axis 'tp' stands twice"},
		{"tp4.mp2", RS_USAGE, "axis 'tp' stands twice"},
		{"tp4.opt.pp2", RS_USAGE, "expected opt as the last word"},
		{"pp2.tp4", RS_USAGE, "expected pp as the last axis"},
		{"tp4.cp2", RS_USAGE, "unknown axis 'cp'"},
		{"tp1048577", RS_LIMIT, "larger than 1048576"},
		{"tp99999999999999999999", RS_LIMIT, "larger than"},
		{"tp1048576.dp2", RS_LIMIT, "more than 1048576 ranks"},
		{"a1.b1.c1.d1.e1.f1.g1.h1.i1", RS_USAGE, "at most 8 axes"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs__short s;
		struct rs_err err = {0};
		int rc = rs__short_parse(rs_str(rows[i].text), &s, &err);
		if (rc == 0)
			rc = rs__short_roles(&s, rs_str(rows[i].text), &err);
		assert_int_equal(rc, -1);
		assert_int_equal(err.code, rows[i].code);
		if (!strstr(err.msg, rows[i].words))
			fail_msg("%s: no '%s' in: %s", rows[i].text, rows[i].words, err.msg);
	}
}

/* -------------------------------------------------------------- a source and its target */

/* "name [dims] LAYOUT;": LAYOUT is dev|map or nothing, for what has no layout. */
struct source_row {
	const char *name;
	unsigned int rows, cols;
	const char *layouts; /* per stage "0: {...}" of JSON, ' for "; NULL: none */
};

static struct rs_strategy *read_strategy(const struct source_row *rows, size_t n)
{
	static char text[65536];
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};
	size_t at = (size_t)snprintf(text, sizeof(text),
		"{\"current_stage\": 1, \"parallel_strategy_item\": {}, \"parallel_layout_item\": "
		"{");
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		/* stages are written one after the other: "0 [4]|[0, -1]|;1 ..." */
		const char *p = rows[i].layouts;
		while (p && *p) {
			unsigned int stage;
			char dev[40], map[60];
			int opt = 0, used = 0;
			if (sscanf(p, "%u %39[^|]|%59[^|]|%d%n", &stage, dev, map, &opt, &used) < 4)
				fail_msg("row %s: %s", rows[i].name, p);
			at += (size_t)snprintf(text + at, sizeof(text) - at,
				"%s\"%u-%s\": {\"dev_matrix\": %s, \"tensor_map\": %s, \"field\": "
				"0, "
				"\"opt_weight_shard_step\": %d, \"opt_weight_shard_size\": %d}",
				any ? ", " : "", stage, rows[i].name, dev, map, opt ? 1 : 0, opt);
			any = true;
			p += used;
			p += *p == ';';
		}
	}
	snprintf(text + at, sizeof(text) - at, "}}");
	if (!any)
		return NULL;
	if (rs_strategy_read_memory(text, strlen(text), "source", &s, &err) < 0 ||
		rs_strategy_check(s, &err) < 0)
		fail_msg("%s in %s", err.msg, text);
	return s;
}

static void model_of(const struct source_row *rows, size_t n)
{
	model_init(&m);
	for (size_t i = 0; i < n; i++)
		if (rows[i].cols)
			model_add(&m, rows[i].name, RS_DT_F32, 2, rows[i].rows, rows[i].cols);
		else
			model_add(&m, rows[i].name, RS_DT_F32, 1, rows[i].rows);
	model_seal(&m);
	m.source.strategy = read_strategy(rows, n);
	m.source.mindspore = true;
	if (m.source.strategy) { /* so many stages, all of them in the one file of the model */
		static const uint32_t units[64];
		const struct rs_strategy *s = m.source.strategy;
		struct rs_err err;
		assert_int_equal(rs_catalog_set_ranks(
					 m.source.cat, units, s->n_stages, s->stage_devices, &err),
			0);
	}
}

static void model_free(void)
{
	rs_strategy_free(m.source.strategy);
	model_done(&m);
}

static struct rs_target *open_target(const struct rs_target_options *o, struct rs_err *err)
{
	struct rs_target *t = NULL;

	*err = (struct rs_err){0};
	if (rs_target_open(o, &m.source, &t, err) < 0)
		return NULL;
	if (rs_target_bind(t, err) == 0)
		return t;
	rs_target_close(t);
	return NULL;
}

static void expect_layout(
	const struct rs_target *t, const char *name, uint32_t stage, const char *expected)
{
	const struct rs_layout *l = rs_strategy_find(t->strategy, stage, rs_str(name));
	char shown[200];

	if (!l)
		fail_msg("%s: '%s' is not in stage %u", t->opts.target, name, stage);
	rs_layout_show(l, shown, sizeof(shown));
	if (strcmp(shown, expected) != 0)
		fail_msg("%s: '%s': %s, expected %s", t->opts.target, name, shown, expected);
}

static uint32_t stages_of(const struct rs_target *t, const char *name)
{
	const uint32_t *first;
	uint32_t n = rs_strategy_stages(t->strategy, rs_str(name), &first), bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= 1u << t->strategy->params[first[i]].stage;
	return bits;
}

/* ------------------------------------------------------------------------- roles */

/* dp 2 x tp 4: rows by tp, columns by tp, both, experts over the outer dimension, and not at all.
 */
static const struct source_row mesh[] = {
	{"a", 64, 48, "0 [2, 4]|[0, -1]|0"},
	{"b", 64, 48, "0 [2, 4]|[-1, 0]|0"},
	{"c", 64, 48, "0 [2, 4]|[1, 0]|0"},
	{"d", 64, 48, "0 [2, 4]|[[1, 0], [-1]]|0"},
	{"e", 64, 0, "0 [2, 4]|[-1]|0"},
	{"s", 64, 48, "0 [2, 4]|[0, -1]|-1"},
	{"step", 1, 0, NULL},
};
#define N_MESH (sizeof(mesh) / sizeof(mesh[0]))

static void cuts_get_new_sizes(void **state)
{
	static const struct {
		const char *target, *a, *b, *c, *d, *e, *s;
	} rows[] = {
		{"tp2.dp2", "dev [2, 2] map [0, -1]", "dev [2, 2] map [-1, 0]",
			"dev [2, 2] map [1, 0]", "dev [2, 2] map [[1, 0], -1]",
			"dev [2, 2] map [-1]", "dev [2, 2] map [0, -1]"},
		{"tp8", "dev [8] map [0, -1]", "dev [8] map [-1, 0]", "dev [8] map [-1, 0]",
			"dev [8] map [0, -1]", "dev [8] map [-1]", "dev [8] map [0, -1]"},
		{"dp4", "dev [4] map [-1, -1]", "dev [4] map [-1, -1]", "dev [4] map [0, -1]",
			"dev [4] map [0, -1]", "dev [4] map [-1]", "dev [4] map [-1, -1]"},
		/* with ep named, the outer dimension is ep, and dp replicates */
		{"tp2.ep4.dp2", "dev [2, 4, 2] map [0, -1]", "dev [2, 4, 2] map [-1, 0]",
			"dev [2, 4, 2] map [1, 0]", "dev [2, 4, 2] map [[1, 0], -1]",
			"dev [2, 4, 2] map [-1]", "dev [2, 4, 2] map [0, -1]"},
		/* written the other way round: ep is innermost */
		{"ep4.tp2", "dev [2, 4] map [1, -1]", "dev [2, 4] map [-1, 1]",
			"dev [2, 4] map [0, 1]", "dev [2, 4] map [[0, 1], -1]",
			"dev [2, 4] map [-1]", "dev [2, 4] map [1, -1]"},
		{"tp2.dp2.opt", "dev [2, 2] map [0, -1]", "dev [2, 2] map [-1, 0]",
			"dev [2, 2] map [1, 0]", "dev [2, 2] map [[1, 0], -1]",
			"dev [2, 2] map [-1]", "dev [2, 2] map [0, -1] opt -1"},
		{"tp2.dp8.opt4", "dev [8, 2] map [0, -1]", "dev [8, 2] map [-1, 0]",
			"dev [8, 2] map [1, 0]", "dev [8, 2] map [[1, 0], -1]",
			"dev [8, 2] map [-1]", "dev [8, 2] map [0, -1] opt 4"},
		{"tp1", "dev [1] map [-1, -1]", "dev [1] map [-1, -1]", "dev [1] map [-1, -1]",
			"dev [1] map [-1, -1]", "dev [1] map [-1]", "dev [1] map [-1, -1]"},
	};
	(void)state;

	model_of(mesh, N_MESH);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs_target_options o = {.target = rows[i].target};
		struct rs_err err;
		struct rs_target *t = open_target(&o, &err);
		if (!t)
			fail_msg("%s: %s", rows[i].target, err.msg);
		expect_layout(t, "a", 0, rows[i].a);
		expect_layout(t, "b", 0, rows[i].b);
		expect_layout(t, "c", 0, rows[i].c);
		expect_layout(t, "d", 0, rows[i].d);
		expect_layout(t, "e", 0, rows[i].e);
		expect_layout(t, "s", 0, rows[i].s);
		assert_int_equal(stages_of(t, "step"), 0);
		assert_true(t->mindspore);
		rs_target_close(t);
	}
	model_free();
}

static void shards_need_rows(void **state)
{
	static const struct source_row rows[] = {
		{"odd", 6, 4, "0 [4, 2]|[0, -1]|1"},
		{"even", 16, 4, "0 [4, 2]|[0, -1]|1"},
		{"cut", 16, 8, "0 [4, 2]|[0, 1]|0"},
	};
	struct rs_target_options o = {.target = "tp2.dp4.opt"};
	struct rs_err err;
	struct rs_target *t;
	(void)state;

	model_of(rows, 3);
	t = open_target(&o, &err);
	if (!t)
		fail_msg("%s", err.msg);
	expect_layout(t, "odd", 0, "dev [4, 2] map [0, -1]"); /* 3 rows do not divide by 4 */
	expect_layout(t, "even", 0, "dev [4, 2] map [0, -1] opt -1");
	expect_layout(t, "cut", 0, "dev [4, 2] map [0, 1]");
	assert_int_equal(t->notes.n, 1);
	assert_non_null(strstr(t->notes.items[0], "'odd' and 0 more tensors"));
	rs_target_close(t);
	o.target = "tp2.dp4.opt3";
	assert_null(open_target(&o, &err));
	assert_int_equal(err.code, RS_USAGE);
	assert_non_null(strstr(err.msg, "held by 4 ranks alike, not divisible by opt3"));
	assert_non_null(strstr(err.hint, "1 2 4"));
	model_free();
}

static void what_cannot_be_told_is_refused(void **state)
{
	static const struct {
		const char *target;
		struct source_row rows[3];
		const char *words, *hint;
	} cases[] = {
		{"tp3", {{"w", 64, 48, "0 [4]|[0, -1]|0"}, {"v", 96, 2, "0 [4]|[0, -1]|0"}},
			"tensor 'w' dim 0 is 64, not divisible by 3",
			"possible tp for this model: 1 2 4 8 16 32"},
		{"tp2", {{"w", 64, 48, "0 [4]|[-1, -1]|0"}}, "nothing tells which axis it cuts",
			"plan=NAME"},
		{"tp2.ep2", {{"w", 64, 48, "0 [4]|[0, -1]|0"}}, "is cut by ep", "plan=NAME"},
		{"tp2", {{"w", 64, 48, NULL}}, "nothing tells which axis it cuts", "plan=NAME"},
		{"tp2.opt", {{"w", 64, 48, "0 [4]|[0, -1]|0"}}, "has an optimizer shard",
			"leave out opt"},
		/* two sizes of one role, and a distance that is neither */
		{"tp2", {{"w", 64, 48, "0 [2, 4]|[0, -1]|0"}, {"x", 64, 48, "0 [4, 2]|[0, -1]|0"}},
			"one size of tp", "strategy"},
		{"tp2",
			{{"w", 64, 48, "0 [2, 2, 2]|[0, -1]|0"},
				{"x", 64, 48, "0 [2, 2, 2]|[2, -1]|0"}},
			"is cut over ranks 4 apart", "strategy"},
		{"tp2", {{"w", 64, 48, "0 [4, 2]|[1, -1]|0"}}, "no tensor over neighbours",
			"strategy"},
		{"tp2.dp2",
			{{"w", 64, 48, "0 [2, 2, 2]|[1, 0]|0"}, {"x", 64, 48, "0 [4, 2]|[1, 0]|0"}},
			"one size of dp", "strategy"},
		/* layers */
		{"tp2.pp3",
			{{"l.0.w", 64, 4, "0 [2]|[0, -1]|0"}, {"l.1.w", 64, 4, "0 [2]|[0, -1]|0"}},
			"2 layers ('l.0' ...) are not divisible by pp3", "1 2"},
		{"tp2.pp2",
			{{"l.0.w", 64, 4, "0 [2]|[0, -1]|0"}, {"l.2.w", 64, 4, "0 [2]|[0, -1]|0"}},
			"found none of layer 1", ""},
		{"tp2.pp2",
			{{"a.0.w", 64, 4, "0 [2]|[0, -1]|0"}, {"b.1.w", 64, 4, "0 [2]|[0, -1]|0"}},
			"count layers by two names", "strategy"},
		{"tp2.pp2", {{"w", 64, 4, "0 [2]|[0, -1]|0"}},
			"no tensor of memory has a layer number", "leave out pp"},
		{"tp2.pp2",
			{{"l.0.w", 64, 4, "0 [2]|[0, -1]|0"}, {"mid", 64, 4, "0 [2]|[0, -1]|0"},
				{"l.1.w", 64, 4, "0 [2]|[0, -1]|0"}},
			"tensor 'mid' is in no layer and stands between the layers", "strategy"},
		{"tp2.pp2",
			{{"l.0.w", 64, 4, "0 [2]|[0, -1]|0"}, {"mid", 64, 4, "1 [2]|[0, -1]|0"},
				{"l.1.w", 64, 4, "2 [2]|[0, -1]|0"}},
			"in source stage 1 of 0 to 2", "strategy"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rs_target_options o = {.target = cases[i].target};
		struct rs_err err;
		size_t n = 0;
		while (n < 3 && cases[i].rows[n].name)
			n++;
		model_of(cases[i].rows, n);
		if (open_target(&o, &err))
			fail_msg("case %zu (%s) was not refused", i, cases[i].words);
		if (err.code != RS_USAGE || !strstr(err.msg, cases[i].words) ||
			!strstr(err.hint, cases[i].hint))
			fail_msg("case %zu: no '%s' in: %s (%s)", i, cases[i].words, err.msg,
				err.hint);
		model_free();
	}
}

/* ------------------------------------------------------------------------- stages */

static void one_stage_becomes_two(void **state)
{
	static const struct source_row rows[] = {
		{"emb", 64, 4, "0 [2]|[0, -1]|0"},
		{"m.l.0.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"m.l.1.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"m.l.2.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"m.l.3.experts.7.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"norm", 64, 0, "0 [2]|[-1]|0"},
		{"adam_m.emb", 64, 4, "0 [2]|[0, -1]|0"},
		{"adam_m.m.l.0.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"adam_m.m.l.3.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"adam_m.norm", 64, 0, "0 [2]|[-1]|0"},
	};
	static const struct {
		const char *name;
		uint32_t stages;
	} want[] = {
		{"emb", 1},
		{"m.l.0.w", 1},
		{"m.l.1.w", 1},
		{"m.l.2.w", 2},
		{"m.l.3.experts.7.w", 2},
		{"norm", 2},
		/* copies go with their weights, although they stand behind the layers */
		{"adam_m.emb", 1},
		{"adam_m.m.l.0.w", 1},
		{"adam_m.m.l.3.w", 2},
		{"adam_m.norm", 2},
	};
	struct rs_target_options o = {.target = "tp2.pp2"};
	struct rs_err err;
	struct rs_target *t;
	(void)state;

	model_of(rows, sizeof(rows) / sizeof(rows[0]));
	t = open_target(&o, &err);
	if (!t)
		fail_msg("%s", err.msg);
	assert_int_equal(t->n_ranks, 4);
	assert_int_equal(t->stage_devices, 2);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		if (stages_of(t, want[i].name) != want[i].stages)
			fail_msg("'%s': stages %x", want[i].name, stages_of(t, want[i].name));
	assert_int_equal(t->notes.n, 2); /* emb before, norm behind; copies are not told again */
	rs_target_close(t);
	model_free();
}

static void ends_stay_ends(void **state)
{
	static const struct source_row rows[] = {
		{"emb", 64, 4, "0 [2]|[0, -1]|0;1 [2]|[0, -1]|0"},
		{"pos", 64, 4, "0 [2]|[-1, -1]|0"},
		{"l.0.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"l.1.w", 64, 4, "0 [2]|[0, -1]|0"},
		{"l.2.w", 64, 4, "1 [2]|[0, -1]|0"},
		{"l.3.w", 64, 4, "1 [2]|[0, -1]|0"},
		{"norm", 64, 0, "1 [2]|[-1]|0"},
	};
	static const struct {
		const char *target;
		uint32_t emb, pos, l1, l2, norm;
	} want[] = {
		{"tp2.pp4", 9, 1, 2, 4, 8},
		{"tp2.pp2", 3, 1, 1, 2, 2}, /* the stages of the source, as they are */
		{"tp2.pp1", 1, 1, 1, 1, 1},
		{"tp2", 1, 1, 1, 1, 1},
	};
	(void)state;

	model_of(rows, sizeof(rows) / sizeof(rows[0]));
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct rs_target_options o = {.target = want[i].target};
		struct rs_err err;
		struct rs_target *t = open_target(&o, &err);
		if (!t)
			fail_msg("%s: %s", want[i].target, err.msg);
		assert_int_equal(stages_of(t, "emb"), want[i].emb);
		assert_int_equal(stages_of(t, "pos"), want[i].pos);
		assert_int_equal(stages_of(t, "l.1.w"), want[i].l1);
		assert_int_equal(stages_of(t, "l.2.w"), want[i].l2);
		assert_int_equal(stages_of(t, "norm"), want[i].norm);
		rs_target_close(t);
	}
	model_free();
}

/* ------------------------------------------------------------------------- pieces */

/* A key in two pieces along axis 1 tells that tp cuts axis 1, in two. */
static void pieces_tell_the_axis(void **state)
{
	static const uint32_t data[64];
	static const uint32_t *const two[] = {data, data}, *const four[] = {data, data, data, data};
	struct rs_shape shape = {.n_axes = 2, .dims = {8, 16}};
	struct rs_target_options o = {.target = "tp4"};
	struct rs_err err;
	struct rs_target *t;
	(void)state;

	model_init(&m);
	model_add_data(&m, "w", &shape, 1, two, 2);
	model_add(&m, "b", RS_DT_F32, 1, 8);
	model_seal(&m);
	t = open_target(&o, &err);
	if (!t)
		fail_msg("%s", err.msg);
	expect_layout(t, "w", 0, "dev [4] map [-1, 0]");
	expect_layout(t, "b", 0, "dev [4] map [-1]");
	assert_false(t->mindspore);
	rs_target_close(t);
	model_done(&m);

	model_init(&m);
	model_add_data(&m, "w", &shape, 1, two, 2);
	model_add_data(&m, "x", &shape, 0, four, 4);
	model_seal(&m);
	assert_null(open_target(&o, &err));
	assert_int_equal(err.code, RS_USAGE);
	assert_non_null(strstr(err.msg, "key 'x' is cut in 4, key 'w' in 2"));
	model_done(&m);
}

/* ------------------------------------------------------------------------- plans */

static void shipped_plans_parse(void **state)
{
	static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3", "mixtral",
		"qwen2_moe", "qwen3_moe", "deepseek_v3", "gpt2", "bert"};
	(void)state;

	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		for (int vllm = 0; vllm < 2; vllm++) {
			char name[64];
			struct rs_str text;
			snprintf(name, sizeof(name), "%s%s", families[i], vllm ? ".vllm" : "");
			if (!rs__preset_find(rs_str(name), &text))
				fail_msg("no plan '%s'", name);
		}
	for (uint32_t i = 0; i < rs__n_presets; i++) {
		struct rs_arena *arena = rs_arena_new(1u << 24, NULL);
		struct rs_str text = {rs__presets[i].text, rs__presets[i].len};
		struct rs__axis sizes[] = {{RS_STR("pp"), 2}, {RS_STR("dp"), 3}, {RS_STR("tp"), 4}};
		struct rs__plan *plan;
		struct rs_err err = {0};
		if (rs__plan_read(text, rs__presets[i].name, sizes, 3, arena, &plan, &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(plan->mesh.n_ranks, 24);
		rs_arena_free(arena);
	}
}

static void models_without_rules_are_refused(void **state)
{
	struct rs_target_options o = {.target = "tp2"};
	struct rs_err err;
	(void)state;

	model_init(&m);
	model_add(&m, "w", RS_DT_F32, 1, 8);
	model_seal(&m);
	m.source.config.model_type = RS_STR("orca9");
	assert_null(open_target(&o, &err));
	assert_int_equal(err.code, RS_USAGE);
	assert_non_null(strstr(err.msg, "model_type 'orca9'"));
	assert_non_null(strstr(err.hint, "llama"));
	o.plan = "orca8";
	assert_null(open_target(&o, &err));
	assert_int_equal(err.code, RS_USAGE);
	assert_non_null(strstr(err.msg, "plan=orca8"));
	o.plan = "llama";
	o.target = "tp2.opt";
	assert_null(open_target(&o, &err));
	assert_non_null(strstr(err.msg, "rules have no optimizer shards"));
	model_done(&m);
}

/* ------------------------------------------------------------------------- digits */

static void cells_become_digits(void **state)
{
	static const struct {
		uint32_t cuts[2], devices;
		const char *cells;  /* a digit a rank */
		const char *digits; /* stride*extent:axis*weight, or "" for none, "-" for refused */
	} rows[] = {
		{{1, 1}, 4, "0000", ""},
		{{4, 1}, 4, "0123", "1*4:0*1 "},
		{{4, 1}, 8, "01230123", "1*4:0*1 "},
		{{2, 1}, 8, "00001111", "4*2:0*1 "},
		{{4, 1}, 8, "01012323", "1*2:0*1 4*2:0*2 "},
		{{4, 1}, 4, "0213", "1*2:0*2 2*2:0*1 "}, /* the map [0, 1]: not in order */
		{{2, 2}, 4, "0123", "1*2:1*1 2*2:0*1 "},
		{{3, 2}, 6, "024135", "1*3:0*1 3*2:1*1 "},
		{{2, 1}, 6, "000111", "3*2:0*1 "},
		{{4, 1}, 4, "1230", "-"}, /* rank 0 holds another cell */
		{{4, 1}, 4, "0132", "-"},
		{{3, 1}, 4, "0120", "-"},
		{{4, 1}, 4, "0101", "-"}, /* two cells are nowhere */
		{{2, 2}, 4, "0303", "-"}, /* two axes at once */
		{{2, 1}, 6, "010011", "-"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rs__seen s = {
			.whole = {.n_axes = 2}, .cuts = {rows[i].cuts[0], rows[i].cuts[1]}};
		struct rs__digit digits[RS__DIGITS_MAX];
		uint32_t cells[8], n;
		char text[200] = "";
		size_t at = 0;
		for (uint32_t r = 0; r < rows[i].devices; r++)
			cells[r] = (uint32_t)(rows[i].cells[r] - '0');
		if (!rs__digits(&s, cells, rows[i].devices, digits, &n))
			snprintf(text, sizeof(text), "-");
		else
			for (uint32_t k = 0; k < n; k++)
				at += (size_t)snprintf(text + at, sizeof(text) - at, "%u*%u:%u*%u ",
					digits[k].stride, digits[k].extent, digits[k].axis,
					digits[k].weight);
		if (strcmp(text, rows[i].digits) != 0)
			fail_msg("row %zu: '%s', expected '%s'", i, text, rows[i].digits);
	}
}

/* A target, said as a plan and as a strategy, holds the same on every rank. */
static void what_is_said_is_the_same(void **state)
{
	static const char *const targets[] = {"tp2.dp2", "tp4.dp2", "ep2.tp4", "tp2.dp4.opt2"};
	(void)state;

	model_of(mesh, N_MESH);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		struct rs_target_options o = {.target = targets[i]};
		struct rs_err err;
		struct rs_target *t = open_target(&o, &err);
		struct rs_strategy *s = NULL;
		struct run said;
		uint64_t len;
		char *text;
		if (!t || rs_target_emit_plan(t, &text, &len, &err) < 0)
			fail_msg("%s: %s", targets[i], err.msg);
		if (run_open(&said, &m, text) < 0)
			fail_msg("%s: %s in %s", targets[i], said.err.msg, text);
		assert_int_equal(said.t.n_ranks, t->n_ranks);
		for (uint64_t rank = 0; rank < t->n_ranks; rank++) {
			struct rs_arena *arena = rs_arena_new(1u << 20, NULL);
			struct rs_list list = {0};
			struct rank k;
			assert_int_equal(rs_target_list(t, rank, arena, &list, NULL, &err), 0);
			rank_open(&k, &said, &m, rank);
			assert_int_equal(k.list.n, list.n);
			for (uint64_t j = 0; j < list.n; j++) {
				const struct rs_wanted *a = &list.items[j], *b = &k.list.items[j];
				assert_true(rs_str_eq(a->name, b->name));
				assert_true(rs_shape_eq(&a->shape, &b->shape));
				assert_true(rs_box_eq(&a->parts[0].box, &b->parts[0].box));
				assert_memory_equal(a->parts[0].origin, b->parts[0].origin,
					a->shape.n_axes * sizeof(uint64_t));
			}
			rank_done(&k);
			rs_arena_free(arena);
		}
		/* Without a strategy of its own it is told from what ranks hold. */
		if (rs_target_emit_strategy(&said.t, &s, &err) < 0)
			fail_msg("%s: %s", targets[i], err.msg);
		for (uint64_t j = 0; j < t->strategy->n_params; j++) {
			struct rs_arena *arena = rs_arena_new(1u << 20, NULL);
			const struct rs_placed *p = &t->strategy->params[j];
			const struct rs_layout *l = rs_strategy_find(s, p->stage, p->name);
			struct rs_grid *a, *b;
			assert_non_null(l);
			assert_int_equal(
				rs_layout_grid(p->layout, p->layout->n_axes, arena, &a, &err), 0);
			assert_int_equal(rs_layout_grid(l, l->n_axes, arena, &b, &err), 0);
			assert_int_equal(a->n_cells, b->n_cells);
			assert_memory_equal(a->cuts, b->cuts, a->n_axes * sizeof(a->cuts[0]));
			assert_memory_equal(
				a->cell_of, b->cell_of, a->n_holders * sizeof(a->cell_of[0]));
			rs_arena_free(arena);
		}
		rs_strategy_free(s);
		run_done(&said);
		rs_free(text);
		rs_target_close(t);
	}
	model_free();
}

static int open_and_emit(const struct rs_target_options *o, struct rs_err *err)
{
	struct rs_target *t = open_target(o, err);
	struct rs_strategy *s = NULL;
	char *text = NULL;
	uint64_t len;
	int rc = -1;

	if (!t)
		return -1;
	if (rs_target_emit_plan(t, &text, &len, err) == 0 &&
		rs_target_emit_strategy(t, &s, err) == 0)
		rc = 0;
	rs_strategy_free(s);
	rs_free(text);
	rs_target_close(t);
	return rc;
}

/* Each allocation fails once: no leak, no crash, and the reason is the one that is told. */
static void memory_may_run_out(void **state)
{
	static const struct {
		const char *target, *plan;
	} rows[] = {{"tp2.dp2.opt", NULL}, {"tp2.pp2", NULL}, {"tp2", "llama"}};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		static const struct source_row layers[] = {
			{"emb", 64, 4, "0 [2]|[0, -1]|0"},
			{"m.l.0.w", 64, 4, "0 [2]|[0, -1]|0"},
			{"m.l.1.w", 64, 4, "0 [2]|[0, -1]|0"},
		};
		struct rs_target_options o = {.target = rows[i].target, .plan = rows[i].plan};
		struct rs_err err;
		uint64_t n = 0;
		int64_t live;
		if (rows[i].plan) {
			model_init(&m);
			model_add(&m, "model.embed_tokens.weight", RS_DT_F32, 2, 8, 4);
			model_add(&m, "model.norm.weight", RS_DT_F32, 1, 4);
			model_seal(&m);
			o.missing = RS_MISSING_SKIP;
		} else {
			model_of(i ? layers : mesh, i ? 3 : N_MESH);
		}
		live = fault_live();
		for (bool hit = true; hit;) {
			fault_alloc(++n);
			int rc = open_and_emit(&o, &err);
			hit = fault_hit();
			fault_clear();
			if (fault_live() != live)
				fail_msg("%s, allocation %" PRIu64 ": leaks", rows[i].target, n);
			if (rc < 0 && (!hit || err.code != RS_NOMEM))
				fail_msg("%s, allocation %" PRIu64 ": %s", rows[i].target, n,
					err.msg);
		}
		assert_true(n > 10);
		if (rows[i].plan)
			model_done(&m);
		else
			model_free();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_told_from_paths),
		cmocka_unit_test(words_are_read),
		cmocka_unit_test(words_are_refused),
		cmocka_unit_test(cuts_get_new_sizes),
		cmocka_unit_test(shards_need_rows),
		cmocka_unit_test(what_cannot_be_told_is_refused),
		cmocka_unit_test(one_stage_becomes_two),
		cmocka_unit_test(ends_stay_ends),
		cmocka_unit_test(pieces_tell_the_axis),
		cmocka_unit_test(shipped_plans_parse),
		cmocka_unit_test(models_without_rules_are_refused),
		cmocka_unit_test(cells_become_digits),
		cmocka_unit_test(what_is_said_is_the_same),
		cmocka_unit_test(memory_may_run_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
