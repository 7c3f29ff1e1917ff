/*
 * test_strategy_dir.c - strategy files of a directory, merged in memory: what is taken, what is
 * skipped because its bytes are known, and what is refused because two files disagree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "reshardfs/layout.h"
#include "tests/lib/fault.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

/* Every test runs in a fresh directory; strategy files go to "s". */
static int enter(void **state)
{
	char *dir = strdup("/tmp/test_strategy.XXXXXX");

	if (!dir || !mkdtemp(dir) || chdir(dir) < 0 || mkdir("s", 0755) < 0)
		return -1;
	*state = dir;
	return 0;
}

static int leave(void **state)
{
	char command[100];

	fault_clear();
	if (chdir("/") < 0)
		return -1;
	snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
	free(*state);
	return system(command);
}

static void write_bytes(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void write_text(const char *path, const char *text)
{
	write_bytes(path, text, strlen(text));
}

/* A stage's file: an operator of @stage and the parameters as JSON members; as either form. */
static void write_stage(const char *path, bool json, int stage, const char *params)
{
	struct rs_err err = {0};
	struct rs_strategy *s;
	char text[4096], *bytes = NULL;
	uint64_t len = 0;

	snprintf(text, sizeof(text),
		"{\"current_stage\":2,\"parallel_layout_item\":{%s},\"parallel_strategy_item\":"
		"{\"op%d\":{\"parallel_strategy\":[[2,1]],\"stage\":%d}}}",
		params, stage, stage);
	if (rs_strategy_read_memory(text, strlen(text), path, &s, &err) < 0 ||
		rs_strategy_encode(s, json, s->merged, &bytes, &len, &err) < 0)
		fail_msg("%s", err.msg);
	write_bytes(path, bytes, len);
	rs_free(bytes);
	rs_strategy_free(s);
}

#define CUT "{\"dev_matrix\":[2],\"tensor_map\":[0]}"
#define WHOLE "{\"dev_matrix\":[2],\"tensor_map\":[-1]}"

static struct rs_strategy *read_ok(const char *path)
{
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};

	if (rs_strategy_read(path, &s, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

static void expect_refusal(enum rs_code code, const char *word, const char *also, const char *hint)
{
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};

	assert_int_equal(rs_strategy_read("s", &s, &err), -1);
	if (err.code != code)
		fail_msg("expected code %d, found %d: %s", code, err.code, err.msg);
	assert_null(s);
	assert_text(err.msg, word);
	assert_text(err.msg, also);
	assert_text(err.hint, hint);
}

/* ---------------------------------------------------------------------------- merged */

static void stages_become_one_strategy(void **state)
{
	struct rs_err err = {0};
	struct rs_strategy *s;

	(void)state;
	for (int json = 0; json < 2; json++) {
		const char *one = json ? "s/a.json" : "s/a.ckpt";
		const char *two = json ? "s/b.json" : "s/b.ckpt";

		write_stage(one, json, 1, "\"w\":" CUT ",\"tied\":" WHOLE);
		write_stage(two, json, 0, "\"tied\":" CUT ",\"e-f\":" WHOLE);
		s = read_ok("s");
		assert_true(s->merged);
		assert_int_equal(s->json, json);
		assert_int_equal(s->current_stage, 1);
		assert_int_equal(s->n_params, 4);
		assert_int_equal(s->n_layouts, 2);
		assert_int_equal(s->n_operators, 2);
		assert_true(rs_str_is(s->operators[0].name, "op1"));
		assert_non_null(rs_strategy_find(s, 1, RS_STR("w")));
		assert_null(rs_strategy_find(s, 0, RS_STR("w")));
		assert_int_equal(rs_strategy_find(s, 0, RS_STR("tied"))->map[0], 0);
		assert_int_equal(rs_strategy_find(s, 1, RS_STR("tied"))->map[0], -1);
		assert_non_null(rs_strategy_find(s, 0, RS_STR("e-f")));
		assert_int_equal(rs_strategy_check(s, &err), 0);
		assert_int_equal(s->n_stages, 2);
		rs_strategy_free(s);
		unlink(one);
		unlink(two);
	}
}

static void a_merged_file_may_lie_beside_its_parts(void **state)
{
	struct rs_err err = {0};
	struct rs_strategy *parts, *both;
	uint64_t len;
	char *bytes;

	(void)state;
	write_stage("s/r0.ckpt", false, 0, "\"a\":" CUT ",\"t\":" WHOLE);
	write_stage("s/r2.ckpt", false, 1, "\"b\":" CUT ",\"t\":" WHOLE);
	parts = read_ok("s");
	assert_int_equal(rs_strategy_encode(parts, false, true, &bytes, &len, &err), 0);
	write_bytes("s/merged.ckpt", bytes, len);
	write_bytes("merged.ckpt", bytes, len);
	rs_free(bytes);
	both = read_ok("s");
	assert_int_equal(rs_strategy_same(parts, both, &err), 0);
	assert_int_equal(both->n_operators, 2);
	rs_strategy_free(both);
	both = read_ok("merged.ckpt");
	assert_int_equal(rs_strategy_same(parts, both, &err), 0);
	rs_strategy_free(both);
	rs_strategy_free(parts);

	/* one that was made from other files is not let through */
	write_stage("s/r2.ckpt", false, 1, "\"b\":" WHOLE ",\"t\":" WHOLE);
	expect_refusal(RS_USAGE, "s/merged.ckpt and s/r2.ckpt", "'b'", "two jobs");
}

static void equal_content_is_enough(void **state)
{
	struct rs_strategy *s;

	(void)state;
	write_stage("s/r0.json", true, 0, "\"a\":" CUT ",\"b\":" WHOLE);
	write_stage("s/r1.json", true, 0, "\"a\":" CUT ",\"b\":" WHOLE);
	/* another order and spelling of the same, as hash maps and other writers have it */
	write_text("s/r2.json", "{\"parallel_strategy_item\":{\"o\":{\"stage\":0}},"
				"\"parallel_layout_item\":{ \"b\":" WHOLE ", \"a\":" CUT "}}");
	s = read_ok("s");
	assert_int_equal(s->n_params, 2);
	assert_int_equal(s->n_operators, 1);
	assert_false(s->merged); /* one stage needs no merge */
	assert_int_equal(s->current_stage, 2);
	rs_strategy_free(s);
}

static void other_files_are_left_alone(void **state)
{
	struct rs_strategy *s;

	(void)state;
	write_stage("s/a.ckpt", false, 0, "\"a\":" CUT);
	write_text("s/config.json", "{\"hidden_size\":16}");
	write_bytes("s/full.ckpt",
		"\x0a\x05\x0a\x03"
		"abc",
		7);
	write_text("s/a.ckpt.tmp", "half");
	write_text("s/README", "read me");
	mkdir("s/rank_0.ckpt", 0755);
	s = read_ok("s");
	assert_int_equal(s->n_params, 1);
	rs_strategy_free(s);
}

/* --------------------------------------------------------------------------- refused */

static void disagreement_names_both_files(void **state)
{
	(void)state;
	write_stage("s/r0.ckpt", false, 3, "\"a\":" CUT ",\"b\":" WHOLE);
	write_stage("s/r1.ckpt", false, 3, "\"a\":" CUT ",\"b\":" CUT);
	expect_refusal(RS_USAGE, "s/r0.ckpt and s/r1.ckpt are both of stage 3: parameter 'b'",
		"has dev [2] map [-1] and dev [2] map [0]", "two jobs");
	write_stage("s/r1.ckpt", false, 3, "\"a\":" CUT);
	expect_refusal(RS_USAGE, "s/r0.ckpt and s/r1.ckpt", "'b' is in the first only", "");
	write_stage("s/r1.ckpt", false, 3, "\"a\":" CUT ",\"b\":" WHOLE ",\"c\":" CUT);
	expect_refusal(RS_USAGE, "s/r0.ckpt and s/r1.ckpt", "'c' is in the second only", "");
}

static void unfit_directories_are_refused(void **state)
{
	(void)state;
	expect_refusal(RS_USAGE, "s: expected strategy files", "found none", "merged strategy");
	write_text("s/config.json", "{\"hidden_size\":16}");
	expect_refusal(RS_USAGE, "found none", "", "");
	write_text("s/lfs.ckpt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
				 "size 14059\n");
	expect_refusal(RS_CORRUPT, "s/lfs.ckpt", "Git LFS", "git lfs pull");
	write_stage("s/a.ckpt", false, 0, "\"a\":" CUT);
	write_stage("s/b.json", true, 1, "\"a\":" CUT);
	expect_refusal(RS_USAGE, "s/a.ckpt and s/b.json", "one form", "one form");
	unlink("s/b.json");
	/* bytes of a strategy, cut short */
	write_bytes("s/c.ckpt", "\x08\x01\x1a\x10\x0a\x01w", 7);
	expect_refusal(RS_CORRUPT, "s/c.ckpt@2", "", "cut off");
	/* no operator, so no stage */
	write_bytes("s/c.ckpt", "\x08\x01\x1a\x05\x0a\x01w\x12\x00", 9);
	expect_refusal(RS_CORRUPT, "s/c.ckpt", "operators", "its own path");
	unlink("s/c.ckpt");
	assert_int_equal(mkfifo("s/d.ckpt", 0644), 0);
	expect_refusal(RS_CORRUPT, "s/d.ckpt", "FIFO", "");
}

static void links_stay_inside_the_fence(void **state)
{
	struct rs_err err = {0};
	struct rs_strategy *s;
	struct rs_dir *dir;

	(void)state;
	write_stage("out.ckpt", false, 0, "\"a\":" CUT);
	assert_int_equal(symlink("../out.ckpt", "s/in.ckpt"), 0);
	expect_refusal(RS_CORRUPT, "s/in.ckpt", "outside the checkpoint", "beneath");
	assert_int_equal(rs_dir_open("s", ".", true, &dir, &err), 0);
	assert_int_equal(rs_strategy_read_dir(dir, "", &s, &err), 0);
	assert_non_null(s);
	rs_strategy_free(s);
	rs_dir_close(dir);
}

static void absent_places_hold_no_strategy(void **state)
{
	struct rs_err err = {0};
	struct rs_strategy *s;
	struct rs_dir *dir;

	(void)state;
	assert_int_equal(rs_dir_open(".", NULL, true, &dir, &err), 0);
	assert_int_equal(rs_strategy_read_dir(dir, "nowhere", &s, &err), 0);
	assert_null(s);
	assert_int_equal(rs_strategy_read_dir(dir, "s", &s, &err), 0);
	assert_null(s);
	write_stage("s/r0.ckpt", false, 0, "\"a\":" CUT);
	assert_int_equal(rs_strategy_read_dir(dir, "s", &s, &err), 0);
	assert_non_null(s);
	assert_string_equal(s->path, "./s");
	rs_strategy_free(s);
	rs_dir_close(dir);
	assert_int_equal(rs_strategy_read("nowhere", &s, &err), -1);
	assert_int_equal(err.code, RS_MISSING);
	assert_text(err.msg, "nowhere");
}

static void every_failure_below_is_told(void **state)
{
	(void)state;
	write_stage("s/a.ckpt", false, 0, "\"a\":" CUT);
	write_stage("s/b.ckpt", false, 1, "\"a\":" CUT);
	for (int dir = 0; dir < 2; dir++)
		for (uint64_t n = 1;; n++) {
			struct rs_strategy *s = NULL;
			struct rs_err err = {0};
			int ret;

			fault_read(n, FAULT_EIO);
			ret = rs_strategy_read(dir ? "s" : "s/a.ckpt", &s, &err);
			if (!fault_hit()) {
				assert_int_equal(ret, 0);
				rs_strategy_free(s);
				break;
			}
			assert_int_equal(ret, -1);
			assert_int_equal(err.code, RS_IO);
		}
	for (uint64_t n = 1;; n++) {
		struct rs_strategy *s = NULL;
		struct rs_err err = {0};
		int ret;

		fault_clear();
		fault_alloc(n);
		ret = rs_strategy_read("s", &s, &err);
		if (!fault_hit()) {
			assert_int_equal(ret, 0);
			rs_strategy_free(s);
			break;
		}
		assert_int_equal(ret, -1);
		assert_int_equal(err.code, RS_NOMEM);
	}
}

/* ----------------------------------------------------------------------------- many */

/* A job of 4096 ranks in 8 stages, every rank with its file: read in seconds, not minutes. */
static void thousands_of_files_take_seconds(void **state)
{
	enum { RANKS = 4096, STAGES = 8, PARAMS = 300 };
	struct timespec from, to;
	struct rs_err err = {0};
	struct rs_strategy *s;
	char *text = malloc(100 * PARAMS), path[64];

	(void)state;
	for (int rank = 0; rank < RANKS; rank++) {
		int stage = rank / (RANKS / STAGES);
		size_t at = (size_t)sprintf(text,
			"{\"parallel_strategy_item\":{\"o\":{\"stage\":%d}},"
			"\"parallel_layout_item\":{",
			stage);

		for (int i = 0; i < PARAMS; i++)
			at += (size_t)sprintf(text + at,
				"%s\"l%d\":{\"dev_matrix\":[64,8],\"tensor_map\":[%d,-1]}",
				i ? "," : "", i, i % 2);
		at += (size_t)sprintf(text + at, "}}");
		snprintf(path, sizeof(path), "s/strategy_%d.json", rank);
		write_bytes(path, text, at);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	s = read_ok("s");
	clock_gettime(CLOCK_MONOTONIC, &to);
	assert_true(to.tv_sec - from.tv_sec < 60); /* about one without a sanitizer */
	assert_int_equal(rs_strategy_check(s, &err), 0);
	assert_int_equal(s->n_stages, STAGES);
	assert_int_equal(s->stage_devices, RANKS / STAGES);
	assert_int_equal(s->n_params, STAGES * PARAMS);
	assert_int_equal(s->n_layouts, 2);
	rs_strategy_free(s);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(stages_become_one_strategy, enter, leave),
		cmocka_unit_test_setup_teardown(
			a_merged_file_may_lie_beside_its_parts, enter, leave),
		cmocka_unit_test_setup_teardown(equal_content_is_enough, enter, leave),
		cmocka_unit_test_setup_teardown(other_files_are_left_alone, enter, leave),
		cmocka_unit_test_setup_teardown(disagreement_names_both_files, enter, leave),
		cmocka_unit_test_setup_teardown(unfit_directories_are_refused, enter, leave),
		cmocka_unit_test_setup_teardown(links_stay_inside_the_fence, enter, leave),
		cmocka_unit_test_setup_teardown(absent_places_hold_no_strategy, enter, leave),
		cmocka_unit_test_setup_teardown(every_failure_below_is_told, enter, leave),
		cmocka_unit_test_setup_teardown(thousands_of_files_take_seconds, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
