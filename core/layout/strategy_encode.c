/*
 * strategy_encode.c - a strategy as the bytes of a file, in the forms that MindSpore writes.
 *
 * Protobuf: ascending fields, repeated integers unpacked, -1 in ten bytes, every field present and
 * the two split lists as empty messages; decoding and encoding a real file gives the same bytes.
 * JSON: compact with sorted keys; a tensor map with several device dimensions on one axis, for
 * which the framework has no JSON, is written nested (our reader takes it, MindSpore's does not).
 * Refuses to write several stages under names without stage. Format:
 * docs/formats/mindspore-strategy.md.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/layout/strategy_internal.h"
#include "reshardfs/codec.h"

/* A name in a file: "<stage>-name", or as it is. */
static int file_name(struct rs_arena *arena, const struct rs_placed *p, bool merged,
	struct rs_str *out, struct rs_err *err)
{
	char prefix[16];
	uint64_t n;
	char *text;

	*out = p->name;
	if (!merged)
		return 0;
	n = (uint64_t)snprintf(prefix, sizeof(prefix), "%" PRIu32 "-", p->stage);
	text = rs_arena_alloc(arena, n + p->name.len, err);
	if (!text)
		return -1;
	memcpy(text, prefix, n);
	memcpy(text + n, p->name.ptr, p->name.len);
	*out = (struct rs_str){text, (size_t)(n + p->name.len)};
	return 0;
}

/* -------------------------------------------------------------------- protobuf */

/* A message under construction. The first failure sticks. */
struct message {
	char *bytes; /* heap */
	uint64_t len, cap;
	bool failed;
};
/* Bodies of the three levels below the top; kept from item to item. */
struct encoder {
	struct message out, item, body, list;
};

static void put_bytes(struct message *m, const void *bytes, uint64_t n)
{
	if (m->failed || rs_grow(&m->bytes, &m->cap, m->len + n, 1, NULL) < 0) {
		m->failed = true;
		return;
	}
	if (n)
		memcpy(m->bytes + m->len, bytes, n);
	m->len += n;
}

static void put_varint(struct message *m, uint64_t v)
{
	uint8_t bytes[10];
	uint64_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	put_bytes(m, bytes, n);
}

/* Signed numbers are sign-extended to 64 bits first, whatever their declared width. */
static void put_int(struct message *m, uint32_t field, int64_t v)
{
	put_varint(m, field << 3);
	put_varint(m, (uint64_t)v);
}

static void put_block(struct message *m, uint32_t field, const void *bytes, uint64_t n)
{
	put_varint(m, field << 3 | 2);
	put_varint(m, n);
	put_bytes(m, bytes, n);
}

/* Append @part as field @field and empty it for the next. */
static void put_message(struct message *m, uint32_t field, struct message *part)
{
	m->failed |= part->failed;
	put_block(m, field, part->bytes, part->len);
	part->len = 0;
}

static void put_operator(struct encoder *e, const struct rs_operator *op)
{
	uint32_t i, k;

	put_block(&e->item, 1, op->name.ptr, op->name.len);
	put_int(&e->body, 1, op->stage);
	for (i = 0; i < op->n_inputs; i++) {
		for (k = 0; k < op->n_cuts[i]; k++)
			put_int(&e->list, 1, op->cuts[i][k]);
		put_message(&e->body, 2, &e->list);
	}
	put_message(&e->item, 2, &e->body);
	put_message(&e->out, 2, &e->item);
}

static void put_map(struct encoder *e, const struct rs_layout *l)
{
	uint32_t a, i;

	for (a = 0; a < l->n_axes; a++) {
		for (i = l->map_first[a]; i < l->map_first[a + 1]; i++)
			put_int(&e->list, 1, l->map[i]);
		if (l->nested)
			put_message(&e->body, 2, &e->list);
	}
	/* The one flat message; or a second one, so that a single list is not taken for flat. */
	if (!l->nested || l->n_axes == 1)
		put_message(&e->body, 2, &e->list);
}

static void put_layout(struct encoder *e, struct rs_str name, const struct rs_layout *l)
{
	uint32_t i;

	put_block(&e->item, 1, name.ptr, name.len);
	for (i = 0; i < l->n_dev; i++)
		put_int(&e->list, 1, l->dev[i]);
	put_message(&e->body, 1, &e->list);
	put_map(e, l);
	for (i = 0; i < l->n_split; i++)
		put_int(&e->list, 1, l->split[i]);
	put_message(&e->body, 3, &e->list);
	for (i = 0; i < l->n_offsets; i++)
		put_int(&e->list, 1, l->offsets[i]);
	put_message(&e->body, 4, &e->list);
	put_int(&e->body, 5, l->field);
	put_int(&e->body, 6, l->opt_step);
	put_int(&e->body, 7, l->opt_size);
	put_message(&e->item, 2, &e->body);
	put_message(&e->out, 3, &e->item);
}

static int encode_pb(const struct rs_strategy *s, bool merged, struct rs_arena *arena, char **bytes,
	uint64_t *len, struct rs_err *err)
{
	struct encoder e = {0};
	struct rs_str name;
	uint64_t i;
	int ret = -1;

	put_int(&e.out, 1, merged ? 1 : s->current_stage);
	for (i = 0; i < s->n_operators; i++)
		put_operator(&e, &s->operators[i]);
	for (i = 0; i < s->n_params; i++) {
		if (file_name(arena, &s->params[i], merged, &name, err) < 0)
			goto out;
		put_layout(&e, name, s->params[i].layout);
	}
	if (e.out.failed) {
		rs_fail(err, RS_NOMEM, "%s: out of memory for the encoded strategy", s->path);
		goto out;
	}
	*bytes = e.out.bytes;
	*len = e.out.len;
	e.out.bytes = NULL;
	ret = 0;
out:
	rs_free(e.out.bytes);
	rs_free(e.item.bytes);
	rs_free(e.body.bytes);
	rs_free(e.list.bytes);
	return ret;
}

/* ------------------------------------------------------------------------ JSON */

/* An entry of an object, to be sorted by key. */
struct member {
	struct rs_str key;
	uint64_t index; /* in the strategy; later ones win, as in the framework's maps */
};

static int by_key(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int c = rs_str_cmp(x->key, y->key);

	return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* Sort, and keep the last of equal keys. Returns how many are left. */
static uint64_t sort_members(struct member *m, uint64_t n)
{
	uint64_t i, k = 0;

	if (n == 0)
		return 0;
	qsort(m, n, sizeof(*m), by_key);
	for (i = 1; i < n; i++)
		if (rs_str_eq(m[i].key, m[k].key))
			m[k] = m[i];
		else
			m[++k] = m[i];
	return k + 1;
}

static void key(struct rs_jsonw *w, const char *name)
{
	rs_jsonw_key(w, rs_str(name));
}

static void write_longs(struct rs_jsonw *w, const char *name, const int64_t *items, uint32_t n)
{
	uint32_t i;

	key(w, name);
	rs_jsonw_open(w, '[');
	for (i = 0; i < n; i++)
		rs_jsonw_int(w, items[i]);
	rs_jsonw_close(w, ']');
}

/* One device dimension per axis: what JSON can say flat. */
static bool is_flat(const struct rs_layout *l)
{
	uint32_t a;

	for (a = 0; a < l->n_axes; a++)
		if (l->map_first[a + 1] - l->map_first[a] != 1)
			return false;
	return true;
}

static void write_map(struct rs_jsonw *w, const struct rs_layout *l)
{
	bool flat = is_flat(l);
	uint32_t a, i;

	key(w, "tensor_map");
	rs_jsonw_open(w, '[');
	for (a = 0; a < l->n_axes; a++) {
		if (!flat)
			rs_jsonw_open(w, '[');
		for (i = l->map_first[a]; i < l->map_first[a + 1]; i++)
			rs_jsonw_int(w, l->map[i]);
		if (!flat)
			rs_jsonw_close(w, ']');
	}
	rs_jsonw_close(w, ']');
}

static void write_layout(struct rs_jsonw *w, const struct rs_layout *l)
{
	uint32_t i;

	rs_jsonw_open(w, '{');
	key(w, "dev_matrix");
	rs_jsonw_open(w, '[');
	for (i = 0; i < l->n_dev; i++)
		rs_jsonw_uint(w, l->dev[i]);
	rs_jsonw_close(w, ']');
	key(w, "field");
	rs_jsonw_uint(w, l->field);
	if (l->n_split || l->n_offsets)
		write_longs(w, "indices_offset", l->offsets, l->n_offsets);
	key(w, "opt_weight_shard_size");
	rs_jsonw_int(w, l->opt_size);
	key(w, "opt_weight_shard_step");
	rs_jsonw_int(w, l->opt_step);
	if (l->n_split || l->n_offsets)
		write_longs(w, "param_split_shape", l->split, l->n_split);
	write_map(w, l);
	key(w, "tensor_shape");
	rs_jsonw_open(w, '[');
	for (i = 0; i < l->n_shape; i++)
		rs_jsonw_uint(w, l->shape[i]);
	rs_jsonw_close(w, ']');
	rs_jsonw_close(w, '}');
}

static void write_operator(struct rs_jsonw *w, const struct rs_operator *op)
{
	uint32_t i, k;

	rs_jsonw_open(w, '{');
	key(w, "parallel_strategy");
	rs_jsonw_open(w, '[');
	for (i = 0; i < op->n_inputs; i++) {
		rs_jsonw_open(w, '[');
		for (k = 0; k < op->n_cuts[i]; k++)
			rs_jsonw_uint(w, op->cuts[i][k]);
		rs_jsonw_close(w, ']');
	}
	rs_jsonw_close(w, ']');
	key(w, "stage");
	rs_jsonw_uint(w, op->stage);
	rs_jsonw_close(w, '}');
}

/* JSON numbers are doubles to most readers, ours included: what they would round is refused. */
static int exact(const struct rs_strategy *s, const int64_t *items, uint32_t n, struct rs_err *err)
{
	const int64_t most = (INT64_C(1) << 53) - 1;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (items[i] < -most || items[i] > most)
			return rs_fail(err, RS_UNSUPPORTED,
				"%s: expected numbers below 2^53, which JSON can hold, found "
				"%" PRId64,
				s->path, items[i]);
	return 0;
}

/* The sorted members of both objects. */
struct members {
	struct member *params, *operators;
	uint64_t n_params, n_operators;
};

/*
 * A file without stages in its names has that of its first operator; sorted by name another may
 * come first. The framework writes operators of one stage into such a file.
 */
static int check_first(const struct rs_strategy *s, const struct members *m, struct rs_err *err)
{
	const struct rs_operator *first;

	if (m->n_operators == 0)
		return 0;
	first = &s->operators[m->operators[0].index];
	if (first->stage == s->operators[0].stage)
		return 0;
	return rs_fail(err, RS_UNSUPPORTED,
		"%s: expected operators of one stage, which JSON can hold in any order, found "
		"'%s' of stage %" PRIu32 " in a file of stage %" PRIu32,
		s->path, RS_SHOW(first->name), first->stage, s->operators[0].stage);
}

static int collect(const struct rs_strategy *s, bool merged, struct rs_arena *arena,
	struct members *m, struct rs_err *err)
{
	uint64_t i;

	m->params = RS_NEW_N(arena, struct member, s->n_params, err);
	m->operators = RS_NEW_N(arena, struct member, s->n_operators, err);
	if (!m->params || !m->operators)
		return -1;
	for (i = 0; i < s->n_params; i++) {
		m->params[i].index = i;
		if (file_name(arena, &s->params[i], merged, &m->params[i].key, err) < 0)
			return -1;
	}
	for (i = 0; i < s->n_operators; i++)
		m->operators[i] = (struct member){s->operators[i].name, i};
	m->n_params = sort_members(m->params, s->n_params);
	m->n_operators = sort_members(m->operators, s->n_operators);
	return merged ? 0 : check_first(s, m, err);
}

static int encode_json(const struct rs_strategy *s, bool merged, struct rs_arena *arena,
	char **bytes, uint64_t *len, struct rs_err *err)
{
	struct members m;
	struct rs_jsonw w;
	uint64_t i;

	if (collect(s, merged, arena, &m, err) < 0)
		return -1;
	for (i = 0; i < s->n_layouts; i++)
		if (exact(s, s->layouts[i]->split, s->layouts[i]->n_split, err) < 0 ||
			exact(s, s->layouts[i]->offsets, s->layouts[i]->n_offsets, err) < 0)
			return -1;
	rs_jsonw_init(&w, false);
	rs_jsonw_open(&w, '{');
	key(&w, "current_stage");
	rs_jsonw_uint(&w, merged ? 1 : s->current_stage);
	key(&w, "parallel_layout_item");
	rs_jsonw_open(&w, '{');
	for (i = 0; i < m.n_params; i++) {
		rs_jsonw_key(&w, m.params[i].key);
		write_layout(&w, s->params[m.params[i].index].layout);
	}
	rs_jsonw_close(&w, '}');
	key(&w, "parallel_strategy_item");
	rs_jsonw_open(&w, '{');
	for (i = 0; i < m.n_operators; i++) {
		rs_jsonw_key(&w, m.operators[i].key);
		write_operator(&w, &s->operators[m.operators[i].index]);
	}
	rs_jsonw_close(&w, '}');
	rs_jsonw_close(&w, '}');
	*bytes = rs_jsonw_take(&w, len, err);
	return *bytes ? 0 : -1;
}

/* ----------------------------------------------------------------------- either */

int rs_strategy_encode(const struct rs_strategy *s, bool json, bool merged, char **bytes,
	uint64_t *len, struct rs_err *err)
{
	struct rs_arena *arena;
	uint64_t i;
	int ret;

	for (i = 1; i < s->n_params && !merged; i++)
		if (s->params[i].stage != s->params[0].stage)
			return rs_fail(err, RS_USAGE,
				"%s: expected one stage for names without stage, found %" PRIu32
				" and %" PRIu32,
				s->path, s->params[0].stage, s->params[i].stage);
	arena = rs_arena_new(RS_STRATEGY_MEMORY, err);
	if (!arena)
		return -1;
	ret = (json ? encode_json : encode_pb)(s, merged, arena, bytes, len, err);
	rs_arena_free(arena);
	return ret;
}
