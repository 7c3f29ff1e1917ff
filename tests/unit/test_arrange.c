/*
 * test_arrange.c - from lists to files: how lists come apart, what files are called, the texts of
 * indexes, ranks that share a file, and all that is refused.
 *
 * The target is a made-up one whose lists the tests fill; no source and no file is behind it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "core/target/arrange/arrange.h"
#include "tests/lib/fault.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

/* -------------------------------------------------------------------- fixture */

#define RANKS 6
#define ITEMS 8

struct made_up {
	struct rs_target target;
	struct rs_source source;
	struct rs_axis axes[2];
	struct rs_tensor whole[ITEMS];
	uint64_t bytes[ITEMS]; /* of tensor i; 0: the list ends */
	bool cut;              /* ranks of one dp hold different halves */
	bool text;             /* the last item is a text */
};

/* Tensor i is called as the i-th letter. */
static int list(struct rs_target *target, uint64_t rank, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err)
{
	struct made_up *m = target->priv;
	struct rs_wanted *items = RS_NEW_N(arena, struct rs_wanted, ITEMS, err);
	struct rs_part *parts = RS_NEW_N(arena, struct rs_part, ITEMS, err);

	(void)notes;
	if (!items || !parts)
		return -1;
	for (uint64_t i = 0; i < ITEMS && m->bytes[i]; i++) {
		struct rs_shape shape = {.n_axes = 1, .dims = {m->bytes[i]}};

		parts[i] = (struct rs_part){.kind = RS_PART_COPY,
			.box = rs_box_whole(&shape),
			.source = &m->whole[i],
			.origin = {m->cut ? rank % 2 : 0}};
		items[i] = (struct rs_wanted){.name = m->whole[i].name,
			.dtype = RS_DT_U8,
			.shape = shape,
			.parts = &parts[i],
			.n_parts = 1,
			.prefer = (uint32_t)rank};
		out->n = i + 1;
	}
	if (m->text && out->n > 0)
		items[out->n - 1].dtype = RS_DT_STR;
	out->items = items;
	return 0;
}

static const struct rs_target_ops ops = {.name = "made up", .list = list};

static int open_made_up(void **state)
{
	static const char letters[] = "abcdefgh";
	static struct made_up m;

	m = (struct made_up){.bytes = {4, 5, 12, 1, 3}};
	m.axes[0] = (struct rs_axis){RS_STR("dp"), 3};
	m.axes[1] = (struct rs_axis){RS_STR("tp"), 2};
	for (uint32_t i = 0; i < ITEMS; i++)
		m.whole[i] = (struct rs_tensor){.name = {letters + i, 1}, .shape = {1, {100}}};
	m.target = (struct rs_target){.ops = &ops,
		.source = &m.source,
		.container = "safetensors",
		.container_default_name = "model.safetensors",
		.axes = m.axes,
		.n_axes = 2,
		.n_ranks = RANKS,
		.arena = rs_arena_new(1 << 20, NULL),
		.priv = &m};
	assert_non_null(m.target.arena);
	*state = &m;
	return 0;
}

static int close_made_up(void **state)
{
	struct made_up *m = *state;

	fault_clear();
	rs_notes_done(&m->target.notes);
	rs_arena_free(m->target.arena);
	return 0;
}

static const uint64_t all_ranks[RANKS] = {0, 1, 2, 3, 4, 5};

static int arrange(struct made_up *m, const char *path, struct rs_err *err)
{
	m->target.files.path = path;
	return rs_target_arrange(&m->target, all_ranks, RANKS, NULL, err);
}

static void arranged(struct made_up *m, const char *path)
{
	struct rs_err err = {0};

	if (arrange(m, path, &err) < 0)
		fail_msg("%s", err.msg);
}

static void refused(struct made_up *m, const char *path, enum rs_code code, const char *word)
{
	struct rs_err err = {0};

	assert_int_equal(arrange(m, path, &err), -1);
	assert_int_equal(err.code, code);
	assert_text(err.msg, word);
}

/* Names of tensors in file @i, as a word. */
static const char *items_of(struct made_up *m, uint64_t i, char *word)
{
	struct rs_list files = {0};
	struct rs_err err = {0};

	if (rs_target_output(
		    &m->target, &m->target.outputs[i], m->target.arena, &files, NULL, &err) < 0)
		fail_msg("%s", err.msg);
	for (uint64_t k = 0; k < files.n; k++)
		word[k] = files.items[k].name.ptr[0];
	word[files.n] = '\0';
	return word;
}
#define ITEMS_OF(m, i) items_of((m), (i), (char[ITEMS + 1]){0})

/* ---------------------------------------------------------------------- split */

static void lists_come_apart_by_size(void **state)
{
	static const struct {
		uint64_t limit;
		uint32_t n_parts, part_of[5];
	} rows[] = {
		{0, 1, {0, 0, 0, 0, 0}},
		{10, 3, {1, 1, 0, 1, 2}}, /* 12 is finished first, then 4 5 1, then 3 */
		{9, 3, {1, 1, 0, 2, 2}},
		{12, 3, {0, 0, 1, 2, 2}},
		{25, 1, {0, 0, 0, 0, 0}},
		{24, 2, {0, 0, 0, 0, 1}},
		{1, 5, {0, 1, 2, 4, 3}}, /* 1 fits, and is finished last */
		{3, 5, {0, 1, 2, 3, 4}},
		{UINT64_MAX, 1, {0, 0, 0, 0, 0}},
	};
	struct made_up *m = *state;
	struct rs_list l = {0};
	uint32_t part_of[ITEMS], n_parts;

	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(rs__split(&l, rows[i].limit, part_of, &n_parts, NULL), 0);
		assert_int_equal(n_parts, rows[i].n_parts);
		assert_memory_equal(part_of, rows[i].part_of, sizeof(rows[i].part_of));
	}
}

static void texts_go_with_the_first_part(void **state)
{
	struct made_up *m = *state;
	struct rs_list l = {0};
	uint32_t part_of[ITEMS], n_parts;

	m->text = true;
	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	assert_int_equal(rs__split(&l, 10, part_of, &n_parts, NULL), 0);
	assert_int_equal(n_parts, 2);
	assert_int_equal(part_of[4], 0);
	l.n = 0; /* nothing at all is one empty part */
	assert_int_equal(rs__split(&l, 10, part_of, &n_parts, NULL), 0);
	assert_int_equal(n_parts, 1);
}

static void names_are_spread_by_size(void **state)
{
	struct made_up *m = *state;
	struct rs_list l = {0};
	uint32_t part_of[ITEMS] = {0}, n_parts;
	uint64_t *by_size, n;

	/* 48 (c), 20 (b), 16 (a), 12 (e), 4 (d): 100 in all, at four bytes an element. */
	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	assert_int_equal(
		rs__spread(&l, 50, part_of, &n_parts, m->target.arena, &by_size, &n, NULL), 0);
	assert_int_equal(n_parts, 2);
	assert_int_equal(n, 5);
	assert_memory_equal(part_of, ((uint32_t[]){1, 1, 0, 0, 1}), 5 * sizeof(uint32_t));
	assert_memory_equal(by_size, ((uint64_t[]){2, 1, 0, 4, 3}), 5 * sizeof(uint64_t));

	for (int i = 0; i < 5; i++) /* c stays out */
		part_of[i] = i == 2 ? RS__NO_PART : 0;
	assert_int_equal(
		rs__spread(&l, 1, part_of, &n_parts, m->target.arena, &by_size, &n, NULL), 0);
	assert_int_equal(n_parts, 4); /* never more than names */
	assert_int_equal(part_of[2], RS__NO_PART);
	assert_memory_equal(by_size, ((uint64_t[]){1, 0, 4, 3}), 4 * sizeof(uint64_t));

	for (int i = 0; i < 5; i++)
		part_of[i] = RS__NO_PART;
	assert_int_equal(
		rs__spread(&l, 1, part_of, &n_parts, m->target.arena, &by_size, &n, NULL), 0);
	assert_int_equal(n_parts, 0);
}

static void equal_sizes_go_round(void **state)
{
	struct made_up *m = *state;
	struct rs_list l = {0};
	uint32_t part_of[ITEMS] = {0}, n_parts;
	uint64_t *by_size, n;

	for (int i = 0; i < ITEMS; i++)
		m->bytes[i] = 7;
	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	assert_int_equal(
		rs__spread(&l, 75, part_of, &n_parts, m->target.arena, &by_size, &n, NULL), 0);
	assert_int_equal(n_parts, 3);
	assert_memory_equal(
		part_of, ((uint32_t[]){0, 1, 2, 0, 1, 2, 0, 1}), ITEMS * sizeof(uint32_t));
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
	struct made_up *m = *state;
	struct rs_list l = {0};
	uint32_t part_of[ITEMS] = {0}, n_parts;
	uint64_t *by_size, n;
	struct rs_err err;

	m->bytes[0] = 1ull << 62;
	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	assert_int_equal(
		rs__spread(&l, 50, part_of, &n_parts, m->target.arena, &by_size, &n, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	assert_text(err.msg, "'a'");
	m->bytes[0] = UINT64_MAX;
	l.n = 0;
	assert_int_equal(list(&m->target, 0, m->target.arena, &l, NULL, NULL), 0);
	assert_int_equal(rs__split(&l, 50, part_of, &n_parts, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
}

/* ---------------------------------------------------------------------- names */

static void paths_name_ranks_and_axes(void **state)
{
	static const struct {
		const char *pattern, *path;
	} rows[] = {
		{"x", "x"},
		{"rank_{rank}/m-{tp}-of-{dp}.x", "rank_5/m-1-of-2.x"},
		{"{rank}{rank}{tp}", "551"},
		{"a b", "a%20b"},
		{"50%", "50%25"},
		{"\xc3\xa9.x", "%C3%A9.x"},
		{"{", "%7B"},
		{"}", "%7D"},
		{"tp}{tp}", "tp%7D1"},
		{"", ""},
	};
	struct made_up *m = *state;
	struct rs_err err;
	char *path;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(rs__path_expand(&m->target, rows[i].pattern, 5, &path, &err), 0);
		assert_string_equal(path, rows[i].path);
	}
	assert_int_equal(rs__path_expand(&m->target, "{pp}", 5, &path, &err), -1);
	assert_int_equal(err.code, RS_USAGE);
	assert_text(err.msg, "{pp}");
	assert_text(err.hint, "{rank}, {dp}, {tp}");
	assert_int_equal(rs__path_expand(&m->target, "{}", 5, &path, &err), -1);
}

static void names_of_sources_are_never_paths(void **state)
{
	static const struct {
		const char *name, *escaped;
	} rows[] = {
		{"config.json", "config.json"},
		{"..", "%2E."},
		{".", "%2E"},
		{".reshardfs", "%2Ereshardfs"},
		{"a/b", "a%2Fb"},
		{"/", "%2F"},
		{"a%2Fb", "a%252Fb"},
		{"\x01\xff", "%01%FF"},
		{"A_z-0.9", "A_z-0.9"},
	};
	struct made_up *m = *state;
	struct rs_err err;
	char longest[256];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(rs__name_escape(m->target.arena, rs_str(rows[i].name), &err),
			rows[i].escaped);
	assert_null(rs__name_escape(m->target.arena, RS_STR(""), &err));
	memset(longest, 'n', sizeof(longest));
	assert_non_null(rs__name_escape(m->target.arena, (struct rs_str){longest, 255}, &err));
	assert_null(rs__name_escape(m->target.arena, (struct rs_str){longest, 256}, &err));
	assert_int_equal(err.code, RS_LIMIT);
	longest[254] = '/'; /* three bytes when escaped */
	assert_null(rs__name_escape(m->target.arena, (struct rs_str){longest, 255}, &err));
}

/* -------------------------------------------------------------------- indexes */

static void indexes_are_those_of_python(void **state)
{
	struct made_up *m = *state;
	struct rs__mapped map[] = {{RS_STR("b\"\\\t\x7f"), "x"}, {RS_STR("\xe5\xb1\x82"), "y"},
		{RS_STR("a~ "), "x"}, {RS_STR("\xf0\x9f\x98\x80"), "y"}, {RS_STR("\x01\n"), "x"}};
	static const char sorted[] = "{\n"
				     "  \"metadata\": {\n"
				     "    \"total_size\": 42\n"
				     "  },\n"
				     "  \"weight_map\": {\n"
				     "    \"\\u0001\\n\": \"x\",\n"
				     "    \"a~ \": \"x\",\n"
				     "    \"b\\\"\\\\\\t\\u007f\": \"x\",\n"
				     "    \"\\u5c42\": \"y\",\n"
				     "    \"\\ud83d\\ude00\": \"y\"\n"
				     "  }\n"
				     "}\n";
	struct rs_str text;

	assert_int_equal(rs__index_hf(map, 5, 42, m->target.arena, &text, NULL), 0);
	assert_int_equal(text.len, sizeof(sorted) - 1);
	assert_memory_equal(text.ptr, sorted, text.len);

	static const char plain[] = "{\n"
				    "    \"metadata\": {\n"
				    "        \"total_size\": 7\n"
				    "    },\n"
				    "    \"weight_map\": {\n"
				    "        \"z\": \"part1.safetensors\",\n"
				    "        \"a\": \"part0.safetensors\"\n"
				    "    }\n"
				    "}";
	const struct rs__mapped two[] = {
		{RS_STR("z"), "part1.safetensors"}, {RS_STR("a"), "part0.safetensors"}};

	assert_int_equal(rs__index_unified(two, 2, 7, m->target.arena, &text, NULL), 0);
	assert_int_equal(text.len, sizeof(plain) - 1);
	assert_memory_equal(text.ptr, plain, text.len);

	assert_int_equal(rs__index_unified(NULL, 0, 0, m->target.arena, &text, NULL), 0);
	assert_text(text.ptr, "\"weight_map\": {}\n}");
}

static void indexes_refuse_what_no_reader_understands(void **state)
{
	struct made_up *m = *state;
	struct rs__mapped twice[] = {{RS_STR("w"), "x"}, {RS_STR("v"), "x"}, {RS_STR("w"), "y"}};
	struct rs__mapped bytes[] = {{RS_STR("\xff"), "x"}};
	struct rs_str text;
	struct rs_err err;

	assert_int_equal(rs__index_hf(twice, 3, 0, m->target.arena, &text, &err), -1);
	assert_int_equal(err.code, RS_USAGE);
	assert_text(err.msg, "'w' in x and in y");
	assert_int_equal(rs__index_hf(bytes, 1, 0, m->target.arena, &text, &err), -1);
	assert_int_equal(err.code, RS_UNSUPPORTED);
	assert_int_equal(rs__index_unified(bytes, 1, 0, m->target.arena, &text, &err), -1);
	assert_int_equal(err.code, RS_UNSUPPORTED);
}

/* ---------------------------------------------------------------------- files */

static void a_rank_has_one_file(void **state)
{
	struct made_up *m = *state;

	arranged(m, NULL);
	assert_int_equal(m->target.n_outputs, RANKS);
	for (uint64_t r = 0; r < RANKS; r++) {
		const struct rs_output *o = &m->target.outputs[r];

		assert_int_equal(o->kind, RS_OUTPUT_LIST);
		assert_false(o->at_root);
		assert_int_equal(o->rank, r);
		assert_string_equal(o->name, "model.safetensors");
		assert_int_equal(rs_target_lead(&m->target, r), r);
	}
	assert_string_equal(ITEMS_OF(m, 3), "abcde");
}

static void name_is_a_pattern(void **state)
{
	struct made_up *m = *state;
	struct rs_err err;

	assert_int_equal(
		rs_target_arrange(&m->target, (const uint64_t[]){1, 4}, 2, "x_{rank}", &err), 0);
	assert_int_equal(m->target.n_outputs, 2);
	assert_string_equal(m->target.outputs[1].name, "x_4");
	m->target.files.path = "rank_{rank}/y";
	assert_int_equal(rs_target_arrange(&m->target, all_ranks, RANKS, "x_{rank}", &err), 0);
	assert_string_equal(m->target.outputs[2].name, "x_2");
	m->target.files.path = "y-{rank}";
	assert_int_equal(rs_target_arrange(&m->target, all_ranks, RANKS, "x_{rank}", &err), -1);
	assert_int_equal(err.code, RS_USAGE);
	assert_text(err.msg, "name=");
}

static void parts_have_names_and_items(void **state)
{
	struct made_up *m = *state;

	m->target.files.max_bytes = 10;
	arranged(m, "rank_{rank}/model.x.safetensors");
	assert_int_equal(m->target.n_outputs, 3 * RANKS);
	for (uint64_t r = 0; r < RANKS; r++) {
		assert_string_equal(
			m->target.outputs[3 * r].name, "model.x-00001-of-00003.safetensors");
		assert_string_equal(ITEMS_OF(m, 3 * r), "c");
		assert_string_equal(ITEMS_OF(m, 3 * r + 1), "abd");
		assert_string_equal(ITEMS_OF(m, 3 * r + 2), "e");
		assert_string_equal(
			m->target.outputs[3 * r + 2].name, "model.x-00003-of-00003.safetensors");
	}
	m->target.files.max_bytes = 1000;
	arranged(m, "rank_{rank}/plain"); /* one part is called as it is */
	assert_int_equal(m->target.n_outputs, RANKS);
	assert_string_equal(m->target.outputs[0].name, "plain");
}

static void ranks_share_files(void **state)
{
	struct made_up *m = *state;

	m->cut = true; /* by tp, which is rank % 2 */
	arranged(m, "m{tp}");
	assert_int_equal(m->target.n_outputs, 2);
	assert_true(m->target.outputs[0].at_root);
	assert_string_equal(m->target.outputs[1].name, "m1");
	assert_int_equal(m->target.outputs[1].rank, 1);
	for (uint64_t r = 0; r < RANKS; r++)
		assert_int_equal(rs_target_lead(&m->target, r), r % 2);
	assert_int_equal(rs_target_lead(&m->target, 77), 77);
	refused(m, "m{dp}", RS_USAGE, "ranks 0 and 1 share m0");
	refused(m, "m", RS_USAGE, "first 'a'");
	m->cut = false;
	arranged(m, "m");
	assert_int_equal(m->target.n_outputs, 1);
}

static void an_index_lies_beside_its_files(void **state)
{
	struct made_up *m = *state;

	m->target.files.max_bytes = 10;
	m->target.files.index = "model.index.json";
	arranged(m, "rank_{rank}/model");
	assert_int_equal(m->target.n_outputs, 4 * RANKS);
	for (uint64_t r = 0; r < RANKS; r++) {
		const struct rs_output *o = &m->target.outputs[4 * r + 3];

		assert_int_equal(o->kind, RS_OUTPUT_TEXT);
		assert_int_equal(o->rank, r);
		assert_string_equal(o->name, "model.index.json");
		assert_text(o->text.ptr, "\"total_size\": 25");
		assert_text(o->text.ptr, "\"c\": \"model-00001-of-00003\"");
		assert_string_equal(ITEMS_OF(m, 4 * r + 3), "");
	}
	arranged(m, "model"); /* at the root: one for all */
	assert_int_equal(m->target.n_outputs, 4);
	m->cut = true;
	refused(m, "model-{tp}", RS_USAGE, "'a'");
}

static void paths_stay_in_the_tree(void **state)
{
	static const char *const bad[] = {"a/b", "rank_{tp}/x", "rank_{rank}/a/b", "rank_{rank}/",
		"/x", "/", "", "rank_{rank}/.x", ".x", "..", "rank_{rank}/..", "x/rank_{rank}/y",
		"rank_0/x", "rank_{rank}//x"};
	struct made_up *m = *state;
	char longest[300];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(m, bad[i], RS_USAGE, "expected NAME or rank_{rank}/NAME");
	memset(longest, 'n', sizeof(longest));
	longest[256] = '\0';
	refused(m, longest, RS_USAGE, "255 bytes");
	longest[255] = '\0';
	arranged(m, longest);
	m->target.files.max_bytes = 10; /* no room for the number of the part */
	refused(m, longest, RS_LIMIT, "255 bytes");
	refused(m, "{zz}", RS_USAGE, "{zz}");
}

static void two_files_of_one_name_are_refused(void **state)
{
	struct made_up *m = *state;

	m->target.files.index = "model";
	refused(m, "model", RS_USAGE, "two files would be called 'model'");
}

static void vllm_counts_parts_from_0(void **state)
{
	struct made_up *m = *state;

	m->target.opts.layout = RS_ARRANGE_VLLM;
	arranged(m, NULL);
	assert_int_equal(m->target.n_outputs, RANKS);
	assert_true(m->target.outputs[5].at_root);
	assert_string_equal(m->target.outputs[5].name, "model-rank-5-part-0.safetensors");
	m->target.opts.max_file = 10;
	arranged(m, NULL);
	assert_int_equal(m->target.n_outputs, 3 * RANKS);
	assert_string_equal(m->target.outputs[4].name, "model-rank-1-part-1.safetensors");
	assert_string_equal(ITEMS_OF(m, 4), "abd");
}

static void layouts_must_fit(void **state)
{
	static const struct {
		enum rs_arrangement layout;
		const char *container;
		uint64_t max_file, align;
		const char *index, *word;
	} rows[] = {
		{RS_ARRANGE_HF, NULL, 0, 0, NULL, "target=full"},
		{RS_ARRANGE_UNIFIED, NULL, 0, 0, NULL, "target=full"},
		{RS_ARRANGE_VLLM, "ckpt", 0, 0, NULL, "format=safetensors"},
		{RS_ARRANGE_RANK, NULL, 5, 0, NULL, "max_file="},
		{RS_ARRANGE_RANK, NULL, 0, 12, NULL, "align"},
		{RS_ARRANGE_RANK, NULL, 0, 4, NULL, "align"},
		{RS_ARRANGE_RANK, NULL, 0, 1ull << 21, NULL, "align"},
		{RS_ARRANGE_RANK, "ckpt", 0, 0, "i", "files.index"},
	};
	struct made_up *m = *state;
	struct rs_err err;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		m->target.opts = (struct rs_target_options){.target = "x",
			.layout = rows[i].layout,
			.container = rows[i].container,
			.max_file = rows[i].max_file};
		m->target.container = rows[i].container ? rows[i].container : "safetensors";
		m->target.files = (struct rs_files){.align = rows[i].align, .index = rows[i].index};
		assert_int_equal(rs__arrange_open(&m->target, &err), -1);
		assert_int_equal(err.code, RS_USAGE);
		assert_text(err.msg, rows[i].word);
	}
	m->target.opts = (struct rs_target_options){.target = "x", .layout = RS_ARRANGE_VLLM};
	m->target.mindspore = true;
	m->target.container = "ckpt";
	assert_int_equal(rs__arrange_open(&m->target, &err), 0);
	assert_string_equal(m->target.container, "safetensors");
	assert_false(m->target.mindspore);
}

static void alignment_and_metadata_reach_the_list(void **state)
{
	static const struct rs_meta meta = {{"k", 1}, {"v", 1}};
	struct made_up *m = *state;
	struct rs_list files = {0};

	m->target.files = (struct rs_files){.align = 64, .meta = &meta, .n_meta = 1};
	arranged(m, NULL);
	assert_int_equal(rs_target_output(&m->target, &m->target.outputs[0], m->target.arena,
				 &files, NULL, NULL),
		0);
	assert_int_equal(files.align, 64);
	assert_ptr_equal(files.meta, &meta);
}

/* Every allocation fails in turn: a message each time, and nothing is left behind. */
static void memory_may_end_anywhere(void **state)
{
	struct made_up *m = *state;

	m->target.files = (struct rs_files){.path = "m-{tp}", .max_bytes = 10};
	for (uint64_t n = 1;; n++) {
		struct rs_err err = {0};
		int rc;

		fault_alloc(n);
		rc = rs_target_arrange(&m->target, all_ranks, RANKS, NULL, &err);
		if (!fault_hit()) {
			fault_clear();
			assert_int_equal(rc, 0);
			assert_true(n > 8);
			return;
		}
		fault_clear();
		assert_int_equal(rc, -1);
		assert_int_equal(err.code, RS_NOMEM);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_made_up, close_made_up)
	const struct CMUnitTest tests[] = {
		TEST(lists_come_apart_by_size),
		TEST(texts_go_with_the_first_part),
		TEST(names_are_spread_by_size),
		TEST(equal_sizes_go_round),
		TEST(sizes_beyond_64_bits_are_refused),
		TEST(paths_name_ranks_and_axes),
		TEST(names_of_sources_are_never_paths),
		TEST(indexes_are_those_of_python),
		TEST(indexes_refuse_what_no_reader_understands),
		TEST(a_rank_has_one_file),
		TEST(name_is_a_pattern),
		TEST(parts_have_names_and_items),
		TEST(ranks_share_files),
		TEST(an_index_lies_beside_its_files),
		TEST(paths_stay_in_the_tree),
		TEST(two_files_of_one_name_are_refused),
		TEST(vllm_counts_parts_from_0),
		TEST(layouts_must_fit),
		TEST(alignment_and_metadata_reach_the_list),
		TEST(memory_may_end_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
