/*
 * pickle_call.c - where Python would import, call, or hand a state to an object: here a pattern
 * is matched against constant names, and the result is one more inert node.
 *
 *   numpy.core.multiarray._reconstruct(ndarray, (0,), b'b')   an empty array
 *   BUILD (1, shape, dtype, is_fortran, payload)              fills it in
 *
 * Refuses the whole file for a call of a name that is known to run things, of anything that is no
 * plain name, and for states that would replace the insides of an object. A call of an unknown
 * name yields an opaque node. Format: docs/formats/pickle.md, section 3. Next: pickle_names.c.
 */
#include "core/codec/pickling.h"

#include <inttypes.h>

/* ------------------------------------------------------------------------- names */

static int refuse_name(struct rs__pickle *p, const struct rs_pickle_global *g)
{
	return rs__pickle_unsafe(p, "%s.%s", RS_SHOW(g->module), RS_SHOW(g->name));
}

int rs__pickle_global(struct rs__pickle *p, struct rs_str module, struct rs_str name)
{
	struct rs_value *v = rs__pickle_node(p, RS_VALUE_GLOBAL);

	if (!v)
		return -1;
	v->global = RS_NEW(p->arena, struct rs_pickle_global, p->err);
	if (!v->global)
		return -1;
	*v->global = (struct rs_pickle_global){module, name, rs__pickle_kind(module, name)};
	/* A path of attributes leads out of any module: numpy.core.numeric has builtins.eval. */
	if (memchr(name.ptr, '.', name.len))
		return refuse_name(p, v->global);
	return rs__pickle_push(p, v);
}

int rs__pickle_stack_global(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *name = rs__pickle_pop(p), *module = name ? rs__pickle_pop(p) : NULL;

	(void)ignored;
	if (!module)
		return -1;
	if (module->type != RS_VALUE_STR || name->type != RS_VALUE_STR || !module->text.ptr ||
		!name->text.ptr)
		return rs__pickle_unsafe(p, "%s and %s in place of names", RS_VALUE_SHOW(module),
			RS_VALUE_SHOW(name));
	return rs__pickle_global(p, module->text, name->text);
}

/* ------------------------------------------------------------------------ results */

static struct rs_value *object(struct rs__pickle *p, enum rs_value_type type,
	const struct rs_value *cls, const struct rs_value *state)
{
	struct rs_value *v = rs__pickle_node(p, type);

	if (v) {
		v->object.cls = cls;
		v->object.state = state;
	}
	return v;
}

struct rs_value *rs__pickle_opaque(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	return object(p, RS_VALUE_OPAQUE, c->fn, c->tuple);
}

static bool arg_text(const struct rs__pickle_call *c, uint32_t i, const char *text)
{
	struct rs_str s;

	return i < c->n && rs_value_str(c->args[i], &s) && rs_str_is(s, text);
}

/* ---------------------------------------------------------------- builtins and others */

/* _codecs.encode(text, 'latin1'): how protocol 2 writes bytes. */
static struct rs_value *encode(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	struct rs_value *v;

	if (c->n != 2 || !rs__pickle_arg_is(c, 0, RS_VALUE_STR) || c->args[0]->n ||
		!(arg_text(c, 1, "latin1") || arg_text(c, 1, "latin-1")))
		return rs__pickle_opaque(p, c);
	v = rs__pickle_node(p, RS_VALUE_BYTES);
	if (!v)
		return NULL;
	v->off = c->args[0]->off;
	v->bytes.len = c->args[0]->text.len;
	v->bytes.latin1 = true;
	return v;
}

/* bytes(), bytearray(), bytearray(bytes), bytearray(text, 'latin-1') */
static struct rs_value *bytes(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	if (c->n == 0) {
		struct rs_value *v = rs__pickle_node(p, RS_VALUE_BYTES);
		if (v)
			v->off = 0; /* nowhere */
		return v;
	}
	if (c->n == 1 && rs__pickle_arg_is(c, 0, RS_VALUE_BYTES))
		return c->args[0];
	return encode(p, c);
}

static struct rs_value *sequence(
	struct rs__pickle *p, const struct rs__pickle_call *c, enum rs_value_type type)
{
	struct rs_value *const *items = NULL;
	uint32_t n = 0;

	if (c->n > 1 || (c->n == 1 && !rs_value_list(c->args[0], &items, &n)))
		return rs__pickle_opaque(p, c);
	return rs__pickle_list(p, type, items, n);
}

/* OrderedDict(), OrderedDict([[k, v], ...]), Counter({...}) */
static struct rs_value *dict(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	struct rs_value *v, *const *items, *const *pair;
	uint32_t n, n_pair;

	if (c->n == 1 && rs__pickle_arg_is(c, 0, RS_VALUE_DICT))
		return c->args[0];
	v = rs__pickle_node(p, RS_VALUE_DICT);
	if (!v || c->n == 0)
		return v;
	if (c->n != 1 || !rs_value_list(c->args[0], &items, &n))
		return rs__pickle_opaque(p, c);
	for (uint32_t i = 0; i < n; i++) {
		if (!rs_value_list(items[i], &pair, &n_pair) || n_pair != 2)
			return rs__pickle_opaque(p, c);
		if (rs__pickle_append(p, v, pair, 2) < 0)
			return NULL;
	}
	return v;
}

/*
 * Paddle before 2026 writes eval('data', {'data': array}) for a tensor. Exactly this is data;
 * any other eval is what it looks like.
 */
static struct rs_value *eval(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	const struct rs_value *names = c->n == 2 ? c->args[1] : NULL;
	struct rs_str key;

	if (arg_text(c, 0, "data") && rs_value_is(names, RS_VALUE_DICT) && names->n == 1 &&
		rs_value_str(names->list.items[0], &key) && rs_str_is(key, "data") &&
		names->list.items[1]->type == RS_VALUE_ARRAY)
		return names->list.items[1];
	(void)refuse_name(p, c->fn->global);
	return NULL;
}

/* _reconstructor(class, object, None): how protocols below 2 make an instance. */
static struct rs_value *instance(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	if (c->n == 0 || c->args[0]->type != RS_VALUE_GLOBAL)
		return rs__pickle_opaque(p, c);
	if (rs__pickle_kind_of(c->args[0]) == RS__NAME_UNSAFE) {
		(void)refuse_name(p, c->args[0]->global);
		return NULL;
	}
	return object(p,
		rs__pickle_kind_of(c->args[0]) == RS__NAME_CLASS ? RS_VALUE_INSTANCE
								 : RS_VALUE_OPAQUE,
		c->args[0], NULL);
}

/* PosixPath('a', 'b') is the text a/b. */
static struct rs_value *path(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	char joined[RS_PICKLE_TEXT];
	struct rs_value *v;
	size_t len = 0;
	struct rs_str part;

	for (uint32_t i = 0; i < c->n; i++) {
		bool slash = len && joined[len - 1] != '/';
		if (!rs_value_str(c->args[i], &part) || part.len >= sizeof(joined) - len - slash)
			return rs__pickle_opaque(p, c);
		if (slash)
			joined[len++] = '/';
		if (part.len)
			memcpy(joined + len, part.ptr, part.len);
		len += part.len;
	}
	v = rs__pickle_node(p, RS_VALUE_STR);
	return v && rs__pickle_text(p, joined, len, &v->text) == 0 ? v : NULL;
}

/* -------------------------------------------------------------------------- the call */

static struct rs_value *match(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	switch (rs__pickle_kind_of(c->fn)) {
	case RS__NAME_UNSAFE:
		(void)refuse_name(p, c->fn->global);
		return NULL;
	case RS__NAME_ARRAY:
		return c->n && rs__pickle_kind_of(c->args[0]) == RS__NAME_ARRAY_CLASS
			       ? rs__numpy_array(p)
			       : rs__pickle_opaque(p, c);
	case RS__NAME_FROMBUFFER:
		return rs__numpy_from_buffer(p, c);
	case RS__NAME_SCALAR:
		return rs__numpy_scalar(p, c);
	case RS__NAME_DTYPE:
		return c->n ? rs__numpy_dtype(p, c->args[0]) : rs__pickle_opaque(p, c);
	case RS__NAME_ENCODE:
		return encode(p, c);
	case RS__NAME_BYTES:
		return bytes(p, c);
	case RS__NAME_SEQUENCE:
		return sequence(p, c, RS_VALUE_TUPLE);
	case RS__NAME_SET:
		return sequence(p, c, RS_VALUE_SET);
	case RS__NAME_DICT:
		return dict(p, c);
	case RS__NAME_DEFAULT_DICT:
		return rs__pickle_node(p, RS_VALUE_DICT);
	case RS__NAME_EVAL:
		return eval(p, c);
	case RS__NAME_IDENTITY:
		return rs__pickle_arg_is(c, 0, RS_VALUE_ARRAY) ? c->args[0]
							       : rs__pickle_opaque(p, c);
	case RS__NAME_RECONSTRUCTOR:
	case RS__NAME_NEWOBJ:
		return instance(p, c);
	case RS__NAME_SIZE:
		return rs__pickle_arg_is(c, 0, RS_VALUE_TUPLE) ? c->args[0]
							       : sequence(p, c, RS_VALUE_TUPLE);
	case RS__NAME_PATH:
		return path(p, c);
	case RS__NAME_CALL:
		return object(p, RS_VALUE_CALL, c->fn, c->tuple);
	case RS__NAME_CLASS:
		return object(p, RS_VALUE_INSTANCE, c->fn, NULL);
	case RS__NAME_ARRAY_CLASS:
	case RS__NAME_NUMPY_TYPE:
	case RS__NAME_OPAQUE:
	case RS__NAME_UNKNOWN:
		break;
	}
	return rs__pickle_opaque(p, c);
}

/* Pop the arguments and what is called. @what: "REDUCE" calls, "NEWOBJ" makes. */
static int pop_call(struct rs__pickle *p, struct rs__pickle_call *c)
{
	c->tuple = rs__pickle_pop(p);
	c->fn = c->tuple ? rs__pickle_pop(p) : NULL;
	if (!c->fn)
		return -1;
	if (c->fn->type != RS_VALUE_GLOBAL)
		return rs__pickle_unsafe(p, "%s, which is no name", RS_VALUE_SHOW(c->fn));
	if (c->tuple->type != RS_VALUE_TUPLE)
		return rs__pickle_damaged(p, "expected a tuple of arguments of %s.%s, found %s",
			RS_SHOW(c->fn->global->module), RS_SHOW(c->fn->global->name),
			RS_VALUE_SHOW(c->tuple));
	c->args = c->tuple->list.items;
	c->n = c->tuple->n;
	return 0;
}

int rs__pickle_reduce(struct rs__pickle *p, uint64_t ignored)
{
	struct rs__pickle_call c;

	(void)ignored;
	return pop_call(p, &c) < 0 ? -1 : rs__pickle_push(p, match(p, &c));
}

/* cls.__new__(cls, *args), which runs no code of a class of data. */
static struct rs_value *make(struct rs__pickle *p, const struct rs__pickle_call *c)
{
	switch (rs__pickle_kind_of(c->fn)) {
	case RS__NAME_CLASS:
		return object(p, RS_VALUE_INSTANCE, c->fn, NULL);
	case RS__NAME_DICT:
	case RS__NAME_DEFAULT_DICT:
		return rs__pickle_node(p, RS_VALUE_DICT);
	case RS__NAME_SIZE:
	case RS__NAME_SEQUENCE:
		return match(p, c);
	case RS__NAME_UNKNOWN:
	case RS__NAME_OPAQUE:
	case RS__NAME_PATH:
		return rs__pickle_opaque(p, c);
	default: /* a function, or a class that makes no sense here */
		(void)refuse_name(p, c->fn->global);
		return NULL;
	}
}

int rs__pickle_newobj(struct rs__pickle *p, uint64_t ignored)
{
	struct rs__pickle_call c;

	(void)ignored;
	return pop_call(p, &c) < 0 ? -1 : rs__pickle_push(p, make(p, &c));
}

int rs__pickle_newobj_ex(struct rs__pickle *p, uint64_t ignored)
{
	struct rs__pickle_call c;

	(void)ignored;
	if (!rs__pickle_pop(p) || pop_call(p, &c) < 0)
		return -1;
	if (rs__pickle_kind_of(c.fn) == RS__NAME_UNSAFE)
		return refuse_name(p, c.fn->global);
	return rs__pickle_push(p, rs__pickle_opaque(p, &c));
}

int rs__pickle_persid(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *id = rs__pickle_pop(p);

	(void)ignored;
	if (!id)
		return -1;
	if (!p->persistent)
		return rs__pickle_unsupported(p, "a persistent id, which this format does not use");
	return rs__pickle_push(p, object(p, RS_VALUE_PERSISTENT, NULL, id));
}

/* ----------------------------------------------------------------------------- state */

#define OPAQUE_ATTRIBUTES 1000 /* of an object that nobody looks into */

/* Attributes by which a state would change what an object is or does. */
static int check_attributes(
	struct rs__pickle *p, const struct rs_value *v, const struct rs_value *state)
{
	static const char *const unsafe[] = {"__class__", "__dict__", "__setstate__", "__reduce__",
		"__reduce_ex__", "__getattr__", "__getattribute__", "__setattr__", "__init__",
		"__new__", "__del__", "__call__", "__mro__", "__bases__", "__globals__", "__code__",
		"__builtins__", "__subclasses__"};
	struct rs_str key;

	if (!rs_value_is(state, RS_VALUE_DICT))
		return 0;
	/* One state may be shared by many objects, and each of them goes through it. */
	if (state->n > (v->type == RS_VALUE_INSTANCE ? RS_PICKLE_ATTRIBUTES : OPAQUE_ATTRIBUTES))
		return rs_fail(p->err, RS_LIMIT,
			"%s: offset %" PRIu64 ": %s: a state of %" PRIu32 " attributes",
			p->file->name, p->op_off, p->op, state->n);
	for (uint64_t i = 0; i < state->n; i++) {
		if (!rs_value_str(state->list.items[2 * i], &key) || !rs_str_starts(key, "__"))
			continue;
		for (size_t k = 0; k < sizeof(unsafe) / sizeof(*unsafe); k++)
			if (rs_str_is(key, unsafe[k]))
				return rs__pickle_unsafe(p, "a state that sets %s", unsafe[k]);
	}
	return 0;
}

/* A state is a dict, or a pair of a dict (or None) and one of slots. */
static int check_state(struct rs__pickle *p, const struct rs_value *v, const struct rs_value *state)
{
	struct rs_value *const *items;
	uint32_t n;

	if (check_attributes(p, v, state) < 0)
		return -1;
	if (rs_value_is(state, RS_VALUE_TUPLE) && rs_value_list(state, &items, &n) && n == 2)
		return check_attributes(p, v, items[0]) < 0 || check_attributes(p, v, items[1]) < 0
			       ? -1
			       : 0;
	return 0;
}

int rs__pickle_build(struct rs__pickle *p, uint64_t ignored)
{
	struct rs_value *state = rs__pickle_pop(p), *v = state ? rs__pickle_top(p) : NULL;

	(void)ignored;
	if (!v || check_state(p, v, state) < 0)
		return -1;
	switch (v->type) {
	case RS_VALUE_DTYPE:
		return rs__numpy_build_dtype(p, v, state);
	case RS_VALUE_ARRAY:
		return rs__numpy_build_array(p, v, state);
	case RS_VALUE_INSTANCE:
		v->object.state = state;
		return 0;
	case RS_VALUE_DICT: /* of an OrderedDict: attributes, which do not matter */
	case RS_VALUE_CALL:
	case RS_VALUE_OPAQUE:
		return 0;
	default:
		return rs__pickle_unsafe(p, "a state on %s", RS_VALUE_SHOW(v));
	}
}
