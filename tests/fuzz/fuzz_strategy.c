/*
 * fuzz_strategy.c - hostile strategy files, protobuf or JSON, told by their first byte.
 *
 * Beyond "no crash": what is read can be found by name; written as protobuf it comes back the same,
 * and written again to the same bytes; so does JSON, unless a number is too large for it.
 */
#include "reshardfs/layout.h"

#define SIZE_MAX_FUZZ (1u << 16)
#define CELLS_MAX (1u << 16) /* larger grids are right, but slow under a sanitizer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static void look_up(const struct rs_strategy *s)
{
	for (uint64_t i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[i];
		const uint32_t *first;
		char text[RS_SHOW_MAX];

		must(rs_strategy_find(s, p->stage, p->name) == p->layout);
		must(rs_strategy_stages(s, p->name, &first) > 0);
		must(rs_layout_show(p->layout, text, sizeof(text)) == text);
	}
	must(rs_strategy_find(s, 0, RS_STR("no such name, surely")) == NULL);
}

static void write_back(const struct rs_strategy *s, bool json)
{
	uint64_t len, again_len;
	struct rs_strategy *t;
	struct rs_err err = {0};
	char *bytes, *again;

	if (rs_strategy_encode(s, json, s->merged, &bytes, &len, &err) < 0) {
		must(json && err.code == RS_UNSUPPORTED);
		return;
	}
	must(rs_strategy_read_memory(bytes, len, "again", &t, &err) == 0);
	must(t->json == json && t->merged == s->merged);
	must(rs_strategy_same(s, t, &err) == 0);
	must(rs_strategy_encode(t, json, t->merged, &again, &again_len, &err) == 0);
	must(again_len == len && memcmp(again, bytes, len) == 0);
	rs_free(bytes);
	rs_free(again);
	rs_strategy_free(t);
}

static bool is_small(const struct rs_strategy *s)
{
	for (uint64_t i = 0; i < s->n_layouts; i++)
		if (rs_layout_devices(s->layouts[i]) > CELLS_MAX / s->n_layouts &&
			rs_layout_devices(s->layouts[i]) <= RS_MAX_CELLS)
			return false;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};
	struct rs_file file;

	if (size > SIZE_MAX_FUZZ)
		return 0;
	rs_file_memory(data, size, "fuzz", &file);
	(void)rs_strategy_is(&file);
	if (rs_strategy_read_memory(data, size, "fuzz", &s, &err) < 0) {
		must(!s && err.code != RS_OK && err.code != RS_IO && err.msg[0]);
		return 0;
	}
	look_up(s);
	write_back(s, false);
	write_back(s, true);
	if (is_small(s) && rs_strategy_check(s, &err) == 0)
		must(s->n_stages > 0 && s->stage_devices > 0);
	rs_strategy_free(s);
	return 0;
}
