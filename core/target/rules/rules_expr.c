/*
 * rules_expr.c - numbers that count with variables: "(nq + 2 * g) * d".
 *
 *   sum      product, then any of  + product   - product
 *   product  atom, then any of     * atom      / atom
 *   atom     digits, a name, or ( sum )
 *
 * Integers only, and a division must come out even: a plan whose numbers do not fit the model has
 * to be told so. Refuses variables that nobody set, results below zero and beyond 63 bits.
 * Read next: rules_json.c, where they stand.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>

#define NESTING_MAX 64

struct expr {
	struct rs_str text;
	size_t at;
	const struct rs__vars *vars; /* NULL: grammar alone */
	const char *where;
	uint32_t depth;
	struct rs_err *err;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* The next character behind white space, or 0 at the end. */
static char peek(struct expr *e)
{
	while (e->at < e->text.len && (e->text.ptr[e->at] == ' ' || e->text.ptr[e->at] == '\t'))
		e->at++;
	return e->at < e->text.len ? e->text.ptr[e->at] : '\0';
}

static int unexpected(struct expr *e, const char *expected)
{
	struct rs_str rest = {e->text.ptr + e->at, e->text.len - e->at};

	if (rest.len == 0)
		return rs_fail(e->err, RS_USAGE, "%s: '%s': expected %s, found the end", e->where,
			RS_SHOW(e->text), expected);
	return rs_fail(e->err, RS_USAGE, "%s: '%s': expected %s, found '%s'", e->where,
		RS_SHOW(e->text), expected, RS_SHOW(rest));
}

static int too_large(const struct expr *e)
{
	return rs_fail(
		e->err, RS_LIMIT, "%s: '%s' does not fit 63 bits", e->where, RS_SHOW(e->text));
}

static int unset(const struct expr *e, struct rs_str name)
{
	rs_fail(e->err, RS_USAGE, "%s: '%s': nothing sets '%s'", e->where, RS_SHOW(e->text),
		RS_SHOW(name));
	return rs_hint(e->err, "set it in \"vars\"; h f d nq g L V E come from the source's "
			       "config.json, if it has one");
}

static int sum(struct expr *e, int64_t *out);

static int atom(struct expr *e, int64_t *out)
{
	char c = peek(e);
	size_t from = e->at;

	*out = 0;
	if (c == '(') {
		if (++e->depth > NESTING_MAX)
			return rs_fail(e->err, RS_LIMIT, "%s: more than %d open brackets", e->where,
				NESTING_MAX);
		e->at++;
		if (sum(e, out) < 0)
			return -1;
		if (peek(e) != ')')
			return unexpected(e, "')'");
		e->at++;
		e->depth--;
		return 0;
	}
	if (!is_digit(c) && !is_letter(c))
		return unexpected(e, "a number, a variable or '('");
	while (e->at < e->text.len &&
		(is_digit(e->text.ptr[e->at]) || (is_letter(c) && is_letter(e->text.ptr[e->at]))))
		e->at++;
	struct rs_str word = {e->text.ptr + from, e->at - from};
	uint64_t number;
	if (is_letter(c))
		return !e->vars || rs__vars_find(e->vars, word, out) ? 0 : unset(e, word);
	if (!rs_str_u64(word, &number) || number > INT64_MAX)
		return too_large(e);
	*out = (int64_t)number;
	return 0;
}

static int divide(const struct expr *e, int64_t a, int64_t b, int64_t *out)
{
	if (b == 0)
		return rs_fail(e->err, RS_USAGE, "%s: '%s' divides %" PRId64 " by 0", e->where,
			RS_SHOW(e->text), a);
	if (b == -1)
		return __builtin_sub_overflow(0, a, out) ? too_large(e) : 0;
	if (a % b)
		return rs_fail(e->err, RS_USAGE, "%s: '%s': %" PRId64 " / %" PRId64 " has a rest",
			e->where, RS_SHOW(e->text), a, b);
	*out = a / b;
	return 0;
}

static int product(struct expr *e, int64_t *out)
{
	int64_t right;

	if (atom(e, out) < 0)
		return -1;
	for (char c = peek(e); c == '*' || c == '/'; c = peek(e)) {
		e->at++;
		if (atom(e, &right) < 0)
			return -1;
		if (!e->vars)
			continue;
		if (c == '/' && divide(e, *out, right, out) < 0)
			return -1;
		if (c == '*' && __builtin_mul_overflow(*out, right, out))
			return too_large(e);
	}
	return 0;
}

static int sum(struct expr *e, int64_t *out)
{
	int64_t right;

	if (product(e, out) < 0)
		return -1;
	for (char c = peek(e); c == '+' || c == '-'; c = peek(e)) {
		e->at++;
		if (product(e, &right) < 0)
			return -1;
		if (e->vars && (c == '+' ? __builtin_add_overflow(*out, right, out)
					 : __builtin_sub_overflow(*out, right, out)))
			return too_large(e);
	}
	return 0;
}

static int whole(struct expr *e, int64_t *out)
{
	if (sum(e, out) < 0)
		return -1;
	return peek(e) ? unexpected(e, "an operator or the end") : 0;
}

int rs__expr_check(struct rs_str expr, const char *where, struct rs_err *err)
{
	struct expr e = {.text = expr, .where = where, .err = err};
	int64_t ignored;

	return whole(&e, &ignored);
}

int rs__num_value(
	const struct rs__num *num, const struct rs__vars *vars, uint64_t *out, struct rs_err *err)
{
	struct expr e = {.text = num->expr, .vars = vars, .where = num->where, .err = err};
	int64_t value = num->value;

	if (num->expr.ptr && whole(&e, &value) < 0)
		return -1;
	if (value < 0)
		return rs_fail(err, RS_USAGE,
			"%s: expected a number that is not negative, found "
			"%s%s%" PRId64,
			num->where, num->expr.ptr ? RS_SHOW(num->expr) : "",
			num->expr.ptr ? " = " : "", value);
	*out = (uint64_t)value;
	return 0;
}

/* --------------------------------------------------------------- variables */

/* The first of @names that config.json has with a value above 0. */
static bool from_config(const struct rs_config *c, const char *const *names, int64_t *out)
{
	for (; c && *names; names++)
		for (uint64_t i = 0; i < c->n_vars; i++)
			if (rs_str_is(c->vars[i].name, *names) && c->vars[i].value > 0) {
				*out = c->vars[i].value;
				return true;
			}
	return false;
}

/* Families disagree on names; the first that is there counts. */
static bool letter(const struct rs_config *c, struct rs_str name, int64_t *out)
{
	static const struct {
		const char *letter;
		const char *names[6];
	} known[] = {
		{"h", {"hidden_size", "n_embd", "d_model"}},
		{"f", {"intermediate_size", "ffn_hidden_size", "n_inner"}},
		{"d", {"head_dim"}},
		{"nq", {"num_attention_heads", "n_head"}},
		{"g", {"num_key_value_heads", "num_kv_heads"}},
		{"L", {"num_hidden_layers", "num_layers", "n_layer"}},
		{"V", {"vocab_size"}},
		{"E", {"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"}},
	};
	int64_t h, nq;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (rs_str_is(name, known[i].letter) && from_config(c, known[i].names, out))
			return true;
	if (rs_str_is(name, "g"))
		return letter(c, RS_STR("nq"), out);
	if (!rs_str_is(name, "d") || !letter(c, RS_STR("h"), &h) || !letter(c, RS_STR("nq"), &nq) ||
		h % nq)
		return false;
	*out = h / nq;
	return true;
}

bool rs__vars_find(const struct rs__vars *vars, struct rs_str name, int64_t *out)
{
	for (uint32_t i = 0; i < vars->n; i++)
		if (rs_str_eq(vars->own[i].name, name)) {
			*out = vars->own[i].value;
			return true;
		}
	if (letter(vars->config, name, out))
		return true;
	for (uint64_t i = 0; vars->config && i < vars->config->n_vars; i++)
		if (rs_str_eq(vars->config->vars[i].name, name)) {
			*out = vars->config->vars[i].value;
			return true;
		}
	return false;
}
