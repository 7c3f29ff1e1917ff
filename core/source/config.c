/*
 * config.c - the config.json of a model: its type, and the integers that plans count with.
 *
 *   {"model_type": "llama", "hidden_size": 4096, "tie_word_embeddings": false, ...}
 *
 * Models of several parts keep the numbers of their language model in an object of their own
 * (text_config); these count where the top level has none of that name. Fractions, texts and lists
 * are passed over. Refuses names that stand twice. Format: docs/formats/huggingface.md. Next: hf.c.
 */
#include "core/source/shards.h"
#include "reshardfs/codec.h"

#include <stdlib.h>

#define CONFIG_MAX_BYTES (UINT64_C(16) << 20) /* those with lists of labels have two */
#define CONFIG_MAX_VARS 4096u                 /* of one level; real ones have below two hundred */

struct vars {
	struct rs_var *items; /* heap */
	uint64_t n, cap;
};
struct reading {
	struct rs_json json;
	const char *name;
	struct vars top, nested;
	struct rs_str top_type, nested_type;
	bool entered; /* a nested object */
	struct rs_err *err;
};

/* "-12": digits behind a minus, within 63 bits. */
static bool negative(struct rs_str text, int64_t *out)
{
	uint64_t u;

	if (text.len < 2 || text.ptr[0] != '-' ||
		!rs_str_u64((struct rs_str){text.ptr + 1, text.len - 1}, &u) ||
		u > (uint64_t)INT64_MAX)
		return false;
	*out = -(int64_t)u;
	return true;
}

/* What counts as a number for plans; anything else is no variable. */
static bool integer(const struct rs_json_token *tok, int64_t *out)
{
	switch (tok->type) {
	case RS_JSON_TRUE:
	case RS_JSON_FALSE:
		*out = tok->type == RS_JSON_TRUE;
		return true;
	case RS_JSON_UINT:
		*out = (int64_t)tok->u;
		return tok->u <= (uint64_t)INT64_MAX;
	case RS_JSON_NUMBER:
		return negative(tok->text, out);
	default:
		return false;
	}
}

static bool is_nested(struct rs_str name)
{
	static const char *const names[] = {"text_config", "language_config", "llm_config"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (rs_str_is(name, names[i]))
			return true;
	return false;
}

static int add_var(struct reading *r, struct vars *vars, struct rs_str name, int64_t value)
{
	if (vars->n == CONFIG_MAX_VARS)
		return rs_fail(r->err, RS_LIMIT, "%s: more than %u numbers (CONFIG_MAX_VARS)",
			r->name, CONFIG_MAX_VARS);
	if (rs_grow(&vars->items, &vars->cap, vars->n + 1, sizeof(*vars->items), r->err) < 0)
		return -1;
	vars->items[vars->n++] = (struct rs_var){name, value};
	return 0;
}

/* Behind an opening bracket. Of the objects in it the first that is called so is entered. */
static int parse_object(struct reading *r, bool top)
{
	struct vars *vars = top ? &r->top : &r->nested;
	struct rs_json_token key, value;
	int64_t number;

	for (;;) {
		if (rs_json_next(&r->json, &key) < 0)
			return -1;
		if (key.type == RS_JSON_OBJECT_END)
			return 0;
		if (rs_json_next(&r->json, &value) < 0)
			return -1;
		if (top && value.type == RS_JSON_OBJECT && is_nested(key.text) && !r->entered) {
			r->entered = true;
			if (parse_object(r, false) < 0)
				return -1;
			continue;
		}
		if (value.type == RS_JSON_STRING && rs_str_is(key.text, "model_type"))
			*(top ? &r->top_type : &r->nested_type) = value.text;
		if (integer(&value, &number) && add_var(r, vars, key.text, number) < 0)
			return -1;
		if (rs_json_skip(&r->json, &value) < 0)
			return -1;
	}
}

static int by_name(const void *a, const void *b)
{
	const struct rs_var *x = a, *y = b;
	return rs_str_cmp(x->name, y->name);
}

static int sort_vars(const struct reading *r, const struct vars *vars)
{
	if (vars->n)
		qsort(vars->items, vars->n, sizeof(*vars->items), by_name);
	for (uint64_t i = 1; i < vars->n; i++)
		if (rs_str_eq(vars->items[i - 1].name, vars->items[i].name))
			return rs_fail(r->err, RS_CORRUPT, "%s: '%s' stands twice", r->name,
				RS_SHOW(vars->items[i].name));
	return 0;
}

/* The numbers of the top level, and of the nested ones those that it lacks. */
static int merge(struct reading *r, struct rs_arena *arena, struct rs_config *out)
{
	const struct vars *top = &r->top, *nested = &r->nested;

	if (sort_vars(r, top) < 0 || sort_vars(r, nested) < 0)
		return -1;
	out->vars = RS_NEW_N(arena, struct rs_var, top->n + nested->n, r->err);
	if (!out->vars)
		return -1;
	if (top->n)
		memcpy(out->vars, top->items, top->n * sizeof(*out->vars));
	out->n_vars = top->n;
	for (uint64_t i = 0; i < nested->n; i++)
		if (!top->n || !bsearch(&nested->items[i], top->items, top->n, sizeof(*top->items),
				       by_name))
			out->vars[out->n_vars++] = nested->items[i];
	if (out->n_vars)
		qsort(out->vars, out->n_vars, sizeof(*out->vars), by_name);
	out->model_type = r->top_type.len ? r->top_type : r->nested_type;
	return 0;
}

int rs__config_read(const struct rs_file *file, struct rs_arena *arena, struct rs_config *out,
	struct rs_err *err)
{
	struct reading r = {.name = file->name, .err = err};
	struct rs_json_token tok;
	struct rs_str text;
	int status = -1;

	*out = (struct rs_config){0};
	if (rs__text_read(file, CONFIG_MAX_BYTES, arena, &text, err) < 0)
		return -1;
	rs_json_init(&r.json, text, 0, file->name, arena, err);
	if (rs_json_next(&r.json, &tok) < 0)
		return -1;
	if (tok.type != RS_JSON_OBJECT)
		return rs_fail(err, RS_CORRUPT, "%s: expected an object", file->name);
	if (parse_object(&r, true) == 0 && rs_json_next(&r.json, &tok) == 0)
		status = merge(&r, arena, out);
	rs_free(r.top.items);
	rs_free(r.nested.items);
	return status;
}
