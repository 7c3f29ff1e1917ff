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

#include "reshardfs/image.h"
#include "reshardfs/source.h"
#include "reshardfs/target.h"
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

/* w and its optimizer copy are cut in two along the rows, norm is on both ranks. */
static const char strategy[] =
	"{\"current_stage\":1,\"parallel_layout_item\":{"
	"\"w\":{\"dev_matrix\":[2],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[0,-1],\"tensor_shape\":[4,4]},"
	"\"adam_m.w\":{\"dev_matrix\":[2],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[0,-1],\"tensor_shape\":[4,4]},"
	"\"norm\":{\"dev_matrix\":[2],\"field\":0,\"opt_weight_shard_size\":0,"
	"\"opt_weight_shard_step\":0,\"tensor_map\":[-1,-1],\"tensor_shape\":[1,4]}},"
	"\"parallel_strategy_item\":{\"MatMul_w\":{\"parallel_strategy\":[[1,1],[2,1]],\"stage\":0}"
	"}}";

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
	write_file("tree/strategy.json", strategy, sizeof(strategy) - 1);
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

/* All of a virtual file in pieces of 7 bytes, which no border of a tensor respects. */
static int read_image(const struct rs_image *img, struct rs_catalog *cat, const struct bytes *want,
	struct rs_err *err)
{
	uint8_t got[7];

	assert_int_equal(img->size, want->n);
	for (uint64_t off = 0; off < img->size; off += sizeof(got)) {
		uint64_t len = rs_min(sizeof(got), img->size - off);

		if (rs_image_read(img, cat, off, len, got, err) < 0)
			return -1;
		assert_memory_equal(got, want->at + off, len);
	}
	return 0;
}

/* From a tree of two ranks to the bytes of @rank's file under @target. */
static int serve(const char *target, uint64_t rank, const struct bytes *want, struct rs_err *err)
{
	struct rs_source_options from = {.path = "tree"};
	struct rs_target_options to = {.target = target};
	struct rs_source *source = NULL;
	struct rs_target *t = NULL;
	struct rs_image *img = NULL;
	struct rs_notes notes = {0};
	int status = -1;

	if (rs_source_open(&from, &source, err) < 0)
		return -1;
	if (rs_target_open(&to, source, &t, err) < 0)
		goto out;
	if (rs_source_describe(source, rs_target_local(t, rank), err) < 0)
		goto out;
	if (rs_target_check(t, &rank, 1, err) < 0)
		goto out;
	if (rs_target_arrange(t, &rank, 1, NULL, err) < 0)
		goto out;
	if (rs_image_build(t, &t->outputs[0], &img, &notes, err) < 0)
		goto out;
	status = read_image(img, source->cat, want, err);
out:
	if (img)
		rs_image_free(img);
	rs_notes_done(&notes);
	if (t)
		rs_target_close(t);
	rs_source_close(source);
	return status;
}

static int task_join(struct rs_err *err)
{
	struct bytes want = {.n = 0};

	put_value(&want, "w", 4, 0);
	put_value(&want, "adam_m.w", 4, 100);
	put_value(&want, "norm", 1, 7);
	return serve("full", 0, &want, err);
}

static int task_pass(struct rs_err *err)
{
	struct bytes want = {.n = 0};

	put_value(&want, "w", 2, 8);
	put_value(&want, "adam_m.w", 2, 108);
	put_value(&want, "norm", 1, 7);
	return serve("same", 1, &want, err);
}

/* All bytes of a virtual file, as one number. */
static int sum_image(
	const struct rs_image *img, struct rs_catalog *cat, uint64_t *sum, struct rs_err *err)
{
	uint8_t got[64];

	for (uint64_t off = 0; off < img->size; off += sizeof(got)) {
		uint64_t len = rs_min(sizeof(got), img->size - off);

		if (rs_image_read(img, cat, off, len, got, err) < 0)
			return -1;
		for (uint64_t i = 0; i < len; i++)
			*sum = (*sum ^ got[i]) * 0x100000001b3;
	}
	return 0;
}

/* Every file that @to arranges for rank 0, built and read. */
static int sum_outputs(const struct rs_target_options *to, uint64_t *sum, struct rs_err *err)
{
	struct rs_source_options from = {.path = "tree"};
	struct rs_source *source = NULL;
	struct rs_target *t = NULL;
	const uint64_t rank = 0;
	int status = -1;

	if (rs_source_open(&from, &source, err) < 0)
		return -1;
	if (rs_target_open(to, source, &t, err) < 0 || rs_source_describe(source, 0, err) < 0 ||
		rs_target_check(t, &rank, 1, err) < 0 ||
		rs_target_arrange(t, &rank, 1, NULL, err) < 0)
		goto out;
	status = 0;
	for (uint64_t i = 0; status == 0 && i < t->n_outputs; i++) {
		struct rs_image *img = NULL;

		status = rs_image_build(t, &t->outputs[i], &img, NULL, err);
		if (status == 0)
			status = sum_image(img, source->cat, sum, err);
		rs_image_free(img);
	}
out:
	if (t)
		rs_target_close(t);
	rs_source_close(source);
	return status;
}

/* What comes out after a fault is what comes out without one; learned from the first run. */
static int same_sum(const struct rs_target_options *to, uint64_t *right, struct rs_err *err)
{
	uint64_t sum = 1;

	if (sum_outputs(to, &sum, err) < 0)
		return -1;
	if (*right == 0)
		*right = sum;
	assert_int_equal(sum, *right);
	return 0;
}

static int task_shards(struct rs_err *err)
{
	static uint64_t right;

	return same_sum(
		&(struct rs_target_options){
			.target = "full", .layout = RS_ARRANGE_HF, .max_file = 40},
		&right, err);
}

static int task_unified(struct rs_err *err)
{
	static uint64_t right;

	return same_sum(
		&(struct rs_target_options){
			.target = "full", .layout = RS_ARRANGE_UNIFIED, .max_file = 40},
		&right, err);
}

static int task_pickle(struct rs_err *err)
{
	static uint64_t right;

	return same_sum(&(struct rs_target_options){.target = "full", .container = "pdparams"},
		&right, err);
}

/* ----------------------------------------------------------------------- the driver */

struct task {
	const char *name;
	int (*run)(struct rs_err *err);
	/*
	 * The task looks at files to guess what they are, and such a look may fail quietly. It
	 * then goes on to the right bytes, or ends with an error of another kind ("nothing of a
	 * known format"); a disk that goes on failing must still be told by its own name.
	 */
	bool guesses;
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

/* How far a fault reaches: one call, or all from then on. */
enum reach { ONCE, LASTING };

/* Was it right of @task to end like this, struck by a fault that should end in @code? */
static bool ends_well(const struct task *task, enum rs_code code, enum reach reach, int status,
	const struct rs_err *err)
{
	if (status == 0)
		return code == RS_OK || task->guesses;
	if (code == RS_OK || strlen(err->msg) < 10)
		return false;
	return err->code == code ||
	       (task->guesses && (reach == ONCE || code == RS_NOMEM) && err->code != RS_OK);
}

/*
 * Run @task with the fault that is set. Returns whether the fault struck; @code is what must come
 * of it: RS_OK, that the task succeeds all the same.
 */
static bool strike(const struct task *task, enum rs_code code, enum reach reach, uint64_t n)
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
	if (!ends_well(task, hit ? code : RS_OK, reach, status, &err))
		fail_msg("%s, n = %d%s: expected '%s', found %d and '%s': %s", task->name, (int)n,
			reach == LASTING ? " and on" : "", rs_code_name(hit ? code : RS_OK), status,
			rs_code_name(err.code), err.msg);
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
		uint64_t n = 0, m = 0;

		do {
			fault_read(++n, rows[i].kind);
		} while (strike(task, rows[i].code, ONCE, n));
		assert_true(n > 1); /* it reads at all */
		if (rows[i].kind == FAULT_EINTR || rows[i].kind == FAULT_EAGAIN)
			continue; /* nobody is interrupted for ever */
		do {
			fault_read_always(++m, rows[i].kind);
		} while (strike(task, rows[i].code, LASTING, m));
		assert_true(m > 1);
	}
}

static void every_allocation_may_fail(const struct task *task)
{
	uint64_t n = 0, m = 0;

	do {
		fault_alloc(++n);
	} while (strike(task, RS_NOMEM, ONCE, n));
	do {
		fault_alloc_always(++m);
	} while (strike(task, RS_NOMEM, LASTING, m));
	assert_true(n > 1 && m > 1);
}

static void headers_of_files(void **state)
{
	static const struct task tasks[] = {
		{"a .ckpt", task_ckpt, false},
		{"a .safetensors", task_safetensors, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		every_read_may_fail(&tasks[i]);
		every_allocation_may_fail(&tasks[i]);
	}
}

static void virtual_files(void **state)
{
	static const struct task tasks[] = {
		{"target=full", task_join, true},
		{"target=same", task_pass, true},
		{"layout=hf", task_shards, true},
		{"layout=unified", task_unified, true},
		{"format=pdparams", task_pickle, true},
	};
	struct rs_err err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++)
		if (tasks[i].run(&err) < 0)
			fail_msg("%s: %s", tasks[i].name, err.msg);
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		every_read_may_fail(&tasks[i]);
		every_allocation_may_fail(&tasks[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(headers_of_files, enter_files, leave_files),
		cmocka_unit_test_setup_teardown(virtual_files, enter_files, leave_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
