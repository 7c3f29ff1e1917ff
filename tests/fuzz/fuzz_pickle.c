/*
 * fuzz_pickle.c - hostile pickles.
 *
 * Beyond "no crash": a refusal has a code and a message; a tree that comes out names only places
 * inside the file, texts are no longer than the file, and the questions that callers ask of it
 * end. Memory is held to 64 MiB. Nothing can run, because there is nothing that runs.
 */
#include <stdlib.h>

#include "reshardfs/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY (UINT64_C(64) << 20)
#define VISITS 20000 /* shared nodes are reached on many ways */

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

struct walk {
	const struct rs_value **todo;
	uint64_t n, visits, size;
};

static void later(struct walk *w, const struct rs_value *v)
{
	if (v && w->n < VISITS)
		w->todo[w->n++] = v;
}

static void look(struct walk *w, const struct rs_value *v)
{
	char buf[RS_SHOW_MAX];
	uint64_t n_items = (uint64_t)v->n * (v->type == RS_VALUE_DICT ? 2 : 1);

	must(rs_value_show(v, buf, sizeof(buf))[0] != 0);
	switch (v->type) {
	case RS_VALUE_STR:
		must(v->text.len <= w->size + RS_PICKLE_TEXT);
		break;
	case RS_VALUE_BYTES:
		must(rs_range_ok(v->off, v->bytes.len, w->size));
		break;
	case RS_VALUE_TUPLE:
	case RS_VALUE_LIST:
	case RS_VALUE_SET:
	case RS_VALUE_DICT:
		must(n_items <= 2 * w->size); /* each was pushed by an opcode */
		for (uint64_t i = 0; i < n_items; i++) {
			must(v->list.items[i] != NULL);
			later(w, v->list.items[i]);
		}
		break;
	case RS_VALUE_ARRAY:
		later(w, v->array->dtype);
		later(w, v->array->shape);
		later(w, v->array->data);
		break;
	case RS_VALUE_INSTANCE:
	case RS_VALUE_CALL:
	case RS_VALUE_PERSISTENT:
	case RS_VALUE_OPAQUE:
		(void)rs_value_attr(v, "dtype");
		later(w, v->object.cls);
		later(w, v->object.state);
		break;
	default:
		break;
	}
}

static void walk_tree(const struct rs_value *top, uint64_t size)
{
	struct walk w = {.todo = calloc(VISITS, sizeof(*w.todo)), .size = size};

	if (!w.todo)
		abort();
	later(&w, top);
	while (w.n && w.visits++ < VISITS)
		look(&w, w.todo[--w.n]);
	free(w.todo);
}

static void read_once(const struct rs_file *file, const struct rs_pickle_options *opts)
{
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle_pair *pairs;
	struct rs_pickle p;
	uint64_t n;

	if (!arena)
		abort();
	if (rs_pickle_read(file, 0, file->size, opts, arena, &p, &err) == 0) {
		must(err.code == RS_OK && p.top && p.end <= file->size);
		must(p.protocol >= 2 && p.protocol <= 5);
		walk_tree(p.top, file->size);
		if (rs_value_pairs(p.top, arena, &pairs, &n, NULL, NULL, &err) == 0)
			for (uint64_t i = 0; i < n; i++)
				must(pairs[i].key.ptr && pairs[i].value);
	} else {
		must(err.code != RS_OK && err.msg[0] != 0);
	}
	rs_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rs_pickle_options torch = {.persistent = true};
	struct rs_file file;

	rs_file_memory(data, size, "fuzz", &file);
	read_once(&file, NULL);
	read_once(&file, &torch);
	return 0;
}
