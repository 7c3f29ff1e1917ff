/*
 * pickle_numpy.c - the calls by which numpy describes types, arrays and scalars, as data.
 *
 * Types and arrays become nodes of their own; the elements stay in the file. What does not look
 * like something that numpy writes becomes opaque or, as a state, refuses the file. Format:
 * docs/formats/pickle.md, section 3. Next: core/source/paddle/paddle_array.c, which believes
 * nothing of it until shape, type and length agree.
 */
#include "core/codec/pickling.h"

/* "<f4" is order and code; without an order, or from a class, it is the writer's own. */
struct rs_value *rs__numpy_dtype(struct rs__pickle *p, const struct rs_value *from)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_DTYPE);

	if (!v)
		return NULL;
	v->n = '=';
	v->text = RS_STR("");
	if (from->type == RS_VALUE_STR && from->text.ptr) {
		v->text = from->text;
		if (v->text.len && memchr("<>|=", v->text.ptr[0], 4)) {
			v->n = (uint8_t)v->text.ptr[0];
			v->text.ptr++;
			v->text.len--;
		}
	} else if (rs__pickle_kind_of(from) == RS__NAME_NUMPY_TYPE) {
		const char *code = rs__pickle_code(from->global->name);
		v->text = code ? rs_str(code) : from->global->name;
	} else {
		v->n = 0;
	}
	return v;
}

/* The state of a dtype: (3, order, subdtype, names, fields, itemsize, alignment, flags). */
int rs__numpy_build_dtype(struct rs__pickle *p, struct rs_value *v, const struct rs_value *state)
{
	struct rs_value *const *items;
	struct rs_str order = {0};
	uint32_t n;

	if (!rs_value_list(state, &items, &n) || n < 5)
		return rs__pickle_damaged(
			p, "expected the state of a dtype, found %s", RS_VALUE_SHOW(state));
	bool plain = n == 8 && items[0]->type == RS_VALUE_INT && items[0]->number == 3 &&
		     rs_value_str(items[1], &order) && order.len == 1 &&
		     memchr("<>|=", order.ptr[0], 4);
	for (uint32_t i = 2; i < 5; i++)
		plain &= items[i]->type == RS_VALUE_NONE;
	v->n = plain && v->n ? (uint8_t)order.ptr[0] : 0;
	return 0;
}

struct rs_value *rs__numpy_array(struct rs__pickle *p)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_ARRAY);

	if (!v)
		return NULL;
	v->array = RS_NEW(p->arena, struct rs_pickle_array, p->err);
	return v->array ? v : NULL;
}

/* The state of an array: (1, shape, dtype, is_fortran, payload); ancient ones lack the 1. */
int rs__numpy_build_array(struct rs__pickle *p, struct rs_value *v, const struct rs_value *state)
{
	struct rs_value *const *items;
	uint32_t n;

	if (!rs_value_list(state, &items, &n) || n < 4 || n > 5)
		return rs__pickle_damaged(
			p, "expected the state of an array, found %s", RS_VALUE_SHOW(state));
	items += n - 4;
	*v->array = (struct rs_pickle_array){
		.shape = items[0],
		.dtype = items[1],
		.order = rs_value_is(items[2], RS_VALUE_BOOL) && items[2]->truth ? 'F' : 'C',
		.data = items[3],
	};
	return 0;
}

/* _frombuffer(payload, dtype or text, shape, order[, axis order]) */
struct rs_value *rs__numpy_from_buffer(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	struct rs_value *v;
	struct rs_str order = {0};

	if (c->n < 4 || !rs_value_str(c->args[3], &order) || order.len != 1)
		return rs__pickle_opaque(p, c);
	v = rs__numpy_array(p);
	if (!v)
		return NULL;
	v->array->data = c->args[0];
	v->array->dtype =
		c->args[1]->type == RS_VALUE_STR ? rs__numpy_dtype(p, c->args[1]) : c->args[1];
	v->array->shape = c->args[2];
	v->array->order = order.ptr[0];
	return v->array->dtype ? v : NULL;
}

#define SCALAR_BYTES 8

/* The bytes of a scalar, as they are meant: 1, or 0 when there are not @n of them. */
static int scalar_bytes(struct rs__pickle *p, const struct rs_value *from, uint64_t n, uint8_t *raw)
{
	uint8_t stored[2 * SCALAR_BYTES];
	uint64_t len = from->bytes.len, got = 0;

	if (len > sizeof(stored))
		return 0;
	if (rs_file_read(p->file, from->off, stored, len, p->err) < 0)
		return -1;
	for (uint64_t i = 0; i < len; i++) {
		if (got == n)
			return 0;
		if (from->bytes.latin1 && stored[i] >= 0xc0 && i + 1 < len) {
			raw[got++] = (uint8_t)(stored[i] << 6 | (stored[i + 1] & 0x3f));
			i++;
		} else {
			raw[got++] = stored[i];
		}
	}
	return got == n;
}

/* scalar(dtype, bytes): integers, truth values and floats become values; others stay opaque. */
struct rs_value *rs__numpy_scalar(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	uint8_t raw[SCALAR_BYTES];
	uint64_t bits = 0;

	if (c->n != 2 || !rs__pickle_arg_is(c, 0, RS_VALUE_DTYPE) ||
		!rs__pickle_arg_is(c, 1, RS_VALUE_BYTES))
		return rs__pickle_opaque(p, c);
	const struct rs_value *type = c->args[0];
	char kind = type->text.len == 2 ? type->text.ptr[0] : 0;
	uint32_t n = type->text.len == 2 ? (uint32_t)(type->text.ptr[1] - '0') : 0;
	if (!type->n || n < 1 || n > SCALAR_BYTES)
		return rs__pickle_opaque(p, c);
	int whole = scalar_bytes(p, c->args[1], n, raw);
	if (whole <= 0)
		return whole < 0 ? NULL : rs__pickle_opaque(p, c);
	for (uint32_t i = 0; i < n; i++)
		bits = bits << 8 | raw[type->n == '>' ? i : n - 1 - i];

	struct rs_value *v = rs__pickle_node(p, RS_VALUE_INT);
	if (!v)
		return NULL;
	if (kind == 'i' || (kind == 'u' && bits <= INT64_MAX)) {
		uint32_t unused = 64 - 8 * n;
		v->number = kind == 'u' ? (int64_t)bits : (int64_t)(bits << unused) >> unused;
	} else if (kind == 'b' && n == 1) {
		v->type = RS_VALUE_BOOL;
		v->truth = bits != 0;
	} else if (kind == 'f' && n == 8) {
		v->type = RS_VALUE_DOUBLE;
		memcpy(&v->real, &bits, sizeof(v->real));
	} else if (kind == 'f' && n == 4) {
		uint32_t half = (uint32_t)bits;
		float f;
		memcpy(&f, &half, sizeof(f));
		v->type = RS_VALUE_DOUBLE;
		v->real = (double)f;
	} else {
		return rs__pickle_opaque(p, c);
	}
	return v;
}
