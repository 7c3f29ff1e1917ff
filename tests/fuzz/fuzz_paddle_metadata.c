/*
 * fuzz_paddle_metadata.c - hostile metadata of Paddle, from the file to the plan.
 *
 * The input is N.metadata of a directory whose one data file is fixed: "w" F32 [4, 2], "v" BF16
 * [3], "flat" F32 with one axis of 5. What is accepted has pieces inside of their tensors, names
 * that are no paths, and a plan for every tensor whose pieces the file really has: the plan's own
 * proof (each byte once) then says the rest.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reshardfs/plan.h"
#include "reshardfs/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static char path_of[64]; /* one process, one directory */

static void remove_directory(void)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/0_0.distcp", path_of);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/0.metadata", path_of);
	(void)unlink(path);
	(void)rmdir(path_of);
}

static const char *directory(void)
{
	if (!path_of[0]) {
		(void)snprintf(path_of, sizeof(path_of), "/tmp/fuzz_paddle.%d", (int)getpid());
		if (mkdir(path_of, 0700) < 0 || atexit(remove_directory) != 0)
			abort();
	}
	return path_of;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", directory(), name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	close(fd);
}

/* A safetensors file will do: Paddle writes them under this name, too. */
static void write_data(void)
{
	static const char text[] =
		"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]},"
		"\"v\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[32,38]},"
		"\"flat\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[38,58]}}";
	char file[8 + sizeof(text) - 1 + 58] = {(char)(sizeof(text) - 1)};

	_Static_assert(sizeof(text) - 1 < 256, "the length is one byte");
	memcpy(file + 8, text, sizeof(text) - 1);
	write_file("0_0.distcp", file, sizeof(file));
}

static void check_tensor(struct rs_catalog *cat, const struct rs_tensor *t)
{
	struct rs_part part = {.kind = RS_PART_COPY, .box = rs_box_whole(&t->shape), .source = t};
	struct rs_wanted want = {.name = t->name,
		.dtype = t->dtype,
		.shape = t->shape,
		.parts = &part,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(UINT64_C(64) << 20, &err);
	struct rs_nest *nest;
	uint64_t bytes;

	if (!arena)
		abort();
	must(rs_shape_bytes(&t->shape, t->dtype, &bytes));
	for (uint32_t i = 0; i < t->n_pieces; i++) {
		must(rs_box_inside(&t->pieces[i].box, &t->shape));
		must(rs_box_count(&t->pieces[i].box) > 0);
		must(t->pieces[i].unit < rs_catalog_n_units(cat));
	}
	if (rs_plan_nest(cat, &want, arena, &nest, &err) == 0)
		must(nest->bytes == bytes);
	else
		must(err.code != RS_OK && err.msg[0] != 0);
	rs_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_source_options opts = {.path = directory(), .format = "paddle"};
	struct rs_source *src = NULL;
	struct rs_err err = {0};

	write_data();
	write_file("0.metadata", data, size);
	if (rs_source_open(&opts, &src, &err) < 0) {
		must(err.code != RS_OK && err.msg[0] != 0);
		return 0;
	}
	for (uint32_t f = 0; f < rs_catalog_n_files(src->cat); f++)
		must(!strchr(rs_catalog_file_info(src->cat, f)->path, '/'));
	if (rs_source_describe(src, 0, &err) == 0)
		for (uint64_t i = 0; i < rs_catalog_n_tensors(src->cat); i++)
			check_tensor(src->cat, rs_catalog_tensor(src->cat, i));
	else
		must(err.code != RS_OK && err.msg[0] != 0);
	rs_source_close(src);
	return 0;
}
