/*
 * test_view.c - the virtual tree and the life of its files: inodes and names, requests that park
 * and are answered once, failures that stay, bodies that are dropped and come back, and all of it
 * from many threads at once (worth running as B=tsan).
 *
 * Most tests stand on tests/lib/tiny.c, where a gate holds builders and knobs make them fail; the
 * last ones open real trees with rs_view_open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/view/internal.h"
#include "tests/lib/fault.h"
#include "tests/lib/tiny.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

#define FILE_OF(rank) ((((uint64_t)(rank) + 1) << RS_INODE_SHIFT) + 1)
#define DIR_OF(rank) (((uint64_t)(rank) + 1) << RS_INODE_SHIFT)
#define FILE_BYTES 114 /* of the .ckpt that tiny's target ranks hold: 20 + 64 + 22 + 8 */

/* ------------------------------------------------------------------- fixture */

static int open_tiny(void **state)
{
	static struct tiny tiny;

	tiny_open(&tiny, NULL);
	*state = &tiny;
	return 0;
}

static int close_tiny(void **state)
{
	fault_clear();
	tiny_close(*state);
	return 0;
}

static struct rs_view *view_with(struct tiny *t, struct rs_view_options opts)
{
	struct rs_view *v = NULL;
	struct rs_err err = {0};

	if (rs__view_new(&opts, &t->source, &t->target, &v, &err) < 0 ||
		rs__view_arrange(v, opts.name, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

static struct rs_view *view(struct tiny *t)
{
	return view_with(t, (struct rs_view_options){0});
}

/* tiny owns its source and target. */
static void close_view(struct rs_view *v)
{
	v->source = NULL;
	v->target = NULL;
	rs_view_close(v);
}

/* A waiter that counts its answers and keeps the last. */
struct listener {
	struct rs_waiter waiter; /* first */
	pthread_mutex_t lock;
	pthread_cond_t told;
	uint32_t answers;
	struct rs_err err;
};

static void hear(struct rs_waiter *w, const struct rs_err *err)
{
	struct listener *l = (struct listener *)w;

	pthread_mutex_lock(&l->lock);
	l->answers++;
	l->err = *err;
	pthread_cond_signal(&l->told);
	pthread_mutex_unlock(&l->lock);
}

static void listen_to(struct listener *l)
{
	memset(l, 0, sizeof(*l));
	l->waiter.done = hear;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->told, NULL);
}

static uint32_t answers(struct listener *l)
{
	uint32_t n;

	pthread_mutex_lock(&l->lock);
	n = l->answers;
	pthread_mutex_unlock(&l->lock);
	return n;
}

static enum rs_code await(struct listener *l)
{
	enum rs_code code;

	pthread_mutex_lock(&l->lock);
	while (l->answers == 0)
		pthread_cond_wait(&l->told, &l->lock);
	code = l->err.code;
	pthread_mutex_unlock(&l->lock);
	return code;
}

static enum rs_code want(struct rs_view *v, uint64_t inode, struct listener *l)
{
	listen_to(l);
	rs_view_want(v, inode, &l->waiter);
	return await(l);
}

/* -------------------------------------------------------------------- options */

static void ranks_are_ranges(void **state)
{
	static const struct {
		const char *text;
		uint64_t n, ranks[8];
	} good[] = {
		{NULL, 5, {0, 1, 2, 3, 4}},
		{"0", 1, {0}},
		{"0-4", 5, {0, 1, 2, 3, 4}},
		{"3+0-1", 3, {0, 1, 3}},
		{"2-3+3+2", 2, {2, 3}},
		{"4-4", 1, {4}},
	};
	static const char *const bad[] = {"", "5", "0-5", "3-1", "-1", "1-", "1+", "+1", "a", "1,2",
		" 1", "0x1", "1-2-3", "18446744073709551616", "0-18446744073709551615"};
	uint64_t *ranks, n = 0;
	struct rs_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(rs__ranks_parse(good[i].text, 5, &ranks, &n, &err), 0);
		assert_int_equal(n, good[i].n);
		assert_memory_equal(ranks, good[i].ranks, n * sizeof(*ranks));
		rs_free(ranks);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rs__ranks_parse(bad[i], 5, &ranks, &n, &err), -1);
		assert_int_equal(err.code, RS_USAGE);
		assert_text(err.msg, "0 to 4");
		assert_text(err.hint, "ranks=0-3+8");
	}
	assert_int_equal(rs__ranks_parse(NULL, 0, &ranks, &n, &err), -1);
	assert_int_equal(err.code, RS_MISSING);
}

static void names_are_plain(void **state)
{
	static const char *const good[] = {
		"a", "{rank}", "x_{rank}-{rank}.ckpt", "...", "-", "A.Z_0"};
	static const char *const bad[] = {"", ".", "..", "a/b", "/", "{rnk}", "{rank", "rank}",
		"a b", "a\n", "\xc3\xa9", "{{rank}}", "*"};
	char pattern[300];
	struct rs_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(rs__pattern_check(good[i], 16, &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rs__pattern_check(bad[i], 16, &err), -1);
		assert_int_equal(err.code, RS_USAGE);
	}
	memset(pattern, 'n', sizeof(pattern));
	pattern[255] = '\0';
	assert_int_equal(rs__pattern_check(pattern, 16, &err), 0);
	memcpy(pattern + 248, "{rank}", 7); /* 248 bytes and a rank of up to 7 */
	assert_int_equal(rs__pattern_check(pattern, 9999999, &err), 0);
	assert_int_equal(rs__pattern_check(pattern, 10000000, &err), -1);
}

static void bad_options_open_nothing(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = NULL;
	struct rs_err err;

	assert_int_equal(rs__view_new(&(struct rs_view_options){.ranks = "9"}, &t->source,
				 &t->target, &v, &err),
		-1);
	assert_int_equal(err.code, RS_USAGE);
	assert_int_equal(rs__view_new(&(struct rs_view_options){.name = "a/b"}, &t->source,
				 &t->target, &v, &err),
		-1);
	assert_int_equal(err.code, RS_USAGE);
	t->target.container = "gguf"; /* no file could be written */
	assert_int_equal(
		rs__view_new(&(struct rs_view_options){0}, &t->source, &t->target, &v, &err), -1);
	assert_int_equal(err.code, RS_USAGE);
	assert_text(err.msg, "ckpt, safetensors, pdparams, found 'gguf'");
	t->target.container = "ckpt";
	t->target.opts.layout = RS_ARRANGE_HF;
	assert_int_equal(rs__view_new(&(struct rs_view_options){.ranks = "0"}, &t->source,
				 &t->target, &v, &err),
		-1);
	assert_text(err.msg, "ranks=");
	assert_int_equal(rs__view_new(&(struct rs_view_options){.name = "x"}, &t->source,
				 &t->target, &v, &err),
		-1);
	assert_text(err.msg, "name=");
	assert_null(v);
}

/* ----------------------------------------------------------------------- tree */

static void inodes_are_arithmetic(void **state)
{
	struct rs_view *v = view(*state);

	assert_int_equal(rs_view_node(v, 0), RS_NODE_NONE);
	assert_int_equal(rs_view_node(v, 1), RS_NODE_ROOT);
	for (uint64_t ino = 2; ino < 16; ino++)
		assert_int_equal(rs_view_node(v, ino), RS_NODE_NONE);
	for (uint64_t r = 0; r < TINY_RANKS; r++) {
		assert_int_equal(rs_view_node(v, DIR_OF(r)), RS_NODE_RANK);
		assert_int_equal(rs_view_node(v, FILE_OF(r)), RS_NODE_FILE);
		assert_int_equal(rs_view_node(v, FILE_OF(r) + 1), RS_NODE_NONE);
		assert_int_equal(rs_view_inode_rank(v, DIR_OF(r)), r);
		assert_int_equal(rs_view_inode_rank(v, FILE_OF(r)), r);
		assert_int_equal(rs_view_parent(v, FILE_OF(r)), DIR_OF(r));
		assert_int_equal(rs_view_parent(v, DIR_OF(r)), RS_INODE_ROOT);
	}
	assert_int_equal(rs_view_parent(v, RS_INODE_ROOT), RS_INODE_ROOT);
	assert_int_equal(rs_view_node(v, DIR_OF(TINY_RANKS)), RS_NODE_NONE);
	assert_int_equal(rs_view_node(v, UINT64_MAX), RS_NODE_NONE);
	close_view(v);
}

static void names_lead_to_inodes_and_back(void **state)
{
	static const char *const strangers[] = {"", ".", "..", "rank_", "rank_0", "rank_2",
		"rank_01", "rank_4", "rank_1 ", "rank_-1", "rank_+1", "RANK_1",
		"rank_18446744073709551616", "rank_1/checkpoint_1.ckpt", ".reshardfs"};
	struct rs_view *v = view_with(*state, (struct rs_view_options){.ranks = "1+3"});
	char name[256];
	uint64_t ino;

	assert_int_equal(rs_view_n_ranks(v), 2);
	assert_int_equal(rs_view_rank(v, 1), 3);
	assert_true(rs_view_entry(v, RS_INODE_ROOT, 0, name, &ino));
	assert_string_equal(name, "rank_1");
	assert_int_equal(ino, DIR_OF(1));
	assert_int_equal(rs_view_child(v, RS_INODE_ROOT, "rank_1"), DIR_OF(1));
	assert_true(rs_view_entry(v, RS_INODE_ROOT, 1, name, &ino));
	assert_string_equal(name, "rank_3");
	assert_false(rs_view_entry(v, RS_INODE_ROOT, 2, name, &ino));
	assert_false(rs_view_entry(v, RS_INODE_ROOT, UINT64_MAX, name, &ino));

	assert_true(rs_view_entry(v, DIR_OF(3), 0, name, &ino));
	assert_string_equal(name, "checkpoint_3.ckpt");
	assert_int_equal(ino, FILE_OF(3));
	assert_int_equal(rs_view_child(v, DIR_OF(3), "checkpoint_3.ckpt"), FILE_OF(3));
	assert_int_equal(rs_view_child(v, DIR_OF(3), "checkpoint_1.ckpt"), 0);
	assert_false(rs_view_entry(v, DIR_OF(3), 1, name, &ino));
	assert_false(rs_view_entry(v, FILE_OF(3), 0, name, &ino));
	assert_false(rs_view_entry(v, DIR_OF(0), 0, name, &ino)); /* not shown */
	assert_int_equal(rs_view_child(v, FILE_OF(3), "checkpoint_3.ckpt"), 0);

	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
		assert_int_equal(rs_view_child(v, RS_INODE_ROOT, strangers[i]), 0);
	close_view(v);
}

/* Two parts of each rank's list, all at the root: 16 + k by name, and no directory. */
static void files_may_stand_at_the_root(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v;
	struct rs_attr root;
	struct rs_err err;
	char name[256];
	uint64_t ino;

	t->target.opts.layout = RS_ARRANGE_VLLM;
	t->target.opts.max_file = 20; /* w has 64 bytes, pad has 8 */
	v = view_with(t, (struct rs_view_options){.ranks = "1+3"});
	assert_int_equal(rs_view_n_files(v), 4);
	for (uint64_t k = 0; k < 4; k++) {
		assert_int_equal(rs_view_file(v, k), 16 + k);
		assert_int_equal(rs_view_node(v, 16 + k), RS_NODE_FILE);
		assert_int_equal(rs_view_parent(v, 16 + k), RS_INODE_ROOT);
		assert_int_equal(rs_view_inode_rank(v, 16 + k), k < 2 ? 1 : 3);
		assert_true(rs_view_entry(v, RS_INODE_ROOT, k, name, &ino));
		assert_int_equal(ino, 16 + k);
		assert_int_equal(rs_view_child(v, RS_INODE_ROOT, name), 16 + k);
		assert_int_equal(rs_view_output(v, 16 + k)->part, k % 2);
	}
	assert_string_equal(name, "model-rank-3-part-1.safetensors");
	assert_false(rs_view_entry(v, RS_INODE_ROOT, 4, name, &ino));
	assert_int_equal(rs_view_node(v, 15), RS_NODE_NONE);
	assert_int_equal(rs_view_node(v, 20), RS_NODE_NONE);
	assert_int_equal(rs_view_node(v, DIR_OF(1)), RS_NODE_NONE);
	assert_int_equal(rs_view_child(v, RS_INODE_ROOT, "rank_1"), 0);
	assert_null(rs_view_output(v, RS_INODE_ROOT));
	assert_int_equal(rs_view_attr(v, RS_INODE_ROOT, &root, NULL), 0);
	assert_int_equal(root.nlink, 2);
	t->fail[3] = RS_CORRUPT;
	assert_int_equal(rs_view_build(v, 19, NULL, &err), -1);
	assert_text(err.msg, "model-rank-3-part-1.safetensors: the list of 3 failed");
	close_view(v);
}

/* Parts and an index in each rank directory; each part has its own tensors. */
static void a_directory_may_have_several_files(void **state)
{
	static const char *const names[] = {"m-00001-of-00002", "m-00002-of-00002", "m.index"};
	struct tiny *t = *state;
	struct rs_image *img;
	struct rs_view *v;
	struct rs_attr attr;
	char name[256], text[512] = "";
	uint64_t ino;

	t->target.files =
		(struct rs_files){.path = "rank_{rank}/m", .max_bytes = 20, .index = "m.index"};
	v = view(t);
	assert_int_equal(rs_view_n_files(v), 3 * TINY_RANKS);
	for (uint64_t r = 0; r < TINY_RANKS; r++)
		for (uint64_t k = 0; k < 3; k++) {
			assert_true(rs_view_entry(v, DIR_OF(r), k, name, &ino));
			assert_string_equal(name, names[k]);
			assert_int_equal(ino, FILE_OF(r) + k);
			assert_int_equal(rs_view_child(v, DIR_OF(r), names[k]), ino);
			assert_int_equal(rs_view_parent(v, ino), DIR_OF(r));
		}
	assert_false(rs_view_entry(v, DIR_OF(0), 3, name, &ino));
	assert_int_equal(rs_view_node(v, FILE_OF(0) + 3), RS_NODE_NONE);

	img = rs_view_hold(v, FILE_OF(2) + 1, NULL);
	assert_non_null(img);
	assert_int_equal(img->list.n, 1);
	assert_true(rs_str_is(img->list.items[0].name, "pad"));
	rs_view_release(v, FILE_OF(2) + 1, img);

	img = rs_view_hold(v, FILE_OF(2) + 2, NULL);
	assert_non_null(img);
	assert_int_equal(img->list.n, 0);
	assert_int_equal(img->n_files, TINY_RANKS); /* it tells of all, and is as closed as they */
	assert_true(img->size < sizeof(text));
	assert_int_equal(rs_image_read(img, t->cat, 0, img->size, (uint8_t *)text, NULL), 0);
	assert_text(text, "\"total_size\": 72");
	assert_text(text, "\"pad\": \"m-00002-of-00002\"");
	rs_view_release(v, FILE_OF(2) + 2, img);
	assert_int_equal(rs_view_attr(v, FILE_OF(2) + 2, &attr, NULL), 0);
	assert_int_equal(attr.size, strlen(text));
	assert_int_equal(attr.mode, 0444);
	close_view(v);
}

static void directories_show_what_source_shows(void **state)
{
	static const uint32_t modes[][2] = {{0755, 0555}, {0750, 0550}, {0700, 0500}, {0711, 0500},
		{0744, 0500}, {0705, 0555}, {0770, 0550}};
	struct tiny *t = *state;

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct rs_attr root, dir;
		struct rs_view *v;

		assert_int_equal(chmod(t->dir, modes[i][0]), 0);
		rs_dir_close(t->handle);
		assert_int_equal(rs_dir_open(t->dir, NULL, true, &t->handle, NULL), 0);
		t->source.dir = t->handle;
		v = view(t);
		assert_int_equal(rs_view_attr(v, RS_INODE_ROOT, &root, NULL), 0);
		assert_int_equal(rs_view_attr(v, DIR_OF(2), &dir, NULL), 0);
		assert_int_equal(root.mode, modes[i][1]);
		assert_int_equal(dir.mode, modes[i][1]);
		assert_int_equal(root.nlink, 2 + TINY_RANKS);
		assert_int_equal(dir.nlink, 2);
		assert_int_equal(dir.mtime_ns, rs_dir_identity(t->handle).mtime_ns);
		assert_int_equal(dir.inode, DIR_OF(2));
		close_view(v);
	}
}

/* --------------------------------------------------------------------- states */

static void files_are_built_at_the_first_look(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view(t);
	struct listener early, late;
	struct rs_attr attr;

	assert_int_equal(rs_view_attr(v, FILE_OF(2), &attr, NULL), 1);
	listen_to(&early);
	rs_view_want(v, FILE_OF(2), &early.waiter); /* no builder yet: it parks */
	assert_int_equal(answers(&early), 0);
	assert_int_equal(rs_view_start(v, NULL), 0);
	assert_int_equal(await(&early), RS_OK);
	assert_int_equal(rs_view_attr(v, FILE_OF(2), &attr, NULL), 0);
	assert_int_equal(attr.kind, RS_NODE_FILE);
	assert_int_equal(attr.size, FILE_BYTES);
	assert_int_equal(attr.mode, 0444);
	assert_int_equal(attr.nlink, 1);
	assert_true(attr.mtime_ns > 0);
	assert_int_equal(want(v, FILE_OF(2), &late), RS_OK);
	assert_int_equal(t->lists[2], 1);
	assert_int_equal(rs_view_attr(v, FILE_OF(1), &attr, NULL), 1); /* nobody looked */
	assert_int_equal(t->lists[1], 0);
	close_view(v);
	assert_int_equal(answers(&early), 1);
}

static void what_is_no_file_is_answered_at_once(void **state)
{
	struct rs_view *v = view(*state);
	struct listener l;
	struct rs_err err;
	struct rs_attr attr;

	assert_int_equal(want(v, DIR_OF(1), &l), RS_MISSING);
	assert_int_equal(rs_view_build(v, FILE_OF(TINY_RANKS), NULL, &err), -1);
	assert_int_equal(err.code, RS_MISSING);
	assert_null(rs_view_hold(v, RS_INODE_ROOT, &err));
	assert_int_equal(rs_view_attr(v, 7, &attr, &err), -1);
	close_view(v);
}

static void failures_stay(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view(t);
	struct rs_attr attr;
	struct listener l;
	struct rs_err err;

	assert_int_equal(rs_view_start(v, NULL), 0);
	t->fail[1] = RS_CORRUPT;
	assert_int_equal(want(v, FILE_OF(1), &l), RS_CORRUPT);
	assert_string_equal(l.err.msg, "target rank 1: the list of 1 failed");
	t->fail[1] = RS_OK;
	assert_int_equal(want(v, FILE_OF(1), &l), RS_CORRUPT);
	assert_int_equal(rs_view_attr(v, FILE_OF(1), &attr, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_int_equal(rs_view_build(v, FILE_OF(1), NULL, &err), -1);
	assert_null(rs_view_hold(v, FILE_OF(1), &err));
	assert_string_equal(err.msg, "target rank 1: the list of 1 failed");
	assert_int_equal(t->lists[1], 1);
	assert_int_equal(want(v, FILE_OF(0), &l), RS_OK); /* the others are well */
	close_view(v);
}

static void what_may_pass_is_tried_again(void **state)
{
	static const enum rs_code codes[] = {RS_IO, RS_NOMEM};
	struct tiny *t = *state;
	struct rs_view *v = view(t);
	struct rs_attr attr;
	struct listener l;

	assert_int_equal(rs_view_start(v, NULL), 0);
	for (int i = 0; i < 2; i++) {
		t->fail[i] = codes[i];
		assert_int_equal(want(v, FILE_OF(i), &l), codes[i]);
		assert_int_equal(rs_view_attr(v, FILE_OF(i), &attr, NULL), 1);
		assert_int_equal(want(v, FILE_OF(i), &l), codes[i]);
		t->fail[i] = RS_OK;
		assert_int_equal(want(v, FILE_OF(i), &l), RS_OK);
		assert_int_equal(t->lists[i], 3);
	}
	close_view(v);
}

/* Two builders stand at the gate; requests pile up on what they build, and no thread does. */
static void requests_wait_and_threads_do_not(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view_with(t, (struct rs_view_options){.builders = 2});
	struct listener l[8];

	tiny_gate(t, true);
	assert_int_equal(rs_view_start(v, NULL), 0);
	for (int i = 0; i < 8; i++) {
		listen_to(&l[i]);
		rs_view_want(v, FILE_OF(i % 4), &l[i].waiter);
	}
	tiny_gate_wait(t, 2);
	assert_true(rs_view_cancel(v, &l[4].waiter));  /* of a file that is being built */
	assert_false(rs_view_cancel(v, &l[4].waiter)); /* only once */
	assert_true(rs_view_cancel(v, &l[3].waiter));  /* of one that still queues */
	for (int i = 0; i < 8; i++)
		assert_int_equal(answers(&l[i]), 0);
	tiny_gate(t, false);
	for (int i = 0; i < 8; i++)
		if (i != 3 && i != 4)
			assert_int_equal(await(&l[i]), RS_OK);
	assert_false(rs_view_cancel(v, &l[0].waiter)); /* has its answer */
	for (int i = 0; i < 4; i++)
		assert_int_equal(t->lists[i], 1);
	close_view(v);
	for (int i = 0; i < 8; i++)
		assert_int_equal(answers(&l[i]), i != 3 && i != 4);
}

static void building_oneself_needs_no_builder(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view(t);
	struct rs_notes notes = {0};
	struct listener l;

	listen_to(&l);
	rs_view_want(v, FILE_OF(3), &l.waiter);
	assert_int_equal(rs_view_build(v, FILE_OF(3), &notes, NULL), 0);
	assert_int_equal(answers(&l), 1); /* who waited is answered */
	assert_int_equal(notes.n, 1);
	assert_text(notes.items[0], "rank 3");
	assert_int_equal(rs_view_build(v, FILE_OF(3), &notes, NULL), 0);
	assert_int_equal(notes.n, 1); /* the same remark again */
	assert_int_equal(t->lists[3], 1);
	/* The queue is empty again: a builder finds nothing that was taken from it. */
	assert_int_equal(rs_view_start(v, NULL), 0);
	assert_int_equal(want(v, FILE_OF(0), &l), RS_OK);
	rs_notes_done(&notes);
	close_view(v);
}

static void *open_gate_later(void *arg)
{
	usleep(30000);
	tiny_gate(arg, false);
	return NULL;
}

static void closing_answers_everybody(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view_with(t, (struct rs_view_options){.builders = 1});
	struct listener l[3];
	pthread_t opener;

	tiny_gate(t, true);
	assert_int_equal(rs_view_start(v, NULL), 0);
	for (int i = 0; i < 3; i++) {
		listen_to(&l[i]);
		rs_view_want(v, FILE_OF(i), &l[i].waiter);
	}
	tiny_gate_wait(t, 1);
	assert_int_equal(pthread_create(&opener, NULL, open_gate_later, t), 0);
	close_view(v);
	pthread_join(opener, NULL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(answers(&l[i]), 1);
		assert_int_equal(l[i].err.code, RS_IO);
		assert_text(l[i].err.msg, "closed");
	}
	assert_int_equal(t->lists[2], 0);
}

/* --------------------------------------------------------------------- bodies */

static void read_all(struct tiny *t, const struct rs_image *img, uint32_t rank)
{
	uint8_t got[FILE_BYTES], w[64], pad[8];

	assert_int_equal(img->size, FILE_BYTES);
	assert_int_equal(rs_image_read(img, t->cat, 0, FILE_BYTES, got, NULL), 0);
	tiny_content(rank, w, pad);
	assert_memory_equal(got + 20, w, 64);
}

static void bodies_stay_while_there_is_room(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view(t);

	for (int i = 0; i < 3; i++) {
		struct rs_image *a = rs_view_hold(v, FILE_OF(1), NULL);
		struct rs_image *b = rs_view_hold(v, FILE_OF(1), NULL);

		assert_ptr_equal(a, b);
		read_all(t, a, 1);
		rs_view_release(v, FILE_OF(1), a);
		read_all(t, b, 1);
		rs_view_release(v, FILE_OF(1), b);
	}
	assert_int_equal(t->lists[1], 1);
	close_view(v);
}

static void bodies_are_dropped_and_built_again(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view_with(t, (struct rs_view_options){.memory = 1});
	struct rs_image *img;
	struct rs_attr attr;

	assert_int_equal(rs_view_build(v, FILE_OF(1), NULL, NULL), 0);
	assert_int_equal(v->body_bytes, 0); /* too large to keep */
	assert_int_equal(rs_view_attr(v, FILE_OF(1), &attr, NULL), 0);
	assert_int_equal(attr.size, FILE_BYTES); /* the measure stays */
	img = rs_view_hold(v, FILE_OF(1), NULL);
	assert_non_null(img);
	assert_int_equal(t->lists[1], 2);
	assert_ptr_equal(rs_view_hold(v, FILE_OF(1), NULL), img); /* held: not built a third time */
	rs_view_release(v, FILE_OF(1), img);
	read_all(t, img, 1);
	assert_true(v->body_bytes > 0);
	rs_view_release(v, FILE_OF(1), img);
	assert_int_equal(v->body_bytes, 0);
	close_view(v);
}

/* Room for two: of three the one that was used longest ago goes. */
static void the_longest_unused_goes_first(void **state)
{
	struct rs_view *v = view(*state);
	struct rs_image *img = rs_view_hold(v, FILE_OF(0), NULL);

	v->memory = v->body_bytes * 5 / 2;
	rs_view_release(v, FILE_OF(0), img);
	assert_int_equal(rs_view_build(v, FILE_OF(1), NULL, NULL), 0);
	rs_view_release(v, FILE_OF(0), rs_view_hold(v, FILE_OF(0), NULL));
	assert_int_equal(rs_view_build(v, FILE_OF(2), NULL, NULL), 0);
	assert_non_null(v->files[0].image);
	assert_null(v->files[1].image);
	assert_non_null(v->files[2].image);
	close_view(v);
}

static void another_size_is_another_source(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view_with(t, (struct rs_view_options){.memory = 1});
	struct rs_image *img;
	struct rs_err err;

	assert_int_equal(rs_view_build(v, FILE_OF(2), NULL, NULL), 0);
	t->rows = 8;
	assert_null(rs_view_hold(v, FILE_OF(2), &err));
	assert_int_equal(err.code, RS_CHANGED);
	assert_text(err.msg, "target rank 2: expected a file of 114 bytes");
	t->rows = TINY_ROWS;
	t->fail[2] = RS_IO; /* a failure to rebuild is told and not kept */
	assert_null(rs_view_hold(v, FILE_OF(2), &err));
	assert_int_equal(err.code, RS_IO);
	t->fail[2] = RS_OK;
	img = rs_view_hold(v, FILE_OF(2), &err);
	assert_non_null(img);
	rs_view_release(v, FILE_OF(2), img);
	close_view(v);
}

/* ---------------------------------------------------------------------- proof */

static void proof_builds_everything(void **state)
{
	struct tiny *t = *state;
	struct rs_view *v = view(t);
	struct rs_notes notes = {0};
	struct rs_attr attr;

	assert_int_equal(rs__view_prove(v, NULL), 0);
	for (uint32_t r = 0; r < TINY_RANKS; r++) {
		assert_int_equal(rs_view_attr(v, FILE_OF(r), &attr, NULL), 0);
		assert_int_equal(rs_view_build(v, FILE_OF(r), &notes, NULL), 0);
		assert_int_equal(t->lists[r], 1);
	}
	assert_int_equal(notes.n, TINY_RANKS); /* remarks of the proof are there for a listing */
	rs_notes_done(&notes);
	close_view(v);
}

static void proof_fails_at_the_lowest_rank(void **state)
{
	struct tiny *t = *state;

	t->fail[1] = RS_IO;
	t->fail[2] = RS_CORRUPT;
	t->fail[3] = RS_MISSING;
	for (uint32_t threads = 1; threads <= 8; threads++) {
		struct rs_view *v = view_with(t, (struct rs_view_options){.builders = threads});
		struct rs_err err;

		assert_int_equal(rs__view_prove(v, &err), -1);
		assert_int_equal(err.code, RS_IO);
		assert_text(err.msg, "target rank 1:");
		close_view(v);
	}
}

static void memory_may_end_anywhere(void **state)
{
	struct tiny *t = *state;

	for (uint64_t n = 1;; n++) {
		struct rs_view_options opts = {.name = "x{rank}", .ranks = "1-2", .builders = 1};
		struct rs_view *v = NULL;
		struct rs_err err = {0};
		int rc;

		fault_alloc(n);
		rc = rs__view_new(&opts, &t->source, &t->target, &v, &err);
		if (rc == 0)
			rc = rs__view_arrange(v, opts.name, &err);
		if (rc == 0)
			rc = rs__view_prove(v, &err);
		bool hit = fault_hit();
		fault_clear();
		if (v)
			close_view(v);
		if (!hit) {
			assert_int_equal(rc, 0);
			assert_true(n > 8);
			return;
		}
		/* What is lost may also be a remark, or a look at a directory's mode. */
		if (rc < 0)
			assert_int_equal(err.code, RS_NOMEM);
	}
}

/* -------------------------------------------------------------------- at once */

struct storm {
	struct tiny *tiny;
	struct rs_view *view;
	uint32_t seed;
	_Atomic uint32_t *wrong;
};

static uint32_t next(struct storm *s)
{
	s->seed = s->seed * 1664525 + 1013904223;
	return s->seed >> 16;
}

static void hold_and_read(struct storm *s, uint64_t inode)
{
	struct rs_image *img = rs_view_hold(s->view, inode, NULL);
	uint8_t got[FILE_BYTES], w[64], pad[8];
	uint32_t rank = (uint32_t)rs_view_inode_rank(s->view, inode);

	tiny_content(rank, w, pad);
	if (!img || rs_image_read(img, s->tiny->cat, 0, FILE_BYTES, got, NULL) < 0 ||
		memcmp(got + 20, w, 64) != 0)
		(*s->wrong)++;
	if (img)
		rs_view_release(s->view, inode, img);
}

static void want_and_perhaps_cancel(struct storm *s, uint64_t inode)
{
	struct listener l;
	bool taken_back;

	listen_to(&l);
	rs_view_want(s->view, inode, &l.waiter);
	taken_back = next(s) % 2 && rs_view_cancel(s->view, &l.waiter);
	if (!taken_back && await(&l) != RS_OK)
		(*s->wrong)++;
	if (answers(&l) != (taken_back ? 0 : 1))
		(*s->wrong)++;
}

static void *blow(void *arg)
{
	struct storm *s = arg;

	for (int i = 0; i < 300; i++) {
		uint64_t inode = FILE_OF(next(s) % TINY_RANKS);
		struct rs_attr attr;

		switch (next(s) % 4) {
		case 0:
			want_and_perhaps_cancel(s, inode);
			break;
		case 1:
			if (rs_view_attr(s->view, inode, &attr, NULL) == 0 &&
				attr.size != FILE_BYTES)
				(*s->wrong)++;
			break;
		default:
			hold_and_read(s, inode);
		}
	}
	return NULL;
}

static void many_threads_at_once(void **state)
{
	struct tiny *t = *state;
	_Atomic uint32_t wrong = 0;

	for (uint32_t round = 0; round < 4; round++) {
		/* Room for none, or for some, of the bodies. */
		struct rs_view *v = view_with(
			t, (struct rs_view_options){.memory = round % 2 ? 1 : 5000, .builders = 3});
		struct storm storms[4];
		pthread_t threads[4];

		assert_int_equal(rs_view_start(v, NULL), 0);
		for (uint32_t i = 0; i < 4; i++) {
			storms[i] = (struct storm){t, v, round * 4 + i, &wrong};
			assert_int_equal(pthread_create(&threads[i], NULL, blow, &storms[i]), 0);
		}
		for (uint32_t i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		for (uint32_t r = 0; r < TINY_RANKS; r++)
			assert_int_equal(v->files[r].holders, 0);
		assert_true(v->body_bytes <= v->memory);
		close_view(v);
	}
	assert_int_equal(wrong, 0);
}

/* ----------------------------------------------------------------- real trees */

static const uint8_t ckpt[] = {0x0a, 0x1c, 0x0a, 0x01, 'w', 0x12, 0x17, 0x08, 0x01, 0x08, 0x02,
	0x12, 0x07, 'F', 'l', 'o', 'a', 't', '3', '2', 0x1a, 0x08, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40};

static void write_ckpt(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, ckpt, sizeof(ckpt)), sizeof(ckpt));
	close(fd);
}

/* Two ranks in a new directory; @dir: at least 64 bytes. */
static void write_tree(char *dir)
{
	char path[128];

	strcpy(dir, "/tmp/view-XXXXXX");
	assert_non_null(mkdtemp(dir));
	for (int r = 0; r < 2; r++) {
		snprintf(path, sizeof(path), "%s/rank_%d", dir, r);
		assert_int_equal(mkdir(path, 0755), 0);
		snprintf(path, sizeof(path), "%s/rank_%d/x.ckpt", dir, r);
		write_ckpt(path);
	}
}

static void remove_tree(const char *dir)
{
	char path[128];

	for (int r = 0; r < 2; r++) {
		snprintf(path, sizeof(path), "%s/rank_%d/x.ckpt", dir, r);
		unlink(path);
		snprintf(path, sizeof(path), "%s/rank_%d", dir, r);
		rmdir(path);
	}
	assert_int_equal(rmdir(dir), 0);
}

static void same_shows_the_files_themselves(void **state)
{
	struct rs_view_options opts = {.target = {.target = "same"}, .proved = true};
	struct rs_view *v = NULL;
	struct rs_err err = {0};
	char dir[64];

	(void)state;
	write_tree(dir);
	opts.source.path = dir;
	if (rs_view_open(&opts, &v, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(rs_view_n_ranks(v), 2);
	assert_int_equal(rs_view_target(v)->n_ranks, 2);
	for (uint32_t r = 0; r < 2; r++) {
		struct rs_image *img = rs_view_hold(v, FILE_OF(r), &err);
		uint8_t got[sizeof(ckpt)];

		assert_non_null(img);
		assert_int_equal(img->size, sizeof(ckpt));
		assert_int_equal(
			rs_image_read(img, rs_view_source(v)->cat, 0, sizeof(got), got, &err), 0);
		assert_memory_equal(got, ckpt, sizeof(ckpt));
		rs_view_release(v, FILE_OF(r), img);
	}
	assert_int_equal(rs_view_child(v, DIR_OF(1), "checkpoint_1.ckpt"), FILE_OF(1));
	rs_view_close(v);
	remove_tree(dir);
}

static void full_of_one_file_is_that_file(void **state)
{
	struct rs_view_options opts = {.target = {.target = "full", .container = "safetensors"},
		.name = "model.safetensors"};
	static const char header[] = "{\"__metadata__\":{\"format\":\"ms\"},"
				     "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],"
				     "\"data_offsets\":[0,8]}}";
	struct rs_view *v = NULL;
	struct rs_err err = {0};
	struct rs_image *img;
	uint8_t got[256];
	char dir[64], path[128];

	(void)state;
	write_tree(dir);
	snprintf(path, sizeof(path), "%s/rank_0/x.ckpt", dir);
	opts.source.path = path;
	if (rs_view_open(&opts, &v, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(rs_view_n_ranks(v), 1);
	assert_int_equal(rs_view_child(v, DIR_OF(0), "model.safetensors"), FILE_OF(0));
	img = rs_view_hold(v, FILE_OF(0), &err);
	assert_non_null(img);
	assert_int_equal(rs_image_read(img, rs_view_source(v)->cat, 0, img->size, got, &err), 0);
	assert_memory_equal(got + 8, header, sizeof(header) - 1);
	assert_memory_equal(got + img->size - 8, ckpt + sizeof(ckpt) - 8, 8);
	rs_view_release(v, FILE_OF(0), img);
	rs_view_close(v);
	remove_tree(dir);
}

static void refuse_open(struct rs_view_options opts, enum rs_code code)
{
	struct rs_view *v = NULL;
	struct rs_err err = {0};

	assert_int_equal(rs_view_open(&opts, &v, &err), -1);
	assert_null(v);
	if (err.code != code)
		fail_msg("expected %s, found %s: %s", rs_code_name(code), rs_code_name(err.code),
			err.msg);
	assert_true(err.msg[0] != '\0');
}

static void opening_refuses(void **state)
{
	struct rs_view_options opts = {.target = {.target = "same"}};
	char dir[64], path[128];

	(void)state;
	write_tree(dir);
	opts.source.path = "/nowhere/at/all";
	refuse_open(opts, RS_MISSING);
	opts.source.path = dir;
	opts.ranks = "0-2";
	refuse_open(opts, RS_USAGE);
	opts.ranks = NULL;
	opts.name = "../x";
	refuse_open(opts, RS_USAGE);
	opts.name = NULL;
	opts.target.target = "full"; /* two ranks, and nothing says how they fit together */
	refuse_open(opts, RS_USAGE);
	opts.target.target = "sideways";
	refuse_open(opts, RS_USAGE);
	opts.target.target = "same";
	snprintf(path, sizeof(path), "%s/rank_1/x.ckpt", dir);
	assert_int_equal(truncate(path, 17), 0);
	opts.proved = true; /* rank 1 is not the sample, so only a proof sees it */
	refuse_open(opts, RS_CORRUPT);
	remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_tiny, close_tiny)
		cmocka_unit_test(ranks_are_ranges),
		cmocka_unit_test(names_are_plain),
		TEST(bad_options_open_nothing),
		TEST(inodes_are_arithmetic),
		TEST(names_lead_to_inodes_and_back),
		TEST(files_may_stand_at_the_root),
		TEST(a_directory_may_have_several_files),
		TEST(directories_show_what_source_shows),
		TEST(files_are_built_at_the_first_look),
		TEST(what_is_no_file_is_answered_at_once),
		TEST(failures_stay),
		TEST(what_may_pass_is_tried_again),
		TEST(requests_wait_and_threads_do_not),
		TEST(building_oneself_needs_no_builder),
		TEST(closing_answers_everybody),
		TEST(bodies_stay_while_there_is_room),
		TEST(bodies_are_dropped_and_built_again),
		TEST(the_longest_unused_goes_first),
		TEST(another_size_is_another_source),
		TEST(proof_builds_everything),
		TEST(proof_fails_at_the_lowest_rank),
		TEST(memory_may_end_anywhere),
		TEST(many_threads_at_once),
		cmocka_unit_test(same_shows_the_files_themselves),
		cmocka_unit_test(full_of_one_file_is_that_file),
		cmocka_unit_test(opening_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
