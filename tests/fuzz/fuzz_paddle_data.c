/*
 * fuzz_paddle_data.c - hostile data files of Paddle, from the file to the bytes.
 *
 * The input is a .pdparams file. What is accepted has entries as long as shape x dtype says, spans
 * inside of the file, unique names; and the content of each can be read, decoded and turned
 * around, without leaving the file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reshardfs/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static char path[64]; /* one process, one file */

static void remove_file(void)
{
	(void)unlink(path);
}

static const char *write_file(const void *bytes, size_t size)
{
	int fd;

	if (!path[0]) {
		(void)snprintf(path, sizeof(path), "/tmp/fuzz_paddle.%d.pdparams", (int)getpid());
		if (atexit(remove_file) != 0)
			abort();
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	close(fd);
	return path;
}

/* Span by span, as the rows of a walk do. */
static void read_content(struct rs_catalog *cat, const struct rs_entry *e)
{
	struct rs_err err = {0};
	const struct rs_file *file = rs_catalog_file(cat, 0, &err);
	uint64_t pos = 0;

	must(file != NULL);
	for (uint32_t i = 0; i < e->n_spans; i++) {
		struct rs_rows rows = {.width = e->spans[i].len, .count = 1};
		uint8_t *to = malloc(rows.width);

		must(to != NULL);
		if (e->latin1 || e->swap) {
			rows.off = pos;
			rows.encoded = e;
			must(rs_content_gather(file, &rows, to, &err) == 0);
		} else {
			must(rs_range_ok(e->spans[i].off, rows.width, file->size));
			must(rs_file_read(file, e->spans[i].off, to, rows.width, &err) == 0);
		}
		pos += rows.width;
		free(to);
	}
	must(pos == e->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_source_options opts = {.path = write_file(data, size), .format = "paddle"};
	struct rs_source *src = NULL;
	struct rs_err err = {0};
	const struct rs_table *t;
	uint64_t bytes;

	if (rs_source_open(&opts, &src, &err) < 0) {
		must(err.code != RS_OK && err.msg[0] != 0);
		return 0;
	}
	if (rs_source_describe(src, 0, &err) == 0) {
		t = rs_catalog_table(src->cat, 0, &err);
		must(t && rs_catalog_n_tensors(src->cat) == t->n_entries);
		for (uint64_t i = 0; i < t->n_entries; i++) {
			const struct rs_entry *e = &t->entries[i];

			must(rs_shape_bytes(&e->shape, e->dtype, &bytes) && bytes == e->bytes);
			must(rs_table_find(t, e->name) == e);
			read_content(src->cat, e);
		}
	} else {
		must(err.code != RS_OK && err.msg[0] != 0);
	}
	rs_source_close(src);
	return 0;
}
