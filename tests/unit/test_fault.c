/*
 * test_fault.c - whole tasks on small files while the n-th read or allocation fails, for n = 1, 2,
 * ... until a run needs fewer than n. Each failure must be one error of the right kind with a
 * message, nothing may leak, and what only hinders (short and interrupted reads) must not
 * show. A task that survives must have produced the right bytes, which it checks itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reshardfs/source.h"
#include "tests/lib/fault.h"

/* ------------------------------------------------------------------ small files */

struct bytes {
	uint8_t at[4096];
	size_t n;
};

static void put(struct bytes *b, const void *p, size_t len)
{
	assert_true(len <= sizeof(b->at) - b->n);
	memcpy(b->at + b->n, p, len);
	b->n += len;
}

/* A field of wire type 2; all lengths here fit one byte of a varint. */
static void put_field(struct bytes *b, uint8_t number, const void *p, size_t len)
{
	assert_true(len < 128);
	put(b, (uint8_t[]){(uint8_t)(number << 3 | 2), (uint8_t)len}, 2);
	put(b, p, len);
}

/* One value of a .ckpt: a float tensor [rows, 4] of the numbers first, first + 1, ... */
static void put_value(struct bytes *file, const char *name, uint8_t rows, float first)
{
	struct bytes tensor = {.n = 0}, value = {.n = 0};
	float content[16];

	assert_true(rows <= 4);
	for (uint8_t i = 0; i < 4 * rows; i++)
		content[i] = first + (float)i;
	put(&tensor, (uint8_t[]){0x08, rows, 0x08, 4}, 4); /* dims */
	put_field(&tensor, 2, "Float32", 7);
	put_field(&tensor, 3, content, 16 * (size_t)rows);
	put_field(&value, 1, name, strlen(name));
	put_field(&value, 2, tensor.at, tensor.n);
	put_field(file, 1, value.at, value.n);
}

static void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void write_ckpt(const char *path, float first)
{
	struct bytes file = {.n = 0};

	put_value(&file, "w", 2, first);
	put_value(&file, "adam_m.w", 2, first + 100);
	put_value(&file, "norm", 1, 7);
	write_file(path, file.at, file.n);
}

static const char header[] = "{\"__metadata__\":{\"format\":\"ms\"},"
			     "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
			     "\"norm\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[16,24]}}";

static void write_safetensors(const char *path)
{
	struct bytes file = {.n = 0};
	uint8_t len[8] = {sizeof(header) - 1};

	put(&file, len, 8);
	put(&file, header, sizeof(header) - 1);
	put(&file, "0123456789abcdefghijklmn", 24);
	write_file(path, file.at, file.n);
}

static int enter_files(void **state)
{
	char *dir = strdup("/tmp/test_fault.XXXXXX");

	if (!dir || !mkdtemp(dir) || chdir(dir) < 0)
		return -1;
	*state = dir;
	if (mkdir("tree", 0755) < 0 || mkdir("tree/rank_0", 0755) < 0 ||
		mkdir("tree/rank_1", 0755) < 0)
		return -1;
	write_ckpt("tree/rank_0/x.ckpt", 0);
	write_ckpt("tree/rank_1/x.ckpt", 8);
	write_safetensors("one.safetensors");
	return 0;
}

static int leave_files(void **state)
{
	char command[100];

	fault_clear();
	if (chdir("/") < 0)
		return -1;
	snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
	free(*state);
	return system(command);
}

/* -------------------------------------------------------------------------- tasks */

typedef int (*header_fn)(const struct rs_file *file, struct rs_table **out, struct rs_err *err);

static int read_header(const char *dir_path, const char *rel, header_fn read, uint64_t n_entries,
	struct rs_err *err)
{
	struct rs_table *table = NULL;
	struct rs_dir *dir;
	struct rs_file file;
	int status = -1;

	if (rs_dir_open(dir_path, NULL, true, &dir, err) < 0)
		return -1;
	if (rs_dir_file(dir, rel, NULL, &file, err) == 0) {
		status = read(&file, &table, err);
		rs_file_close(&file);
	}
	rs_dir_close(dir);
	if (status < 0)
		return -1;
	assert_int_equal(table->n_entries, n_entries);
	assert_true(rs_str_is(table->entries[0].name, "w"));
	rs_arena_free(table->arena);
	return 0;
}

static int task_ckpt(struct rs_err *err)
{
	return read_header("tree", "rank_1/x.ckpt", rs_ckpt_header, 3, err);
}

static int task_safetensors(struct rs_err *err)
{
	return read_header(".", "one.safetensors", rs_safetensors_header, 2, err);
}

/* ----------------------------------------------------------------------- the driver */

struct task {
	const char *name;
	int (*run)(struct rs_err *err);
};

static int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/*
 * Run @task with the fault that is set. Returns whether the fault struck; @code is what must come
 * of it: RS_OK, that the task succeeds all the same.
 */
static bool strike(const struct task *task, enum rs_code code, uint64_t n)
{
	int64_t live = fault_live();
	int descriptors = open_descriptors(), status;
	struct rs_err err = {.code = RS_OK};
	bool hit;

	status = task->run(&err);
	hit = fault_hit();
	fault_clear();
	if (fault_live() != live)
		fail_msg("%s, n = %d: %d blocks leak", task->name, (int)n,
			(int)(fault_live() - live));
	if (open_descriptors() != descriptors)
		fail_msg("%s, n = %d: a descriptor leaks", task->name, (int)n);
	if (!hit || code == RS_OK) {
		if (status != 0)
			fail_msg("%s, n = %d: %s", task->name, (int)n, err.msg);
	} else if (status != -1 || err.code != code || strlen(err.msg) < 10) {
		fail_msg("%s, n = %d: expected -1 and '%s', found %d and '%s': %s", task->name,
			(int)n, rs_code_name(code), status, rs_code_name(err.code), err.msg);
	}
	return hit;
}

static void every_read_may_fail(const struct task *task)
{
	static const struct {
		enum fault_kind kind;
		enum rs_code code;
	} rows[] = {
		{FAULT_EIO, RS_IO},
		{FAULT_END, RS_CHANGED},
		{FAULT_ESTALE, RS_CHANGED},
		{FAULT_SHORT, RS_OK},
		{FAULT_EINTR, RS_OK},
		{FAULT_EAGAIN, RS_OK},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t n = 0;

		do {
			fault_read(++n, rows[i].kind);
		} while (strike(task, rows[i].code, n));
		assert_true(n > 1); /* it reads at all */
	}
	fault_read_always(1, FAULT_SHORT);
	assert_true(strike(task, RS_OK, 1));
}

static void every_allocation_may_fail(const struct task *task)
{
	uint64_t n = 0;

	do {
		fault_alloc(++n);
	} while (strike(task, RS_NOMEM, n));
	assert_true(n > 1);
}

static void headers_of_files(void **state)
{
	static const struct task tasks[] = {
		{"a .ckpt", task_ckpt},
		{"a .safetensors", task_safetensors},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		every_read_may_fail(&tasks[i]);
		every_allocation_may_fail(&tasks[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(headers_of_files, enter_files, leave_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
