/*
 * fuzz_rules.c - hostile plan files, over a small model that is always the same.
 *
 * Beyond "no crash": a plan that is refused says why; one that passes all checks tiles every tensor
 * of every rank, because parts that leave holes or overlap would be our mistake, not the plan's;
 * and a part never leaves its source.
 */
#include <stdio.h>

#include "core/target/rules/rules.h"

#define SIZE_MAX_FUZZ (1u << 14)
#define RANKS_MAX 64    /* larger meshes are right, but slow under a sanitizer */
#define ITEMS_MAX 64    /* nests built a rank */
#define PARTS_MAX 20000 /* of one tensor */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static const struct {
	const char *name;
	enum rs_dtype dtype;
	struct rs_shape shape;
} tensors[] = {
	{"model.embed_tokens.weight", RS_DT_BF16, {2, {11, 8}}},
	{"lm_head.weight", RS_DT_BF16, {2, {11, 8}}},
	{"model.norm.weight", RS_DT_F32, {1, {8}}},
	{"model.layers.0.self_attn.q_proj.weight", RS_DT_BF16, {2, {16, 8}}},
	{"model.layers.0.self_attn.k_proj.weight", RS_DT_BF16, {2, {4, 8}}},
	{"model.layers.0.self_attn.v_proj.weight", RS_DT_BF16, {2, {4, 8}}},
	{"model.layers.1.self_attn.q_proj.weight", RS_DT_BF16, {2, {16, 8}}},
	{"model.layers.1.self_attn.k_proj.weight", RS_DT_BF16, {2, {4, 8}}},
	{"model.layers.1.self_attn.v_proj.weight", RS_DT_BF16, {2, {4, 8}}},
	{"e.0.w", RS_DT_I8, {2, {8, 6}}},
	{"e.1.w", RS_DT_I8, {2, {8, 6}}},
	{"e.0.s", RS_DT_F32, {2, {4, 2}}},
	{"e.1.s", RS_DT_F32, {2, {4, 2}}},
	{"all", RS_DT_I8, {3, {2, 8, 6}}},
	{"odd", RS_DT_F16, {2, {7, 5}}},
	{"none", RS_DT_F16, {2, {0, 5}}},
	{"step", RS_DT_I64, {0, {0}}},
	{"note", RS_DT_STR, {1, {3}}},
	{"half", RS_DT_F4, {2, {4, 6}}},
};
#define N_TENSORS (sizeof(tensors) / sizeof(tensors[0]))

struct content {
	struct rs_entry entries[N_TENSORS];
	struct rs_span spans[N_TENSORS];
	struct rs_piece pieces[N_TENSORS];
	uint64_t bytes;
};

static void make_source(struct rs_source *src, struct content *c)
{
	struct rs_err err = {0};
	uint32_t unit;

	*src = (struct rs_source){.n_ranks = 1, .without_ranks = true, .container = "safetensors"};
	src->opts.path = "fuzz";
	src->cat = rs_catalog_new(1 << 20, &err);
	must(src->cat != NULL);
	for (uint32_t i = 0; i < N_TENSORS; i++) {
		struct rs_entry *e = &c->entries[i];
		struct rs_tensor t = {.name = rs_str(tensors[i].name),
			.dtype = tensors[i].dtype,
			.shape = tensors[i].shape,
			.pieces = &c->pieces[i],
			.n_pieces = 1,
			.order = i};
		*e = (struct rs_entry){.name = t.name,
			.dtype = t.dtype,
			.shape = t.shape,
			.n_spans = 1,
			.spans = &c->spans[i]};
		must(rs_shape_bytes(&t.shape, t.dtype, &e->bytes));
		c->spans[i] = (struct rs_span){.off = c->bytes, .len = e->bytes};
		c->bytes += e->bytes;
		c->pieces[i] = (struct rs_piece){.box = rs_box_whole(&t.shape), .entry = e};
		rs_piece_row_major(&c->pieces[i]);
		must(rs_catalog_add_tensor(src->cat, &t, &err) == 0);
	}
	struct rs_source_file file = {.path = "fuzz", .id = {.size = c->bytes}};
	must(rs_catalog_add_unit(src->cat, "fuzz", &file, 1, &unit, &err) == 0);
	must(rs_catalog_seal(src->cat, &err) == 0);
}

static bool told(const struct rs_err *err)
{
	return err->code != RS_OK && err->code != RS_IO && err->code != RS_CORRUPT && err->msg[0];
}

static void tile(struct rs_target *t, const struct rs_wanted *w)
{
	struct rs_arena *arena = rs_arena_new(64 << 20, NULL);
	struct rs_nest *nest = NULL;
	struct rs_err err = {0};
	uint64_t bytes;

	must(arena && rs_shape_bytes(&w->shape, rs_wanted_stored(w), &bytes));
	if (rs_plan_nest(t->source->cat, w, arena, &nest, &err) == 0)
		must(nest->bytes == bytes);
	else /* a cut of F4 may fall inside a byte; everything else is covered */
		must(err.code == RS_UNSUPPORTED || err.code == RS_LIMIT);
	rs_arena_free(arena);
}

static void look_at(struct rs_target *t, uint64_t rank)
{
	struct rs_arena *arena = rs_arena_new(64 << 20, NULL);
	struct rs_list list = {0};
	struct rs_err err = {0};

	must(arena != NULL);
	if (rs_target_list(t, rank, arena, &list, NULL, &err) < 0)
		must(told(&err));
	for (uint64_t i = 0; i < list.n && i < ITEMS_MAX; i++)
		if (list.items[i].n_parts <= PARTS_MAX)
			tile(t, &list.items[i]);
	rs_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct rs__axis sizes[] = {{{"dp", 2}, 2}, {{"tp", 2}, 2}};
	struct content content = {.bytes = 0};
	struct rs_source src;
	struct rs_target t = {.ops = &rs__target_plan, .source = &src};
	struct rs_err err = {0};
	struct rs_str text = {(const char *)data, size};
	bool other = size > 0 && data[size - 1] == '\n'; /* under another mesh */

	if (size > SIZE_MAX_FUZZ)
		return 0;
	(void)rs__plan_is(text);
	make_source(&src, &content);
	t.arena = rs_arena_new(64 << 20, NULL);
	must(t.arena != NULL);
	t.opts.target = "fuzz.json";
	if (rs__rules_open(&t, text, "fuzz.json", other ? sizes : NULL, other ? 2 : 0, &err) < 0)
		must(told(&err));
	else if (rs_target_check(&t, NULL, 0, &err) < 0)
		must(told(&err));
	else
		for (uint64_t rank = 0; rank < t.n_ranks && rank < RANKS_MAX; rank++)
			look_at(&t, rank);
	rs_notes_done(&t.notes);
	rs_arena_free(t.arena);
	rs_catalog_free(src.cat);
	return 0;
}
