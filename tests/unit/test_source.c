/*
 * test_source.c - MindSpore trees on disk: what is listed, which file counts, which strategy cuts
 * it, and what the catalog then says.
 *
 * Each test makes a small tree in a fresh directory; its .ckpt files hold Int8 tensors whose bytes
 * do not matter here. Refusals are asserted by code and words. Headers alone: test_headers.c.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "reshardfs/source.h"
#include "tests/lib/fault.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* ---------------------------------------------------------------- making trees */

static char root[64];

static int enter(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/test_source.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int leave(void **state)
{
	char command[256];

	(void)state;
	(void)snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", root, root);
	return system(command);
}

static const char *at(const char *rel)
{
	static char path[4][512];
	static unsigned int turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", root, rel);
	return p;
}

static void make_dir(const char *rel)
{
	assert_int_equal(mkdir(at(rel), 0755), 0);
}

static void make_file(const char *rel, const void *bytes, size_t n)
{
	FILE *f = fopen(at(rel), "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* A .ckpt of Int8 tensors "name=rows,columns;..." (no dims: 0-d), all lengths below 128. */
static void make_ckpt(const char *rel, const char *tensors)
{
	uint8_t file[2048], content[100] = {0};
	size_t n = 0;

	while (*tensors) {
		size_t name = strcspn(tensors, "=");
		const char *p = tensors + name + 1;
		uint8_t dims[16];
		size_t n_dims = 0, bytes = 1;

		while (*p && *p != ';') {
			char *end;
			dims[n_dims] = (uint8_t)strtoul(p, &end, 10);
			bytes *= dims[n_dims++];
			p = *end == ',' ? end + 1 : end;
		}
		size_t tensor = 2 * n_dims + 2 + 4 + 2 + bytes, value = 2 + name + 2 + tensor;
		assert_true(value < 128 && n + value + 2 < sizeof(file));
		file[n++] = 0x0a;
		file[n++] = (uint8_t)value;
		file[n++] = 0x0a;
		file[n++] = (uint8_t)name;
		memcpy(file + n, tensors, name);
		n += name;
		file[n++] = 0x12;
		file[n++] = (uint8_t)tensor;
		for (size_t i = 0; i < n_dims; i++) {
			file[n++] = 0x08;
			file[n++] = dims[i];
		}
		memcpy(file + n, "\x12\x04Int8\x1a", 7);
		n += 7;
		file[n++] = (uint8_t)bytes;
		memcpy(file + n, content, bytes);
		n += bytes;
		tensors = *p == ';' ? p + 1 : p;
	}
	make_file(rel, file, n);
}

static void make_safetensors(const char *rel, const char *json, size_t data)
{
	uint8_t file[2048] = {0};
	size_t n = strlen(json);

	assert_true(8 + n + data < sizeof(file));
	file[0] = (uint8_t)n;
	file[1] = (uint8_t)(n >> 8);
	memcpy(file + 8, json, n);
	make_file(rel, file, 8 + n + data);
}
#define SAFE_W "{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"

/* A strategy in its JSON form; @layouts: members of parallel_layout_item. */
static void make_strategy(const char *rel, uint32_t stage, const char *layouts)
{
	char text[2048];
	int n = snprintf(text, sizeof(text),
		"{\"current_stage\":1,\"parallel_layout_item\":{%s},\"parallel_strategy_item\":"
		"{\"MatMul-op%u\":{\"parallel_strategy\":[[1]],\"stage\":%u}}}",
		layouts, stage, stage);

	make_file(rel, text, (size_t)n);
}
#define LAYOUT(name, dev, map, more)                                                               \
	"\"" name "\":{\"dev_matrix\":" dev ",\"field\":0,\"opt_weight_shard_size\":0,"            \
	"\"opt_weight_shard_step\":0,\"tensor_map\":" map more "}"

/* rank_0 to rank_(n-1), each with one file x.ckpt of these tensors. */
static void make_ranks(uint32_t n, const char *tensors)
{
	for (uint32_t r = 0; r < n; r++) {
		char dir[32], file[48];

		(void)snprintf(dir, sizeof(dir), "rank_%u", r);
		(void)snprintf(file, sizeof(file), "%s/x.ckpt", dir);
		make_dir(dir);
		make_ckpt(file, tensors);
	}
}

/* -------------------------------------------------------------------- looking at them */

static struct rs_source *open_with(struct rs_source_options opts)
{
	struct rs_source *src = NULL;
	struct rs_err err = {0};

	if (!opts.path)
		opts.path = root;
	if (rs_source_open(&opts, &src, &err) < 0)
		fail_msg("%s (hint: %s)", err.msg, err.hint);
	return src;
}
#define OPEN(...) open_with((struct rs_source_options){__VA_ARGS__})

static void refused_with(
	struct rs_source_options opts, enum rs_code code, const char *words, const char *hint)
{
	struct rs_source *src = NULL;
	struct rs_err err = {0};

	if (!opts.path)
		opts.path = root;
	if (rs_source_open(&opts, &src, &err) == 0 && rs_source_describe(src, 0, &err) == 0)
		fail_msg("accepted, expected %s: %s", rs_code_name(code), words);
	if (err.code != code || !strstr(err.msg, words) || !strstr(err.hint, hint))
		fail_msg("expected %s with \"%s\" (%s), got %s: %s (%s)", rs_code_name(code), words,
			hint, rs_code_name(err.code), err.msg, err.hint);
	rs_source_close(src); /* NULL when it did not open */
}
#define REFUSED(code, words, hint, ...)                                                            \
	refused_with((struct rs_source_options){__VA_ARGS__}, code, words, hint)

static void describe(struct rs_source *src, uint32_t local)
{
	struct rs_err err = {0};

	if (rs_source_describe(src, local, &err) < 0)
		fail_msg("%s (hint: %s)", err.msg, err.hint);
}

static const char *file_of(struct rs_source *src, uint64_t rank)
{
	uint32_t unit = rs_catalog_rank_unit(src->cat, rank);

	assert_int_not_equal(unit, RS_NO_UNIT);
	return rs_catalog_file_info(src->cat, rs_catalog_unit(src->cat, unit)->first_file)->path;
}

static const struct rs_tensor *tensor(const struct rs_source *src, const char *name)
{
	const struct rs_tensor *t = rs_catalog_find(src->cat, rs_str(name));

	if (!t)
		fail_msg("no tensor '%s'", name);
	return t;
}

static void assert_shape(const struct rs_tensor *t, const char *shape)
{
	assert_string_equal(RS_SHAPE_SHOW(&t->shape), shape);
}

static bool is_foreign(const struct rs_source *src, const char *path, const char *why)
{
	for (uint64_t i = 0; i < src->n_foreign; i++)
		if (strcmp(src->foreign[i].path, path) == 0)
			return strstr(src->foreign[i].why, why) != NULL;
	return false;
}

static bool is_noted(struct rs_source *src, const char *words)
{
	const struct rs_notes *notes = rs_catalog_notes(src->cat);

	for (uint64_t i = 0; i < notes->n; i++)
		if (strstr(notes->items[i], words))
			return true;
	return false;
}

/* ------------------------------------------------------------------------ one file */

static void one_file_is_whole(void **state)
{
	(void)state;
	make_ckpt("full.ckpt", "b=2,3;a=;c=0");
	struct rs_source *src = OPEN(.path = at("full.ckpt"));
	assert_string_equal(src->ops->name, "mindspore");
	assert_string_equal(src->container, "ckpt");
	assert_string_equal(src->file, "full.ckpt");
	assert_int_equal(src->n_ranks, 1);
	assert_string_equal(file_of(src, 0), "");
	describe(src, 5); /* there is no local rank 5 */
	assert_int_equal(rs_catalog_n_tensors(src->cat), 3);
	assert_shape(tensor(src, "b"), "[2, 3]");
	assert_int_equal(tensor(src, "b")->grid->n_cells, 1);
	assert_shape(tensor(src, "a"), "[]");
	assert_shape(tensor(src, "c"), "[0]");
	rs_source_close(src);
}

static void a_directory_with_one_file_is_that_file(void **state)
{
	(void)state;
	make_safetensors("model.safetensors", SAFE_W, 2);
	make_file("README.md", "hello", 5);
	make_file("config.json", "{}", 2);
	struct rs_source *src = OPEN(.path = at(""), .format = "mindspore");
	assert_string_equal(src->container, "safetensors");
	assert_string_equal(file_of(src, 0), "model.safetensors");
	assert_true(is_foreign(src, "README.md", "not a checkpoint file"));
	assert_true(is_foreign(src, "config.json", "not a checkpoint file"));
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 1);
	rs_source_close(src);
}

static void texts_are_no_tensors(void **state)
{
	static const uint8_t text[] = {0x0a, 0x18, 0x0a, 0x03, 't', 'a', 'g', 0x12, 0x11, 0x08,
		0x00, 0x12, 0x03, 's', 't', 'r', 0x1a, 0x08, 'a', 0, 0, 0, 'b', 0, 0, 0};

	(void)state;
	make_file("t.ckpt", text, sizeof(text));
	struct rs_source *src = OPEN(.path = at("t.ckpt"));
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 0);
	rs_source_close(src);
}

static void what_is_no_source_is_refused(void **state)
{
	(void)state;
	make_dir("empty");
	make_dir("many");
	make_file("nothing.ckpt", "", 0);
	make_file("lfs.ckpt", "version https://git-lfs.github.com/spec/v1\nsize 5\n", 50);
	make_file("notes.txt", "hello", 5);
	make_strategy("strategy.ckpt", 0, LAYOUT("w", "[1]", "[-1]", ""));
	make_ckpt("many/a.ckpt", "w=1");
	make_ckpt("many/b.ckpt", "w=1");
	assert_int_equal(mkfifo(at("pipe.ckpt"), 0644), 0);
	REFUSED(RS_MISSING, "/nowhere: expected a checkpoint", "", .path = at("nowhere"));
	REFUSED(RS_MISSING, "nothing.ckpt/x", "", .path = at("nothing.ckpt/x"));
	REFUSED(RS_UNSUPPORTED, "no checkpoint of a known format", "", .path = at("empty"));
	REFUSED(RS_MISSING, "expected rank_0", "", .path = at("empty"), .format = "mindspore");
	REFUSED(RS_USAGE, "source=nemo", "mindspore", .path = at("empty"), .format = "nemo");
	REFUSED(RS_CORRUPT, "found an empty file", "", .path = at("nothing.ckpt"));
	REFUSED(RS_CORRUPT, "Git LFS pointer", "git lfs pull", .path = at("lfs.ckpt"));
	REFUSED(RS_UNSUPPORTED, "no checkpoint of a known format", "", .path = at("notes.txt"));
	REFUSED(RS_CORRUPT, "expected a regular file, found a FIFO", "", .path = at("pipe.ckpt"));
	REFUSED(RS_USAGE, "2 checkpoint files and no rank directory: a.ckpt, b.ckpt", "rank_N/",
		.path = at("many"));
	REFUSED(RS_USAGE, "strategy.ckpt: expected a checkpoint, found a strategy",
		"src_strategy=", .path = at("strategy.ckpt"));
}

static void directories_of_other_layouts_are_named(void **state)
{
	(void)state;
	make_safetensors("model-00001-of-00002.safetensors", SAFE_W, 2);
	make_safetensors("model-00002-of-00002.safetensors", SAFE_W, 2);
	make_file("model.safetensors.index.json", "{}", 2);
	REFUSED(RS_UNSUPPORTED, "a sharded Hugging Face checkpoint", "source=hf",
		.format = "mindspore");
}

/* --------------------------------------------------------------------- listing ranks */

static void rank_directories_are_told_by_their_last_number(void **state)
{
	static const char *const strange[] = {"rank_", "rank_x", "rank_1x", "xrank_1", "rank-1"};

	(void)state;
	make_ranks(2, "w=1");
	make_dir("rank_9_rank_2"); /* digits behind the last "rank_": this is rank 2 */
	make_ckpt("rank_9_rank_2/x.ckpt", "w=1");
	for (size_t i = 0; i < COUNT(strange); i++)
		make_dir(strange[i]);
	make_file("rank_7", "no directory", 12);
	struct rs_source *src = OPEN(.any_layout = true);
	assert_int_equal(src->n_ranks, 3);
	assert_string_equal(file_of(src, 2), "rank_9_rank_2/x.ckpt");
	for (size_t i = 0; i < COUNT(strange); i++)
		assert_true(is_foreign(src, strange[i], "not a rank directory"));
	assert_true(is_foreign(src, "rank_7", "not a checkpoint file"));
	rs_source_close(src);

	make_dir("rank_02");
	REFUSED(RS_USAGE, "are both rank 2", "", .any_layout = true);
}

static void foreign_files_are_set_aside(void **state)
{
	(void)state;
	make_ranks(1, "w=1");
	make_ckpt("stray.ckpt", "w=1");
	make_file("README.md", "hello", 5);
	make_file("rank_0/x.ckpt~", "old", 3);
	make_file("rank_0/.nfs0001.ckpt", "x", 1);
	make_file("rank_0/y.ckpt.tmp", "half", 4);
	make_file("rank_0/z.safetensors.incomplete", "half", 4);
	make_dir("rank_0/dir.ckpt");
	struct rs_source *src = OPEN(.path = root);
	assert_string_equal(file_of(src, 0), "rank_0/x.ckpt");
	assert_true(is_foreign(src, "stray.ckpt", "beside the rank directories"));
	assert_true(is_foreign(src, "README.md", "not a checkpoint file"));
	assert_true(is_foreign(src, "rank_0/x.ckpt~", "not a checkpoint file"));
	assert_true(is_foreign(src, "rank_0/.nfs0001.ckpt", "a hidden file"));
	assert_true(is_foreign(src, "rank_0/y.ckpt.tmp", "a half-written file"));
	assert_true(is_foreign(src, "rank_0/dir.ckpt", "a directory"));
	assert_int_equal(src->n_foreign, 7);
	assert_true(is_noted(src, "y.ckpt.tmp: a half-written file"));
	assert_true(is_noted(src, "z.safetensors.incomplete: a half-written file"));
	rs_source_close(src);
}

static void of_several_files_one_counts(void **state)
{
	static const struct {
		const char *select, *ckpt, *safe;
	} rows[] = {
		{NULL, "x-9_2.ckpt", "x-10_2.safetensors"},
		{"last", "x-9_2.ckpt", "x-10_2.safetensors"},
		{"x-1*", "x-10_2.ckpt", "x-10_2.safetensors"},
		{"*-10_1.*", "x-10_1.ckpt", "x-10_1.safetensors"},
	};
	static const char *const names[] = {"x-10_1", "x-10_2", "x-9_2"};

	(void)state;
	make_dir("c");
	make_dir("c/rank_0");
	make_dir("s");
	make_dir("s/rank_0");
	for (size_t i = 0; i < COUNT(names); i++) {
		char rel[64];

		(void)snprintf(rel, sizeof(rel), "c/rank_0/%s.ckpt", names[i]);
		make_ckpt(rel, "w=1");
		(void)snprintf(rel, sizeof(rel), "s/rank_0/%s.safetensors", names[i]);
		make_safetensors(rel, SAFE_W, 2);
	}
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct rs_source *src = OPEN(.path = at("c"), .select = rows[i].select);
		assert_string_equal(file_of(src, 0) + strlen("rank_0/"), rows[i].ckpt);
		rs_source_close(src);
		src = OPEN(.path = at("s"), .select = rows[i].select);
		assert_string_equal(file_of(src, 0) + strlen("rank_0/"), rows[i].safe);
		rs_source_close(src);
	}
	struct rs_source *src = OPEN(.path = at("c"));
	assert_true(is_noted(src, "1 rank directories hold several checkpoint files"));
	assert_true(is_foreign(src, "rank_0/x-10_1.ckpt", "not the last"));
	rs_source_close(src);
	REFUSED(RS_MISSING, "matches select=*.bin", "", .path = at("c"), .select = "*.bin");
}

/* Numbers count, not digits; more of them than fit 64 bits, too; the rank is one of the numbers. */
static void numbers_in_safetensors_names_decide(void **state)
{
	static const char *const ascending[] = {"a.safetensors-0.safetensors", "a-007.safetensors",
		"a-0010.safetensors", "a-11-1.safetensors", "a-11-02.safetensors",
		"a-99999999999999999999-1.safetensors", "a-100000000000000000000-0.safetensors"};

	(void)state;
	make_dir("rank_3");
	for (size_t i = 0; i < COUNT(ascending); i++) {
		char rel[96];

		(void)snprintf(rel, sizeof(rel), "rank_3/%s", ascending[i]);
		make_safetensors(rel, SAFE_W, 2);
		/* (rank, number) is compared with (number, number): 3 < 11, and 3 < 10^20 */
		struct rs_source *src = OPEN(.any_layout = true);
		assert_string_equal(file_of(src, 3), rel);
		rs_source_close(src);
	}
}

static void merge_takes_all_files(void **state)
{
	(void)state;
	make_dir("rank_0");
	make_ckpt("rank_0/p_part0.ckpt", "b=1;a=2");
	make_ckpt("rank_0/p_part1.ckpt", "c=1;b=3");
	struct rs_source *src = OPEN(.select = "merge");
	const struct rs_unit *unit = rs_catalog_unit(src->cat, 0);
	assert_int_equal(unit->n_files, 2);
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 3);
	assert_shape(tensor(src, "b"), "[3]"); /* the later file wins */
	rs_source_close(src);
}

static void both_kinds_in_a_tree_are_refused(void **state)
{
	(void)state;
	make_ranks(1, "w=1");
	make_safetensors("rank_0/x.safetensors", SAFE_W, 2);
	REFUSED(RS_USAGE, "both kinds of checkpoint files: rank_0/x.ckpt and rank_0/x.safetensors",
		"select=*.ckpt");
	struct rs_source *src = OPEN(.select = "*.safetensors");
	assert_string_equal(src->container, "safetensors");
	assert_true(is_foreign(src, "rank_0/x.ckpt", "not selected"));
	rs_source_close(src);
}

/* ----------------------------------------------------------------- links and modes */

static void links_stay_inside(void **state)
{
	(void)state;
	make_dir("blobs");
	make_dir("tree");
	make_dir("tree/rank_0");
	make_ckpt("blobs/b", "w=1");
	assert_int_equal(symlink("../../blobs/b", at("tree/rank_0/x.ckpt")), 0);
	REFUSED(RS_CORRUPT, "outside the checkpoint", "beneath=", .path = at("tree"));
	REFUSED(RS_CORRUPT, "outside the checkpoint", "beneath=", .path = at("tree/rank_0/x.ckpt"));
	struct rs_source *src = OPEN(.path = at("tree"), .beneath = root);
	describe(src, 0);
	rs_source_close(src);
	REFUSED(RS_CORRUPT, "symbolic link", "", .path = at("tree"), .beneath = root,
		.deny_links = true);

	/* A farm of links to directories elsewhere. */
	make_dir("farm");
	assert_int_equal(symlink("../tree/rank_0", at("farm/rank_0")), 0);
	REFUSED(RS_CORRUPT, "outside the checkpoint", "beneath=", .path = at("farm"));
	src = OPEN(.path = at("farm"), .beneath = root);
	describe(src, 0);
	rs_source_close(src);

	assert_int_equal(unlink(at("tree/rank_0/x.ckpt")), 0);
	assert_int_equal(symlink("x.ckpt", at("tree/rank_0/x.ckpt")), 0);
	REFUSED(RS_CORRUPT, "loop", "", .path = at("tree"));
	assert_int_equal(unlink(at("tree/rank_0/x.ckpt")), 0);
	assert_int_equal(symlink("nowhere", at("tree/rank_0/x.ckpt")), 0);
	REFUSED(RS_CORRUPT, "leads nowhere", "", .path = at("tree"));
	assert_int_equal(unlink(at("tree/rank_0/x.ckpt")), 0);
	assert_int_equal(mkfifo(at("tree/rank_0/x.ckpt"), 0644), 0);
	REFUSED(RS_CORRUPT, "found a FIFO", "", .path = at("tree"));
}

static void closed_directories_close_their_files(void **state)
{
	static const struct {
		mode_t source, rank, file, expected;
	} rows[] = {
		{0755, 0755, 0644, 0644},
		{0755, 0700, 0644, 0600},
		{0755, 0750, 0644, 0640},
		{0755, 0705, 0644, 0604},
		{0700, 0755, 0644, 0600},
		{0755, 0755, 0600, 0600},
	};

	(void)state;
	make_dir("t");
	make_dir("t/rank_0");
	make_ckpt("t/rank_0/x.ckpt", "w=1");
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_int_equal(chmod(at("t"), rows[i].source), 0);
		assert_int_equal(chmod(at("t/rank_0"), rows[i].rank), 0);
		assert_int_equal(chmod(at("t/rank_0/x.ckpt"), rows[i].file), 0);
		struct rs_source *src = OPEN(.path = at("t"));
		assert_int_equal(
			rs_catalog_file_info(src->cat, 0)->id.mode & 0777, rows[i].expected);
		describe(src, 0); /* the mode is no part of what tells a change */
		rs_source_close(src);
	}
	/* Its own directory counts for SOURCE that is a file. */
	assert_int_equal(chmod(at("t/rank_0/x.ckpt"), 0644), 0);
	assert_int_equal(chmod(at("t/rank_0"), 0700), 0);
	struct rs_source *src = OPEN(.path = at("t/rank_0/x.ckpt"));
	assert_int_equal(rs_catalog_file_info(src->cat, 0)->id.mode & 0777, 0600);
	rs_source_close(src);
}

/* --------------------------------------------------------------------- strategies */

#define TWO_RANKS LAYOUT("w", "[2]", "[0,-1]", "")

static void strategies_are_found_in_two_places(void **state)
{
	(void)state;
	make_dir("t");
	make_dir("t/strategy");
	make_dir("strategy");
	make_strategy("strategy/s.json", 0, TWO_RANKS);
	make_dir("t/rank_0");
	make_dir("t/rank_1");
	make_ckpt("t/rank_0/x.ckpt", "w=2,3");
	make_ckpt("t/rank_1/x.ckpt", "w=2,3");
	REFUSED(RS_USAGE, "2 rank directories (rank_0, ...) and no strategy file", "t/../strategy",
		.path = at("t"));

	struct rs_source *src = OPEN(.path = at("t"), .strategy = at("strategy"));
	assert_int_equal(src->n_ranks, 2);
	rs_source_close(src);

	make_strategy("t/strategy/s.json", 0, TWO_RANKS);
	src = OPEN(.path = at("t"));
	assert_int_equal(rs_catalog_stage_devices(src->cat), 2);
	describe(src, 1);
	assert_shape(tensor(src, "w"), "[4, 3]");
	assert_true(rs_catalog_loaded(src->cat, rs_catalog_rank_unit(src->cat, 1)));
	assert_false(rs_catalog_loaded(src->cat, rs_catalog_rank_unit(src->cat, 0)));
	rs_source_close(src);

	make_strategy("t/s.json", 0, TWO_RANKS); /* in both places, alike */
	src = OPEN(.path = at("t"));
	assert_int_equal(src->n_foreign, 0);
	rs_source_close(src);

	make_strategy("t/s.json", 0, LAYOUT("w", "[2]", "[-1,0]", ""));
	REFUSED(RS_USAGE, "disagree", "src_strategy=", .path = at("t"));
	src = OPEN(.path = at("t"), .strategy = at("t/s.json"));
	describe(src, 0);
	assert_shape(tensor(src, "w"), "[2, 6]");
	rs_source_close(src);
}

static void without_a_strategy_only_rank_0_is_whole(void **state)
{
	(void)state;
	make_ranks(1, "w=2");
	struct rs_source *src = OPEN(.path = root);
	describe(src, 0);
	assert_shape(tensor(src, "w"), "[2]");
	rs_source_close(src);
	src = OPEN(.path = at("rank_0"));
	assert_true(is_noted(src, "called like a rank directory"));
	rs_source_close(src);

	make_dir("rank_4");
	make_ckpt("rank_4/x.ckpt", "w=2");
	REFUSED(RS_USAGE, "no strategy file", "src_strategy=");
	REFUSED(RS_USAGE, "rank_4 stands beside it", "directory above", .path = at("rank_0"));
	src = OPEN(.path = at("rank_0"), .any_layout = true);
	rs_source_close(src);
	src = OPEN(.any_layout = true);
	assert_int_equal(src->n_ranks, 5);
	assert_int_equal(rs_catalog_rank_unit(src->cat, 2), RS_NO_UNIT);
	assert_true(is_noted(src, "3 of 5 ranks missing: 1-3"));
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 0);
	rs_source_close(src);
}

#define FOUR_RANKS LAYOUT("w", "[4]", "[0]", "")

static void missing_and_extra_ranks_are_told(void **state)
{
	(void)state;
	make_ranks(3, "w=2");
	make_dir("rank_3"); /* there, but nothing in it */
	make_dir("rank_6");
	make_ckpt("rank_6/x.ckpt", "w=2");
	make_strategy("s.json", 0, FOUR_RANKS);
	struct rs_source *src = OPEN(.path = root);
	assert_int_equal(src->n_ranks, 4);
	assert_int_equal(rs_catalog_rank_unit(src->cat, 3), RS_NO_UNIT);
	assert_true(is_noted(src, "rank_3 holds no checkpoint file"));
	assert_true(is_noted(src, "1 of 4 ranks missing: 3"));
	assert_true(is_noted(src, "rank_6 is left out"));
	assert_true(is_foreign(src, "rank_6", "the strategy does not have"));
	describe(src, 3); /* the lowest present one stands in */
	assert_shape(tensor(src, "w"), "[8]");
	rs_source_close(src);
}

static void a_missing_stage_is_refused(void **state)
{
	(void)state;
	make_ranks(2, "a=2;b=2");
	make_strategy(
		"s.json", 0, LAYOUT("0-a", "[2]", "[0]", "") "," LAYOUT("1-b", "[2]", "[0]", ""));
	REFUSED(RS_MISSING,
		"all ranks of stage 1 missing (expected rank_2/*.ckpt to rank_3/*.ckpt, "
		"found ranks 0-1)",
		"gather the directories");
}

/* -------------------------------------------------------------------- describing */

static void the_lowest_stage_that_stores_it_owns_it(void **state)
{
	(void)state;
	/* Two stages of one device; the embedding is listed in both, stored in the second alone. */
	make_dir("rank_0");
	make_dir("rank_1");
	make_ckpt("rank_0/x.ckpt", "both=1;first=2;count=");
	make_ckpt("rank_1/x.ckpt", "both=1;embedding=3;last=4");
	make_strategy("s.json", 0,
		LAYOUT("0-both", "[1]", "[-1]", "") "," LAYOUT("1-both", "[1]", "[-1]",
			"") "," LAYOUT("0-embedding", "[1]", "[-1]", "") "," LAYOUT("1-embedding",
			"[1]", "[-1]",
			"") "," LAYOUT("0-first", "[1]", "[-1]", "") "," LAYOUT("1-last", "[1]",
			"[-1]", "") "," LAYOUT("0-nowhere", "[1]", "[-1]", ""));
	struct rs_source *src = OPEN(.path = root);
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 4);
	assert_int_equal(tensor(src, "both")->first_rank, 0);
	assert_int_equal(tensor(src, "embedding")->first_rank, 1);
	assert_int_equal(tensor(src, "embedding")->witness, rs_catalog_rank_unit(src->cat, 1));
	assert_int_equal(tensor(src, "last")->first_rank, 1);
	assert_null(rs_catalog_find(src->cat, RS_STR("nowhere")));
	assert_null(rs_catalog_find(src->cat, RS_STR("count"))); /* no layout */
	rs_source_close(src);
}

/* 8 ranks, dev [8]: all hold w0..w7 whole, but each was stored by one rank alone. */
static void removed_redundancy_is_made_up_for(void **state)
{
	char layouts[2048] = "";

	(void)state;
	for (uint32_t r = 0; r < 8; r++) {
		char dir[32], file[48], tensors[32];
		size_t len = strlen(layouts);

		(void)snprintf(dir, sizeof(dir), "rank_%u", r);
		(void)snprintf(file, sizeof(file), "%s/x.ckpt", dir);
		(void)snprintf(tensors, sizeof(tensors), "w%u=%u", r, r + 1);
		make_dir(dir);
		make_ckpt(file, tensors);
		(void)snprintf(layouts + len, sizeof(layouts) - len,
			"%s" LAYOUT("w%u", "[8]", "[-1]", ""), r ? "," : "", r);
	}
	make_strategy("s.json", 0, layouts);
	struct rs_source *src = OPEN(.path = root);
	describe(src, 2);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 8);
	assert_shape(tensor(src, "w7"), "[8]");
	rs_source_close(src);

	/* When one of the others cannot be read, nobody knows what it would have stored. */
	make_file("rank_7/x.ckpt", "\x0a\x7f", 2);
	REFUSED(RS_CORRUPT, "rank_7/x.ckpt@0", "");
}

/* A complete tree of 9 replicas whose strategy names gradients that no file has. */
static void few_replicas_are_asked_for_what_nobody_stores(void **state)
{
	uint32_t loaded = 0;

	(void)state;
	make_ranks(9, "w=2");
	make_strategy("s.json", 0,
		LAYOUT("w", "[9]", "[-1]", "") "," LAYOUT("accu_grads.w", "[9]", "[-1]", ""));
	struct rs_source *src = OPEN(.path = root);
	describe(src, 0);
	assert_int_equal(rs_catalog_n_tensors(src->cat), 1);
	for (uint32_t r = 0; r < 9; r++)
		loaded += rs_catalog_loaded(src->cat, rs_catalog_rank_unit(src->cat, r));
	assert_int_equal(loaded, 5);
	rs_source_close(src);
}

static void slices_must_fit_their_layout(void **state)
{
	static const struct {
		const char *layouts;
		enum rs_code code;
		const char *words;
	} rows[] = {
		{LAYOUT("w", "[2]", "[0]", ""), RS_CORRUPT,
			"rank_0/x.ckpt: tensor 'w': stored [2, 3], cut by dev [2] map [0]: tensor "
			"map has 1"},
		{LAYOUT("w", "[2]", "[0,-1]", ",\"tensor_shape\":[5,3]"), RS_CORRUPT,
			"tensor 'w': stored [2, 3], whole [4, 3] by the layout, expected [5, 3]"},
		{LAYOUT("w", "[2]", "[0,-1]",
			 ",\"indices_offset\":[0,0],\"param_split_shape\":[3,1]"),
			RS_CORRUPT, "3 rows expected by param_split_shape, stored are 2"},
	};

	(void)state;
	make_ranks(2, "w=2,3");
	for (size_t i = 0; i < COUNT(rows); i++) {
		make_strategy("s.json", 0, rows[i].layouts);
		REFUSED(rows[i].code, rows[i].words, "");
	}
	make_strategy("s.json", 0, LAYOUT("w", "[2]", "[0,-1]", ",\"tensor_shape\":[4,3]"));
	struct rs_source *src = OPEN(.path = root);
	describe(src, 0);
	assert_shape(tensor(src, "w"), "[4, 3]");
	rs_source_close(src);
}

/* ------------------------------------------------------------------- change and failure */

static void a_file_that_changed_since_it_was_listed_is_told(void **state)
{
	struct rs_err err = {0};

	(void)state;
	make_ranks(1, "w=2");
	struct rs_source *src = OPEN(.path = root);
	make_ckpt("rank_0/x.ckpt", "w=3");
	assert_int_equal(rs_source_describe(src, 0, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	rs_source_close(src);
}

static void make_two_stages(void)
{
	make_ranks(4, "a=2;b=2;c=");
	make_file("rank_0/junk", "x", 1);
	make_ckpt("rank_1/a.ckpt", "a=2");
	make_strategy("s.json", 0,
		LAYOUT("0-a", "[2]", "[0]", "") "," LAYOUT("1-b", "[2]", "[0]", "") "," LAYOUT(
			"1-d", "[2]", "[-1]", ""));
}

static int open_and_describe(struct rs_err *err)
{
	const struct rs_source_options opts = {.path = root};
	struct rs_source *src = NULL;
	int status = rs_source_open(&opts, &src, err);

	if (status == 0)
		status = rs_source_describe(src, 0, err);
	rs_source_close(src);
	return status;
}

static void every_allocation_and_read_may_fail(void **state)
{
	(void)state;
	make_two_stages();
	for (int reads = 0; reads < 2; reads++) {
		for (uint64_t n = 1;; n++) {
			struct rs_err err = {0};

			if (reads)
				fault_read(n, FAULT_EIO);
			else
				fault_alloc(n);
			int64_t live = fault_live();
			int status = open_and_describe(&err);
			bool hit = fault_hit();
			assert_int_equal(fault_live(), live);
			fault_clear();
			if (!hit) {
				assert_int_equal(status, 0);
				assert_true(n > 5);
				break;
			}
			/* Remarks, and looks at what may be foreign, are allowed to fail silently.
			 */
			assert_true(status == 0 || err.code != RS_OK);
		}
	}
}

static void many_ranks_are_listed_quickly(void **state)
{
	(void)state;
	for (uint32_t r = 0; r < 2000; r++) {
		char rel[48];

		(void)snprintf(rel, sizeof(rel), "rank_%u", r);
		make_dir(rel);
		(void)snprintf(rel, sizeof(rel), "rank_%u/x.ckpt", r);
		make_ckpt(rel, "w=2");
	}
	make_strategy("s.json", 0, LAYOUT("w", "[2000]", "[0]", ""));
	struct rs_source *src = OPEN(.path = root);
	describe(src, 7);
	assert_shape(tensor(src, "w"), "[4000]");
	for (uint32_t r = 0; r < 2000; r++)
		assert_int_equal(
			rs_catalog_loaded(src->cat, rs_catalog_rank_unit(src->cat, r)), r == 7);
	rs_source_close(src);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_TREE(one_file_is_whole),
		IN_TREE(a_directory_with_one_file_is_that_file),
		IN_TREE(texts_are_no_tensors),
		IN_TREE(what_is_no_source_is_refused),
		IN_TREE(directories_of_other_layouts_are_named),
		IN_TREE(rank_directories_are_told_by_their_last_number),
		IN_TREE(foreign_files_are_set_aside),
		IN_TREE(of_several_files_one_counts),
		IN_TREE(numbers_in_safetensors_names_decide),
		IN_TREE(merge_takes_all_files),
		IN_TREE(both_kinds_in_a_tree_are_refused),
		IN_TREE(links_stay_inside),
		IN_TREE(closed_directories_close_their_files),
		IN_TREE(strategies_are_found_in_two_places),
		IN_TREE(without_a_strategy_only_rank_0_is_whole),
		IN_TREE(missing_and_extra_ranks_are_told),
		IN_TREE(a_missing_stage_is_refused),
		IN_TREE(the_lowest_stage_that_stores_it_owns_it),
		IN_TREE(removed_redundancy_is_made_up_for),
		IN_TREE(few_replicas_are_asked_for_what_nobody_stores),
		IN_TREE(slices_must_fit_their_layout),
		IN_TREE(a_file_that_changed_since_it_was_listed_is_told),
		IN_TREE(every_allocation_and_read_may_fail),
		IN_TREE(many_ranks_are_listed_quickly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
