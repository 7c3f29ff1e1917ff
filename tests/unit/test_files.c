/*
 * test_files.c - source files and directories on a real file system: exact reads in spite of
 * short ones, change noticed, rows gathered, and a fence that nothing leads out of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "reshardfs/base.h"
#include "tests/lib/fault.h"

#define assert_text(text, word)                                                                    \
	do {                                                                                       \
		if (!strstr((text), (word)))                                                       \
			fail_msg("expected '%s' in '%s'", (word), (text));                         \
	} while (0)

/*
 * Every test runs inside a fresh directory:
 *
 *	.                      the fence, where a test names one
 *	blobs/b                "blob"
 *	ck/                    the checkpoint
 *	ck/a.ckpt              the bytes 0, 1, 2, ... 255, 0, ... (1000 of them)
 *	ck/rank_0/x.ckpt       "x"
 *	outside                "secret"
 */
#define A_BYTES 1000

static void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static int enter_tree(void **state)
{
	char *dir = strdup("/tmp/test_files.XXXXXX");
	uint8_t bytes[A_BYTES];

	if (!dir || !mkdtemp(dir) || chmod(dir, 0755) < 0 || chdir(dir) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	if (mkdir("blobs", 0755) < 0 || mkdir("ck", 0755) < 0 || mkdir("ck/rank_0", 0755) < 0)
		return -1;
	write_file("blobs/b", "blob", 4);
	write_file("ck/a.ckpt", bytes, sizeof(bytes));
	write_file("ck/rank_0/x.ckpt", "x", 1);
	write_file("outside", "secret", 6);
	*state = dir;
	return 0;
}

static int leave_tree(void **state)
{
	char command[100];

	fault_clear();
	if (chdir("/") < 0)
		return -1;
	snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
	free(*state);
	return system(command);
}

/* A file system stamps times with a clock that ticks every few milliseconds. */
static void let_clock_tick(void)
{
	usleep(20000);
}

/* ---------------------------------------------------------------- opening files */

static void open_takes_regular_files_only(void **state)
{
	static const struct {
		const char *path;
		enum rs_code code;
		const char *word;
	} rows[] = {
		{"ck", RS_CORRUPT, "found a directory"},
		{"fifo", RS_CORRUPT, "found a FIFO"},
		{"socket", RS_CORRUPT, "socket"},
		{"/dev/null", RS_CORRUPT, "found a device"},
		{"nothing", RS_MISSING, "No such file"},
		{"outside/x", RS_MISSING, "Not a directory"},
	};
	struct sockaddr_un sun = {.sun_family = AF_UNIX, .sun_path = "socket"};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(mkfifo("fifo", 0644), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	alarm(20); /* a FIFO that blocks must not block this test for ever */
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rs_file f;
		struct rs_err err;

		assert_int_equal(rs_file_open(rows[i].path, NULL, &f, &err), -1);
		assert_int_equal(err.code, rows[i].code);
		assert_text(err.msg, rows[i].path);
		assert_text(err.msg, rows[i].word);
	}
	alarm(0);
	close(fd);
}

static void open_tells_what_the_file_is(void **state)
{
	struct rs_file f;
	struct rs_err err;
	struct stat st;

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", "shown", &f, &err), 0);
	assert_int_equal(fstat(f.fd, &st), 0);
	assert_int_equal(f.size, A_BYTES);
	assert_int_equal(f.id.size, A_BYTES);
	assert_int_equal(f.id.ino, st.st_ino);
	assert_int_equal(f.id.mode, st.st_mode);
	assert_int_equal(f.id.uid, st.st_uid);
	assert_int_equal(f.id.nlink, 1);
	assert_int_equal(
		f.id.mtime_ns, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
	assert_string_equal(f.name, "shown");
	assert_int_equal(fcntl(f.fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(fcntl(f.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	rs_file_close(&f);
	assert_int_equal(f.fd, -1);
	rs_file_close(&f); /* twice is fine */
}

/* O_NOATIME is for owners; others must still be able to read. */
static void open_works_for_strangers(void **state)
{
	struct rs_file f;
	struct rs_dir *dir;
	struct rs_err err;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod("outside", 0600), 0);
	assert_int_equal(mkdir("closed", 0700), 0);
	assert_int_equal(rs_dir_open(".", NULL, true, &dir, &err), 0);
	assert_int_equal(seteuid(65534), 0);
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_close(&f);
	assert_int_equal(rs_dir_file(dir, "ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_close(&f);
	assert_int_equal(rs_file_open("outside", NULL, &f, &err), -1);
	assert_int_equal(err.code, RS_IO);
	assert_int_equal(err.sys, EACCES);
	rs_dir_close(dir);
	assert_int_equal(rs_dir_open("closed", NULL, true, &dir, &err), -1);
	assert_int_equal(err.code, RS_MISSING);
	assert_text(err.msg, "Permission denied");
	assert_int_equal(seteuid(0), 0);
}

static void names_in_messages_are_escaped(void **state)
{
	struct rs_file f;
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_file_open("no\x1b[1m", NULL, &f, &err), -1);
	assert_text(err.msg, "no\\x1B[1m");
}

/* ---------------------------------------------------------------------- reading */

static void reads_are_exact(void **state)
{
	struct rs_file f, m;
	struct rs_err err;
	uint8_t bytes[A_BYTES], buf[A_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_memory(bytes, sizeof(bytes), "memory", &m);
	for (uint64_t off = 0; off <= A_BYTES; off += 125)
		for (uint64_t len = 0; off + len <= A_BYTES; len += 125) {
			memset(buf, 0xee, sizeof(buf));
			assert_int_equal(rs_file_read(&f, off, buf, len, &err), 0);
			assert_memory_equal(buf, bytes + off, len);
			assert_true(len == A_BYTES || buf[len] == 0xee);
			assert_int_equal(rs_file_read(&m, off, buf, len, &err), 0);
			assert_memory_equal(buf, bytes + off, len);
		}
	rs_file_close(&f);
	rs_file_close(&m);
}

static void reads_past_the_end_are_refused(void **state)
{
	static const struct {
		uint64_t off, len;
	} rows[] = {{A_BYTES, 1}, {0, A_BYTES + 1}, {A_BYTES + 1, 0}, {1, UINT64_MAX},
		{UINT64_MAX, 1}, {UINT64_C(1) << 63, 1}};
	uint8_t bytes[A_BYTES] = {0}, buf[8];
	struct rs_file f, m;
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_memory(bytes, sizeof(bytes), "memory", &m);
	fault_read(0, FAULT_EIO);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(rs_file_read(&f, rows[i].off, buf, rows[i].len, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		assert_text(err.msg, "ck/a.ckpt@");
		assert_text(err.msg, "1000 bytes");
		assert_int_equal(rs_file_read(&m, rows[i].off, buf, rows[i].len, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
	}
	assert_int_equal(fault_reads(), 0); /* told without asking the disk */
	rs_file_close(&f);
}

static void hindered_reads_are_invisible(void **state)
{
	static const enum fault_kind kinds[] = {FAULT_SHORT, FAULT_EINTR, FAULT_EAGAIN};
	struct rs_file f;
	struct rs_err err;
	uint8_t buf[A_BYTES];

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		memset(buf, 0xee, sizeof(buf));
		fault_read(1, kinds[k]);
		assert_int_equal(rs_file_read(&f, 0, buf, A_BYTES, &err), 0);
		assert_true(fault_hit());
		assert_int_equal(fault_reads(), 2);
		for (size_t i = 0; i < sizeof(buf); i++)
			assert_int_equal(buf[i], (uint8_t)i);
	}
	fault_read_always(1, FAULT_SHORT); /* byte by byte */
	assert_int_equal(rs_file_read(&f, 100, buf, 200, &err), 0);
	assert_int_equal(fault_reads(), 200);
	for (size_t i = 0; i < 200; i++)
		assert_int_equal(buf[i], (uint8_t)(100 + i));
	rs_file_close(&f);
}

static void failed_reads_are_errors(void **state)
{
	static const struct {
		enum fault_kind kind;
		enum rs_code code;
		int sys;
		const char *word;
	} rows[] = {
		{FAULT_EIO, RS_IO, EIO, "ck/a.ckpt@10"},
		{FAULT_END, RS_CHANGED, 0, "had 1000 bytes"},
		{FAULT_ESTALE, RS_CHANGED, ESTALE, "Stale"},
		{FAULT_EAGAIN, RS_IO, EAGAIN, "ck/a.ckpt@10"}, /* not for ever */
	};
	struct rs_file f;
	struct rs_err err;
	uint8_t buf[20];

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		fault_read_always(1, rows[i].kind);
		assert_int_equal(rs_file_read(&f, 10, buf, sizeof(buf), &err), -1);
		assert_int_equal(err.code, rows[i].code);
		assert_int_equal(err.sys, rows[i].sys);
		assert_text(err.msg, rows[i].word);
	}
	fault_clear();
	assert_int_equal(rs_file_read(&f, 10, buf, sizeof(buf), &err), 0); /* the next one works */
	rs_file_close(&f);
}

/* ----------------------------------------------------------------------- change */

static void a_shorter_file_has_changed(void **state)
{
	struct rs_file f;
	struct rs_err err;
	uint8_t buf[A_BYTES];

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	assert_int_equal(rs_file_check(&f, &err), 0);
	assert_int_equal(truncate("ck/a.ckpt", 600), 0);
	assert_int_equal(rs_file_read(&f, 0, buf, 600, &err), 0);
	assert_int_equal(rs_file_read(&f, 500, buf, 200, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	assert_text(err.msg, "ck/a.ckpt@600: expected 100 more bytes");
	assert_int_equal(rs_file_check(&f, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	assert_text(err.msg, "1000 bytes");
	assert_text(err.msg, "600");
	rs_file_close(&f);
}

static void a_rewritten_file_has_changed_even_with_its_old_mtime(void **state)
{
	struct rs_file f;
	struct rs_err err;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(stat("ck/a.ckpt", &st), 0);
	times[1] = st.st_mtim;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	let_clock_tick();
	fd = open("ck/a.ckpt", O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "?", 1, 5), 1);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
	assert_int_equal(stat("ck/a.ckpt", &st), 0);
	assert_int_equal(st.st_mtim.tv_nsec, times[1].tv_nsec);
	assert_int_equal(rs_file_check(&f, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	rs_file_close(&f);
}

static void names_and_rights_do_not_change_a_file(void **state)
{
	struct rs_file f, unlinked, replaced;
	struct rs_err err;
	uint8_t buf[4];

	(void)state;
	write_file("ck/b", "old", 3);
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	assert_int_equal(rs_file_open("ck/rank_0/x.ckpt", NULL, &unlinked, &err), 0);
	assert_int_equal(rs_file_open("ck/b", NULL, &replaced, &err), 0);
	let_clock_tick();
	assert_int_equal(chmod("ck/a.ckpt", 0), 0);
	assert_int_equal(rs_file_check(&f, &err), 0);
	assert_int_equal(unlink("ck/rank_0/x.ckpt"), 0);
	assert_int_equal(rs_file_check(&unlinked, &err), 0);
	assert_int_equal(rs_file_read(&unlinked, 0, buf, 1, &err), 0);
	write_file("ck/new", "new", 3);
	assert_int_equal(rename("ck/new", "ck/b"), 0);
	assert_int_equal(rs_file_check(&replaced, &err), 0);
	assert_int_equal(rs_file_read(&replaced, 0, buf, 3, &err), 0);
	assert_memory_equal(buf, "old", 3);
	rs_file_close(&f);
	rs_file_close(&unlinked);
	rs_file_close(&replaced);
}

/* ------------------------------------------------------------------------- rows */

/* The oracle: one byte at a time. */
static void gather_slowly(const uint8_t *src, const struct rs_rows *r, uint8_t *dst)
{
	for (uint64_t i = 0; i < r->count; i++)
		for (uint64_t k = 0; k < r->width; k++)
			dst[i * r->width + k] = src[r->off + i * r->pitch + k];
}

static void rows_are_gathered(void **state)
{
	static const struct rs_rows rows[] = {
		{.off = 0, .pitch = 16, .width = 4, .count = 62},  /* a quarter of each row */
		{.off = 12, .pitch = 16, .width = 4, .count = 61}, /* the last quarter */
		{.off = 3, .pitch = 7, .width = 7, .count = 100},  /* one run */
		{.off = 999, .pitch = 0, .width = 1, .count = 1},
		{.off = 0, .pitch = 500, .width = 500, .count = 2}, /* all */
		{.off = 500, .pitch = 499, .width = 1, .count = 2}, /* up to the last byte */
		{.off = 40, .pitch = 0, .width = 8, .count = 5},    /* the same row again */
		{.off = 10, .pitch = 3, .width = 8, .count = 9},    /* rows that overlap */
		{.off = 1000, .pitch = 16, .width = 4, .count = 0},
		{.off = 1000, .pitch = 16, .width = 0, .count = 4},
	};
	uint8_t bytes[A_BYTES], want[A_BYTES], got[A_BYTES];
	struct rs_file f, m;
	struct rs_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_memory(bytes, sizeof(bytes), "memory", &m);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		memset(want, 0xee, sizeof(want));
		memset(got, 0xee, sizeof(got));
		gather_slowly(bytes, &rows[i], want);
		assert_int_equal(rs_io_gather(&m, &rows[i], got, &err), 0);
		assert_memory_equal(got, want, sizeof(want));
		memset(got, 0xee, sizeof(got));
		fault_alloc(0);
		fault_read_always(2, FAULT_SHORT);
		assert_int_equal(rs_io_gather(&f, &rows[i], got, &err), 0);
		assert_memory_equal(got, want, sizeof(want));
		assert_int_equal(fault_allocs(), 0);
	}
	rs_file_close(&f);
}

static void one_run_is_one_read(void **state)
{
	const struct rs_rows run = {.off = 8, .pitch = 16, .width = 16, .count = 40};
	uint8_t got[A_BYTES];
	struct rs_file f;
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	fault_read(0, FAULT_EIO);
	assert_int_equal(rs_io_gather(&f, &run, got, &err), 0);
	assert_int_equal(fault_reads(), 1);
	rs_file_close(&f);
}

static void rows_outside_the_file_are_refused(void **state)
{
	static const struct rs_rows rows[] = {
		{.off = 0, .pitch = 16, .width = 9, .count = 63}, /* one byte too far */
		{.off = 1000, .pitch = 1, .width = 1, .count = 1},
		{.off = 0, .pitch = UINT64_MAX, .width = 1, .count = 2},
		{.off = 0, .pitch = UINT64_C(1) << 33, .width = 1, .count = UINT64_C(1) << 33},
		{.off = UINT64_MAX, .pitch = 1, .width = 2, .count = 1},
		{.off = 0, .pitch = UINT64_MAX - 1, .width = 3, .count = 2},
	};
	uint8_t bytes[A_BYTES] = {0}, got[16];
	struct rs_file f, m;
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	rs_file_memory(bytes, sizeof(bytes), "memory", &m);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(rs_io_gather(&m, &rows[i], got, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		assert_int_equal(rs_io_gather(&f, &rows[i], got, &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		assert_text(err.msg, "ck/a.ckpt@");
	}
	rs_file_close(&f);
}

/* Mapped or read, the same bytes; and a mapped page that is gone is an error, not a signal. */
static void mapped_rows_are_the_same_and_survive_truncation(void **state)
{
	const struct rs_rows rows = {.off = 100, .pitch = 5000, .width = 700, .count = 3};
	static uint8_t bytes[20000], right[2100], got[2100];
	struct rs_err err = {0};
	struct rs_file file;
	(void)state;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	write_file("mapped", bytes, sizeof(bytes));
	assert_int_equal(rs_file_open("mapped", NULL, &file, &err), 0);
	assert_int_equal(rs_io_gather(&file, &rows, right, &err), 0);
	rs_file_map(&file, RS_ACCESS_PREAD);
	assert_null(file.map);
	rs_file_map(&file, RS_ACCESS_MAP);
	assert_non_null(file.map);
	assert_int_equal(rs_io_gather(&file, &rows, got, &err), 0);
	assert_memory_equal(got, right, sizeof(right));

#ifdef __SANITIZE_THREAD__ /* it takes faults of memory for its own and ends the program */
	rs_file_close(&file);
	skip();
#endif
	assert_int_equal(truncate("mapped", 4096), 0);
	assert_int_equal(rs_io_gather(&file, &rows, got, &err), -1);
	assert_int_equal(err.code, RS_CHANGED);
	assert_non_null(strstr(err.msg, "mapped"));
	/* What is still there is still served, and the guard works a second time. */
	const struct rs_rows begin = {.off = 0, .width = 4096, .count = 1};
	static uint8_t page[4096];
	assert_int_equal(rs_io_gather(&file, &begin, page, &err), 0);
	assert_memory_equal(page, bytes, sizeof(page));
	assert_int_equal(rs_io_gather(&file, &rows, got, &err), -1);
	rs_file_close(&file);
}

/* Reads through a pool give the same bytes, rows longer than its buffer included. */
static void a_pool_reads_the_same(void **state)
{
	const struct rs_rows rows = {.off = 7, .pitch = 2500000, .width = 1500000, .count = 2};
	const struct rs_rows small = {.off = 3, .pitch = 1000, .width = 10, .count = 4000};
	uint8_t *bytes = calloc(4100000, 1), *right = calloc(3000000, 1), *got = calloc(3000000, 1);
	struct rs_err err = {0};
	struct rs_file file;
	(void)state;

	for (size_t i = 0; i < 4100000; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	write_file("pooled", bytes, 4100000);
	assert_int_equal(rs_file_open("pooled", NULL, &file, &err), 0);
	struct rs_pool *pool = rs_pool_new(10000, &err);
	assert_non_null(pool);
	assert_int_equal(rs_io_gather(&file, &rows, right, &err), 0);
	file.pool = pool;
	assert_int_equal(rs_io_gather(&file, &rows, got, &err), 0);
	assert_memory_equal(got, right, 3000000);
	file.pool = NULL;
	assert_int_equal(rs_io_gather(&file, &small, right, &err), 0);
	file.pool = pool;
	assert_int_equal(rs_io_gather(&file, &small, got, &err), 0);
	assert_memory_equal(got, right, 40000);
	assert_int_equal(rs_file_read(&file, 4099990, got, 10, &err), 0);
	assert_memory_equal(got, bytes + 4099990, 10);
	rs_pool_free(pool);
	rs_file_close(&file);
	free(bytes);
	free(right);
	free(got);
}

/* What stalls is given up at the deadline; the next read has another thread, and the first comes
 * back. */
static void a_stalled_read_is_given_up(void **state)
{
	struct rs_err err = {0};
	struct rs_file file;
	uint8_t got[10];
	(void)state;

	write_file("stalled", "0123456789", 10);
	assert_int_equal(rs_file_open("stalled", NULL, &file, &err), 0);
	struct rs_pool *pool = rs_pool_new(50, &err);
	assert_non_null(pool);
	file.pool = pool;
	fault_read(1, FAULT_STALL);
	assert_int_equal(rs_file_read(&file, 0, got, 10, &err), -1);
	assert_int_equal(err.code, RS_IO);
	assert_int_equal(err.sys, ETIMEDOUT);
	assert_non_null(strstr(err.msg, "stalled@0"));
	assert_int_equal(rs_file_read(&file, 5, got, 5, &err), 0);
	assert_memory_equal(got, "56789", 5);
	fault_clear();
	usleep(FAULT_STALL_MS * 2000); /* the thread that was given up has come home */
	for (int i = 0; i < 100; i++)
		assert_int_equal(rs_file_read(&file, 0, got, 10, &err), 0);
	rs_pool_free(pool);
	rs_file_close(&file);
	usleep(50000); /* for its threads to go, so that none counts as a leak */
}

static void every_row_may_fail(void **state)
{
	const struct rs_rows rows = {.off = 0, .pitch = 100, .width = 10, .count = 10};
	uint8_t got[100];
	struct rs_file f;
	struct rs_err err;

	(void)state;
	assert_int_equal(rs_file_open("ck/a.ckpt", NULL, &f, &err), 0);
	for (uint64_t n = 1; n <= 10; n++) {
		char where[40];

		fault_read(n, FAULT_EIO);
		assert_int_equal(rs_io_gather(&f, &rows, got, &err), -1);
		assert_int_equal(err.code, RS_IO);
		snprintf(where, sizeof(where), "ck/a.ckpt@%d:", (int)(n - 1) * 100);
		assert_text(err.msg, where);
	}
	fault_read(11, FAULT_EIO);
	assert_int_equal(rs_io_gather(&f, &rows, got, &err), 0);
	rs_file_close(&f);
}

/* ------------------------------------------------------------------ directories */

static void open_tells_what_is_no_directory(void **state)
{
	static const struct {
		const char *path, *beneath;
		enum rs_code code;
		const char *word;
	} rows[] = {
		{"nothing", NULL, RS_MISSING, "No such file"},
		{"outside", NULL, RS_MISSING, "Not a directory"},
		{"ck", "nothing", RS_MISSING, "nothing"}, {"nothing", ".", RS_MISSING, "nothing"},
		{"outside", ".", RS_MISSING, "Not a directory"},
		{"ck", "ck/rank_0", RS_USAGE, "rank_0"}, {"ck", "blobs", RS_USAGE, "beneath="},
		{"ck2", "ck", RS_USAGE, "beneath="}, /* the same letters do not make it an inside */
	};

	(void)state;
	assert_int_equal(mkdir("ck2", 0755), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rs_dir *dir = NULL;
		struct rs_err err;

		assert_int_equal(rs_dir_open(rows[i].path, rows[i].beneath, true, &dir, &err), -1);
		assert_int_equal(err.code, rows[i].code);
		assert_text(err.msg, rows[i].word);
		assert_null(dir);
	}
}

static struct rs_dir *must_open(const char *path, const char *beneath, bool links)
{
	struct rs_dir *dir;
	struct rs_err err;

	if (rs_dir_open(path, beneath, links, &dir, &err) < 0)
		fail_msg("%s", err.msg);
	return dir;
}

/* The content of @rel as text, or NULL and @err. */
static const char *content(struct rs_dir *dir, const char *rel, char buf[16], struct rs_err *err)
{
	struct rs_file f;
	uint64_t len;
	int status;

	if (rs_dir_file(dir, rel, NULL, &f, err) < 0)
		return NULL;
	len = rs_min(f.size, 15);
	status = rs_file_read(&f, 0, buf, len, err);
	rs_file_close(&f);
	if (status < 0)
		return NULL;
	buf[len] = 0;
	return buf;
}

/*
 * The links of the tests below: inside, absolute inside, a directory, out, out to a directory,
 * nowhere, in a circle.
 */
static void make_links(void)
{
	char here[400], inside[450];

	assert_non_null(getcwd(here, sizeof(here)));
	snprintf(inside, sizeof(inside), "%s/ck/a.ckpt", here);
	assert_int_equal(symlink("rank_0/x.ckpt", "ck/in"), 0);
	assert_int_equal(symlink(inside, "ck/in_absolute"), 0);
	assert_int_equal(symlink("rank_0", "ck/in_dir"), 0);
	assert_int_equal(symlink("../blobs/b", "ck/out"), 0);
	assert_int_equal(symlink("/etc/passwd", "ck/out_absolute"), 0);
	assert_int_equal(symlink("../blobs", "ck/out_dir"), 0);
	assert_int_equal(symlink("nowhere", "ck/dangling"), 0);
	assert_int_equal(symlink("loop", "ck/loop"), 0);
}

static void list_sorts_and_resolves(void **state)
{
	static const struct {
		const char *name;
		enum rs_kind links, fenced, denied;
	} want[] = {
		{"a.ckpt", RS_KIND_FILE, RS_KIND_FILE, RS_KIND_FILE},
		{"dangling", RS_KIND_OTHER, RS_KIND_OTHER, RS_KIND_OTHER},
		{"in", RS_KIND_FILE, RS_KIND_FILE, RS_KIND_OTHER},
		{"in_absolute", RS_KIND_OTHER, RS_KIND_OTHER, RS_KIND_OTHER},
		{"in_dir", RS_KIND_DIR, RS_KIND_DIR, RS_KIND_OTHER},
		{"loop", RS_KIND_OTHER, RS_KIND_OTHER, RS_KIND_OTHER},
		{"out", RS_KIND_OTHER, RS_KIND_FILE, RS_KIND_OTHER},
		{"out_absolute", RS_KIND_OTHER, RS_KIND_OTHER, RS_KIND_OTHER},
		{"out_dir", RS_KIND_OTHER, RS_KIND_DIR, RS_KIND_OTHER},
		{"pipe", RS_KIND_OTHER, RS_KIND_OTHER, RS_KIND_OTHER},
		{"rank_0", RS_KIND_DIR, RS_KIND_DIR, RS_KIND_DIR},
		{"rank_10", RS_KIND_DIR, RS_KIND_DIR, RS_KIND_DIR},
		{"rank_2", RS_KIND_DIR, RS_KIND_DIR, RS_KIND_DIR},
	};
	const uint64_t n_want = sizeof(want) / sizeof(*want);

	(void)state;
	make_links();
	assert_int_equal(mkfifo("ck/pipe", 0644), 0);
	assert_int_equal(mkdir("ck/rank_2", 0755), 0);
	assert_int_equal(mkdir("ck/rank_10", 0755), 0);
	for (int way = 0; way < 3; way++) {
		struct rs_dir *dir = must_open("ck", way == 1 ? "." : NULL, way != 2);
		struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
		struct rs_dirent *e;
		struct rs_err err;
		struct stat st;
		uint64_t n;

		assert_int_equal(rs_dir_list(dir, "", arena, &e, &n, &err), 0);
		assert_int_equal(n, n_want);
		for (uint64_t i = 0; i < n; i++) {
			enum rs_kind kind = way == 0   ? want[i].links
					    : way == 1 ? want[i].fenced
						       : want[i].denied;

			assert_true(rs_str_is(e[i].name, want[i].name));
			if (e[i].kind != kind)
				fail_msg("way %d: '%s' is %d", way, want[i].name, (int)e[i].kind);
		}
		assert_int_equal(stat("ck/rank_0/x.ckpt", &st), 0);
		if (way < 2)
			assert_int_equal(e[2].id.ino, st.st_ino); /* of what the link leads to */
		assert_int_equal(e[0].id.size, A_BYTES);
		rs_arena_free(arena);
		rs_dir_close(dir);
	}
}

static void list_looks_into_directories(void **state)
{
	struct rs_dir *dir = must_open("ck", NULL, true), *empty;
	struct rs_arena *arena = rs_arena_new(1 << 20, NULL), *tiny = rs_arena_new(16, NULL);
	struct rs_dirent *e;
	struct rs_err err;
	uint64_t n;

	(void)state;
	make_links();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rs_dir_list(dir, i ? "in_dir" : "rank_0", arena, &e, &n, &err), 0);
		assert_int_equal(n, 1);
		assert_true(rs_str_is(e[0].name, "x.ckpt"));
		assert_int_equal(e[0].id.size, 1);
	}
	assert_int_equal(rs_dir_list(dir, "..", arena, &e, &n, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_text(err.msg, "outside the checkpoint");
	assert_int_equal(rs_dir_list(dir, "out_dir", arena, &e, &n, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	assert_text(err.msg, "outside the checkpoint");
	assert_int_equal(rs_dir_list(dir, "rank_7", arena, &e, &n, &err), -1);
	assert_int_equal(err.code, RS_MISSING);
	assert_int_equal(rs_dir_list(dir, "a.ckpt", arena, &e, &n, &err), -1);
	assert_int_equal(rs_dir_list(dir, "", tiny, &e, &n, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	assert_int_equal(mkdir("empty", 0755), 0);
	empty = must_open("empty", NULL, true);
	assert_int_equal(rs_dir_list(empty, "", arena, &e, &n, &err), 0);
	assert_int_equal(n, 0);
	rs_dir_close(empty);
	rs_arena_free(arena);
	rs_arena_free(tiny);
	rs_dir_close(dir);
}

static void files_open_inside_only(void **state)
{
	static const struct {
		const char *rel, *links, *fenced; /* content, or NULL: refused */
		enum rs_code code;                /* without a fence */
		const char *word;
		bool hint;
	} rows[] = {
		{"rank_0/x.ckpt", "x", "x", RS_OK, NULL, false},
		{"./rank_0//x.ckpt", "x", "x", RS_OK, NULL, false},
		{"in", "x", "x", RS_OK, NULL, false},
		{"in_dir/x.ckpt", "x", "x", RS_OK, NULL, false},
		{"out", NULL, "blob", RS_CORRUPT, "outside the checkpoint", true},
		{"out_dir/b", NULL, "blob", RS_CORRUPT, "outside the checkpoint", true},
		{"out_absolute", NULL, NULL, RS_CORRUPT, "outside the checkpoint", true},
		{"out_dir", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
		{"dangling", NULL, NULL, RS_CORRUPT, "leads nowhere", false},
		{"loop", NULL, NULL, RS_CORRUPT, "loop", false},
		{"nothing", NULL, NULL, RS_MISSING, "nothing: ", false},
		{"rank_0", NULL, NULL, RS_CORRUPT, "found a directory", false},
		{"pipe", NULL, NULL, RS_CORRUPT, "found a FIFO", false},
		{"a.ckpt/x", NULL, NULL, RS_MISSING, "Not a directory", false},
		{"../outside", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
		{"rank_0/../../outside", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
		{"rank_0/..", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
		{"/etc/passwd", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
		{"", NULL, NULL, RS_CORRUPT, "outside the checkpoint", false},
	};
	struct rs_dir *dir, *fenced;
	struct rs_err err;
	char buf[16], longer[5000];

	(void)state;
	make_links();
	assert_int_equal(mkfifo("ck/pipe", 0644), 0);
	dir = must_open("ck", NULL, true);
	fenced = must_open("ck", ".", true);
	alarm(20);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *got = content(dir, rows[i].rel, buf, &err);

		if (rows[i].links) {
			assert_non_null(got);
			assert_string_equal(got, rows[i].links);
		} else {
			assert_null(got);
			assert_int_equal(err.code, rows[i].code);
			assert_text(err.msg, rows[i].word);
			if ((strstr(err.hint, "beneath=") != NULL) != rows[i].hint)
				fail_msg("'%s': hint '%s'", rows[i].rel, err.hint);
		}
		got = content(fenced, rows[i].rel, buf, &err);
		if (rows[i].fenced) {
			assert_non_null(got);
			assert_string_equal(got, rows[i].fenced);
		} else {
			assert_null(got);
		}
	}
	alarm(0);
	memset(longer, 'n', 4096);
	longer[4096] = 0;
	assert_null(content(dir, longer, buf, &err));
	assert_int_equal(err.code, RS_CORRUPT);
	assert_text(err.msg, "outside the checkpoint");
	rs_dir_close(dir);
	rs_dir_close(fenced);
}

static void stat_resolves_inside_only(void **state)
{
	static const struct {
		const char *rel;
		enum rs_kind kind;
		enum rs_code code;
	} rows[] = {
		{"", RS_KIND_DIR, RS_OK},
		{"rank_0", RS_KIND_DIR, RS_OK},
		{"in_dir", RS_KIND_DIR, RS_OK},
		{"in", RS_KIND_FILE, RS_OK},
		{"pipe", RS_KIND_OTHER, RS_OK},
		{"out", RS_KIND_FILE, RS_CORRUPT},
		{"rank_0/../..", RS_KIND_DIR, RS_CORRUPT},
		{"dangling", RS_KIND_FILE, RS_CORRUPT},
		{"nothing", RS_KIND_FILE, RS_MISSING},
	};
	struct rs_dir *dir;

	(void)state;
	make_links();
	assert_int_equal(mkfifo("ck/pipe", 0644), 0);
	dir = must_open("ck", NULL, true);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rs_err err = {.code = RS_OK};
		struct rs_identity id;
		enum rs_kind kind;

		assert_int_equal(rs_dir_stat(dir, rows[i].rel, &kind, &id, &err),
			rows[i].code == RS_OK ? 0 : -1);
		assert_int_equal(err.code, rows[i].code);
		if (rows[i].code == RS_OK)
			assert_int_equal(kind, rows[i].kind);
	}
	rs_dir_close(dir);
}

static void denied_links_are_refused(void **state)
{
	struct rs_dir *dir;
	struct rs_err err;
	char buf[16];

	(void)state;
	make_links();
	dir = must_open("ck", NULL, false);
	assert_string_equal(content(dir, "rank_0/x.ckpt", buf, &err), "x");
	assert_null(content(dir, "in", buf, &err));
	assert_int_equal(err.code, RS_CORRUPT);
	assert_text(err.msg, "links are refused");
	assert_text(err.hint, "symlinks=inside");
	assert_null(content(dir, "in_dir/x.ckpt", buf, &err));
	assert_null(content(dir, "out", buf, &err));
	assert_int_equal(err.code, RS_CORRUPT);
	rs_dir_close(dir);
}

/* Without openat2 everything works but links, and the message says that it is not their fault. */
static void old_kernels_open_without_links(void **state)
{
	static const int answers[] = {ENOSYS, EPERM};
	struct rs_dir *dir;
	struct rs_err err;
	char buf[16], longer[400];

	(void)state;
	make_links();
	for (size_t i = 0; i < 2; i++) {
		struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
		struct rs_dirent *e;
		uint64_t n;

		fault_openat2(answers[i]);
		dir = must_open("ck", i ? "." : NULL, true);
		assert_string_equal(content(dir, "rank_0/x.ckpt", buf, &err), "x");
		assert_string_equal(content(dir, "./rank_0//x.ckpt", buf, &err), "x");
		assert_null(content(dir, "in", buf, &err));
		assert_int_equal(err.code, RS_CORRUPT);
		assert_text(err.msg, "this system cannot");
		assert_null(content(dir, "in_dir/x.ckpt", buf, &err));
		assert_int_equal(err.code, RS_CORRUPT);
		assert_null(content(dir, "out_dir/b", buf, &err));
		assert_int_equal(err.code, RS_CORRUPT);
		assert_null(content(dir, "loop", buf, &err));
		assert_text(err.msg, "loop");
		assert_null(content(dir, "rank_0", buf, &err));
		assert_text(err.msg, "found a directory");
		assert_null(content(dir, "rank_0/nothing", buf, &err));
		assert_int_equal(err.code, RS_MISSING);
		assert_null(content(dir, "nothing/x", buf, &err));
		assert_int_equal(err.code, RS_MISSING);
		assert_null(content(dir, "a.ckpt/x", buf, &err));
		assert_int_equal(err.code, RS_MISSING);
		memset(longer, 'n', 300);
		longer[300] = 0;
		assert_null(content(dir, longer, buf, &err));
		assert_int_equal(err.sys, ENAMETOOLONG);
		assert_int_equal(rs_dir_list(dir, "", arena, &e, &n, &err), 0);
		assert_int_equal(n, 10);
		assert_int_equal(e[2].kind, RS_KIND_OTHER); /* the link "in" */
		assert_int_equal(rs_dir_list(dir, "rank_0", arena, &e, &n, &err), 0);
		assert_int_equal(n, 1);
		rs_arena_free(arena);
		rs_dir_close(dir);
	}
}

/* The program changes its directory, and people rename theirs. */
static void descriptors_outlive_paths(void **state)
{
	struct rs_dir *dir, *fenced, *root;
	struct rs_err err;
	char buf[16];

	assert_int_equal(symlink("../blobs/b", "ck/out"), 0);
	dir = must_open("ck", NULL, true);
	fenced = must_open("ck", ".", true);
	root = must_open("ck", "/", true);
	assert_string_equal(rs_dir_path(dir), "ck");
	assert_true(rs_dir_identity(dir).ino != 0);
	assert_int_equal(chdir("/"), 0);
	assert_string_equal(content(dir, "rank_0/x.ckpt", buf, &err), "x");
	assert_string_equal(content(fenced, "out", buf, &err), "blob");
	assert_string_equal(content(root, "out", buf, &err), "blob");
	assert_int_equal(chdir(*state), 0);
	assert_int_equal(rename("ck", "moved"), 0);
	assert_string_equal(content(dir, "rank_0/x.ckpt", buf, &err), "x");
	assert_string_equal(content(fenced, "rank_0/x.ckpt", buf, &err), "x");
	rs_dir_close(dir);
	rs_dir_close(fenced);
	rs_dir_close(root);
	rs_dir_close(NULL);
}

/* ------------------------------------------------------------------- adversity */

static atomic_bool stop_swapping;
static atomic_ulong swapped; /* links made while the test looked */

/* ck/swap is a file, then a link to the secret outside, and so on. */
static void *keep_swapping(void *arg)
{
	(void)arg;
	while (!stop_swapping) {
		(void)rename("ck/good", "ck/swap");
		swapped += link("ck/rank_0/x.ckpt", "ck/good") == 0;
		(void)rename("ck/evil", "ck/swap");
		swapped += symlink("../outside", "ck/evil") == 0;
	}
	return NULL;
}

static void swapped_links_never_lead_outside(void **state)
{
	struct rs_dir *dir = must_open("ck", NULL, true);
	pthread_t thread;
	struct rs_err err;
	char buf[16];
	int opened = 0, refused = 0;

	(void)state;
	stop_swapping = false;
	swapped = 0;
	assert_int_equal(link("ck/rank_0/x.ckpt", "ck/good"), 0);
	assert_int_equal(link("ck/rank_0/x.ckpt", "ck/swap"), 0);
	assert_int_equal(symlink("../outside", "ck/evil"), 0);
	assert_int_equal(pthread_create(&thread, NULL, keep_swapping, NULL), 0);
	for (int i = 0; i < 200000 && (i < 2000 || !opened || !refused); i++) {
		const char *got = content(dir, "swap", buf, &err);

		if (got) {
			assert_string_equal(got, "x");
			opened++;
		} else {
			refused++;
		}
	}
	stop_swapping = true;
	pthread_join(thread, NULL);
	assert_true(opened > 0 && refused > 0 && swapped > 0);
	rs_dir_close(dir);
}

/* Every allocation fails once: one error each time, nothing leaks, and the last run survives. */
static void allocations_fail_one_by_one(void **state)
{
	uint64_t n = 0;
	bool hit;

	(void)state;
	do {
		struct rs_arena *arena = rs_arena_new(1 << 20, NULL);
		struct rs_err err = {0};
		struct rs_dir *dir = NULL;
		struct rs_dirent *e;
		uint64_t entries;
		int status;

		fault_alloc(++n);
		status = rs_dir_open("ck", ".", true, &dir, &err);
		if (status == 0)
			status = rs_dir_list(dir, "", arena, &e, &entries, &err);
		hit = fault_hit();
		fault_clear();
		assert_int_equal(status, hit ? -1 : 0);
		assert_int_equal(err.code, hit ? RS_NOMEM : RS_OK);
		rs_dir_close(dir);
		rs_arena_free(arena);
	} while (hit);
	assert_true(n > 5);
}

#define in_tree(test) cmocka_unit_test_setup_teardown(test, enter_tree, leave_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_tree(open_takes_regular_files_only),
		in_tree(open_tells_what_the_file_is),
		in_tree(open_works_for_strangers),
		in_tree(names_in_messages_are_escaped),
		in_tree(reads_are_exact),
		in_tree(reads_past_the_end_are_refused),
		in_tree(hindered_reads_are_invisible),
		in_tree(failed_reads_are_errors),
		in_tree(a_shorter_file_has_changed),
		in_tree(a_rewritten_file_has_changed_even_with_its_old_mtime),
		in_tree(names_and_rights_do_not_change_a_file),
		in_tree(rows_are_gathered),
		in_tree(one_run_is_one_read),
		in_tree(rows_outside_the_file_are_refused),
		in_tree(mapped_rows_are_the_same_and_survive_truncation),
		in_tree(a_pool_reads_the_same),
		in_tree(a_stalled_read_is_given_up),
		in_tree(every_row_may_fail),
		in_tree(open_tells_what_is_no_directory),
		in_tree(list_sorts_and_resolves),
		in_tree(list_looks_into_directories),
		in_tree(files_open_inside_only),
		in_tree(stat_resolves_inside_only),
		in_tree(denied_links_are_refused),
		in_tree(old_kernels_open_without_links),
		in_tree(descriptors_outlive_paths),
		in_tree(swapped_links_never_lead_outside),
		in_tree(allocations_fail_one_by_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
