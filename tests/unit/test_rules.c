/*
 * test_rules.c - plans over labelled tensors: every element of every target is traced to the one
 * element of the source that belongs there.
 *
 * What belongs there is written out here from the definition of a layout, row by row, without any
 * code of the views. The plans of three models with real sizes are in tests/data/plans; their
 * tensors have no content, and only places are traced.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/fault.h"
#include "tests/lib/model.h"

static struct model m;

static void open_ok(struct run *r, const char *text)
{
	if (run_open(r, &m, text) < 0)
		fail_msg("%s (%s)", r->err.msg, r->err.hint);
}

static void expect_refused(const char *text, enum rs_code code, const char *words)
{
	struct run r;

	if (run_open(&r, &m, text) == 0)
		fail_msg("not refused: %s", text);
	assert_int_equal(r.err.code, code);
	if (!strstr(r.err.msg, words) && !strstr(r.err.hint, words))
		fail_msg("no '%s' in: %s (%s)", words, r.err.msg, r.err.hint);
	run_done(&r);
}

/* A plan with one axis tp of @tp, and these rules. */
static char *tp_plan(unsigned int tp, const char *vars, const char *rules)
{
	static char text[8192];

	snprintf(text, sizeof(text),
		"{'reshard_plan': 1, 'vars': {%s}, 'mesh': {'axes': [{'name': 'tp', 'size': %u}]}, "
		"'files': {'path': 'rank_{rank}/m.safetensors', 'format': 'safetensors'}, "
		"'strict': {'unmatched': 'drop'}, 'rules': [%s]}",
		vars, tp, rules);
	return text;
}

static char *read_plan(const char *name)
{
	static char text[65536];
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "tests/data/plans/%s.json", name);
	f = fopen(path, "r");
	if (!f)
		fail_msg("%s: run from the top of the tree", path);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return text;
}

__attribute__((format(printf, 1, 2))) static char *name_of(const char *fmt, ...)
{
	static char names[64][120];
	static unsigned int next;
	char *name = names[next++ % 64];
	va_list args;

	va_start(args, fmt);
	vsnprintf(name, sizeof(names[0]), fmt, args);
	va_end(args);
	return name;
}

/* Element (row, col) of a target of @cols columns is element (from_row, from_col) of @source. */
static void expect_at(const struct rank *k, const char *name, uint64_t cols, uint64_t row,
	uint64_t col, const char *source, uint64_t from_cols, uint64_t from_row, uint64_t from_col)
{
	uint64_t element;
	int t = model_origin(k, name, row * cols + col, &element);

	if (t < 0 || !rs_str_is(m.tensors[t].name, source) ||
		element != from_row * from_cols + from_col)
		fail_msg("'%s' [%" PRIu64 ", %" PRIu64 "]: is %s element %" PRIu64
			 ", expected %s [%" PRIu64 ", %" PRIu64 "]",
			name, row, col, t < 0 ? "zero," : m.tensors[t].name.ptr, element, source,
			from_row, from_col);
}

/* Rows [0, n) of a target, from place @at on, are rows [first, first + n) of @source. */
static void expect_rows(const struct rank *k, const char *name, uint64_t at, uint64_t n,
	const char *source, uint64_t first, uint64_t cols)
{
	expect_at(k, name, cols, at, 0, source, cols, first, 0);
	expect_at(k, name, cols, at, cols - 1, source, cols, first, cols - 1);
	expect_at(k, name, cols, at + n - 1, 0, source, cols, first + n - 1, 0);
	expect_at(k, name, cols, at + n - 1, cols - 1, source, cols, first + n - 1, cols - 1);
}

/* ------------------------------------------------------------- models with real sizes */

static void add_llama(
	unsigned int n_layers, unsigned int h, unsigned int kv, unsigned int f, unsigned int v)
{
	static const char *const norms[] = {"input", "post_attention"};

	model_add(&m, "model.embed_tokens.weight", RS_DT_BF16, 2, v, h);
	for (unsigned int n = 0; n < n_layers; n++) {
		model_add(&m, name_of("model.layers.%u.self_attn.q_proj.weight", n), RS_DT_BF16, 2,
			h, h);
		model_add(&m, name_of("model.layers.%u.self_attn.k_proj.weight", n), RS_DT_BF16, 2,
			kv, h);
		model_add(&m, name_of("model.layers.%u.self_attn.v_proj.weight", n), RS_DT_BF16, 2,
			kv, h);
		model_add(&m, name_of("model.layers.%u.self_attn.o_proj.weight", n), RS_DT_BF16, 2,
			h, h);
		for (unsigned int i = 0; i < 2; i++)
			model_add(&m, name_of("model.layers.%u.%s_layernorm.weight", n, norms[i]),
				RS_DT_BF16, 1, h);
		if (!f)
			continue;
		model_add(&m, name_of("model.layers.%u.mlp.gate_proj.weight", n), RS_DT_BF16, 2, f,
			h);
		model_add(
			&m, name_of("model.layers.%u.mlp.up_proj.weight", n), RS_DT_BF16, 2, f, h);
		model_add(&m, name_of("model.layers.%u.mlp.down_proj.weight", n), RS_DT_BF16, 2, h,
			f);
	}
	model_add(&m, "model.norm.weight", RS_DT_BF16, 1, h);
	model_add(&m, "lm_head.weight", RS_DT_BF16, 2, v, h);
}

static void llama3_8b_tp4_pp2(void **state)
{
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	add_llama(32, 4096, 1024, 14336, 128256);
	model_seal(&m);
	open_ok(&r, read_plan("llama3-8b-tp4-pp2"));
	assert_int_equal(r.t.n_ranks, 8);
	assert_string_equal(r.t.container, "safetensors");
	assert_string_equal(r.t.container_default_name, "model.safetensors");
	assert_string_equal(r.t.files.path, "rank_{rank}/model.safetensors");

	rank_open(&k, &r, &m, 5); /* pp 1, tp 1 */
	assert_int_equal(k.list.n, 146);
	assert_int_equal(k.list.n_meta, 1);
	assert_string_equal(k.list.meta[0].value.ptr, "pt");
	assert_null(rank_find(&k, "model.embed_tokens.weight"));
	assert_null(rank_find(&k, "model.layers.15.self_attn.q_proj.weight"));
	for (unsigned int n = 16; n < 32; n++) {
		const char *name = name_of("model.layers.%u.self_attn.q_proj.weight", n);
		rank_shape(&k, name, 2, 1024, 4096);
		expect_rows(&k, name, 0, 1024, name, 1024, 4096);
		name = name_of("model.layers.%u.self_attn.k_proj.weight", n);
		rank_shape(&k, name, 2, 256, 4096);
		expect_rows(&k, name, 0, 256, name, 256, 4096);
		name = name_of("model.layers.%u.self_attn.v_proj.weight", n);
		expect_rows(&k, name, 0, 256, name, 256, 4096);
		name = name_of("model.layers.%u.self_attn.o_proj.weight", n);
		rank_shape(&k, name, 2, 4096, 1024);
		expect_at(&k, name, 1024, 0, 0, name, 4096, 0, 1024);
		expect_at(&k, name, 1024, 4095, 1023, name, 4096, 4095, 2047);
		name = name_of("model.layers.%u.mlp.gate_proj.weight", n);
		rank_shape(&k, name, 2, 3584, 4096);
		expect_rows(&k, name, 0, 3584, name, 3584, 4096);
		name = name_of("model.layers.%u.mlp.up_proj.weight", n);
		expect_rows(&k, name, 0, 3584, name, 3584, 4096);
		name = name_of("model.layers.%u.mlp.down_proj.weight", n);
		rank_shape(&k, name, 2, 4096, 3584);
		expect_at(&k, name, 3584, 0, 0, name, 14336, 0, 3584);
		expect_at(&k, name, 3584, 4095, 3583, name, 14336, 4095, 7167);
		rank_shape(&k, name_of("model.layers.%u.input_layernorm.weight", n), 1, 4096);
	}
	rank_shape(&k, "model.norm.weight", 1, 4096);
	rank_shape(&k, "lm_head.weight", 2, 32064, 4096);
	expect_rows(&k, "lm_head.weight", 0, 32064, "lm_head.weight", 32064, 4096);
	rank_done(&k);

	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 145);
	rank_shape(&k, "model.embed_tokens.weight", 2, 32064, 4096);
	assert_null(rank_find(&k, "lm_head.weight"));
	/* The order is that of the source. */
	assert_string_equal(k.list.items[0].name.ptr, "model.embed_tokens.weight");
	assert_string_equal(k.list.items[1].name.ptr, "model.layers.0.self_attn.q_proj.weight");
	rank_done(&k);
	run_done(&r);

	/* With local numbers the names are layers 0-15, and the content stays that of 16-31. */
	char *text = read_plan("llama3-8b-tp4-pp2");
	char *at = strstr(text, "\"local\": false");
	assert_non_null(at);
	memcpy(at, "\"local\":  true", 14);
	open_ok(&r, text);
	rank_open(&k, &r, &m, 5);
	assert_int_equal(k.list.n, 146);
	assert_null(rank_find(&k, "model.layers.16.self_attn.q_proj.weight"));
	expect_rows(&k, "model.layers.15.self_attn.q_proj.weight", 0, 1024,
		"model.layers.31.self_attn.q_proj.weight", 1024, 4096);
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

static char *expert_of(unsigned int layer, unsigned int expert, unsigned int w)
{
	return name_of("model.layers.%u.block_sparse_moe.experts.%u.w%u.weight", layer, expert, w);
}

static void mixtral_8x7b_ep4_tp2_vllm(void **state)
{
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	add_llama(32, 4096, 1024, 0, 32000);
	for (unsigned int n = 0; n < 32; n++) {
		model_add(&m, name_of("model.layers.%u.block_sparse_moe.gate.weight", n),
			RS_DT_BF16, 2, 8, 4096);
		for (unsigned int e = 0; e < 8; e++)
			for (unsigned int w = 1; w <= 3; w++)
				model_add(&m, expert_of(n, e, w), RS_DT_BF16, 2,
					w == 2 ? 4096 : 14336, w == 2 ? 14336 : 4096);
	}
	model_seal(&m);
	open_ok(&r, read_plan("mixtral-8x7b-ep4-tp2-vllm"));
	assert_int_equal(r.t.n_ranks, 8);
	assert_string_equal(r.t.container_default_name, "model-rank-{rank}-part-0.safetensors");
	for (unsigned int rank = 0; rank < 8; rank++) {
		unsigned int ep = rank / 2, tp = rank % 2, n = 7;
		const char *w13 = name_of("model.layers.%u.block_sparse_moe.experts.w13_weight", n);
		const char *w2 = name_of("model.layers.%u.block_sparse_moe.experts.w2_weight", n);

		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 32 * 7 + 3);
		rank_shape(&k, w13, 3, 2, 14336, 4096);
		rank_shape(&k, w2, 3, 2, 4096, 7168);
		for (unsigned int e = 0; e < 2; e++) {
			expect_rows(&k, w13, e * 14336, 7168, expert_of(n, 2 * ep + e, 1),
				7168 * tp, 4096);
			expect_rows(&k, w13, e * 14336 + 7168, 7168, expert_of(n, 2 * ep + e, 3),
				7168 * tp, 4096);
			expect_at(&k, w2, 7168, e * 4096 + 5, 6, expert_of(n, 2 * ep + e, 2), 14336,
				5, 7168 * tp + 6);
		}
		const char *qkv = "model.layers.7.self_attn.qkv_proj.weight";
		rank_shape(&k, qkv, 2, 2048 + 512 + 512, 4096);
		expect_rows(&k, qkv, 0, 2048, "model.layers.7.self_attn.q_proj.weight", 2048 * tp,
			4096);
		expect_rows(&k, qkv, 2048, 512, "model.layers.7.self_attn.k_proj.weight", 512 * tp,
			4096);
		expect_rows(&k, qkv, 2560, 512, "model.layers.7.self_attn.v_proj.weight", 512 * tp,
			4096);
		rank_shape(&k, "lm_head.weight", 2, 16000, 4096); /* 32000 is 500 * 64 */
		rank_shape(&k, "model.layers.7.block_sparse_moe.gate.weight", 2, 8, 4096);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

#define VLLM_QKV                                                                                   \
	"{'to': 'model.layers.{N}.self_attn.qkv_proj.weight', 'concat': {'dim': 0, 'parts': ["     \
	"{'from': 'model.layers.{N}.self_attn.q_proj.weight', 'cut': [{'dim': 0, 'axis': 'tp', "   \
	"'unit': 'd'}]},"                                                                          \
	"{'from': 'model.layers.{N}.self_attn.k_proj.weight', 'cut': [{'dim': 0, 'axis': 'tp', "   \
	"'unit': 'd', 'few': 'replicate'}]},"                                                      \
	"{'from': 'model.layers.{N}.self_attn.v_proj.weight', 'cut': [{'dim': 0, 'axis': 'tp', "   \
	"'unit': 'd', 'few': 'replicate'}]}]}}"

static void gqa_tp8_to_megatron_and_vllm(void **state)
{
	static const char q[] = "model.layers.1.self_attn.q_proj.weight";
	static const char kp[] = "model.layers.1.self_attn.k_proj.weight";
	static const char vp[] = "model.layers.1.self_attn.v_proj.weight";
	static const char qkv[] = "decoder.layers.1.self_attention.linear_qkv.weight";
	static const char fc1[] = "decoder.layers.1.mlp.linear_fc1.weight";
	struct run r;
	struct rank k;
	uint64_t element;
	(void)state;

	model_init(&m);
	add_llama(2, 1024, 128, 2816, 32003);
	model_seal(&m);
	open_ok(&r, read_plan("gqa-tp8-megatron"));
	for (unsigned int rank = 0; rank < 8; rank++) {
		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 2 * 6 + 3);
		rank_shape(&k, qkv, 2, 160, 1024);
		if (rank == 0)
			expect_rows(&k, qkv, 0, 160, q, 0, 1024);
		if (rank == 3) {
			expect_rows(&k, qkv, 0, 32, q, 480, 1024);
			expect_rows(&k, qkv, 32, 64, kp, 0, 1024);
			expect_rows(&k, qkv, 96, 64, vp, 0, 1024);
		}
		if (rank == 4)
			expect_rows(&k, qkv, 0, 160, q, 512, 1024);
		if (rank == 7) {
			expect_rows(&k, qkv, 0, 32, q, 992, 1024);
			expect_rows(&k, qkv, 32, 64, kp, 64, 1024);
			expect_rows(&k, qkv, 96, 64, vp, 64, 1024);
		}
		rank_shape(&k, fc1, 2, 704, 1024);
		expect_rows(
			&k, fc1, 0, 352, "model.layers.1.mlp.gate_proj.weight", 352 * rank, 1024);
		expect_rows(
			&k, fc1, 352, 352, "model.layers.1.mlp.up_proj.weight", 352 * rank, 1024);
		/* 32003 rows padded to 32768: 4096 a rank, the last row again where none is left.
		 */
		rank_shape(&k, "embedding.word_embeddings.weight", 2, 4096, 1024);
		if (rank < 7)
			expect_rows(&k, "embedding.word_embeddings.weight", 0, 4096,
				"model.embed_tokens.weight", 4096 * rank, 1024);
		else
			expect_rows(&k, "embedding.word_embeddings.weight", 0, 3331,
				"model.embed_tokens.weight", 28672, 1024);
		for (unsigned int row = 3331; rank == 7 && row < 4096; row++)
			expect_at(&k, "embedding.word_embeddings.weight", 1024, row, 17,
				"model.embed_tokens.weight", 1024, 32002, 17);
		assert_int_equal(
			model_origin(&k, "output_layer.weight", 0, &element), (int)(m.n - 1));
		rank_done(&k);
	}
	run_done(&r);

	open_ok(&r, tp_plan(8, "'d': 64", VLLM_QKV));
	for (unsigned int rank = 0; rank < 8; rank++) {
		const char *fused = "model.layers.1.self_attn.qkv_proj.weight";
		rank_open(&k, &r, &m, rank);
		rank_shape(&k, fused, 2, 256, 1024);
		expect_rows(&k, fused, 0, 128, q, 128 * rank, 1024);
		expect_rows(&k, fused, 128, 64, kp, rank / 4 * 64, 1024);
		expect_rows(&k, fused, 192, 64, vp, rank / 4 * 64, 1024);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* ----------------------------------------------------------- small labelled models */

/* Every element: row @row of the target is row @from of @source. Only for I32 models. */
struct row {
	const char *source; /* NULL: zeros */
	uint64_t from;
};

/* @rows of @cols columns, in order, are all of the target. */
static void expect_all(const struct rank *k, const char *name, const struct row *rows,
	uint64_t n_rows, uint64_t cols)
{
	uint64_t n;
	uint32_t *data = rank_data(k, name, &n);

	assert_int_equal(n, n_rows * cols);
	for (uint64_t r = 0; r < n_rows; r++)
		for (uint64_t c = 0; c < cols; c++) {
			uint32_t want = rows[r].source ? model_label(&m, rows[r].source,
								 rows[r].from * cols + c)
						       : 0;
			if (data[r * cols + c] != want)
				fail_msg("'%s' [%" PRIu64 ", %" PRIu64
					 "]: is %#x, expected %#x (%s row %" PRIu64 ")",
					name, r, c, data[r * cols + c], want,
					rows[r].source ? rows[r].source : "zeros", rows[r].from);
		}
	free(data);
}

#define H 6  /* columns */
#define D 2  /* rows of a head */
#define NQ 8 /* query heads */
#define G 2  /* key and value heads */

static void qkv_model(void)
{
	model_init(&m);
	model_add(&m, "q", RS_DT_I32, 2, NQ * D, H);
	model_add(&m, "k", RS_DT_I32, 2, G * D, H);
	model_add(&m, "v", RS_DT_I32, 2, G * D, H);
	model_seal(&m);
}

/* Row @r of the fused tensor, by its definition: per group its query heads, its key, its value. */
static struct row megatron_row(unsigned int r)
{
	unsigned int group = r / ((NQ / G + 2) * D), in = r % ((NQ / G + 2) * D);

	if (in < NQ / G * D)
		return (struct row){"q", group * (NQ / G) * D + in};
	if (in < (NQ / G + 1) * D)
		return (struct row){"k", group * D + in - NQ / G * D};
	return (struct row){"v", group * D + in - (NQ / G + 1) * D};
}

#define FUSE                                                                                       \
	"{'to': 'qkv', 'concat': {'dim': 0, 'groups': 'g', 'parts': [{'from': 'q'}, {'from': "     \
	"'k'}, {'from': 'v'}]}, 'cut': [{'dim': 0, 'axis': 'tp'}]}"
#define UNFUSE                                                                                     \
	"{'to': 'q', 'from': 'qkv', 'groups': 'g', 'slice': [[0, 0, 'nq / g * d']], 'cut': "       \
	"[{'dim': 0, 'axis': 'tp', 'unit': 'd'}]},"                                                \
	"{'to': 'k', 'from': 'qkv', 'groups': 'g', 'slice': [[0, 'nq / g * d', '(nq / g + 1) * "   \
	"d']], 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 'd', 'few': 'replicate'}]},"               \
	"{'to': 'v', 'from': 'qkv', 'groups': 'g', 'slice': [[0, '(nq / g + 1) * d', '(nq / g + "  \
	"2) * d']], 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 'd', 'few': 'replicate'}]}"
#define QKV_VARS "'g': 2, 'nq': 8, 'd': 2"

/* Fuse for @tp ranks; keep what each rank has. */
static void fuse_qkv(unsigned int tp, uint32_t **slices)
{
	const unsigned int n = (NQ + 2 * G) * D / tp;
	struct run r;
	struct rank k;
	uint64_t count;

	open_ok(&r, tp_plan(tp, QKV_VARS, FUSE));
	for (unsigned int rank = 0; rank < tp; rank++) {
		struct row rows[(NQ + 2 * G) * D];
		rank_open(&k, &r, &m, rank);
		for (unsigned int i = 0; i < n; i++)
			rows[i] = megatron_row(rank * n + i);
		expect_all(&k, "qkv", rows, n, H);
		slices[rank] = rank_data(&k, "qkv", &count);
		rank_done(&k);
	}
	run_done(&r);
}

/* Row @i of rank @rank of @tp is row ... of a tensor of @heads heads, dealt or repeated. */
static unsigned int head_row(unsigned int heads, unsigned int tp, unsigned int rank, unsigned int i)
{
	if (heads >= tp)
		return rank * (heads / tp) * D + i;
	return rank / (tp / heads) * D + i;
}

static void expect_heads(const struct rank *k, const char *name, unsigned int heads,
	unsigned int tp, unsigned int rank, const uint32_t *labels)
{
	unsigned int rows = (heads >= tp ? heads / tp : 1) * D;
	uint64_t n;
	uint32_t *data = rank_data(k, name, &n);

	assert_int_equal(n, rows * H);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(data[i], labels[head_row(heads, tp, rank, 0) * H + i]);
	free(data);
}

/*
 * Whole tensors -> fused for T ranks -> whole tensors for U ranks: the second plan reads the slices
 * that the first has made, and every label comes back to its place.
 */
static void fused_qkv_closes(void **state)
{
	uint32_t label[3][NQ * D * H];
	(void)state;

	for (unsigned int tp = 1; tp <= 8; tp *= 2)
		for (unsigned int back = 1; back <= 8; back *= 2) {
			uint32_t *slices[8];
			struct rs_shape fused = {2, {(NQ + 2 * G) * D, H}};
			struct run r;
			struct rank k;

			qkv_model();
			for (unsigned int i = 0; i < NQ * D * H; i++) {
				label[0][i] = model_label(&m, "q", i);
				label[1][i] = model_label(&m, "k", i);
				label[2][i] = model_label(&m, "v", i);
			}
			fuse_qkv(tp, slices);
			model_done(&m);
			model_init(&m);
			model_add_data(&m, "qkv", &fused, 0, (const uint32_t *const *)slices, tp);
			model_seal(&m);
			open_ok(&r, tp_plan(back, QKV_VARS, UNFUSE));
			for (unsigned int rank = 0; rank < back; rank++) {
				rank_open(&k, &r, &m, rank);
				expect_heads(&k, "q", NQ, back, rank, label[0]);
				expect_heads(&k, "k", G, back, rank, label[1]);
				expect_heads(&k, "v", G, back, rank, label[2]);
				rank_done(&k);
			}
			run_done(&r);
			model_done(&m);
			for (unsigned int i = 0; i < tp; i++)
				free(slices[i]);
		}
}

/* vLLM: cut first, then put together; ranks beyond the key heads hold one of them each. */
static void qkv_cut_inside_the_parts(void **state)
{
	(void)state;

	qkv_model();
	for (unsigned int tp = 1; tp <= 8; tp *= 2) {
		struct run r;

		open_ok(&r,
			tp_plan(tp, QKV_VARS,
				"{'to': 'qkv', 'concat': {'dim': 0, 'parts': [{'from': 'q', "
				"'cut': [{'dim': 0, 'axis': 'tp', 'unit': 'd'}]}, {'from': 'k', "
				"'cut': [{'dim': 0, 'axis': 'tp', 'unit': 'd', 'few': "
				"'replicate'}]}, {'from': 'v', 'cut': [{'dim': 0, 'axis': 'tp', "
				"'unit': 'd', 'few': 'replicate'}]}]}}"));
		for (unsigned int rank = 0; rank < tp; rank++) {
			struct row rows[NQ * D * 3];
			struct rank k;
			unsigned int n = 0, nq = NQ / tp, g = G >= tp ? G / tp : 1;

			for (unsigned int i = 0; i < nq * D; i++)
				rows[n++] = (struct row){"q", head_row(NQ, tp, rank, i)};
			for (unsigned int i = 0; i < g * D; i++)
				rows[n++] = (struct row){"k", head_row(G, tp, rank, i)};
			for (unsigned int i = 0; i < g * D; i++)
				rows[n++] = (struct row){"v", head_row(G, tp, rank, i)};
			rank_open(&k, &r, &m, rank);
			expect_all(&k, "qkv", rows, n, H);
			rank_done(&k);
		}
		run_done(&r);
	}
	model_done(&m);
}

#define F 16

/* [gate; up] as one source, two sources, one target or two, for 1, 2, 4 and 8 ranks. */
static void gate_and_up_close(void **state)
{
	static const char rules[] =
		"{'to': 'fused', 'concat': {'dim': 0, 'parts': [{'from': 'gate', 'cut': [{'dim': "
		"0, "
		"'axis': 'tp'}]}, {'from': 'up', 'cut': [{'dim': 0, 'axis': 'tp'}]}]}},"
		"{'to': 'again', 'concat': {'dim': 0, 'parts': [{'from': 'both', 'slice': [[0, 0, "
		"'f']], 'cut': [{'dim': 0, 'axis': 'tp'}]}, {'from': 'both', 'slice': [[0, 'f', '2 "
		"* f']], 'cut': [{'dim': 0, 'axis': 'tp'}]}]}},"
		"{'to': 'g', 'from': 'both', 'slice': [[0, 0, 'f']], 'cut': [{'dim': 0, 'axis': "
		"'tp'}]},"
		"{'to': 'u', 'from': 'both', 'slice': [[0, 'f', '2 * f']], 'cut': [{'dim': 0, "
		"'axis': 'tp'}]},"
		"{'to': 'wrong', 'concat': {'dim': 0, 'parts': [{'from': 'gate'}, {'from': "
		"'up'}]}, 'cut': [{'dim': 0, 'axis': 'tp'}]}";
	(void)state;

	model_init(&m);
	model_add(&m, "both", RS_DT_I32, 2, 2 * F, 3);
	model_add(&m, "gate", RS_DT_I32, 2, F, 3);
	model_add(&m, "up", RS_DT_I32, 2, F, 3);
	model_seal(&m);
	for (unsigned int tp = 1; tp <= 8; tp *= 2) {
		struct run r;
		open_ok(&r, tp_plan(tp, "'f': 16", rules));
		for (unsigned int rank = 0; rank < tp; rank++) {
			struct row fused[2 * F], again[2 * F], wrong[2 * F];
			unsigned int n = F / tp;
			struct rank k;

			for (unsigned int i = 0; i < n; i++) {
				fused[i] = (struct row){"gate", rank * n + i};
				fused[n + i] = (struct row){"up", rank * n + i};
				again[i] = (struct row){"both", rank * n + i};
				again[n + i] = (struct row){"both", F + rank * n + i};
			}
			for (unsigned int i = 0; i < 2 * n; i++) {
				unsigned int row = rank * 2 * n + i;
				wrong[i] = row < F ? (struct row){"gate", row}
						   : (struct row){"up", row - F};
			}
			rank_open(&k, &r, &m, rank);
			expect_all(&k, "fused", fused, 2 * n, 3);
			expect_all(&k, "again", again, 2 * n, 3);
			expect_all(&k, "g", again, n, 3);
			expect_all(&k, "u", again + n, n, 3);
			expect_all(&k, "wrong", wrong, 2 * n, 3); /* what cutting last means */
			rank_done(&k);
		}
		run_done(&r);
	}
	model_done(&m);
}

/* Blocks of 4 rows of gate and up in turn, and back. */
static void interleaved_blocks_close(void **state)
{
	struct row rows[2 * F];
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	model_add(&m, "gate", RS_DT_I32, 2, F, 3);
	model_add(&m, "mixed", RS_DT_I32, 2, 2 * F, 3);
	model_add(&m, "up", RS_DT_I32, 2, F, 3);
	model_seal(&m);
	open_ok(&r,
		tp_plan(1, "'f': 16",
			"{'to': 'mixed', 'concat': {'dim': 0, 'groups': 'f / 4', 'parts': "
			"[{'from': 'gate'}, {'from': 'up'}]}},"
			"{'to': 'up', 'from': 'mixed', 'groups': 'f / 4', 'slice': [[0, 4, 8]]}"));
	rank_open(&k, &r, &m, 0);
	for (unsigned int i = 0; i < 2 * F; i++)
		rows[i] = (struct row){i / 4 % 2 ? "up" : "gate", i / 8 * 4 + i % 4};
	expect_all(&k, "mixed", rows, 2 * F, 3);
	for (unsigned int i = 0; i < F; i++)
		rows[i] = (struct row){"mixed", i / 4 * 8 + 4 + i % 4};
	expect_all(&k, "up", rows, F, 3);
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

/* ----------------------------------------------------------------- stack and split */

#define EP_PLAN(ep, range, rules)                                                                  \
	"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'ep', 'size': " ep                         \
	"}, {'name': 'tp', 'size': 2}]}, 'files': {'path': 'r{rank}/m', 'format': 'ckpt'}, "       \
	"'ranges': {'E': {'axis': 'ep', " range "}}, 'rules': [" rules "]}"

static void experts_model(unsigned int layers, unsigned int experts)
{
	model_init(&m);
	for (unsigned int n = 0; n < layers; n++)
		for (unsigned int e = 0; e < experts; e++) {
			model_add(&m, name_of("l.%u.e.%u.up", n, e), RS_DT_I32, 2, 4, 6);
			model_add(&m, name_of("l.%u.e.%u.down", n, e), RS_DT_I32, 2, 6, 4);
		}
	model_seal(&m);
}

/* [E_local, 4 / tp, 6] and [E_local, 6, 4 / tp]; layer, expert, row and column of every element. */
static void experts_are_stacked(void **state)
{
	static const char plan[] = EP_PLAN("4", "'count': 8, 'local': true",
		"{'to': 'l.{N}.up', 'from': 'l.{N}.e.{E}.up', 'stack': {'dim': 0, 'over': 'E'}, "
		"'cut': [{'dim': 0, 'axis': 'tp'}]},"
		"{'to': 'l.{N}.down', 'from': 'l.{N}.e.{E}.down', 'stack': {'dim': 0, 'over': "
		"'E'}, "
		"'cut': [{'dim': 1, 'axis': 'tp'}]}");
	struct run r;
	(void)state;

	experts_model(3, 8);
	open_ok(&r, plan);
	for (unsigned int rank = 0; rank < 8; rank++) {
		unsigned int ep = rank / 2, tp = rank % 2;
		struct rank k;

		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 6);
		for (unsigned int n = 0; n < 3; n++) {
			struct row rows[4];
			uint64_t count;

			rank_shape(&k, name_of("l.%u.up", n), 3, 2, 2, 6);
			for (unsigned int i = 0; i < 4; i++)
				rows[i] = (struct row){
					name_of("l.%u.e.%u.up", n, 2 * ep + i / 2), 2 * tp + i % 2};
			expect_all(&k, name_of("l.%u.up", n), rows, 4, 6);
			rank_shape(&k, name_of("l.%u.down", n), 3, 2, 6, 2);
			uint32_t *down = rank_data(&k, name_of("l.%u.down", n), &count);
			for (unsigned int i = 0; i < count; i++) {
				unsigned int e = i / 12, row = i / 2 % 6, col = i % 2;
				assert_int_equal(down[i],
					model_label(&m, name_of("l.%u.e.%u.down", n, 2 * ep + e),
						row * 4 + 2 * tp + col));
			}
			free(down);
		}
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* The inverse, with global and with local numbers; the new dim need not be the first. */
static void experts_are_split(void **state)
{
	static const char plan[] = EP_PLAN("4", "'count': 8",
		"{'to': 'e.{E.g}.l.{E.l}', 'from': 'all', 'stack': {'dim': 1, 'over': 'E', "
		"'split': "
		"true}, 'cut': [{'dim': 1, 'axis': 'tp'}]}");
	struct run r;
	(void)state;

	model_init(&m);
	model_add(&m, "all", RS_DT_I32, 3, 3, 8, 4);
	model_seal(&m);
	open_ok(&r, plan);
	for (unsigned int rank = 0; rank < 8; rank++) {
		struct rank k;

		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 2);
		for (unsigned int l = 0; l < 2; l++) {
			unsigned int e = rank / 2 * 2 + l;
			const char *name = name_of("e.%u.l.%u", e, l);
			uint64_t n;
			uint32_t *data = rank_data(&k, name, &n);

			rank_shape(&k, name, 2, 3, 2);
			for (unsigned int i = 0; i < 6; i++)
				assert_int_equal(data[i],
					model_label(&m, "all",
						(i / 2 * 8 + e) * 4 + rank % 2 * 2 + i % 2));
			free(data);
		}
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* A fused, stacked source: each expert's gate is a slice of its own. */
static void split_comes_before_slices(void **state)
{
	static const char plan[] = EP_PLAN("2", "'count': 4",
		"{'to': 'e.{E}.up', 'from': 'gate_up', 'stack': {'dim': 0, 'over': 'E', 'split': "
		"true}, 'slice': [[0, 2, 4]], 'transpose': [1, 0]},"
		"{'to': 'both', 'from': 'gate_up'}");
	struct run r;
	struct rank k;
	uint64_t n;
	(void)state;

	model_init(&m);
	model_add(&m, "gate_up", RS_DT_I32, 3, 4, 4, 3);
	model_seal(&m);
	open_ok(&r, plan);
	rank_open(&k, &r, &m, 2); /* ep 1 */
	rank_shape(&k, "e.3.up", 2, 3, 2);
	uint32_t *data = rank_data(&k, "e.3.up", &n);
	for (unsigned int i = 0; i < 6; i++)
		assert_int_equal(
			data[i], model_label(&m, "gate_up", (3 * 4 + 2 + i % 2) * 3 + i / 2));
	free(data);
	assert_null(rank_find(&k, "e.1.up"));
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

/* Experts by list, in the order of the list; one of them on two ranks. */
static void lists_say_who_owns(void **state)
{
	static const char plan[] = EP_PLAN("2", "'lists': [[3, 0], [1, 2, 0]]",
		"{'to': 'up', 'from': 'l.0.e.{E}.up', 'stack': {'dim': 0, 'over': 'E'}},"
		"{'to': 'down.{E.l}', 'from': 'l.0.e.{E}.down'}");
	static const unsigned int owns[2][3] = {{3, 0}, {1, 2, 0}};
	struct run r;
	(void)state;

	experts_model(1, 4);
	open_ok(&r, plan);
	for (unsigned int rank = 0; rank < 4; rank++) {
		struct row rows[6];
		struct rank k;
		unsigned int n = rank / 2 ? 3 : 2;

		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, n + 1);
		rank_shape(&k, "up", 3, n, 4, 6);
		for (unsigned int e = 0; e < n; e++) {
			char name[20];
			uint64_t count;
			uint32_t *data = rank_data(&k, "up", &count);
			snprintf(name, sizeof(name), "l.0.e.%u.up", owns[rank / 2][e]);
			for (unsigned int i = 0; i < 24; i++)
				assert_int_equal(data[e * 24 + i], model_label(&m, name, i));
			free(data);
			for (unsigned int i = 0; i < 6; i++) {
				snprintf(name, sizeof(name), "l.0.e.%u.down", owns[rank / 2][e]);
				rows[i] = (struct row){name, i};
			}
			expect_all(&k, name_of("down.%u", e), rows, 6, 4);
		}
		rank_done(&k);
	}
	run_done(&r);
	expect_refused(EP_PLAN("2", "'lists': [[3, 0, 3], [1, 2]]",
			       "{'to': 'e.{E}', 'from': 'l.0.e.{E}.up'}"),
		RS_USAGE, "coordinate 0 has index 3 twice");
	model_done(&m);
}

/* A rank whose share is empty holds a stack of none. */
static void empty_shares_are_empty_stacks(void **state)
{
	static const char plan[] = EP_PLAN("3", "'sizes': [4, 0, 0]",
		"{'to': 'up', 'from': 'l.0.e.{E}.up', 'stack': {'dim': 0, 'over': 'E'}, 'cut': "
		"[{'dim': 1, 'axis': 'tp'}]}, {'drop': 'l.{N}.e.{E}.down'}");
	struct run r;
	struct rank k;
	(void)state;

	experts_model(1, 4);
	open_ok(&r, plan);
	rank_open(&k, &r, &m, 1);
	rank_shape(&k, "up", 3, 4, 4, 3);
	rank_done(&k);
	rank_open(&k, &r, &m, 5);
	rank_shape(&k, "up", 3, 0, 4, 3);
	assert_int_equal(k.list.items[0].n_parts, 0);
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

/* ---------------------------------------------------------- transpose, trim, pad, cuts */

static void transposed_weights(void **state)
{
	struct run r;
	(void)state;

	model_init(&m);
	model_add(&m, "conv1d", RS_DT_I32, 2, 6, 8);
	model_add(&m, "cube", RS_DT_I32, 3, 2, 3, 4);
	model_seal(&m);
	open_ok(&r,
		tp_plan(4, "",
			"{'to': 'linear', 'from': 'conv1d', 'transpose': [1, 0], 'cut': [{'dim': "
			"0, 'axis': 'tp'}]}, {'to': 'cube', 'from': 'cube', 'transpose': [2, 0, "
			"1]}"));
	for (unsigned int rank = 0; rank < 4; rank++) {
		struct rank k;
		uint64_t n;

		rank_open(&k, &r, &m, rank);
		rank_shape(&k, "linear", 2, 2, 6);
		uint32_t *data = rank_data(&k, "linear", &n);
		for (unsigned int i = 0; i < 12; i++)
			assert_int_equal(
				data[i], model_label(&m, "conv1d", i % 6 * 8 + 2 * rank + i / 6));
		free(data);
		rank_shape(&k, "cube", 3, 4, 2, 3);
		data = rank_data(&k, "cube", &n);
		for (unsigned int i = 0; i < 24; i++)
			assert_int_equal(data[i],
				model_label(&m, "cube", i / 3 % 2 * 12 + i % 3 * 4 + i / 6));
		free(data);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* 11 rows are trimmed to 9 and padded to 12, or to a multiple, over 4 ranks and along columns. */
static void trimmed_and_padded(void **state)
{
	struct run r;
	(void)state;

	model_init(&m);
	model_add(&m, "emb", RS_DT_I32, 2, 11, 3);
	model_seal(&m);
	open_ok(&r,
		tp_plan(4, "'V': 9",
			"{'to': 'zero', 'from': 'emb', 'trim': {'dim': 0, 'to': 'V'}, 'pad': "
			"{'dim': 0, 'multiple': 4}, 'cut': [{'dim': 0, 'axis': 'tp'}]},"
			"{'to': 'last', 'from': 'emb', 'trim': {'dim': 0, 'to': 'V'}, 'pad': "
			"{'dim': 0, 'to': 12, 'fill': 'last'}, 'cut': [{'dim': 0, 'axis': 'tp'}]},"
			"{'to': 'down', 'from': 'emb', 'trim': {'dim': 0, 'multiple': 4}},"
			"{'to': 'wide', 'from': 'emb', 'pad': {'dim': 1, 'to': 5, 'fill': "
			"'last'}}"));
	for (unsigned int rank = 0; rank < 4; rank++) {
		struct row zero[3], last[3], down[8];
		struct rank k;
		uint64_t n;

		for (unsigned int i = 0; i < 3; i++) {
			unsigned int row = rank * 3 + i;
			zero[i] = row < 9 ? (struct row){"emb", row} : (struct row){NULL, 0};
			last[i] = (struct row){"emb", row < 9 ? row : 8};
		}
		for (unsigned int i = 0; i < 8; i++)
			down[i] = (struct row){"emb", i};
		rank_open(&k, &r, &m, rank);
		expect_all(&k, "zero", zero, 3, 3);
		expect_all(&k, "last", last, 3, 3);
		expect_all(&k, "down", down, 8, 3);
		rank_shape(&k, "wide", 2, 11, 5);
		uint32_t *data = rank_data(&k, "wide", &n);
		for (unsigned int i = 0; i < 55; i++)
			assert_int_equal(data[i],
				model_label(&m, "emb", i / 5 * 3 + (i % 5 < 3 ? i % 5 : 2)));
		free(data);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* 10 rows over 4 ranks, 5 units of 2 over 4, 3 units over 4, and few units repeated. */
static void uneven_cuts(void **state)
{
	static const struct {
		const char *cut;
		unsigned int n[4], first[4], zeros[4];
	} rows[] = {
		{"'uneven': 'chunk'", {3, 3, 3, 1}, {0, 3, 6, 9}, {0}},
		{"'uneven': 'balanced'", {3, 3, 2, 2}, {0, 3, 6, 8}, {0}},
		{"'uneven': 'pad'", {3, 3, 3, 1}, {0, 3, 6, 9}, {0, 0, 0, 2}},
		{"'unit': 2, 'uneven': 'chunk'", {4, 4, 2, 0}, {0, 4, 8, 10}, {0}},
		{"'unit': 2, 'uneven': 'balanced'", {4, 2, 2, 2}, {0, 4, 6, 8}, {0}},
		{"'unit': 2, 'uneven': 'pad'", {4, 4, 2, 0}, {0, 4, 8, 10}, {0, 0, 2, 4}},
		{"'unit': 5, 'few': 'replicate'", {5, 5, 5, 5}, {0, 0, 5, 5}, {0}},
		{"'unit': 10, 'few': 'replicate'", {10, 10, 10, 10}, {0}, {0}},
		{"'unit': 5, 'uneven': 'balanced'", {5, 5, 0, 0}, {0, 5, 10, 10}, {0}},
	};
	(void)state;

	model_init(&m);
	model_add(&m, "w", RS_DT_I32, 2, 10, 2);
	model_seal(&m);
	for (size_t t = 0; t < sizeof(rows) / sizeof(rows[0]); t++) {
		char rule[200];
		struct run r;

		snprintf(rule, sizeof(rule),
			"{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp', %s}]}",
			rows[t].cut);
		open_ok(&r, tp_plan(4, "", rule));
		for (unsigned int rank = 0; rank < 4; rank++) {
			struct row want[12];
			struct rank k;
			unsigned int n = 0;

			for (; n < rows[t].n[rank]; n++)
				want[n] = (struct row){"w", rows[t].first[rank] + n};
			for (unsigned int i = 0; i < rows[t].zeros[rank]; i++)
				want[n++] = (struct row){NULL, 0};
			rank_open(&k, &r, &m, rank);
			rank_shape(&k, "w", 2, n, 2);
			expect_all(&k, "w", want, n, 2);
			rank_done(&k);
		}
		run_done(&r);
	}
	expect_refused(
		tp_plan(4, "", "{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}]}"),
		RS_USAGE, "dim 0 is 10, not divisible by 'tp' of 4");
	expect_refused(
		tp_plan(4, "", "{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}]}"),
		RS_USAGE, "possible sizes of 'tp' here: 1 2 5 10;");
	expect_refused(
		tp_plan(4, "",
			"{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 5}]}"),
		RS_USAGE, "\"few\": \"replicate\"");
	expect_refused(
		tp_plan(3, "",
			"{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp', 'unit': 5, "
			"'few': 'replicate'}]}"),
		RS_USAGE, "2 units, which 'tp' of 3 cannot repeat evenly");
	model_done(&m);
}

/* strict.uneven holds where a cut does not say, for ranges too; a cut may be stricter. */
static void strict_uneven_is_the_default(void **state)
{
	static const char head[] =
		"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'pp', 'size': 2}]}, 'files': "
		"{'path': 'r{rank}', 'format': 'ckpt'}, 'strict': {'uneven': 'balanced'}, "
		"'ranges': "
		"{'N': {'axis': 'pp'}}, 'rules': [{'to': 'l.{N}', 'from': 'l.{N}'}, {'to': 'w', "
		"'from': 'w', 'cut': [{'dim': 0, 'axis': 'pp'%s}]}]}";
	char text[1000];
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	model_add(&m, "w", RS_DT_I32, 1, 7);
	for (unsigned int n = 0; n < 5; n++)
		model_add(&m, name_of("l.%u", n), RS_DT_I32, 1, 2);
	model_seal(&m);
	snprintf(text, sizeof(text), head, "");
	open_ok(&r, text);
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 4);
	rank_shape(&k, "w", 1, 4);
	rank_want(&k, "l.2");
	rank_done(&k);
	rank_open(&k, &r, &m, 1);
	assert_int_equal(k.list.n, 3);
	rank_shape(&k, "w", 1, 3);
	rank_want(&k, "l.3");
	rank_done(&k);
	run_done(&r);
	snprintf(text, sizeof(text), head, ", 'uneven': 'error'");
	expect_refused(text, RS_USAGE, "dim 0 is 7, not divisible by 'pp' of 2");
	model_done(&m);
}

/* Two axes cut one dim in the order written, or two dims. */
static void several_axes_cut(void **state)
{
	static const char plan[] =
		"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'dp', 'size': 2}, {'name': 'ep', "
		"'size': 2}, {'name': 'tp', 'size': 3}]}, 'files': {'path': 'r{rank}', 'format': "
		"'ckpt'}, 'rules': [{'to': 'one', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}, "
		"{'dim': 0, 'axis': 'ep'}]}, {'to': 'two', 'from': 'w', 'cut': [{'dim': 0, 'axis': "
		"'ep'}, {'dim': 1, 'axis': 'tp'}]}]}";
	struct run r;
	(void)state;

	model_init(&m);
	model_add(&m, "w", RS_DT_I32, 2, 12, 3);
	model_seal(&m);
	open_ok(&r, plan);
	assert_int_equal(r.t.n_ranks, 12);
	for (unsigned int rank = 0; rank < 12; rank++) {
		unsigned int ep = rank / 3 % 2, tp = rank % 3;
		struct row rows[2];
		struct rank k;
		uint64_t n;

		rank_open(&k, &r, &m, rank);
		for (unsigned int i = 0; i < 2; i++)
			rows[i] = (struct row){"w", tp * 4 + ep * 2 + i};
		expect_all(&k, "one", rows, 2, 3);
		rank_shape(&k, "two", 2, 6, 1);
		uint32_t *data = rank_data(&k, "two", &n);
		for (unsigned int i = 0; i < 6; i++)
			assert_int_equal(data[i], model_label(&m, "w", (ep * 6 + i) * 3 + tp));
		free(data);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* ------------------------------------------------------------------------- scales */

/* Weights of 8 x 6 with a scale for each block of 2 x 3; the last block of rows may be short. */
static void scales_follow_their_weights(void **state)
{
	static const char rules[] =
		"{'to': 'col', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}]},"
		"{'to': 'col_scale', 'from': 's', 'scale_of': 'col', 'block': [2, 3]},"
		"{'to': 'row', 'from': 'w', 'cut': [{'dim': 1, 'axis': 'tp'}]},"
		"{'to': 'row_scale', 'from': 's', 'scale_of': 'row', 'block': [2, 3]},"
		"{'to': 'turned', 'from': 'w', 'transpose': [1, 0], 'cut': [{'dim': 1, 'axis': "
		"'tp'}]},"
		"{'to': 'turned_scale', 'from': 's', 'scale_of': 'turned', 'block': [2, 3]},"
		"{'to': 'fused', 'concat': {'dim': 0, 'parts': [{'from': 'w', 'cut': [{'dim': 0, "
		"'axis': 'tp'}]}, {'from': 'w2', 'cut': [{'dim': 0, 'axis': 'tp'}]}]}},"
		"{'to': 'fused_scale', 'concat': {'dim': 0, 'parts': [{'from': 's'}, {'from': "
		"'s2'}]}, 'scale_of': 'fused', 'block': [2, 3]},"
		"{'to': 'whole', 'from': 'odd'},"
		"{'to': 'whole_scale', 'from': 'so', 'scale_of': 'whole', 'block': [2, 3]}";
	struct run r;
	(void)state;

	model_init(&m);
	model_add(&m, "odd", RS_DT_I32, 2, 7, 5);
	model_add(&m, "s", RS_DT_I32, 2, 4, 2);
	model_add(&m, "s2", RS_DT_I32, 2, 4, 2);
	model_add(&m, "so", RS_DT_I32, 2, 4, 2);
	model_add(&m, "w", RS_DT_I32, 2, 8, 6);
	model_add(&m, "w2", RS_DT_I32, 2, 8, 6);
	model_seal(&m);
	open_ok(&r, tp_plan(2, "", rules));
	for (unsigned int rank = 0; rank < 2; rank++) {
		struct row rows[4];
		struct rank k;
		uint64_t n;

		rank_open(&k, &r, &m, rank);
		for (unsigned int i = 0; i < 4; i++)
			rows[i] = (struct row){i < 2 ? "s" : "s2", 2 * rank + i % 2};
		expect_all(&k, "col_scale", rows, 2, 2);
		expect_all(&k, "fused_scale", rows, 4, 2);
		rank_shape(&k, "row_scale", 2, 4, 1);
		uint32_t *data = rank_data(&k, "row_scale", &n);
		for (unsigned int i = 0; i < 4; i++)
			assert_int_equal(data[i], model_label(&m, "s", i * 2 + rank));
		free(data);
		rank_shape(&k, "turned_scale", 2, 2, 2);
		data = rank_data(&k, "turned_scale", &n);
		for (unsigned int i = 0; i < 4; i++)
			assert_int_equal(
				data[i], model_label(&m, "s", (2 * rank + i % 2) * 2 + i / 2));
		free(data);
		for (unsigned int i = 0; i < 4; i++)
			rows[i] = (struct row){"so", i};
		expect_all(&k, "whole_scale", rows, 4, 2);
		rank_done(&k);
	}
	run_done(&r);
	expect_refused(tp_plan(4, "",
			       "{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}]},"
			       "{'to': 's', 'from': 's', 'scale_of': 'w', 'block': [4, 3]}"),
		RS_USAGE, "does not have a scale for each block");
	expect_refused(tp_plan(2, "",
			       "{'to': 'w', 'from': 'w', 'slice': [[0, 1, 8]]},"
			       "{'to': 's', 'from': 's', 'scale_of': 'w', 'block': [2, 3]}"),
		RS_USAGE, "cut inside a block");
	expect_refused(tp_plan(8, "",
			       "{'to': 'w', 'from': 'w', 'cut': [{'dim': 0, 'axis': 'tp'}]},"
			       "{'to': 's', 'from': 's', 'scale_of': 'w', 'block': [2, 3]}"),
		RS_USAGE, "cut inside a block");
	expect_refused(
		tp_plan(2, "",
			"{'to': 'w', 'concat': {'dim': 0, 'parts': [{'from': 'w'}, {'from': "
			"'w2'}]}}, {'to': 's', 'from': 's', 'scale_of': 'w', 'block': [2, 3]}"),
		RS_USAGE, "is made from 2 tensors, 's' from 1");
	model_done(&m);
}

/* Stacked experts and the stack of their scales, both by local number, the scales in one piece. */
static void stacked_scales(void **state)
{
	static const char plan[] = EP_PLAN("2", "'count': 4, 'local': true",
		"{'to': 'w.{N}', 'from': 'l.{N}.e.{E}.up', 'stack': {'dim': 0, 'over': 'E'}, "
		"'cut': "
		"[{'dim': 0, 'axis': 'tp'}]},"
		"{'to': 's.{N}', 'from': 'l.{N}.e.{E}.up_s', 'stack': {'dim': 0, 'over': 'E'}, "
		"'scale_of': 'w.{N}', 'block': [2, 3]},"
		"{'to': 'one.{E}', 'from': 'l.0.e.{E}.up', 'cut': [{'dim': 0, 'axis': 'tp'}]},"
		"{'to': 'one.{E}.s', 'from': 'l.0.e.{E}.up_s', 'scale_of': 'one.{E}', 'block': [2, "
		"3]}");
	struct run r;
	(void)state;

	model_init(&m);
	for (unsigned int e = 0; e < 4; e++) {
		model_add(&m, name_of("l.0.e.%u.up", e), RS_DT_I32, 2, 4, 6);
		model_add(&m, name_of("l.0.e.%u.up_s", e), RS_DT_I32, 2, 2, 2);
	}
	model_seal(&m);
	open_ok(&r, plan);
	for (unsigned int rank = 0; rank < 4; rank++) {
		unsigned int ep = rank / 2, tp = rank % 2;
		struct row rows[2];
		struct rank k;

		rank_open(&k, &r, &m, rank);
		rank_shape(&k, "s.0", 3, 2, 1, 2);
		for (unsigned int i = 0; i < 2; i++)
			rows[i] = (struct row){name_of("l.0.e.%u.up_s", 2 * ep + i), tp};
		expect_all(&k, "s.0", rows, 2, 2);
		for (unsigned int i = 0; i < 2; i++)
			expect_all(&k, name_of("one.%u.s", i), rows + i, 1, 2);
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* --------------------------------------------------------------- names and placement */

#define PP_PLAN(strict, rules)                                                                     \
	"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'pp', 'size': 2}, {'name': 'tp', 'size': " \
	"2}]}, 'files': {'path': 'r{rank}', 'format': 'ckpt'}, 'strict': {" strict                 \
	"}, 'ranges': {'N': {'axis': 'pp', 'count': 4, 'local': true}}, 'rules': [" rules "]}"

static void layers_model(void)
{
	model_init(&m);
	model_add(&m, "emb", RS_DT_I32, 2, 4, 2);
	model_add(&m, "head", RS_DT_I32, 2, 4, 2);
	for (unsigned int n = 0; n < 4; n++) {
		model_add(&m, name_of("l.%u.a_norm", n), RS_DT_I32, 1, 2);
		model_add(&m, name_of("l.%u.b_norm", n), RS_DT_I32, 1, 2);
	}
	model_add(&m, "step", RS_DT_I64, 0);
	model_seal(&m);
}

#define LAYERS                                                                                     \
	"{'to': 'layers.{N}.{x}', 'from': 'l.{N}.{x}_norm'}, {'to': 'step', 'from': 'step', "      \
	"'cut': [{'dim': 0, 'axis': 'tp'}]}"

/* The first stage has the embedding, the last one the same again under another name. */
static void aliases_are_tied_weights(void **state)
{
	static const char plan[] = PP_PLAN("",
		"{'to': 'emb', 'from': 'emb', 'on': {'pp': 'first'}, 'cut': [{'dim': 0, 'axis': "
		"'tp'}]}, {'to': 'out', 'alias_of': 'emb', 'on': {'pp': 'last'}}, {'to': "
		"'same.{y}', "
		"'alias_of': 'layers.0.{y}'}, {'drop': 'head'}, " LAYERS);
	struct run r;
	struct rank k;
	struct row rows[2];
	(void)state;

	layers_model();
	open_ok(&r, plan);
	for (unsigned int rank = 0; rank < 4; rank++) {
		for (unsigned int i = 0; i < 2; i++)
			rows[i] = (struct row){"emb", rank % 2 * 2 + i};
		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 1 + 4 + 2 + 1);
		expect_all(&k, rank < 2 ? "emb" : "out", rows, 2, 2);
		assert_null(rank_find(&k, rank < 2 ? "out" : "emb"));
		rows[0] = (struct row){rank < 2 ? "l.0.b_norm" : "l.2.b_norm", 0};
		expect_all(&k, "same.b", rows, 1, 2);
		expect_all(&k, "layers.0.b", rows, 1, 2);
		rows[0] = (struct row){rank < 2 ? "l.1.a_norm" : "l.3.a_norm", 0};
		expect_all(&k, "layers.1.a", rows, 1, 2);
		rank_shape(&k, "step", 0); /* what has no axis is never cut */
		rank_done(&k);
	}
	run_done(&r);
	model_done(&m);
}

/* Per rank the first rule of a name wins; the second is for where the first has no say. */
static void the_first_rule_wins(void **state)
{
	struct run r;
	struct rank k;
	struct row rows[4];
	(void)state;

	layers_model();
	open_ok(&r,
		PP_PLAN("", "{'to': 'w', 'from': 'emb', 'on': {'pp': [0]}}, {'to': 'w', 'from': "
			    "'head'}, " LAYERS));
	for (unsigned int rank = 0; rank < 4; rank++) {
		for (unsigned int i = 0; i < 4; i++)
			rows[i] = (struct row){rank < 2 ? "emb" : "head", i};
		rank_open(&k, &r, &m, rank);
		expect_all(&k, "w", rows, 4, 2);
		rank_done(&k);
	}
	run_done(&r);
	/* A rule that never gets its turn leaves its source to nobody. */
	expect_refused(
		PP_PLAN("", "{'to': 'w', 'from': 'emb'}, {'to': 'w', 'from': 'head'}, " LAYERS),
		RS_MISSING, "tensor 'head': no rule takes it");
	expect_refused(
		PP_PLAN("", "{'to': 'w', 'from': 'emb'}, {'to': 'w', 'from': 'head'}, " LAYERS),
		RS_MISSING, "does an earlier rule make the same name?");
	/* Tied embeddings: an optional rule, then one for models without the tensor. */
	open_ok(&r, PP_PLAN("'unmatched': 'drop'",
			    "{'to': 'w', 'from': 'lm_head', 'optional': true}, {'to': 'w', 'from': "
			    "'emb'}"));
	rank_open(&k, &r, &m, 3);
	for (unsigned int i = 0; i < 4; i++)
		rows[i] = (struct row){"emb", i};
	expect_all(&k, "w", rows, 4, 2);
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

static void strictness(void **state)
{
	struct run r;
	struct rank k;
	(void)state;

	layers_model();
	expect_refused(PP_PLAN("", LAYERS), RS_MISSING, "tensor 'emb' and 1 more: no rule");
	open_ok(&r, PP_PLAN("'unmatched': 'drop'", LAYERS));
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 5);
	assert_int_equal(r.t.notes.n, 1);
	assert_non_null(strstr(r.t.notes.items[0], "'emb' and 1 more tensors match no rule"));
	rank_done(&k);
	run_done(&r);
	open_ok(&r, PP_PLAN("'unmatched': 'replicate'", LAYERS));
	for (unsigned int rank = 0; rank < 4; rank++) {
		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 7);
		rank_shape(&k, "emb", 2, 4, 2);
		rank_shape(&k, "head", 2, 4, 2);
		rank_done(&k);
	}
	run_done(&r);
	/* drop hides a source from the rules behind it, not from those before. */
	open_ok(&r, PP_PLAN("", "{'to': 'e', 'from': 'emb'}, {'drop': '{x}'}, {'drop': "
				"'l.{N}.{x}'}, {'to': 'h', 'from': 'head', 'optional': true}"));
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 1);
	rank_done(&k);
	run_done(&r);
	/* missing */
	expect_refused(PP_PLAN("'unmatched': 'drop'", "{'to': 'x', 'from': 'l.{N}.c_norm'}"),
		RS_MISSING, "no source tensor is called 'l.{N}.c_norm'");
	open_ok(&r,
		PP_PLAN("'unmatched': 'drop', 'missing': 'skip'",
			"{'to': 'x', 'from': 'none'}, {'to': 'y', 'concat': {'dim': 0, 'parts': "
			"[{'from': 'emb'}, {'from': 'none'}]}}, {'to': 'z', 'alias_of': 'x'}"));
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 0);
	assert_int_equal(r.t.notes.n, 4);
	rank_done(&k);
	run_done(&r);
	/* optional: all sources, or nothing, and then they are free for other rules */
	open_ok(&r, PP_PLAN("'unmatched': 'drop'",
			    "{'to': 'y', 'optional': true, 'concat': {'dim': 0, 'parts': [{'from': "
			    "'emb'}, {'from': 'none'}]}}, {'to': 'z', 'from': 'emb'}"));
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 1);
	rank_want(&k, "z");
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

/* A layer that is not there, one too many, and experts with a gap. */
static void ranges_are_complete(void **state)
{
	static const char plan[] =
		"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'pp', 'size': 2}]}, 'files': "
		"{'path': 'r{rank}', 'format': 'ckpt'}, 'ranges': {'N': {'axis': 'pp', %s}}, "
		"'rules': [{'to': 'l.{N}.{x}', 'from': 'l.{N}.{x}'%s}]}";
	char text[1000];
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	for (unsigned int n = 0; n < 6; n++) {
		model_add(&m, name_of("l.%u.a", n), RS_DT_I32, 1, 2);
		if (n != 3)
			model_add(&m, name_of("l.%u.b", n), RS_DT_I32, 1, 2);
	}
	model_seal(&m);
	snprintf(text, sizeof(text), plan, "'count': 6", "");
	expect_refused(text, RS_MISSING, "wants tensor 'l.3.b', which no source file stores");
	snprintf(text, sizeof(text), plan, "'count': 8", ", 'optional': true");
	open_ok(&r, text);
	rank_open(&k, &r, &m, 1);
	assert_int_equal(k.list.n, 4); /* layers 4 and 5 of 4 to 7 */
	rank_done(&k);
	run_done(&r);
	snprintf(text, sizeof(text), plan, "'count': 4", ", 'optional': true");
	expect_refused(text, RS_MISSING, "tensor 'l.4.a' and 3 more: no rule");
	expect_refused(text, RS_MISSING, "is its index outside of the range");
	snprintf(text, sizeof(text), plan, "'count': 5", ", 'optional': true");
	expect_refused(text, RS_USAGE, "ranges.N: 5 indices, not divisible by 'pp' of 2");
	snprintf(text, sizeof(text), plan, "'count': 'L'", "");
	expect_refused(text, RS_USAGE, "ranges.N.count: 'L': nothing sets 'L'");
	/* Without a count it is what the source has; sizes and lists say it themselves. */
	snprintf(text, sizeof(text), plan, "'local': false", ", 'optional': true");
	open_ok(&r, text);
	rank_open(&k, &r, &m, 1);
	assert_int_equal(k.list.n, 5);
	rank_done(&k);
	run_done(&r);
	snprintf(text, sizeof(text), plan, "'sizes': [1, 5]", ", 'optional': true");
	open_ok(&r, text);
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 2);
	rank_done(&k);
	run_done(&r);
	/* virtual stages: every other layer */
	snprintf(text, sizeof(text), plan, "'lists': [[0, 2, 4], [1, 3, 5]]", ", 'optional': true");
	open_ok(&r, text);
	rank_open(&k, &r, &m, 1);
	assert_int_equal(k.list.n, 5);
	rank_want(&k, "l.3.a");
	assert_null(rank_find(&k, "l.2.a"));
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

/* Targets stand where their first source stands; of one source, in the order of the rules. */
static void order_is_that_of_the_source(void **state)
{
	static const char *const want[] = {"z1", "z2", "fused", "m"};
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	model_add(&m, "z", RS_DT_I32, 1, 4);
	model_add(&m, "b", RS_DT_I32, 1, 4);
	model_add(&m, "m", RS_DT_I32, 1, 4);
	model_add(&m, "a", RS_DT_I32, 1, 4);
	model_seal(&m);
	open_ok(&r,
		tp_plan(1, "",
			"{'to': 'm', 'from': 'm'}, {'to': 'z1', 'from': 'z'}, {'to': 'z2', 'from': "
			"'z'}, {'to': 'fused', 'concat': {'dim': 0, 'parts': [{'from': 'b'}, "
			"{'from': 'a'}]}}"));
	rank_open(&k, &r, &m, 0);
	assert_int_equal(k.list.n, 4);
	for (unsigned int i = 0; i < 4; i++)
		assert_string_equal(k.list.items[i].name.ptr, want[i]);
	rank_done(&k);
	run_done(&r);
	model_done(&m);
}

static void casts_are_written_down(void **state)
{
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	model_add(&m, "b", RS_DT_BF16, 1, 4);
	model_add(&m, "f", RS_DT_F32, 1, 4);
	model_seal(&m);
	open_ok(&r,
		tp_plan(2, "",
			"{'to': 'f', 'from': 'f', 'dtype': 'BF16', 'cut': [{'dim': 0, 'axis': "
			"'tp'}]}, {'to': 'b', 'from': 'b', 'dtype': 'BF16'}, {'to': 'k', 'from': "
			"'f', 'dtype': 'keep'}, {'to': 'alias', 'alias_of': 'f'}, {'to': 'half', "
			"'alias_of': 'k', 'dtype': 'F16'}"));
	rank_open(&k, &r, &m, 1);
	assert_int_equal(rank_want(&k, "f")->dtype, RS_DT_BF16);
	assert_int_equal(rank_want(&k, "f")->stored, RS_DT_F32);
	assert_int_equal(rank_want(&k, "b")->dtype, RS_DT_BF16);
	assert_int_equal(rank_want(&k, "b")->stored, RS_DT_NONE);
	assert_int_equal(rank_want(&k, "k")->dtype, RS_DT_F32);
	assert_int_equal(rank_want(&k, "alias")->dtype, RS_DT_BF16);
	assert_int_equal(rank_want(&k, "half")->dtype, RS_DT_F16);
	rank_done(&k);
	run_done(&r);
	expect_refused(tp_plan(1, "",
			       "{'to': 'x', 'concat': {'dim': 0, 'parts': [{'from': 'b'}, "
			       "{'from': 'f'}]}}"),
		RS_USAGE, "BF16 [4] and F32 [4]");
	model_done(&m);
}

/* The rules of a plan with the sizes of another mesh. */
static void sizes_take_the_place_of_the_mesh(void **state)
{
	static const struct rs__axis tp4_dp2[] = {{{"dp", 2}, 2}, {{"tp", 2}, 4}};
	static const struct rs__axis odd[] = {{{"cp", 2}, 2}};
	struct run r;
	(void)state;

	layers_model();
	if (run_open_sizes(&r, &m,
		    PP_PLAN("",
			    "{'to': 'emb', 'from': 'emb', 'on': {'pp': 'last'}, 'cut': [{'dim': "
			    "0, 'axis': 'tp'}]}, {'to': 'head', 'from': 'head'}, " LAYERS),
		    tp4_dp2, 2) < 0)
		fail_msg("%s", r.err.msg);
	assert_int_equal(r.t.n_ranks, 8);
	for (unsigned int rank = 0; rank < 8; rank++) {
		struct row row = {"emb", rank % 4};
		struct rank k;
		rank_open(&k, &r, &m, rank);
		assert_int_equal(k.list.n, 2 + 8 + 1);
		expect_all(&k, "emb", &row, 1, 2);
		rank_want(&k, "layers.3.a");
		rank_done(&k);
	}
	run_done(&r);
	assert_int_equal(run_open_sizes(&r, &m, PP_PLAN("", LAYERS), odd, 1), -1);
	assert_int_equal(r.err.code, RS_USAGE);
	assert_non_null(strstr(r.err.msg, "knows no axis 'cp'"));
	run_done(&r);
	model_done(&m);
}

/* Ranks that share a file must hold the same. */
static void shared_files_agree(void **state)
{
	static const char plan[] =
		"{'reshard_plan': 1, 'mesh': {'axes': [{'name': 'dp', 'size': 2}, {'name': 'tp', "
		"'size': 2}]}, 'files': {'path': '%s', 'format': 'ckpt'}, 'strict': {'unmatched': "
		"'drop'}, 'rules': [%s]}";
	static const char by_tp[] =
		"{'to': 'emb', 'from': 'emb', 'cut': [{'dim': 0, 'axis': 'tp'}]}";
	static const char by_dp[] = "{'to': 'emb', 'from': 'emb', 'on': {'dp': 'first'}}";
	static const char one_unit[] = "{'to': 'emb', 'from': 'emb', 'cut': [{'dim': 0, 'axis': "
				       "'tp', 'unit': 4, 'few': 'replicate'}]}";
	char text[1000];
	struct run r;
	(void)state;

	layers_model();
	snprintf(text, sizeof(text), plan, "mp_{tp}/m", by_tp);
	open_ok(&r, text);
	run_done(&r);
	snprintf(text, sizeof(text), plan, "m", one_unit);
	open_ok(&r, text);
	run_done(&r);
	snprintf(text, sizeof(text), plan, "d_{dp}/m", by_tp);
	expect_refused(text, RS_USAGE, "does not tell ranks of axis 'tp' apart, but tensor 'emb'");
	snprintf(text, sizeof(text), plan, "mp_{tp}/m", by_dp);
	expect_refused(text, RS_USAGE, "does not tell ranks of axis 'dp' apart, but tensor 'emb'");
	snprintf(text, sizeof(text), plan, "{rank}", by_dp);
	open_ok(&r, text);
	run_done(&r);
	model_done(&m);
}

static void tensors_without_elements(void **state)
{
	struct run r;
	struct rank k;
	(void)state;

	model_init(&m);
	model_add(&m, "none", RS_DT_I32, 2, 0, 4);
	model_add(&m, "some", RS_DT_I32, 2, 2, 4);
	model_seal(&m);
	open_ok(&r,
		tp_plan(2, "",
			"{'to': 'none', 'from': 'none', 'cut': [{'dim': 1, 'axis': 'tp'}, {'dim': "
			"0, 'axis': 'tp'}]}, {'to': 'both', 'concat': {'dim': 0, 'parts': "
			"[{'from': 'none'}, {'from': 'some'}]}}, {'to': 'zeros', 'from': 'none', "
			"'pad': {'dim': 0, 'to': 3}}"));
	rank_open(&k, &r, &m, 1);
	rank_shape(&k, "none", 2, 0, 2);
	struct row rows[3] = {{"some", 0}, {"some", 1}};
	expect_all(&k, "both", rows, 2, 4);
	memset(rows, 0, sizeof(rows));
	expect_all(&k, "zeros", rows, 3, 4);
	rank_done(&k);
	run_done(&r);
	expect_refused(tp_plan(1, "",
			       "{'to': 'x', 'from': 'none', 'pad': {'dim': 0, 'to': 3, "
			       "'fill': 'last'}}"),
		RS_USAGE, "no last row to pad with");
	model_done(&m);
}

/* -------------------------------------------------------------------- allocations */

static int open_and_list(struct rs_target *t, const char *text, struct rs_err *err)
{
	struct rs_list list = {0};
	int rc = rs__rules_open(t, rs_str(text), "plan.json", NULL, 0, err);

	if (rc == 0)
		rc = rs_target_check(t, NULL, 0, err);
	for (uint64_t rank = 0; rc == 0 && rank < t->n_ranks; rank++)
		rc = rs_target_list(t, rank, t->arena, &list, NULL, err);
	return rc;
}

/* The n-th allocation fails, for n = 1, 2, ... until a run has no more than that. */
static void every_allocation_may_fail(void **state)
{
	static const char plan[] = EP_PLAN("2", "'count': 2, 'local': true",
		"{'to': 'w.{N}', 'concat': {'dim': 0, 'groups': 2, 'parts': [{'from': "
		"'l.{N}.e.{E}.up', 'slice': [[0, 0, 2]]}, {'from': 'l.{N}.e.{E}.up', 'slice': [[0, "
		"2, 4]]}]}, 'stack': {'dim': 0, 'over': 'E'}, 'cut': [{'dim': 0, 'axis': 'tp'}]},"
		"{'to': 'd.{E}.{N}', 'from': 'l.{N}.e.{E}.down', 'transpose': [1, 0], 'trim': "
		"{'dim': 0, 'to': 3}, 'pad': {'dim': 0, 'to': 9, 'fill': 'last'}, 'on': {'tp': "
		"'first'}}, {'to': 'again.{x}', 'alias_of': 'd.0.{x}', 'on': {'tp': 'last'}},"
		"{'to': 'up.{E}', 'from': 'l.0.e.{E}.up'}, {'to': 's.{E}', 'from': 'l.1.e.{E}.up', "
		"'scale_of': 'up.{E}', 'block': [1, 1]}");
	uint64_t n = 0, failed = 0;
	bool hit = true;
	(void)state;

	experts_model(2, 2);
	const char *text = run_text(m.arena, plan);
	while (hit) {
		struct rs_target t = {.ops = &rs__target_plan, .source = &m.source};
		struct rs_err err = {0};

		t.opts.target = "plan.json";
		t.arena = rs_arena_new(64 << 20, &err);
		fault_alloc(++n);
		int rc = open_and_list(&t, text, &err);
		hit = fault_hit();
		fault_clear();
		if (rc < 0 && (!hit || err.code != RS_NOMEM))
			fail_msg("allocation %" PRIu64 ": %s", n, err.msg);
		failed += rc < 0;
		rs_notes_done(&t.notes);
		rs_arena_free(t.arena);
	}
	assert_true(failed > 50);
	model_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama3_8b_tp4_pp2),
		cmocka_unit_test(mixtral_8x7b_ep4_tp2_vllm),
		cmocka_unit_test(gqa_tp8_to_megatron_and_vllm),
		cmocka_unit_test(fused_qkv_closes),
		cmocka_unit_test(qkv_cut_inside_the_parts),
		cmocka_unit_test(gate_and_up_close),
		cmocka_unit_test(interleaved_blocks_close),
		cmocka_unit_test(experts_are_stacked),
		cmocka_unit_test(experts_are_split),
		cmocka_unit_test(split_comes_before_slices),
		cmocka_unit_test(lists_say_who_owns),
		cmocka_unit_test(empty_shares_are_empty_stacks),
		cmocka_unit_test(transposed_weights),
		cmocka_unit_test(trimmed_and_padded),
		cmocka_unit_test(uneven_cuts),
		cmocka_unit_test(strict_uneven_is_the_default),
		cmocka_unit_test(several_axes_cut),
		cmocka_unit_test(scales_follow_their_weights),
		cmocka_unit_test(stacked_scales),
		cmocka_unit_test(aliases_are_tied_weights),
		cmocka_unit_test(the_first_rule_wins),
		cmocka_unit_test(strictness),
		cmocka_unit_test(ranges_are_complete),
		cmocka_unit_test(order_is_that_of_the_source),
		cmocka_unit_test(casts_are_written_down),
		cmocka_unit_test(sizes_take_the_place_of_the_mesh),
		cmocka_unit_test(shared_files_agree),
		cmocka_unit_test(tensors_without_elements),
		cmocka_unit_test(every_allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
