/*
 * test_options.c - command lines against what they mean, and how sizes and failures are written.
 * A row is the words behind the verb; what must come out is checked by a function per kind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "fs/fs.h"

#define MAX_WORDS 8

struct line {
	const char *verb, *words[MAX_WORDS];
};

static int parse(const struct line *l, struct fs_options *o, struct rs_err *err)
{
	char *argv[MAX_WORDS + 1] = {NULL};
	static char copies[MAX_WORDS][128];
	int argc = 0;

	while (argc < MAX_WORDS && l->words[argc]) {
		snprintf(copies[argc], sizeof(copies[argc]), "%s", l->words[argc]);
		argv[argc] = copies[argc];
		argc++;
	}
	*err = (struct rs_err){0};
	return fs_options_parse(l->verb, argc, argv, o, err);
}

static void accept(const struct line *l, struct fs_options *o)
{
	struct rs_err err;

	if (parse(l, o, &err) < 0)
		fail_msg("%s %s: %s", l->verb, l->words[0], err.msg);
}

/* The same meaning, however it is spelled. */
static void test_spellings(void **state)
{
	static const struct line lines[] = {
		{"mount", {"-o", "target=t,allow_other", "S", "M"}},
		{"mount", {"-otarget=t,allow_other", "S", "M"}},
		{"mount", {"S", "M", "--target=t", "--allow-other"}},
		{"mount", {"S", "--target", "t", "M", "--allow_other"}},
		{"mount", {"-o", "target=x,target=t,,allow_other,", "--", "S", "M"}},
		{"mount", {"-o", "_netdev,target=t,ro,x-a.b=c", "-nsv", "-o", "allow_other", "S",
				  "M"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct fs_options o;

		accept(&lines[i], &o);
		assert_string_equal(o.view.target.target, "t");
		assert_true(o.allow_other);
		assert_int_equal(o.n_args, 2);
		assert_string_equal(o.args[0], "S");
		assert_string_equal(o.args[1], "M");
		fs_options_done(&o);
	}
}

static void test_values(void **state)
{
	const struct line l = {"mount",
		{"S", "M", "-o",
			"target=a\\,b,default=error,missing=skip,symlinks=deny,verify=headers",
			"-o", "cache=never,uid=0,umask=027,threads=3,log_level=debug", "-f"}};
	struct fs_options o;

	(void)state;
	accept(&l, &o);
	assert_string_equal(o.view.target.target, "a,b");
	assert_int_equal(o.view.target.unknown, RS_DEFAULT_ERROR);
	assert_int_equal(o.view.target.missing, RS_MISSING_SKIP);
	assert_true(o.view.source.deny_links && o.view.proved && o.direct && o.foreground);
	assert_true(o.uid_set && !o.gid_set && o.umask_set && !o.ready_fd_set);
	assert_int_equal(o.uid, 0);
	assert_int_equal(o.umask, 027);
	assert_int_equal(o.threads, 3);
	assert_int_equal(o.log_level, FS_LOG_DEBUG);
	fs_options_done(&o);
}

static void test_operands(void **state)
{
	const struct line dash = {"cat", {"--target", "t", "--", "-S", "--path"}};
	const struct line one = {"umount", {"-"}};
	struct fs_options o;

	(void)state;
	accept(&dash, &o);
	assert_string_equal(o.args[0], "-S");
	assert_string_equal(o.args[1], "--path");
	fs_options_done(&o);
	accept(&one, &o);
	assert_string_equal(o.args[0], "-");
	assert_int_equal(o.wait_s, 5);
	fs_options_done(&o);
}

static void test_refusals(void **state)
{
	static const struct {
		struct line line;
		const char *said, *hint;
	} rows[] = {
		{{"mount", {"S", "M", "-o", "traget=t"}}, "no option 'traget'", "'target'"},
		{{"mount", {"S", "M", "--allow-othre"}}, "no option 'allow_othre'",
			"'allow_other'"},
		{{"umount", {"M", "--lasy"}}, "no option 'lasy'", "'lazy'"},
		{{"umount", {"M", "-o", "target=t"}}, "takes no option 'target'", "mount, plan"},
		{{"plan", {"S", "-o", "target=t,nonempty"}}, "takes no option", "is for mount"},
		{{"plan", {"S", "-o", "\033[1m"}}, "no option '\\x1B[1m'", "plan --help"},
		{{"mount", {"S", "M", "-o", "target=t,rw"}}, "can only be read", "leave it out"},
		{{"mount", {"S", "M", "-o", "target=t,uid=-1"}}, "expected N, found '-1'", ""},
		{{"mount", {"S", "M", "-o", "target=t,uid=4294967296"}}, "expected N", ""},
		{{"mount", {"S", "M", "-o", "target=t,umask=1777"}}, "expected OCTAL", ""},
		{{"mount", {"S", "M", "-o", "target=t,umask="}}, "expected OCTAL", ""},
		{{"mount", {"S", "M", "-o", "target=t,verify=head"}}, "lazy|headers", ""},
		{{"mount", {"S", "M", "--foreground=yes"}}, "takes no value", ""},
		{{"mount", {"S", "M", "-fx"}}, "no option 'x'", ""},
		{{"mount", {"S", "M", "-o", "target="}}, "expected T", ""},
		{{"mount", {"S", "M", "-o", "memory"}}, "needs a value", ""},
		{{"mount", {"S", "M", "--target"}}, "needs a value", ""},
		{{"mount", {"S", "M", "-o"}}, "needs a list", ""},
		{{"mount", {"S", "M"}}, "no target", "target=full"},
		{{"mount", {"S", "-o", "target=t"}}, "SOURCE MOUNTPOINT, found 1 operand",
			"--help"},
		{{"cat", {"S", "P", "Q", "--target=t"}}, "found 3 operands", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fs_options o;
		struct rs_err err;

		assert_int_equal(parse(&rows[i].line, &o, &err), -1);
		assert_int_equal(err.code, RS_USAGE);
		if (!strstr(err.msg, rows[i].said) || !strstr(err.hint, rows[i].hint))
			fail_msg("row %zu: '%s', '%s'", i, err.msg, err.hint);
		fs_options_done(&o);
	}
}

static void test_size_options(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes; /* 1: refused */
	} rows[] = {
		{"0", 0},
		{"4096", 4096},
		{"3K", 3000},
		{"3Ki", 3072},
		{"256M", 256000000},
		{"2Gi", 2147483648},
		{"7T", 7000000000000},
		{"1Ti", 1099511627776},
		{"18446744073709551615", UINT64_MAX},
		{"18446744073709551616", 1},
		{"18446744073709551615K", 1},
		{"16777216Ti", 1},
		{"12X", 1},
		{"12k", 1},
		{"12KB", 1},
		{"12Kii", 1},
		{"K", 1},
		{"-1", 1},
		{"1.5G", 1},
		{" 1", 1},
		{"", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char word[64];
		const struct line l = {"mount", {"S", "M", "-o", "target=t", "-o", word}};
		struct fs_options o;
		struct rs_err err;

		snprintf(word, sizeof(word), "memory=%s", rows[i].text);
		if (parse(&l, &o, &err) == 0)
			assert_int_equal(o.view.memory, rows[i].bytes);
		else if (rows[i].bytes != 1)
			fail_msg("%s: %s", word, err.msg);
		fs_options_done(&o);
	}
}

/* Options for other verbs are no mistake there; unknown ones are. */
static void test_environment(void **state)
{
	const struct line l = {"umount", {"M"}}, own = {"umount", {"M", "--wait=7"}};
	struct fs_options o;
	struct rs_err err;

	(void)state;
	setenv("RESHARDFS_OPTS", "target=t,wait=3,lazy", 1);
	accept(&l, &o);
	assert_true(o.lazy && o.wait_s == 3 && !o.view.target.target);
	fs_options_done(&o);
	accept(&own, &o);
	assert_int_equal(o.wait_s, 7);
	fs_options_done(&o);
	setenv("RESHARDFS_OPTS", "lazi", 1);
	assert_int_equal(parse(&l, &o, &err), -1);
	assert_true(rs_str_starts(rs_str(err.msg), "RESHARDFS_OPTS: "));
	assert_non_null(strstr(err.hint, "'lazy'"));
	fs_options_done(&o);
	unsetenv("RESHARDFS_OPTS");
}

static void test_verbs_near(void **state)
{
	(void)state;
	assert_string_equal(fs_verb_near("inspct"), "inspect");
	assert_string_equal(fs_verb_near("plna"), "plan");
	assert_string_equal(fs_verb_near("unmount"), "umount");
	assert_null(fs_verb_near("cp"));
	assert_null(fs_verb_near("data"));
	assert_null(fs_verb_near(""));
	assert_true(fs_verb_known("ls") && !fs_verb_known("l"));
}

static void test_sizes_for_people(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{0, "0 B"},
		{999, "999 B"},
		{1000, "1.0 kB"},
		{1049, "1.0 kB"},
		{1050, "1.1 kB"},
		{999949, "999.9 kB"},
		{999950, "1.0 MB"},
		{1000000, "1.0 MB"},
		{13500000000, "13.5 GB"},
		{999949999999, "999.9 GB"},
		{999950000000, "1.0 TB"},
		{UINT64_MAX, "18.4 EB"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(FS_SIZE(rows[i].bytes, false), rows[i].text);
	assert_string_equal(FS_SIZE(UINT64_MAX, true), "18446744073709551615");
}

static void test_exit_codes(void **state)
{
	static const int codes[] = {
		[RS_OK] = 0,
		[RS_USAGE] = 2,
		[RS_MISSING] = 3,
		[RS_CORRUPT] = 3,
		[RS_UNSUPPORTED] = 4,
		[RS_IO] = 5,
		[RS_CHANGED] = 5,
		[RS_LIMIT] = 7,
		[RS_NOMEM] = 7,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		assert_int_equal(fs_exit_code((enum rs_code)i), codes[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_size_options),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_verbs_near),
		cmocka_unit_test(test_sizes_for_people),
		cmocka_unit_test(test_exit_codes),
	};

	unsetenv("RESHARDFS_OPTS");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
