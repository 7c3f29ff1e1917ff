/*
 * test_image_build.c - images built from files on disk and read back: every stretch of every
 * file, permissions and times, sources that change, and a read path that allocates nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "reshardfs/image.h"
#include "tests/lib/fault.h"
#include "tests/lib/tiny.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

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

static struct rs_image *build(struct tiny *t, uint64_t rank)
{
	struct rs_image *img = NULL;
	struct rs_err err = {0};

	if (rs_image_build(&t->target, TINY_FILE(rank), &img, NULL, &err) < 0)
		fail_msg("%s", err.msg);
	return img;
}

static void refuse(struct tiny *t, enum rs_code code, const char *word)
{
	struct rs_image *img = NULL;
	struct rs_err err = {0};

	assert_int_equal(rs_image_build(&t->target, TINY_FILE(0), &img, NULL, &err), -1);
	assert_null(img);
	assert_int_equal(err.code, code);
	assert_text(err.msg, word);
}

/* --------------------------------------------------------------------- bytes */

/* Every stretch [off, off + len) of the image against @whole. */
static void read_everywhere(
	const struct tiny *t, const struct rs_image *img, const uint8_t *whole, uint64_t size)
{
	uint8_t got[512];
	struct rs_err err = {0};

	assert_int_equal(img->size, size);
	for (uint64_t off = 0; off <= size; off++)
		for (uint64_t len = 0; len <= size - off; len++) {
			memset(got, 0xee, sizeof(got));
			assert_int_equal(rs_image_read(img, t->cat, off, len, got, &err), 0);
			assert_memory_equal(got, whole + off, len);
			assert_int_equal(got[len], 0xee);
		}
	assert_int_equal(rs_image_read(img, t->cat, size, 1, got, &err), -1);
	assert_int_equal(rs_image_read(img, t->cat, UINT64_MAX, 2, got, &err), -1);
}

static void ckpt_reads_back(void **state)
{
	static const uint8_t w_head[] = {0x0a, 0x52, 0x0a, 0x01, 'w', 0x12, 0x4d, 0x08, 0x10, 0x08,
		0x04, 0x12, 0x05, 'U', 'I', 'n', 't', '8', 0x1a, 0x40};
	static const uint8_t pad_head[] = {0x0a, 0x1c, 0x0a, 0x03, 'p', 'a', 'd', 0x12, 0x15, 0x08,
		0x02, 0x12, 0x07, 'F', 'l', 'o', 'a', 't', '3', '2', 0x1a, 0x08};
	struct tiny *t = *state;

	for (uint32_t rank = 0; rank < TINY_RANKS; rank++) {
		struct rs_image *img = build(t, rank);
		uint8_t whole[256], *at = whole;

		memcpy(at, w_head, sizeof(w_head));
		at += sizeof(w_head);
		memcpy(at + 64, pad_head, sizeof(pad_head));
		tiny_content(rank, at, at + 64 + sizeof(pad_head));
		at += 64 + sizeof(pad_head) + 8;
		assert_int_equal(img->n_segments, 4); /* head, w, head, pad */
		read_everywhere(t, img, whole, (uint64_t)(at - whole));
		rs_image_free(img);
	}
}

static void safetensors_reads_back(void **state)
{
	static const char head[] =
		"\xa8\0\0\0\0\0\0\0"
		"{\"__metadata__\":{\"format\":\"ms\"},"
		"\"pad\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		"\"w\":{\"dtype\":\"U8\",\"shape\":[16,4],\"data_offsets\":[8,72]}}";
	struct tiny *t = *state;
	struct rs_image *img;
	uint8_t whole[512];

	t->target.container = "safetensors";
	img = build(t, 3);
	assert_int_equal(img->n_segments, 3); /* header, pad, w */
	memset(whole, ' ', sizeof(whole));
	memcpy(whole, head, sizeof(head) - 1);
	whole[0] = (uint8_t)((sizeof(head) - 1 - 8 + 7) / 8 * 8);
	tiny_content(3, whole + 8 + whole[0] + 8, whole + 8 + whole[0]);
	read_everywhere(t, img, whole, 8u + whole[0] + 72);
	rs_image_free(img);
}

static void raw_reads_back(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img;
	uint8_t whole[TINY_ROWS * TINY_COLS];

	t->raw = true;
	img = build(t, 0);
	assert_int_equal(img->n_segments, 1);
	for (uint32_t i = 0; i < sizeof(whole); i++)
		whole[i] = tiny_w(i / TINY_COLS, i % TINY_COLS);
	read_everywhere(t, img, whole, sizeof(whole));
	rs_image_free(img);
}

/* A tensor that is shown wider or narrower: every stretch, also those that cut elements. */
static void check_cast(struct tiny *t, enum rs_dtype from, enum rs_dtype to)
{
	struct rs_image *img = build(t, 2);
	const uint64_t n = 64 / (rs_dtype_bits(from) / 8), size = n * rs_dtype_bits(to) / 8;
	const uint64_t start[] = {0, size - 3};
	const struct rs_segment segment = {.kind = RS_SEGMENT_SLICE,
		.nest = img->nests[0],
		.skip = 3, /* as if a chunk border lay inside an element */
		.cast_from = from,
		.cast_to = to};
	struct rs_image shown = *img;
	uint8_t stored[64], pad[8], whole[256];

	shown.size = size - 3;
	shown.n_segments = 1;
	shown.start = start;
	shown.segments = &segment;
	tiny_content(2, stored, pad);
	rs_cast(from, to, stored, whole, n);
	read_everywhere(t, &shown, whole + 3, size - 3);
	rs_image_free(img);
}

static void casts_read_back(void **state)
{
	check_cast(*state, RS_DT_BF16, RS_DT_F32);
	check_cast(*state, RS_DT_F32, RS_DT_F16);
	check_cast(*state, RS_DT_F64, RS_DT_BF16);
}

static void casts_are_built(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img;

	t->pad_stored = RS_DT_F64;
	img = build(t, 0);
	assert_int_equal(img->nests[1]->bytes, 16);
	assert_int_equal(img->segments[3].cast_from, RS_DT_F64);
	assert_int_equal(img->segments[3].cast_to, RS_DT_F32);
	assert_int_equal(img->start[4] - img->start[3], 8);
	assert_int_equal(img->segments[1].cast_to, RS_DT_NONE);
	rs_image_free(img);
	t->pad_stored = RS_DT_I32;
	refuse(t, RS_UNSUPPORTED, "'pad': I32 cannot be shown as F32");
}

/* ------------------------------------------------------------------- replies */

#define BIG_BYTES 100000
#define WIDTH 9000 /* long enough to be pointed to */
#define PITCH 20000
#define ROWS 5

static uint8_t big_byte(uint64_t off)
{
	return (uint8_t)(off * 31 + off / 251);
}

static void make_rank_0_big(const struct tiny *t)
{
	static uint8_t bytes[BIG_BYTES];
	char path[64];
	int fd;

	for (uint64_t i = 0; i < BIG_BYTES; i++)
		bytes[i] = big_byte(i);
	tiny_path(t, 0, path, sizeof(path));
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

/*
 * An image of a literal, the rows of WIDTH bytes at every PITCH of the big file, fill, and short
 * rows (16 bytes of each thousand), with its bytes in @whole.
 */
static uint64_t sketch(struct rs_image *img, uint8_t *whole)
{
	static const struct rs_span span = {.len = BIG_BYTES};
	static const struct rs_entry entry = {.bytes = BIG_BYTES, .n_spans = 1, .spans = &span};
	static const struct rs_run runs[] = {
		{.entry = &entry, .first = 1000, .pitch = {PITCH}},
		{.entry = &entry, .pitch = {1000}},
	};
	static const struct rs_loop loops[] = {
		{.bytes = WIDTH * ROWS, .count = 1, .child = 1, .n_children = 1},
		{.bytes = WIDTH, .count = ROWS, .run = 0},
	};
	static const struct rs_loop short_loops[] = {
		{.bytes = 16 * 50, .count = 1, .child = 1, .n_children = 1},
		{.bytes = 16, .count = 50, .run = 1},
	};
	static const struct rs_nest nests[] = {
		{.bytes = WIDTH * ROWS, .loops = loops, .runs = runs, .n_loops = 2, .n_runs = 2},
		{.bytes = 16 * 50, .loops = short_loops, .runs = runs, .n_loops = 2, .n_runs = 2},
	};
	static const struct rs_segment segments[] = {
		{.kind = RS_SEGMENT_LITERAL, .data = "literal"},
		{.kind = RS_SEGMENT_SLICE, .nest = &nests[0]},
		{.kind = RS_SEGMENT_FILL, .byte = 0xf1},
		{.kind = RS_SEGMENT_SLICE, .nest = &nests[1]},
	};
	static const uint64_t start[] = {
		0, 7, 7 + WIDTH * ROWS, 17 + WIDTH * ROWS, 17 + WIDTH * ROWS + 16 * 50};
	uint8_t *at = whole + 7;

	memcpy(whole, "literal", 7);
	for (uint64_t i = 0; i < WIDTH * ROWS; i++)
		*at++ = big_byte(1000 + i / WIDTH * PITCH + i % WIDTH);
	memset(at, 0xf1, 10);
	at += 10;
	for (uint64_t i = 0; i < 16 * 50; i++)
		*at++ = big_byte(i / 16 * 1000 + i % 16);
	img->size = start[4];
	img->n_segments = 4;
	img->start = start;
	img->segments = segments;
	return img->size;
}

static uint32_t check_reply(const struct tiny *t, const struct rs_image *img, uint64_t off,
	uint64_t len, uint32_t max, const uint8_t *whole)
{
	static uint8_t buf[64000];
	struct iovec iov[16];
	struct rs_reply to = {.iov = iov, .max = max, .buf = buf};
	struct rs_err err = {0};
	uint64_t at = off, pointed = 0;

	if (rs_image_reply(img, t->cat, off, len, &to, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(to.n <= max);
	for (uint32_t i = 0; i < to.n; i++) {
		const uint8_t *base = iov[i].iov_base;

		assert_memory_equal(base, whole + at, iov[i].iov_len);
		at += iov[i].iov_len;
		if (base < buf || base >= buf + sizeof(buf))
			pointed += iov[i].iov_len;
	}
	assert_int_equal(at, off + len);
	assert_int_equal(pointed + to.used, len);
	return to.n;
}

/* However few pieces are allowed, they are the file; and long rows are pointed to, not copied. */
static void replies_are_the_file_in_pieces(void **state)
{
	static const enum rs_access accesses[] = {RS_ACCESS_MAP, RS_ACCESS_PREAD};
	static uint8_t whole[64000], got[64000];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct tiny t;
		struct rs_image *img, drawn;
		uint64_t size;

		tiny_open(&t, make_rank_0_big);
		rs_catalog_set_access(t.cat, accesses[i]);
		img = build(&t, 0);
		drawn = *img;
		size = sketch(&drawn, whole);
		for (uint32_t max = 1; max <= 16; max++)
			for (uint64_t off = 0; off < size; off += 997)
				for (uint64_t len = 1; len <= size - off; len += 5003)
					check_reply(&t, &drawn, off, len, max, whole);
		/* literal, five rows, and one piece of all that was gathered */
		assert_int_equal(check_reply(&t, &drawn, 0, size, 16, whole),
			accesses[i] == RS_ACCESS_MAP ? 7 : 2);
		assert_int_equal(rs_image_read(&drawn, t.cat, 0, size, got, NULL), 0);
		assert_memory_equal(got, whole, size);
		rs_image_free(img);
		tiny_close(&t);
	}
}

/* A file has a list beside its bytes: the same items, each with its nest. */
static void images_know_what_they_hold(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img = build(t, 1);

	assert_int_equal(img->list.n, 2);
	assert_true(rs_str_is(img->list.items[1].name, "pad"));
	assert_int_equal(img->nests[0]->bytes, 64);
	assert_int_equal(img->nests[1]->bytes, 8);
	assert_int_equal(img->n_files, TINY_RANKS);
	for (uint32_t i = 0; i < TINY_RANKS; i++)
		assert_int_equal(img->files[i], i);
	rs_image_free(img);

	t->rows = 4; /* the rows of source rank 0 */
	img = build(t, 1);
	assert_int_equal(img->n_files, 1);
	assert_int_equal(img->files[0], 0);
	rs_image_free(img);
}

/* ---------------------------------------------------------- permissions, times */

static void check_mode(void (*change)(const struct tiny *t), uint32_t mode, bool one_group)
{
	struct tiny t;
	struct rs_image *img;

	tiny_open(&t, change);
	img = build(&t, 0);
	assert_int_equal(img->mode, mode);
	assert_int_equal(img->gid != UINT32_MAX, one_group);
	rs_image_free(img);
	tiny_close(&t);
}

static void change_nothing(const struct tiny *t)
{
	(void)t;
}

static void close_source_to_others(const struct tiny *t)
{
	assert_int_equal(chmod(t->dir, 0750), 0);
}

static void close_source_to_all(const struct tiny *t)
{
	assert_int_equal(chmod(t->dir, 0700), 0);
}

static void close_one_rank(const struct tiny *t)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/rank_2", t->dir);
	assert_int_equal(chmod(path, 0711), 0);
	snprintf(path, sizeof(path), "%s/rank_3", t->dir);
	assert_int_equal(chmod(path, 0700), 0);
}

static void close_one_rank_to_listing(const struct tiny *t)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/rank_2", t->dir);
	assert_int_equal(chmod(path, 0711), 0);
}

static void give_one_directory_away(const struct tiny *t)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/rank_1", t->dir);
	assert_int_equal(chown(path, (uid_t)-1, getgid() + 1), 0);
	assert_int_equal(chmod(path, 0750), 0);
}

static void close_one_file_to_others(const struct tiny *t)
{
	char path[64];

	tiny_path(t, 1, path, sizeof(path));
	assert_int_equal(chmod(path, 0640), 0);
}

static void close_one_file_to_its_group(const struct tiny *t)
{
	char path[64];

	tiny_path(t, 1, path, sizeof(path));
	assert_int_equal(chmod(path, 0604), 0);
}

static void give_one_file_away(const struct tiny *t)
{
	char path[64];

	close_one_file_to_others(t);
	tiny_path(t, 1, path, sizeof(path));
	assert_int_equal(chown(path, (uid_t)-1, getgid() + 1), 0);
}

static void modes_are_what_files_and_directories_share(void **state)
{
	(void)state;
	check_mode(change_nothing, 0444, true);
	check_mode(close_one_file_to_others, 0440, true);
	check_mode(close_one_file_to_its_group, 0444, true); /* what others may, a group may */
	check_mode(close_one_rank_to_listing, 0444, true);   /* searching is enough */
	check_mode(close_one_rank, 0400, true);
	check_mode(close_source_to_others, 0440, true);
	check_mode(close_source_to_all, 0400, true);
	if (geteuid() != 0)
		return;                                  /* only root can give files away */
	check_mode(give_one_directory_away, 0400, true); /* the files' group is "others" there */
	check_mode(give_one_file_away, 0400, false);
}

static void attributes_are_what_files_share(void **state)
{
	struct tiny *t = *state;
	uint64_t newest = 0;
	struct rs_image *img = build(t, 0);

	for (uint32_t i = 0; i < TINY_RANKS; i++)
		newest = rs_max(newest, (uint64_t)rs_catalog_file_info(t->cat, i)->id.mtime_ns);
	assert_int_equal(img->mtime_ns, newest);
	assert_int_equal(img->uid, geteuid());
	assert_int_equal(img->gid, rs_catalog_file_info(t->cat, 0)->id.gid);
	rs_image_free(img);

	t->empty = true; /* from no file at all: SOURCE's time */
	t->target.container = "safetensors";
	img = build(t, 0);
	assert_int_equal(img->n_files, 0);
	assert_int_equal(img->mtime_ns, rs_dir_identity(t->handle).mtime_ns);
	rs_image_free(img);
}

/* ------------------------------------------------------------------- failures */

static void refusals(void **state)
{
	struct tiny *t = *state;

	t->fail[0] = RS_MISSING;
	refuse(t, RS_MISSING, "the list of 0 failed");
	t->fail[0] = RS_OK;
	t->empty = true;
	refuse(t, RS_MISSING, "empty");
	t->empty = false;
	t->strange = true;
	refuse(t, RS_UNSUPPORTED, "F8_E5M2");
	t->strange = false;
	t->target.container = "gguf";
	refuse(t, RS_UNSUPPORTED, "'gguf'");
}

static void notes_come_from_list_and_format(void **state)
{
	struct tiny *t = *state;
	struct rs_notes notes = {0};
	struct rs_image *img = NULL;

	t->rows = 0;
	assert_int_equal(rs_image_build(&t->target, TINY_FILE(2), &img, &notes, NULL), 0);
	assert_int_equal(notes.n, 2);
	assert_text(notes.items[0], "rank 2");
	assert_text(notes.items[1], "'w' [0, 4]");
	rs_notes_done(&notes);
	rs_image_free(img);
}

static void memory_may_end_anywhere(void **state)
{
	struct tiny *t = *state;
	uint64_t n;

	rs_image_free(build(t, 0)); /* headers are there now */
	for (t->target.container = "ckpt";; t->target.container = "safetensors") {
		for (n = 1;; n++) {
			struct rs_image *img = NULL;
			struct rs_err err = {0};
			int rc;

			fault_alloc(n);
			rc = rs_image_build(&t->target, TINY_FILE(0), &img, NULL, &err);
			if (!fault_hit()) {
				assert_int_equal(rc, 0);
				rs_image_free(img);
				break;
			}
			/* A directory that cannot be looked at for want of memory counts as closed.
			 */
			if (rc == 0) {
				assert_int_equal(img->mode & 0044, 0);
				rs_image_free(img);
				continue;
			}
			assert_int_equal(err.code, RS_NOMEM);
		}
		assert_true(n > 5);
		fault_clear();
		if (strcmp(t->target.container, "safetensors") == 0)
			return;
	}
}

static void reads_allocate_nothing(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img = build(t, 0);
	uint8_t got[256];

	fault_alloc(0);
	for (uint64_t off = 0; off < img->size; off++)
		assert_int_equal(rs_image_read(img, t->cat, off, img->size - off, got, NULL), 0);
	assert_int_equal(fault_allocs(), 0);
	rs_image_free(img);
}

static void reads_fail_whole(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img = build(t, 0);
	uint8_t got[256];

	for (uint64_t n = 1;; n++) {
		struct rs_err err = {0};
		int rc;

		fault_read_always(n, FAULT_EIO);
		rc = rs_image_read(img, t->cat, 0, img->size, got, &err);
		if (!fault_hit()) {
			assert_true(n > TINY_RANKS);
			break;
		}
		assert_int_equal(rc, -1);
		assert_int_equal(err.code, RS_IO);
	}
	fault_clear();
	rs_image_free(img);
}

static void expect_changed(const struct tiny *t, const struct rs_image *img, uint64_t off)
{
	struct rs_err err = {0};
	uint8_t got[64];

	assert_int_equal(rs_image_read(img, t->cat, off, 4, got, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	assert_text(err.msg, "rank_1/data");
}

/* Rewritten at the same size: the next read of that file tells, and from then on every one. */
static void a_source_that_changes_is_refused(void **state)
{
	struct tiny *t = *state;
	struct rs_image *img = build(t, 0);
	uint8_t got[256];
	char path[64];
	int fd;

	assert_int_equal(rs_image_read(img, t->cat, 0, img->size, got, NULL), 0);
	tiny_path(t, 1, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	usleep(20000); /* so that the time of the change differs */
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	for (int i = 0; i < 3; i++)
		expect_changed(t, img, 20 + 16); /* row 4: of rank 1 */
	assert_int_equal(
		rs_image_read(img, t->cat, 20, 16, got, NULL), 0); /* rank 0 is as it was */

	/* A file that has lost its end needs no check to be told. */
	assert_int_equal(ftruncate(fd, TINY_LEAD), 0);
	expect_changed(t, img, 20 + 16);
	close(fd);
	rs_image_free(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_tiny, close_tiny)
		TEST(ckpt_reads_back),
		TEST(safetensors_reads_back),
		TEST(raw_reads_back),
		TEST(casts_read_back),
		TEST(casts_are_built),
		cmocka_unit_test(replies_are_the_file_in_pieces),
		TEST(images_know_what_they_hold),
		cmocka_unit_test(modes_are_what_files_and_directories_share),
		TEST(attributes_are_what_files_share),
		TEST(refusals),
		TEST(notes_come_from_list_and_format),
		TEST(memory_may_end_anywhere),
		TEST(reads_allocate_nothing),
		TEST(reads_fail_whole),
		TEST(a_source_that_changes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
