/*
 * rules_read.c - from JSON to structs by tables, with a path for every message.
 *
 * Each kind of object has a table of its members: how each is read, and where to. What is not in
 * the table is refused with what is:
 *
 *   plan.json: rules[2].cut[0]: unknown member 'axes'; known are dim axis unit few uneven
 *
 * Read next: rules_json.c and rules_rule.c, which have the tables.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/target/rules/rules_read.h"
#include "reshardfs/codec.h"

/* -------------------------------------------------------------------- messages */

static size_t put_path(const struct rs__at *at, char *buf, size_t size)
{
	size_t n = at->up ? put_path(at->up, buf, size) : 0;
	int more;

	if (n >= size)
		return n;
	if (at->key)
		more = snprintf(buf + n, size - n, "%s%s", n ? "." : "",
			rs_show(rs_str(at->key), (char[60]){0}, 60));
	else if (at->up)
		more = snprintf(buf + n, size - n, "[%" PRIu32 "]", at->index);
	else
		more = snprintf(buf, size, "%s", "");
	return n + (more > 0 ? (size_t)more : 0);
}

/* "plan.json: rules[2].cut[0]", or "plan.json" for the document itself. */
static void show_place(const struct rs__read *r, const struct rs__at *at, char *buf, size_t size)
{
	char path[160];

	put_path(at, path, sizeof(path));
	snprintf(buf, size, "%s%s%s", r->plan->name, path[0] ? ": " : "", path);
}

const char *rs__read_where(struct rs__read *r, const struct rs__at *at)
{
	char place[240];

	show_place(r, at, place, sizeof(place));
	return rs_arena_copy(r->arena, place, strlen(place), r->err);
}

int rs__read_refuse(struct rs__read *r, const struct rs__at *at, const char *fmt, ...)
{
	char place[240], what[240];
	va_list args;

	show_place(r, at, place, sizeof(place));
	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return rs_fail(r->err, RS_USAGE, "%s: %s", place, what);
}

/* "expected @what, found ..." */
int rs__read_unexpected(
	struct rs__read *r, const struct rs__at *at, const char *what, const cJSON *v)
{
	if (cJSON_IsString(v))
		return rs__read_refuse(r, at, "expected %s, found '%s'", what,
			rs_show(rs_str(v->valuestring), (char[80]){0}, 80));
	if (cJSON_IsNumber(v))
		return rs__read_refuse(r, at, "expected %s, found %.17g", what, v->valuedouble);
	return rs__read_refuse(r, at, "expected %s, found %s", what,
		cJSON_IsObject(v)  ? "an object"
		: cJSON_IsArray(v) ? "an array"
		: cJSON_IsNull(v)  ? "null"
				   : "true or false");
}

/* --------------------------------------------------------------------- scalars */

int rs__read_str(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	if (!cJSON_IsString(v) || !v->valuestring[0])
		return rs__read_unexpected(r, at, "a string that is not empty", v);
	return rs_arena_str(r->arena, rs_str(v->valuestring), out, r->err);
}

int rs__read_bool(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	if (!cJSON_IsBool(v))
		return rs__read_unexpected(r, at, "true or false", v);
	*(bool *)out = cJSON_IsTrue(v);
	return 0;
}

int rs__read_u64(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	int64_t n;

	if (!rs_json_int(v, &n) || n < 0)
		return rs__read_unexpected(r, at, "an integer that is not negative", v);
	*(uint64_t *)out = (uint64_t)n;
	return 0;
}

int rs__read_dim(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	int64_t n;

	if (!rs_json_int(v, &n) || n < 0 || n >= RS_MAX_AXES)
		return rs__read_unexpected(r, at, "the number of an axis, 0 to 7", v);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

int rs__read_index(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	int64_t n;

	if (!rs_json_int(v, &n) || n < 0 || n >= RS_MAX_CELLS)
		return rs__read_unexpected(r, at, "an integer from 0 to 1048575", v);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

int rs__read_num(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__num *num = out;

	*num = (struct rs__num){.where = rs__read_where(r, at)};
	if (!num->where)
		return -1;
	if (rs_json_int(v, &num->value))
		return num->value < 0
			       ? rs__read_unexpected(r, at, "a number that is not negative", v)
			       : 0;
	if (!cJSON_IsString(v))
		return rs__read_unexpected(
			r, at, "an integer, or a string that counts with vars", v);
	if (rs_arena_str(r->arena, rs_str(v->valuestring), &num->expr, r->err) < 0)
		return -1;
	return rs__expr_check(num->expr, num->where, r->err);
}

/* One of @words; *out is its number. */
int rs__read_word(struct rs__read *r, const struct rs__at *at, const cJSON *v,
	const char *const *words, int *out)
{
	char known[120] = "one of";
	size_t n = strlen(known);

	for (*out = 0; words[*out]; ++*out) {
		if (cJSON_IsString(v) && strcmp(v->valuestring, words[*out]) == 0)
			return 0;
		n += (size_t)snprintf(known + n, sizeof(known) - n, " %s", words[*out]);
	}
	return rs__read_unexpected(r, at, known, v);
}

int rs__read_uneven(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"error", "chunk", "balanced", "pad", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(enum rs__uneven *)out = RS__UNEVEN_ERROR + (unsigned int)n;
	return 0;
}

int rs__read_axis(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	const struct rs__mesh *m = &r->plan->mesh;
	uint32_t axis;

	if (!cJSON_IsString(v))
		return rs__read_unexpected(r, at, "the name of an axis", v);
	axis = rs__mesh_find(m, rs_str(v->valuestring));
	if (axis == RS__NONE)
		return rs__read_no_axis(r, at, v->valuestring);
	*(uint32_t *)out = axis;
	return 0;
}

int rs__read_no_axis(struct rs__read *r, const struct rs__at *at, const char *name)
{
	const struct rs__mesh *m = &r->plan->mesh;
	char known[120] = "";
	size_t n = 0;

	for (uint32_t i = 0; i < m->n && n < sizeof(known); i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, " %s",
			rs_show(m->axes[i].name, (char[24]){0}, 24));
	return rs__read_refuse(r, at, "unknown axis '%s'; the mesh has%s",
		rs_show(rs_str(name), (char[60]){0}, 60), known);
}

/* -------------------------------------------------------------- objects, arrays */

static int unknown_member(struct rs__read *r, const struct rs__at *at, const char *key,
	const struct rs__field *fields)
{
	char known[200] = "";
	size_t n = 0;

	for (; fields->key && n < sizeof(known); fields++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, " %s", fields->key);
	return rs__read_refuse(r, at, "unknown member '%s'; known are%s",
		rs_show(rs_str(key), (char[60]){0}, 60), known);
}

/* Members are read in the order of the table, whatever their order in the document. */
int rs__read_object(struct rs__read *r, const struct rs__at *at, const cJSON *v,
	const struct rs__field *fields, void *out)
{
	const cJSON *child;

	if (!cJSON_IsObject(v))
		return rs__read_unexpected(r, at, "an object", v);
	cJSON_ArrayForEach(child, v)
	{
		const struct rs__field *f = fields;
		while (f->key && strcmp(f->key, child->string) != 0)
			f++;
		if (!f->key)
			return unknown_member(r, at, child->string, fields);
	}
	for (const struct rs__field *f = fields; f->key; f++) {
		struct rs__at inner = {.up = at, .key = f->key};
		child = cJSON_GetObjectItemCaseSensitive(v, f->key);
		if (!child && f->required)
			return rs__read_refuse(r, at, "expected a member '%s'", f->key);
		if (child && f->read(r, &inner, child, (char *)out + f->off) < 0)
			return -1;
	}
	return 0;
}

/* An array of @size bytes an item; NULL on failure. */
void *rs__read_array(struct rs__read *r, const struct rs__at *at, const cJSON *v, rs__read_fn read,
	size_t size, uint32_t *n)
{
	const cJSON *child;
	char *items;

	if (!cJSON_IsArray(v)) {
		rs__read_unexpected(r, at, "an array", v);
		return NULL;
	}
	*n = 0;
	items = rs_arena_array(r->arena, (uint64_t)cJSON_GetArraySize(v), size, r->err);
	if (!items)
		return NULL;
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .index = *n};
		if (read(r, &inner, child, items + *n * size) < 0)
			return NULL;
		++*n;
	}
	return items;
}

/* An array of integers that stand for coordinates or indices. */
int rs__read_indices(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__coords *c = out;

	c->at = rs__read_array(r, at, v, rs__read_index, sizeof(uint32_t), &c->n);
	return c->at ? 0 : -1;
}
