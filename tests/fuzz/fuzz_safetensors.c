/*
 * fuzz_safetensors.c - hostile .safetensors headers.
 *
 * Beyond "no crash": what is accepted tiles the file. In the order of the entries each tensor
 * begins where the last one ended, is as long as shape x dtype, and the last one ends with the
 * file. Names are unique and sorted. An input that begins with "T" is text, and gets a right frame
 * put around it, so that most inputs reach the JSON.
 */
#include <stdlib.h>

#include "reshardfs/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static void check_table(const struct rs_table *t, const uint8_t *file, uint64_t size)
{
	uint64_t at = 8, bytes;

	for (int i = 7; i >= 0; i--)
		at = i == 7 ? file[i] : at << 8 | file[i];
	at += 8;
	must(t->n_files == 1 && t->file_bytes[0] == size);
	for (uint64_t i = 0; i < t->n_entries; i++) {
		const struct rs_entry *e = &t->entries[i];

		must(rs_shape_bytes(&e->shape, e->dtype, &bytes) && bytes == e->bytes);
		must(e->n_spans == (e->bytes ? 1 : 0));
		if (e->n_spans) {
			must(e->spans[0].file == 0 && e->spans[0].off == at);
			must(e->spans[0].len == e->bytes);
			at += e->bytes;
		}
		must(rs_table_find(t, e->name) == e);
		if (i)
			must(rs_str_cmp(t->entries[t->by_name[i - 1]].name,
				     t->entries[t->by_name[i]].name) < 0);
	}
	must(at == size);
	for (uint64_t i = 0; i < t->n_meta; i++)
		for (uint64_t k = 0; k < i && k < 16; k++)
			must(!rs_str_eq(t->meta[i].key, t->meta[k].key));
}

/* "T", two bytes with the number of data bytes, text: make a file of it whose frame is right. */
static uint8_t *frame(const uint8_t *data, size_t size, size_t *framed_size)
{
	size_t text = size - 3, tail = (size_t)(data[1] | data[2] << 8);
	uint8_t *framed = calloc(1, 8 + text + tail);

	if (!framed)
		abort();
	for (size_t i = 0; i < 8; i++)
		framed[i] = (uint8_t)((uint64_t)text >> 8 * i);
	memcpy(framed + 8, data + 3, text);
	*framed_size = 8 + text + tail;
	return framed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_table *t = NULL;
	struct rs_err err = {0};
	struct rs_file file;
	uint8_t *framed = NULL;

	if (size >= 3 && data[0] == 'T')
		data = framed = frame(data, size, &size);
	rs_file_memory(data, size, "fuzz", &file);
	if (rs_safetensors_header(&file, &t, &err) == 0) {
		must(err.code == RS_OK);
		check_table(t, data, size);
		rs_arena_free(t->arena);
	} else {
		must(err.code != RS_OK && err.msg[0] != 0);
	}
	free(framed);
	return 0;
}
