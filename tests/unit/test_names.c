/*
 * test_names.c - only=, exclude= and rename=: patterns, which names are left, what they are called,
 * and what is told about it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/source/internal.h"

static void globs_fit_whole_names(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool fits;
	} rows[] = {
		{"a", "a", true},
		{"a", "ab", false},
		{"a", "ba", false},
		{"*", "", true},
		{"*", "anything.at.all", true},
		{"a*", "a", true},
		{"a*c", "abbc", true},
		{"a*c", "abbcd", false},
		{"*.bias", "l.0.bias", true},
		{"*.bias", "l.0.bias2", false},
		{"a**c", "ac", true},
		{"*a*a*", "banana", true},
		{"*ab", "aaab", true},
		{"?", "x", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"l.[0-3].*", "l.2.w", true},
		{"l.[0-3].*", "l.4.w", false},
		{"[!a]b", "cb", true},
		{"[!a]b", "ab", false},
		{"[]a]", "]", true},
		{"[a-]", "-", true},
		{"[a-c-]x", "-x", true},
		{"\\*", "*", true},
		{"\\*", "a", false},
		{"a\\[b", "a[b", true},
		{"w", "W", false},
		{"[z-a]", "m", false},
		/* many stars and a long name: one step back to the last star is enough */
		{"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			false},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rs__glob(rs_str(rows[i].pattern), rs_str(rows[i].name)) != rows[i].fits)
			fail_msg("'%s' and '%s': expected %d", rows[i].pattern, rows[i].name,
				rows[i].fits);
	/* Names hold any byte, and no terminator. */
	assert_true(rs__glob(RS_STR("a?b"), (struct rs_str){"a\0b", 3}));
	assert_true(rs__glob(RS_STR("[\xc0-\xff]*"), RS_STR("\xe6\x9d\x83")));
	assert_true(rs__glob_ok(RS_STR("a[b]*")) && rs__glob_ok(RS_STR("\\[")));
	assert_false(rs__glob_ok(RS_STR("")) || rs__glob_ok(RS_STR("[a")));
	assert_false(rs__glob_ok(RS_STR("a\\")) || rs__glob_ok(RS_STR("[")));
	assert_false(rs__glob_ok(RS_STR("\\\\[a"))); /* the backslash is taken, the set is open */
}

/* --------------------------------------------------------------- a source of names alone */

static const char *const names[] = {"adam_m.net.l.0.w", "adam_v.net.l.0.w", "global_step",
	"learning_rate", "moment1.net.l.0.w", "net.l.0.b", "net.l.0.w", "net.l.1.w", "net.norm",
	"w_fp32_master_0"};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

struct fake {
	struct rs_source src;
	struct rs_err err;
	int rc; /* of all that was done */
};

static void fake_open(
	struct fake *f, struct rs_words only, struct rs_words exclude, struct rs_words rename)
{
	*f = (struct fake){.src = {.opts = {.path = "memory",
					   .only = only,
					   .exclude = exclude,
					   .rename = rename},
				   .without_ranks = true}};
	f->src.cat = rs_catalog_new(1u << 24, &f->err);
	assert_non_null(f->src.cat);
	f->rc = rs__names_set(&f->src, &f->err);
	for (size_t i = 0; f->rc == 0 && i < N_NAMES; i++) {
		struct rs_tensor t = {.name = rs_str(names[i]), .dtype = RS_DT_F32};
		f->rc = rs_catalog_add_tensor(f->src.cat, &t, &f->err);
	}
	if (f->rc == 0)
		f->rc = rs_catalog_seal(f->src.cat, &f->err);
	if (f->rc == 0)
		f->rc = rs__names_report(&f->src, &f->err);
}

static void fake_close(struct fake *f)
{
	rs_catalog_free(f->src.cat);
	rs__names_done(f->src.names);
}

/* All that is in the catalog: "new=stored " or "name ". */
static const char *left(const struct fake *f, char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	for (uint64_t i = 0; i < rs_catalog_n_tensors(f->src.cat); i++) {
		const struct rs_tensor *t = rs_catalog_tensor(f->src.cat, i);
		at += (size_t)snprintf(text + at, size - at, "%.*s%s%.*s ", (int)t->name.len,
			t->name.ptr, t->stored.ptr ? "=" : "", (int)t->stored.len,
			t->stored.ptr ? t->stored.ptr : "");
	}
	return text;
}

#define WORDS(...)                                                                                 \
	((struct rs_words){(const char *[]){__VA_ARGS__},                                          \
		sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)})
#define NONE ((struct rs_words){0})

static void expect_left(struct rs_words only, struct rs_words exclude, struct rs_words rename,
	const char *expected, const char *note)
{
	struct fake f;
	char text[600];
	bool told = !note;

	fake_open(&f, only, exclude, rename);
	if (f.rc < 0)
		fail_msg("%s", f.err.msg);
	assert_string_equal(left(&f, text, sizeof(text)), expected);
	for (uint64_t i = 0; i < rs_catalog_notes(f.src.cat)->n; i++)
		told |= note && strstr(rs_catalog_notes(f.src.cat)->items[i], note);
	if (!told)
		fail_msg("no note says '%s'", note);
	/* Entries that are no tensors get the same answer. */
	for (size_t i = 0; i < N_NAMES; i++) {
		struct rs_arena *arena = rs_arena_new(1u << 16, NULL);
		struct rs_str known;
		int kept = rs_source_name(&f.src, rs_str(names[i]), arena, &known, NULL);
		assert_int_equal(kept, kept && rs_catalog_find(f.src.cat, known) ? 1 : 0);
		rs_arena_free(arena);
	}
	fake_close(&f);
}

static void names_are_chosen(void **state)
{
	(void)state;

	expect_left(WORDS("weights"), NONE, NONE, "net.l.0.b net.l.0.w net.l.1.w net.norm ",
		"'adam_m.net.l.0.w' and 5 more are left out because of -o only=weights");
	expect_left(WORDS("net.l.*", "net.norm"), WORDS("*.b"), NONE,
		"net.l.0.w net.l.1.w net.norm ",
		"'net.l.0.b' and 0 more are left out because of -o exclude=*.b");
	expect_left(NONE, WORDS("weights"), NONE,
		"adam_m.net.l.0.w adam_v.net.l.0.w global_step learning_rate moment1.net.l.0.w "
		"w_fp32_master_0 ",
		"exclude=weights");
	expect_left(WORDS("net.l.[1-9].w"), NONE, NONE, "net.l.1.w ", NULL);
}

static void names_are_changed(void **state)
{
	(void)state;

	expect_left(WORDS("net.*"), NONE, WORDS("net.l.0.*:first.*", "net.*:model.*.x"),
		"first.b=net.l.0.b first.w=net.l.0.w model.l.1.w.x=net.l.1.w "
		"model.norm.x=net.norm ",
		NULL);
	/* What is chosen is chosen by the name in the files; a swap is two names that change. */
	expect_left(WORDS("net.l.*.w"), NONE, WORDS("net.l.0.w:net.l.1.w", "net.l.1.w:net.l.0.w"),
		"net.l.0.w=net.l.1.w net.l.1.w=net.l.0.w ", NULL);
	expect_left(WORDS("net.norm"), NONE, WORDS("nothing:else"), "net.norm ",
		"rename=nothing:else fits no name");
	expect_left(WORDS("net.norm"), NONE, WORDS("*:[*]"), "[net.norm]=net.norm ", NULL);
}

static void nonsense_is_refused(void **state)
{
	static const char *const renames[] = {
		"a", ":", "a:", ":b", "a:b:c", "a*:b", "a:b*", "a**:b*", "*a*:*b*"};
	struct fake f;
	(void)state;

	for (size_t i = 0; i < sizeof(renames) / sizeof(renames[0]); i++) {
		fake_open(&f, NONE, NONE, WORDS(renames[i]));
		assert_int_equal(f.rc, -1);
		assert_int_equal(f.err.code, RS_USAGE);
		assert_non_null(strstr(f.err.msg, "expected OLD:NEW"));
		fake_close(&f);
	}
	fake_open(&f, WORDS("[a"), NONE, NONE);
	assert_int_equal(f.err.code, RS_USAGE);
	fake_close(&f);
	fake_open(&f, WORDS("no.such.name"), NONE, NONE);
	assert_int_equal(f.err.code, RS_USAGE);
	assert_non_null(strstr(f.err.msg, "leave no tensor"));
	fake_close(&f);
	fake_open(&f, NONE, NONE, WORDS("adam_m.*:adam_v.*"));
	assert_int_equal(f.err.code, RS_USAGE);
	assert_non_null(strstr(f.err.msg, "would both be called 'adam_v.net.l.0.w'"));
	fake_close(&f);
	/* A name that is no name: nothing is left of it. */
	fake_open(&f, WORDS("net.norm"), NONE, WORDS("net.norm*:*"));
	assert_int_equal(f.err.code, RS_USAGE);
	assert_non_null(strstr(f.err.msg, "a name of 0 bytes"));
	fake_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(globs_fit_whole_names),
		cmocka_unit_test(names_are_chosen),
		cmocka_unit_test(names_are_changed),
		cmocka_unit_test(nonsense_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
