/*
 * fuzz_ckpt.c - hostile .ckpt files.
 *
 * Beyond "no crash": what is accepted must hang together. Names are unique and sorted, the spans of
 * an entry lie in the file, come one behind the other and add up to shape x dtype. The same bytes
 * joined with themselves give the same entries again.
 */
#include "reshardfs/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static void check_entry(const struct rs_entry *e, uint64_t size, uint64_t *last)
{
	uint64_t bytes, sum = 0;

	must(e->dtype > RS_DT_NONE && e->dtype < RS_DT_COUNT);
	must(e->shape.n_axes <= RS_MAX_AXES);
	must(rs_shape_bytes(&e->shape, e->dtype, &bytes) && bytes == e->bytes);
	must(!e->zero_dims || e->shape.n_axes == 0);
	must(e->name.len <= RS_MAX_NAME);
	for (uint32_t i = 0; i < e->n_spans; i++) {
		const struct rs_span *s = &e->spans[i];
		must(s->file == 0 && s->len > 0 && s->off >= *last);
		must(rs_range_ok(s->off, s->len, size));
		*last = s->off + s->len;
		sum += s->len;
	}
	must(sum == e->bytes);
}

static struct rs_table *read_it(const uint8_t *data, size_t size)
{
	struct rs_table *t = NULL;
	struct rs_err err = {0};
	struct rs_file file;

	rs_file_memory(data, size, "fuzz", &file);
	if (rs_ckpt_header(&file, &t, &err) < 0) {
		must(err.code != RS_OK && err.msg[0] != 0);
		return NULL;
	}
	must(err.code == RS_OK);
	return t;
}

static void check_join(const uint8_t *data, size_t size, const struct rs_table *t)
{
	struct rs_table *parts[2] = {read_it(data, size), read_it(data, size)}, *both = NULL;

	must(rs_table_join(parts, 2, &both, NULL) == 0);
	must(both->n_entries == t->n_entries && both->n_files == 2);
	for (uint64_t i = 0; i < t->n_entries; i++) {
		must(rs_str_eq(both->entries[i].name, t->entries[i].name));
		must(both->entries[i].n_spans == 0 || both->entries[i].spans[0].file == 1);
	}
	rs_arena_free(both->arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_table *t = read_it(data, size);
	uint64_t last = 0;

	if (!t)
		return 0;
	must(t->n_files == 1 && t->file_bytes[0] == size);
	for (uint64_t i = 0; i < t->n_entries; i++) {
		check_entry(&t->entries[i], size, &last);
		must(rs_table_find(t, t->entries[i].name) == &t->entries[i]);
		if (i)
			must(rs_str_cmp(t->entries[t->by_name[i - 1]].name,
				     t->entries[t->by_name[i]].name) < 0);
	}
	check_join(data, size, t);
	rs_arena_free(t->arena);
	return 0;
}
