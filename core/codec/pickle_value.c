/*
 * pickle_value.c - looking at the tree that a pickle became.
 *
 * The tree may share nodes and have cycles, so nobody walks all of it: callers ask for what their
 * schema expects, and every question is answered for NULL and for nodes of another type, too.
 * Next: core/source/paddle/paddle_meta.c, a user.
 */
#include "reshardfs/pickle.h"

#include <stdio.h>
#include <stdlib.h>

bool rs_value_is(const struct rs_value *v, enum rs_value_type type)
{
	return v && v->type == type;
}

static bool is_object(const struct rs_value *v)
{
	return v && (v->type == RS_VALUE_INSTANCE || v->type == RS_VALUE_CALL ||
			    v->type == RS_VALUE_OPAQUE);
}

const char *rs_value_show(const struct rs_value *v, char *buf, size_t size)
{
	static const char *const words[] = {
		[RS_VALUE_NONE] = "None",
		[RS_VALUE_BOOL] = "a truth value",
		[RS_VALUE_INT] = "an integer",
		[RS_VALUE_BIGINT] = "a long integer",
		[RS_VALUE_DOUBLE] = "a float",
		[RS_VALUE_STR] = "a text",
		[RS_VALUE_BYTES] = "bytes",
		[RS_VALUE_TUPLE] = "a tuple",
		[RS_VALUE_LIST] = "a list",
		[RS_VALUE_SET] = "a set",
		[RS_VALUE_DICT] = "a dict",
		[RS_VALUE_GLOBAL] = "the name",
		[RS_VALUE_DTYPE] = "a dtype",
		[RS_VALUE_ARRAY] = "an array",
		[RS_VALUE_INSTANCE] = "an object of",
		[RS_VALUE_CALL] = "what is made by",
		[RS_VALUE_PERSISTENT] = "a persistent id",
		[RS_VALUE_OPAQUE] = "something unknown of",
	};
	const struct rs_value *cls = is_object(v) ? v->object.cls : v;

	if (!v)
		(void)snprintf(buf, size, "nothing");
	else if (rs_value_is(cls, RS_VALUE_GLOBAL))
		(void)snprintf(buf, size, "%s %s.%s", words[v->type], RS_SHOW(cls->global->module),
			RS_SHOW(cls->global->name));
	else if (v->type == RS_VALUE_STR && v->text.ptr)
		(void)snprintf(buf, size, "the text '%s'", RS_SHOW(v->text));
	else
		(void)snprintf(buf, size, "%s", words[v->type]);
	return buf;
}

bool rs_value_str(const struct rs_value *v, struct rs_str *out)
{
	if (!rs_value_is(v, RS_VALUE_STR) || !v->text.ptr)
		return false;
	*out = v->text;
	return true;
}

bool rs_value_int(const struct rs_value *v, int64_t *out)
{
	if (!rs_value_is(v, RS_VALUE_INT))
		return false;
	*out = v->number;
	return true;
}

bool rs_value_list(const struct rs_value *v, struct rs_value *const **items, uint32_t *n)
{
	if (!rs_value_is(v, RS_VALUE_TUPLE) && !rs_value_is(v, RS_VALUE_LIST))
		return false;
	*items = v->list.items;
	*n = v->n;
	return true;
}

bool rs_value_of(const struct rs_value *v, const char *name)
{
	return is_object(v) && rs_value_is(v->object.cls, RS_VALUE_GLOBAL) &&
	       rs_str_is(v->object.cls->global->name, name);
}

const struct rs_value *rs_value_get(const struct rs_value *dict, const char *key)
{
	struct rs_str name;

	if (!rs_value_is(dict, RS_VALUE_DICT))
		return NULL;
	for (uint64_t i = dict->n; i-- > 0;)
		if (rs_value_str(dict->list.items[2 * i], &name) && rs_str_is(name, key))
			return dict->list.items[2 * i + 1];
	return NULL;
}

const struct rs_value *rs_value_attr(const struct rs_value *object, const char *name)
{
	const struct rs_value *state, *found = NULL;

	if (!rs_value_is(object, RS_VALUE_INSTANCE))
		return NULL;
	state = object->object.state;
	if (!rs_value_is(state, RS_VALUE_TUPLE))
		return rs_value_get(state, name);
	for (uint32_t i = state->n; i-- > 0 && !found;) /* slots, then the dict */
		found = rs_value_get(state->list.items[i], name);
	return found;
}

/* ------------------------------------------------------------------------------ pairs */

struct ref {
	struct rs_pickle_pair pair;
	uint64_t seq;
};

static int by_key(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	int order = x->pair.key.ptr == y->pair.key.ptr && x->pair.key.len == y->pair.key.len
			    ? 0
			    : rs_str_cmp(x->pair.key, y->pair.key);
	return order ? order : (x->seq > y->seq) - (x->seq < y->seq);
}

static int by_seq(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;
	return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Keep one of each key: the last value at the place of the first. Returns how many. */
static uint64_t settle(struct ref *refs, uint64_t n)
{
	uint64_t kept = 0;

	if (n == 0)
		return 0;
	qsort(refs, n, sizeof(*refs), by_key);
	for (uint64_t i = 0; i < n; i++) {
		if (kept && rs_str_eq(refs[kept - 1].pair.key, refs[i].pair.key))
			refs[kept - 1].pair.value = refs[i].pair.value;
		else
			refs[kept++] = refs[i];
	}
	qsort(refs, kept, sizeof(*refs), by_seq);
	return kept;
}

int rs_value_pairs(const struct rs_value *dict, struct rs_arena *arena, struct rs_pickle_pair **out,
	uint64_t *n, uint64_t *n_other, uint64_t *n_twice, struct rs_err *err)
{
	uint64_t total = rs_value_is(dict, RS_VALUE_DICT) ? dict->n : 0, texts = 0;
	struct ref *refs = rs_alloc((total + 1) * sizeof(*refs), err);

	if (!refs)
		return -1;
	for (uint64_t i = 0; i < total; i++)
		if (rs_value_str(dict->list.items[2 * i], &refs[texts].pair.key)) {
			refs[texts].pair.value = dict->list.items[2 * i + 1];
			refs[texts].seq = i;
			texts++;
		}
	*n = settle(refs, texts);
	if (n_other)
		*n_other = total - texts;
	if (n_twice)
		*n_twice = texts - *n;
	*out = RS_NEW_N(arena, struct rs_pickle_pair, *n, err);
	for (uint64_t i = 0; *out && i < *n; i++)
		(*out)[i] = refs[i].pair;
	rs_free(refs);
	return *out ? 0 : -1;
}
