/*
 * test_shards.c - indexes, config.json, and the catalogs of Hugging Face and unified directories.
 *
 * Indexes and configs are texts in the test; directories are made fresh for each test out of
 * headers whose tensors are zeros. What the program makes of them: tests/integration/test_hf.py.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/source/shards.h"
#include "tests/lib/fault.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* ------------------------------------------------------------------------- indexes */

static int read_index(const char *text, bool bare, struct rs__index *out, struct rs_err *err)
{
	struct rs_file file;

	rs_file_memory(text, strlen(text), "x.index.json", &file);
	return rs__index_read(&file, bare, out, err);
}

static void an_index_is_sorted_and_numbered(void **state)
{
	struct rs__index x;
	struct rs_err err = {0};

	(void)state;
	assert_int_equal(read_index("{\"weight_map\": {\"c\": \"two\", \"a\": \"one\", "
				    "\"b\\u0020\": \"two\"}, \"other\": [1, {}], "
				    "\"metadata\": {\"total_size\": 12, \"x\": {\"y\": null}}}",
				 false, &x, &err),
		0);
	assert_int_equal(x.n_weights, 3);
	assert_int_equal(x.n_files, 2);
	assert_string_equal(x.files[0], "one");
	assert_string_equal(x.files[1], "two");
	assert_true(rs_str_is(x.weights[0].name, "a") && x.weights[0].file == 0);
	assert_true(rs_str_is(x.weights[1].name, "b ") && x.weights[1].file == 1);
	assert_ptr_equal(rs__index_find(&x, RS_STR("c")), &x.weights[2]);
	assert_null(rs__index_find(&x, RS_STR("d")));
	assert_int_equal(rs__index_file(&x, "two"), 1);
	assert_int_equal(rs__index_file(&x, "three"), 2);
	assert_true(x.has_total_size && x.total_size == 12);
	rs__index_done(&x);
}

static void the_map_of_old_versions_is_bare(void **state)
{
	static const char text[] = "{\"metadata\": \"part0\", \"weight_map\": \"part1\", \"n\": 1}";
	struct rs__index x;
	struct rs_err err = {0};

	(void)state;
	/* Parameters called metadata and weight_map; what is no text is no file. */
	assert_int_equal(read_index(text, true, &x, &err), 0);
	assert_int_equal(x.n_weights, 2);
	assert_string_equal(x.files[rs__index_find(&x, RS_STR("weight_map"))->file], "part1");
	rs__index_done(&x);
	assert_int_equal(read_index(text, false, &x, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	rs__index_done(&x);
}

static void indexes_are_refused(void **state)
{
	static const struct {
		const char *text;
		bool bare;
		enum rs_code code;
		const char *words;
	} rows[] = {
		{"", false, RS_CORRUPT, "empty file"},
		{"[]", false, RS_CORRUPT, "expected an object"},
		{"{}", false, RS_CORRUPT, "found no tensor"},
		{"{}", true, RS_CORRUPT, "found no tensor"},
		{"{\"weight_map\":{\"a\":\"x\"}", false, RS_CORRUPT, "x.index.json@23"},
		{"{\"weight_map\":{\"a\":\"x\"}}1", false, RS_CORRUPT, "@24"},
		{"{\"weight_map\":{\"a\":1}}", false, RS_CORRUPT, "a file name"},
		{"{\"weight_map\":{\"a\":\"x\",\"\\u0061\":\"x\"}}", false, RS_CORRUPT,
			"'a' stands twice"},
		{"{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{}}", false, RS_CORRUPT, "second"},
		{"{\"weight_map\":{\"a\":\"x\"},\"b\":\"x\"}", true, RS_CORRUPT, "found both"},
		{"{\"weight_map\":{\"a\":\"\"}}", false, RS_CORRUPT, "an empty name"},
		{"{\"weight_map\":{\"a\":\"/x\"}}", false, RS_CORRUPT, "an absolute path"},
		{"{\"weight_map\":{\"a\":\"..\"}}", false, RS_CORRUPT, "'..' in it"},
		{"{\"weight_map\":{\"a\":\"x/../y\"}}", false, RS_CORRUPT, "'..' in it"},
		{"{\"weight_map\":{\"a\":\"x/..\"}}", false, RS_CORRUPT, "'..' in it"},
		{"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", false, RS_CORRUPT, "a NUL in it"},
		{"{\"a\":\"../x\"}", true, RS_CORRUPT, "outside the checkpoint"},
		{"<html>", false, RS_CORRUPT, "HTML page"},
	};
	struct rs__index x;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct rs_err err = {0};

		if (read_index(rows[i].text, rows[i].bare, &x, &err) == 0)
			fail_msg("row %zu: accepted", i);
		if (err.code != rows[i].code || !strstr(err.msg, rows[i].words) ||
			!strstr(err.msg, "x.index.json"))
			fail_msg("row %zu: expected \"%s\", got %s: %s", i, rows[i].words,
				rs_code_name(err.code), err.msg);
		rs__index_done(&x);
	}
}

static void names_with_dots_are_fine(void **state)
{
	struct rs__index x;
	struct rs_err err = {0};

	(void)state;
	assert_int_equal(read_index("{\"weight_map\":{\"a\":\"..x/x..y/...\",\"b\":\"./x\"}}",
				 false, &x, &err),
		0);
	rs__index_done(&x);
}

/* Names of 4095 bytes may be tried, names of 4096 may not. */
static void long_names(void **state)
{
	char text[5000];
	struct rs__index x;

	(void)state;
	for (int len = 4095; len <= 4096; len++) {
		struct rs_err err = {0};
		int n = snprintf(text, sizeof(text), "{\"weight_map\":{\"a\":\"");

		memset(text + n, 'x', (size_t)len);
		(void)snprintf(text + n + len, sizeof(text) - (size_t)(n + len), "\"}}");
		assert_int_equal(read_index(text, false, &x, &err), len == 4095 ? 0 : -1);
		assert_true(len == 4095 || strstr(err.msg, "4096 bytes"));
		rs__index_done(&x);
	}
}

/* -------------------------------------------------------------------------- config */

static int read_config(
	const char *text, struct rs_arena *arena, struct rs_config *out, struct rs_err *err)
{
	struct rs_file file;

	rs_file_memory(text, strlen(text), "config.json", &file);
	return rs__config_read(&file, arena, out, err);
}

static void assert_var(const struct rs_config *c, const char *name, int64_t value)
{
	for (uint64_t i = 0; i < c->n_vars; i++)
		if (rs_str_is(c->vars[i].name, name)) {
			assert_int_equal(c->vars[i].value, value);
			return;
		}
	fail_msg("no variable %s", name);
}

static void integers_of_a_config_are_variables(void **state)
{
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	struct rs_config c;
	struct rs_err err = {0};

	(void)state;
	assert_int_equal(
		read_config("{\"model_type\": \"llama\", \"hidden_size\": 4096, \"minus\": -3, "
			    "\"tie_word_embeddings\": true, \"bias\": false, \"eps\": 1e-5, "
			    "\"theta\": 10000.0, \"n\": null, \"text\": \"7\", \"list\": [1], "
			    "\"big\": 9223372036854775807, \"huge\": 9223372036854775808, "
			    "\"rope_scaling\": {\"factor\": 8}}",
			arena, &c, &err),
		0);
	assert_true(rs_str_is(c.model_type, "llama"));
	assert_int_equal(c.n_vars, 5);
	assert_var(&c, "hidden_size", 4096);
	assert_var(&c, "minus", -3);
	assert_var(&c, "tie_word_embeddings", 1);
	assert_var(&c, "bias", 0);
	assert_var(&c, "big", INT64_MAX);
	for (uint64_t i = 1; i < c.n_vars; i++)
		assert_true(rs_str_cmp(c.vars[i - 1].name, c.vars[i].name) < 0);
	rs_arena_free(arena);
}

static void nested_numbers_fill_the_gaps(void **state)
{
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	struct rs_config c;
	struct rs_err err = {0};

	(void)state;
	assert_int_equal(
		read_config("{\"model_type\": \"vl\", \"vocab_size\": 10, \"text_config\": "
			    "{\"model_type\": \"llama\", \"vocab_size\": 9, \"hidden_size\": 8, "
			    "\"deep\": {\"x\": 1}}, \"vision_config\": {\"depth\": 3}}",
			arena, &c, &err),
		0);
	assert_true(rs_str_is(c.model_type, "vl"));
	assert_int_equal(c.n_vars, 2);
	assert_var(&c, "vocab_size", 10);
	assert_var(&c, "hidden_size", 8);
	assert_int_equal(read_config("{\"language_config\": {\"model_type\": \"m\", \"h\": 1}}",
				 arena, &c, &err),
		0);
	assert_true(rs_str_is(c.model_type, "m"));
	assert_var(&c, "h", 1);
	rs_arena_free(arena);
}

static void configs_are_refused(void **state)
{
	static const char *const rows[][2] = {
		{"", "empty file"},
		{"[]", "expected an object"},
		{"{\"a\":1,\"a\":2}", "'a' stands twice"},
		{"{\"a\":01}", "config.json@"},
		{"{\"text_config\":{\"b\":1,\"b\":1}}", "'b' stands twice"},
		{"{\"a\":1}}", "config.json@7"},
		{"{\"a\":1", "config.json@6"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
		struct rs_config c;
		struct rs_err err = {0};

		assert_int_equal(read_config(rows[i][0], arena, &c, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		if (!strstr(err.msg, rows[i][1]))
			fail_msg("row %zu: expected \"%s\", got %s", i, rows[i][1], err.msg);
		assert_int_equal(c.n_vars, 0);
		rs_arena_free(arena);
	}
}

static void a_config_of_very_many_numbers_is_refused(void **state)
{
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
	char text[65536];
	size_t n = (size_t)snprintf(text, sizeof(text), "{\"0\":0");
	struct rs_config c;
	struct rs_err err = {0};

	(void)state;
	for (int i = 1; i < 4100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"%d\":0", i);
	(void)snprintf(text + n, sizeof(text) - n, "}");
	assert_int_equal(read_config(text, arena, &c, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	assert_non_null(strstr(err.msg, "CONFIG_MAX_VARS"));
	rs_arena_free(arena);
}

/* ----------------------------------------------------------------------- directories */

static char root[64];

static int enter(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/test_shards.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int leave(void **state)
{
	char command[256];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void make_file(const char *name, const void *bytes, size_t n)
{
	char path[256];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void make_text(const char *name, const char *text)
{
	make_file(name, text, strlen(text));
}

/* Tensors of two bytes each, called like the letters of @names, in this order. */
static void make_shard(const char *name, const char *names)
{
	uint8_t file[2048] = {0};
	size_t n = 8;

	for (size_t i = 0; names[i]; i++)
		n += (size_t)snprintf((char *)file + n, sizeof(file) - n,
			"%s\"%c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}",
			i ? "," : "{", names[i], 2 * i, 2 * i + 2);
	file[n++] = '}';
	file[0] = (uint8_t)(n - 8);
	file[1] = (uint8_t)((n - 8) >> 8);
	make_file(name, file, n + 2 * strlen(names));
}

/* Shards out of byte order in the index, tensors out of byte order in the shards. */
static void make_model(void)
{
	make_shard("m-2.safetensors", "zc");
	make_shard("m-1.safetensors", "yb");
	make_text("m.safetensors.index.json",
		"{\"weight_map\":{\"z\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\","
		"\"c\":\"m-2.safetensors\",\"y\":\"m-1.safetensors\"}}");
	make_text("config.json", "{\"model_type\":\"t\",\"hidden_size\":8}");
	make_text("vocab.txt", "a b");
}

static void make_unified(void)
{
	make_shard("part0.safetensors", "ba");
	make_shard("hyper_param.safetensors", "h");
	make_text(
		"param_name_map.json", "{\"a\":\"part0.safetensors\",\"b\":\"part0.safetensors\"}");
}

static int open_and_describe(struct rs_source **src, struct rs_err *err)
{
	struct rs_source_options opts = {.path = root};

	*src = NULL;
	return rs_source_open(&opts, src, err) < 0 || rs_source_describe(*src, 0, err) < 0 ? -1 : 0;
}

static struct rs_source *open_source(void)
{
	struct rs_source *src;
	struct rs_err err = {0};

	if (open_and_describe(&src, &err) < 0)
		fail_msg("%s (hint: %s)", err.msg, err.hint);
	return src;
}

static const struct rs_tensor *find(const struct rs_source *src, const char *name)
{
	const struct rs_tensor *t = rs_catalog_find(src->cat, rs_str(name));

	assert_non_null(t);
	return t;
}

static void tensors_are_listed_in_the_order_of_files(void **state)
{
	static const char order[] = "ybzc";

	(void)state;
	make_model();
	struct rs_source *src = open_source();
	assert_string_equal(src->ops->name, "hf");
	assert_string_equal(src->container, "safetensors");
	assert_true(src->without_ranks && !src->mindspore && src->n_ranks == 1);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct rs_tensor *t = find(src, (char[]){order[i], 0});

		assert_int_equal(t->order, i);
		assert_null(t->grid);
		assert_int_equal(t->n_pieces, 1);
		assert_non_null(t->pieces[0].entry);
		assert_true(rs_str_eq(t->pieces[0].entry->name, t->name));
		assert_int_equal(t->pieces[0].unit, i / 2);
		assert_false(t->unplaced);
	}
	rs_source_close(src);
}

static void companions_are_units_without_entries(void **state)
{
	struct rs_err err = {0};

	(void)state;
	make_model();
	struct rs_source *src = open_source();
	assert_int_equal(src->n_companions, 2);
	assert_string_equal(src->companions[0].name, "config.json");
	assert_string_equal(src->companions[1].name, "vocab.txt");
	assert_int_equal(rs_catalog_n_units(src->cat), 4);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t unit = src->companions[i].unit;
		const struct rs_table *t = rs_catalog_table(src->cat, unit, &err);
		const struct rs_file *file = rs_catalog_file(
			src->cat, rs_catalog_unit(src->cat, unit)->first_file, &err);

		assert_int_equal(unit, 2 + i);
		assert_non_null(t);
		assert_int_equal(t->n_entries, 0);
		assert_non_null(file);
		assert_int_equal(t->file_bytes[0], file->size);
	}
	assert_true(rs_str_is(src->config.model_type, "t"));
	assert_int_equal(src->config.n_vars, 1);
	assert_var(&src->config, "hidden_size", 8);
	rs_source_close(src);
}

static void counters_of_a_unified_directory_are_not_placed(void **state)
{
	(void)state;
	make_unified();
	struct rs_source *src = open_source();
	assert_string_equal(src->ops->name, "unified");
	assert_true(src->without_ranks && src->mindspore && src->strategy_selects);
	assert_true(find(src, "h")->unplaced);
	assert_false(find(src, "a")->unplaced);
	/* hyper_param stands before part0; the offsets of b and a decide inside it. */
	assert_int_equal(find(src, "h")->order, 0);
	assert_int_equal(find(src, "b")->order, 1);
	assert_int_equal(find(src, "a")->order, 2);
	rs_source_close(src);
}

/* Of many bad files the first one is told, whichever thread came first. */
static void of_many_bad_headers_the_first_is_told(void **state)
{
	char name[64];

	(void)state;
	for (int i = 0; i < 40; i++) {
		(void)snprintf(name, sizeof(name), "s-%02d.safetensors", i);
		if (i < 20)
			make_shard(name, (char[]){(char)('A' + i), 0});
		else
			make_text(name, "{}");
	}
	for (int round = 0; round < 20; round++) {
		struct rs_source *src;
		struct rs_err err = {0};

		assert_int_equal(open_and_describe(&src, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		assert_non_null(strstr(err.msg, "s-20.safetensors"));
		rs_source_close(src);
	}
}

static void a_file_that_changes_after_the_listing_is_told(void **state)
{
	struct rs_source_options opts = {.path = root};
	struct rs_source *src;
	struct rs_err err = {0};

	(void)state;
	make_model();
	assert_int_equal(rs_source_open(&opts, &src, &err), 0);
	make_shard("m-1.safetensors", "ybx");
	assert_int_equal(rs_source_describe(src, 0, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	rs_source_close(src);
}

static void every_allocation_and_read_may_fail(void **state)
{
	static void (*const makers[])(void) = {make_model, make_unified};

	for (size_t m = 0; m < COUNT(makers); m++)
		for (int reads = 0; reads < 2; reads++) {
			(void)leave(state);
			assert_int_equal(enter(state), 0);
			makers[m]();
			for (uint64_t n = 1;; n++) {
				struct rs_source *src = NULL;
				struct rs_err err = {0};
				int64_t live = fault_live();

				if (reads)
					fault_read(n, FAULT_EIO);
				else
					fault_alloc(n);
				int status = open_and_describe(&src, &err);
				bool hit = fault_hit();
				fault_clear();
				rs_source_close(src);
				assert_int_equal(fault_live(), live);
				if (!hit) {
					assert_int_equal(status, 0);
					assert_true(n > 4);
					break;
				}
				/* A config that cannot be read, and a remark, are no loss. */
				assert_true(status == 0 || err.code != RS_OK);
			}
		}
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_is_sorted_and_numbered),
		cmocka_unit_test(the_map_of_old_versions_is_bare),
		cmocka_unit_test(indexes_are_refused),
		cmocka_unit_test(names_with_dots_are_fine),
		cmocka_unit_test(long_names),
		cmocka_unit_test(integers_of_a_config_are_variables),
		cmocka_unit_test(nested_numbers_fill_the_gaps),
		cmocka_unit_test(configs_are_refused),
		cmocka_unit_test(a_config_of_very_many_numbers_is_refused),
		IN_TREE(tensors_are_listed_in_the_order_of_files),
		IN_TREE(companions_are_units_without_entries),
		IN_TREE(counters_of_a_unified_directory_are_not_placed),
		IN_TREE(of_many_bad_headers_the_first_is_told),
		IN_TREE(a_file_that_changes_after_the_listing_is_told),
		IN_TREE(every_allocation_and_read_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
