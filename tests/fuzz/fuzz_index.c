/*
 * fuzz_index.c - hostile indexes of sharded checkpoints, and hostile config.json files.
 *
 * The first byte chooses: 'c' a config.json, 'b' a map that may be bare (param_name_map.json),
 * anything else an index; the rest is the text. Beyond "no crash": names come out sorted and
 * unique, every line points at the file that it names, and no file name could lead outside.
 */
#include <stdlib.h>

#include "core/source/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static void check_path(const char *path)
{
	must(path[0] != 0 && path[0] != '/' && strlen(path) < 4096);
	for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
		must(strncmp(at, "..", 2) != 0 || (at[2] != 0 && at[2] != '/'));
}

static void check_index(const struct rs__index *x)
{
	must(x->n_weights > 0 && x->n_files > 0);
	for (uint32_t f = 0; f < x->n_files; f++) {
		check_path(x->files[f]);
		must(f == 0 || strcmp(x->files[f - 1], x->files[f]) < 0);
		must(rs__index_file(x, x->files[f]) == f);
	}
	for (uint64_t i = 0; i < x->n_weights; i++) {
		const struct rs__weight *w = &x->weights[i];

		must(i == 0 || rs_str_cmp(x->weights[i - 1].name, w->name) < 0);
		must(w->file < x->n_files && rs_str_is(w->file_name, x->files[w->file]));
		must(rs__index_find(x, w->name) == w && !w->seen);
	}
}

static void run_config(const struct rs_file *file)
{
	struct rs_arena *arena = rs_arena_new(UINT64_C(64) << 20, NULL);
	struct rs_config c;
	struct rs_err err = {0};

	must(arena != NULL);
	if (rs__config_read(file, arena, &c, &err) == 0)
		for (uint64_t i = 1; i < c.n_vars; i++)
			must(rs_str_cmp(c.vars[i - 1].name, c.vars[i].name) < 0);
	else
		must(err.code != RS_OK && err.msg[0] != 0);
	rs_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t kind = size ? data[0] : 0;
	struct rs__index x;
	struct rs_err err = {0};
	struct rs_file file;

	rs_file_memory(size ? data + 1 : data, size ? size - 1 : 0, "fuzz", &file);
	if (kind == 'c') {
		run_config(&file);
		return 0;
	}
	if (rs__index_read(&file, kind == 'b', &x, &err) == 0)
		check_index(&x);
	else
		must(err.code != RS_OK && err.msg[0] != 0);
	rs__index_done(&x);
	return 0;
}
