/*
 * pickle_ops.c - the opcodes: constants, containers and the memo; and the table of all of them.
 *
 * The table is the allow-list. What is in it with a refusal is known and does not belong to
 * data: the text opcodes of protocols 0 and 1, out-of-band buffers, the copyreg registry, and
 * INST and OBJ, which make objects by name. Everything else is no opcode at all.
 * Next: pickle_call.c, for the opcodes that name and call things.
 */
#include "core/codec/pickling.h"

#include <inttypes.h>

/* -------------------------------------------------------------------------- constants */

static int op_none(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, &p->pool->none);
}

static int op_true(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, &p->pool->yes);
}

static int op_false(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, &p->pool->no);
}

static struct rs_value *number(struct rs__pickle *p, int64_t value)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_INT);

	if (v)
		v->number = value;
	return v;
}

/* BININT, BININT1, BININT2. Small ones are most of all: they are made once. */
static int op_int(struct rs__pickle *p, uint64_t value)
{
	if (value > 255)
		return rs__pickle_push(p, number(p, (int64_t)value));
	struct rs_value **small = &p->pool->small[value];
	if (!*small)
		*small = number(p, (int64_t)value);
	return rs__pickle_push(p, *small);
}

/* LONG1, LONG4: @n bytes, two's complement, little-endian; none is 0. */
static int op_long(struct rs__pickle *p, uint64_t n)
{
	uint8_t raw[RS_PICKLE_INT_BYTES] = {0};
	struct rs_value *v;
	uint64_t value = 0;

	if ((int64_t)n < 0)
		return rs__pickle_damaged(p, "a length of %" PRId64, (int64_t)n);
	if (n > RS_PICKLE_INT_BYTES)
		return rs__pickle_unsupported(p, "an integer of %" PRIu64 " bytes", n);
	if (rs__pickle_take(p, raw, n) < 0)
		return -1;
	uint8_t sign = n && raw[n - 1] & 0x80 ? 0xff : 0;
	bool fits = true;
	for (uint64_t i = 8; i < n; i++)
		fits &= raw[i] == sign;
	if (n > 8 && (raw[7] & 0x80) != (sign & 0x80))
		fits = false;
	if (!fits) {
		v = rs__pickle_node(p, RS_VALUE_BIGINT);
		if (!v || rs_arena_str(p->arena, (struct rs_str){(const char *)raw, n}, &v->text,
				  p->err) < 0)
			return -1;
		return rs__pickle_push(p, v);
	}
	for (uint64_t i = 8; i-- > 0;)
		value = value << 8 | (i < n ? raw[i] : sign);
	return rs__pickle_push(p, number(p, (int64_t)value));
}

static int op_float(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_DOUBLE);
	uint64_t bits = 0;
	uint8_t raw[8];

	(void)ignored;
	if (!v || rs__pickle_take(p, raw, sizeof(raw)) < 0)
		return -1;
	for (uint32_t i = 0; i < 8; i++) /* the one big-endian number of the format */
		bits = bits << 8 | raw[i];
	memcpy(&v->real, &bits, sizeof(bits));
	return rs__pickle_push(p, v);
}

/* --------------------------------------------------------------------- texts and bytes */

/* A text is read when it may be a name; longer ones are payloads, known by their place. */
static struct rs_value *text(struct rs__pickle *p, uint64_t len)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_STR);
	char bytes[RS_PICKLE_TEXT];

	if (!v)
		return NULL;
	v->off = p->pos;
	v->text = (struct rs_str){NULL, len};
	if (len > sizeof(bytes))
		return rs__pickle_skip(p, len) < 0 ? NULL : v;
	if (rs__pickle_take(p, bytes, len) < 0 || rs__pickle_text(p, bytes, len, &v->text) < 0)
		return NULL;
	return v;
}

static int op_text(struct rs__pickle *p, uint64_t len)
{
	return rs__pickle_push(p, text(p, len));
}

/* A str of Python 2: bytes, and a text as well where these are ASCII. */
static int op_old_text(struct rs__pickle *p, uint64_t len)
{
	struct rs_value *v;

	if ((int64_t)len < 0)
		return rs__pickle_damaged(p, "a length of %" PRId64, (int64_t)len);
	v = text(p, len);
	if (!v)
		return -1;
	v->n = 1;
	for (size_t i = 0; v->text.ptr && i < v->text.len; i++)
		if ((uint8_t)v->text.ptr[i] >= 0x80)
			v->text.ptr = NULL;
	return rs__pickle_push(p, v);
}

static int op_bytes(struct rs__pickle *p, uint64_t len)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_BYTES);

	if (!v)
		return -1;
	v->off = p->pos;
	v->bytes.len = len;
	if (rs__pickle_skip(p, len) < 0)
		return -1;
	return rs__pickle_push(p, v);
}

/* -------------------------------------------------------------------------- containers */

static int op_mark(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	if (p->n_marks == RS_PICKLE_MARKS)
		return rs_fail(p->err, RS_LIMIT,
			"%s: offset %" PRIu64 ": MARK: more than %d open marks", p->file->name,
			p->op_off, RS_PICKLE_MARKS);
	p->marks[p->n_marks++] = p->n_stack;
	return 0;
}

static int op_empty_tuple(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, &p->pool->empty_tuple);
}

static int op_empty_list(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, rs__pickle_node(p, RS_VALUE_LIST));
}

static int op_empty_dict(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, rs__pickle_node(p, RS_VALUE_DICT));
}

static int op_empty_set(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, rs__pickle_node(p, RS_VALUE_SET));
}

/* The top @n values as a tuple. */
static int small_tuple(struct rs__pickle *p, uint64_t n)
{
	struct rs_value *items[3];

	for (uint64_t i = n; i-- > 0;) {
		items[i] = rs__pickle_pop(p);
		if (!items[i])
			return -1;
	}
	return rs__pickle_push(p, rs__pickle_list(p, RS_VALUE_TUPLE, items, n));
}

static int op_tuple1(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return small_tuple(p, 1);
}

static int op_tuple2(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return small_tuple(p, 2);
}

static int op_tuple3(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return small_tuple(p, 3);
}

static int collect(struct rs__pickle *p, enum rs_value_type type)
{
	struct rs_value *const *items;
	uint64_t n;

	if (rs__pickle_unmark(p, &items, &n) < 0)
		return -1;
	return rs__pickle_push(p, rs__pickle_list(p, type, items, n));
}

static int op_tuple(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return collect(p, RS_VALUE_TUPLE);
}

static int op_frozenset(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return collect(p, RS_VALUE_SET);
}

/*
 * Add @n items to the container on top of the stack. What is added to an opaque object is
 * forgotten with it.
 */
static int extend(
	struct rs__pickle *p, enum rs_value_type type, struct rs_value *const *items, uint64_t n)
{
	struct rs_value *to = rs__pickle_top(p);

	if (!to)
		return -1;
	if (to->type == RS_VALUE_OPAQUE)
		return 0;
	if (to->type != type)
		return rs__pickle_damaged(p, "expected %s below the items, found %s",
			type == RS_VALUE_DICT  ? "a dict"
			: type == RS_VALUE_SET ? "a set"
					       : "a list",
			RS_VALUE_SHOW(to));
	return rs__pickle_append(p, to, items, n);
}

static int op_append(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *item = rs__pickle_pop(p);

	(void)ignored;
	return item ? extend(p, RS_VALUE_LIST, &item, 1) : -1;
}

/* The items stay where they are on the stack until the next push. */
static int extend_marked(struct rs__pickle *p, enum rs_value_type type)
{
	struct rs_value *const *items;
	uint64_t n;

	if (rs__pickle_unmark(p, &items, &n) < 0)
		return -1;
	if (type == RS_VALUE_DICT && n % 2)
		return rs__pickle_damaged(
			p, "expected keys and values by turns, found %" PRIu64 " items", n);
	return extend(p, type, items, n);
}

static int op_appends(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return extend_marked(p, RS_VALUE_LIST);
}

static int op_setitems(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return extend_marked(p, RS_VALUE_DICT);
}

static int op_additems(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return extend_marked(p, RS_VALUE_SET);
}

static int op_setitem(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *pair[2];

	(void)ignored;
	pair[1] = rs__pickle_pop(p);
	pair[0] = pair[1] ? rs__pickle_pop(p) : NULL;
	return pair[0] ? extend(p, RS_VALUE_DICT, pair, 2) : -1;
}

/* ------------------------------------------------------------------ memo and stack */

static int keep(struct rs__pickle *p, uint64_t index)
{
	struct rs_value *v = rs__pickle_top(p);

	if (!v)
		return -1;
	if (index >= p->n_ops) /* writers number them one by one */
		return rs__pickle_damaged(
			p, "memo index %" PRIu64 " after %" PRIu64 " opcodes", index, p->n_ops);
	if (rs_grow(&p->memo, &p->cap_memo, index + 1, sizeof(struct rs_value *), p->err) < 0)
		return -1;
	while (p->n_memo <= index)
		p->memo[p->n_memo++] = NULL;
	p->n_kept += p->memo[index] == NULL;
	p->memo[index] = v;
	return 0;
}

static int op_memoize(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return keep(p, p->n_kept);
}

static int op_get(struct rs__pickle *p, uint64_t index)
{
	if (index >= p->n_memo || !p->memo[index])
		return rs__pickle_damaged(p, "nothing is kept at memo index %" PRIu64, index);
	return rs__pickle_push(p, p->memo[index]);
}

static int op_pop_mark(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *const *items;
	uint64_t n;

	(void)ignored;
	return rs__pickle_unmark(p, &items, &n);
}

static int op_pop(struct rs__pickle *p, uint64_t ignored)
{
	/* A mark on top is what POP takes: so end tuples that contain themselves. */
	if (p->n_marks && p->marks[p->n_marks - 1] == p->n_stack)
		return op_pop_mark(p, ignored);
	return rs__pickle_pop(p) ? 0 : -1;
}

static int op_dup(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_push(p, rs__pickle_top(p));
}

static int op_proto(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_damaged(p, "stands at the beginning only");
}

static int op_global(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_str module, name;

	(void)ignored;
	if (rs__pickle_line(p, &module) < 0 || rs__pickle_line(p, &name) < 0)
		return -1;
	return rs__pickle_global(p, module, name);
}

/* -------------------------------------------------------------------------- refused */

static int op_inst(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_str module, name;

	(void)ignored;
	if (rs__pickle_line(p, &module) < 0 || rs__pickle_line(p, &name) < 0)
		return -1;
	return rs__pickle_unsafe(p, "%s.%s", RS_SHOW(module), RS_SHOW(name));
}

static int op_obj(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *const *items;
	uint64_t n;

	(void)ignored;
	if (rs__pickle_unmark(p, &items, &n) < 0)
		return -1;
	if (n && items[0]->type == RS_VALUE_GLOBAL)
		return rs__pickle_unsafe(p, "%s.%s", RS_SHOW(items[0]->global->module),
			RS_SHOW(items[0]->global->name));
	return rs__pickle_unsafe(p, "an object by its class");
}

static int op_ext(struct rs__pickle *p, uint64_t code)
{
	return rs__pickle_unsafe(p, "copyreg extension %" PRId64 "", (int64_t)code);
}

static int op_persid_text(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_unsupported(p, "persistent ids as text are of protocol 0");
}

static int op_buffer(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_unsupported(p, "a buffer outside of the file, which no file can carry");
}

static int op_old(struct rs__pickle *p, uint64_t ignored)
{
	(void)ignored;
	return rs__pickle_unsupported(p, "an opcode of protocol 0, which is not read");
}

#define NONE RS__ARG_NONE
const struct rs__pickle_op rs__pickle_ops[256] = {
	[RS__OP_PROTO] = {"PROTO", RS__ARG_U8, op_proto},
	[RS__OP_FRAME] = {"FRAME", RS__ARG_U64, NULL},
	[RS__OP_STOP] = {"STOP", NONE, NULL},
	[0x28] = {"MARK", NONE, op_mark},
	[0x29] = {"EMPTY_TUPLE", NONE, op_empty_tuple},
	[0x30] = {"POP", NONE, op_pop},
	[0x31] = {"POP_MARK", NONE, op_pop_mark},
	[0x32] = {"DUP", NONE, op_dup},
	[0x42] = {"BINBYTES", RS__ARG_U32, op_bytes},
	[0x43] = {"SHORT_BINBYTES", RS__ARG_U8, op_bytes},
	[0x47] = {"BINFLOAT", NONE, op_float},
	[0x4a] = {"BININT", RS__ARG_I32, op_int},
	[0x4b] = {"BININT1", RS__ARG_U8, op_int},
	[0x4d] = {"BININT2", RS__ARG_U16, op_int},
	[0x4e] = {"NONE", NONE, op_none},
	[0x51] = {"BINPERSID", NONE, rs__pickle_persid},
	[0x52] = {"REDUCE", NONE, rs__pickle_reduce},
	[0x54] = {"BINSTRING", RS__ARG_I32, op_old_text},
	[0x55] = {"SHORT_BINSTRING", RS__ARG_U8, op_old_text},
	[0x58] = {"BINUNICODE", RS__ARG_U32, op_text},
	[0x5d] = {"EMPTY_LIST", NONE, op_empty_list},
	[0x61] = {"APPEND", NONE, op_append},
	[0x62] = {"BUILD", NONE, rs__pickle_build},
	[0x63] = {"GLOBAL", NONE, op_global},
	[0x65] = {"APPENDS", NONE, op_appends},
	[0x68] = {"BINGET", RS__ARG_U8, op_get},
	[0x6a] = {"LONG_BINGET", RS__ARG_U32, op_get},
	[0x71] = {"BINPUT", RS__ARG_U8, keep},
	[0x72] = {"LONG_BINPUT", RS__ARG_U32, keep},
	[0x73] = {"SETITEM", NONE, op_setitem},
	[0x74] = {"TUPLE", NONE, op_tuple},
	[0x75] = {"SETITEMS", NONE, op_setitems},
	[0x7d] = {"EMPTY_DICT", NONE, op_empty_dict},
	[0x81] = {"NEWOBJ", NONE, rs__pickle_newobj},
	[0x85] = {"TUPLE1", NONE, op_tuple1},
	[0x86] = {"TUPLE2", NONE, op_tuple2},
	[0x87] = {"TUPLE3", NONE, op_tuple3},
	[0x88] = {"NEWTRUE", NONE, op_true},
	[0x89] = {"NEWFALSE", NONE, op_false},
	[0x8a] = {"LONG1", RS__ARG_U8, op_long},
	[0x8b] = {"LONG4", RS__ARG_I32, op_long},
	[0x8c] = {"SHORT_BINUNICODE", RS__ARG_U8, op_text},
	[0x8d] = {"BINUNICODE8", RS__ARG_U64, op_text},
	[0x8e] = {"BINBYTES8", RS__ARG_U64, op_bytes},
	[0x8f] = {"EMPTY_SET", NONE, op_empty_set},
	[0x90] = {"ADDITEMS", NONE, op_additems},
	[0x91] = {"FROZENSET", NONE, op_frozenset},
	[0x92] = {"NEWOBJ_EX", NONE, rs__pickle_newobj_ex},
	[0x93] = {"STACK_GLOBAL", NONE, rs__pickle_stack_global},
	[0x94] = {"MEMOIZE", NONE, op_memoize},
	[0x96] = {"BYTEARRAY8", RS__ARG_U64, op_bytes},
	/* refused */
	[0x69] = {"INST", NONE, op_inst},
	[0x6f] = {"OBJ", NONE, op_obj},
	[0x82] = {"EXT1", RS__ARG_U8, op_ext},
	[0x83] = {"EXT2", RS__ARG_U16, op_ext},
	[0x84] = {"EXT4", RS__ARG_I32, op_ext},
	[0x97] = {"NEXT_BUFFER", NONE, op_buffer},
	[0x98] = {"READONLY_BUFFER", NONE, op_buffer},
	[0x46] = {"FLOAT", NONE, op_old},
	[0x49] = {"INT", NONE, op_old},
	[0x4c] = {"LONG", NONE, op_old},
	[0x50] = {"PERSID", NONE, op_persid_text},
	[0x53] = {"STRING", NONE, op_old},
	[0x56] = {"UNICODE", NONE, op_old},
	[0x64] = {"DICT", NONE, op_old},
	[0x67] = {"GET", NONE, op_old},
	[0x6c] = {"LIST", NONE, op_old},
	[0x70] = {"PUT", NONE, op_old},
};
