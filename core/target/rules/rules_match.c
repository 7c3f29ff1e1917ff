/*
 * rules_match.c - patterns of names: "model.layers.{N}.{norm}_layernorm.weight".
 *
 * {X} stands for a run of characters without dots, at least one. Where X is a range of the plan the
 * run is a number, written without leading zeros. A name that a pattern makes shows the number as
 * the source has it ({X.g}) or as the rank counts it ({X.l}); {X} alone is what the range says.
 * Refuses braces that do not pair and captures that nothing sets. Read next: rules_bind.c.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>

#define TOKENS_MAX 64
#define TRIES_MAX (1u << 18) /* ways to match one name, before we call it hostile */

/* ---------------------------------------------------------------- compiling */

static bool word_char(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (!first && c >= '0' && c <= '9');
}

struct compiling {
	struct rs__pattern *p;
	struct rs__captures *captures;
	bool open;
	const struct rs__range *ranges;
	uint32_t n_ranges;
	struct rs__token tokens[TOKENS_MAX];
	struct rs_err *err;
};

static int refuse(const struct compiling *c, const char *what, struct rs_str found)
{
	return rs_fail(c->err, RS_USAGE, "%s: '%s': %s, found '%s'", c->p->where,
		RS_SHOW(c->p->text), what, RS_SHOW(found));
}

static int find_capture(struct compiling *c, struct rs_str name, uint32_t *out)
{
	struct rs__captures *all = c->captures;
	uint32_t range = RS__NONE;

	for (*out = 0; *out < all->n; ++*out)
		if (rs_str_eq(all->at[*out].name, name))
			return 0;
	if (!c->open) {
		refuse(c, "expected a capture that the source names have", name);
		return rs_hint(
			c->err, "what stands in braces in \"to\" must stand in \"from\" too");
	}
	if (all->n == RS__CAPTURES)
		return rs_fail(
			c->err, RS_LIMIT, "%s: more than %d captures", c->p->where, RS__CAPTURES);
	for (uint32_t i = 0; c->ranges && i < c->n_ranges; i++)
		if (rs_str_eq(c->ranges[i].name, name))
			range = i;
	all->at[all->n++] = (struct rs__capture){name, range};
	return 0;
}

/* What stands between two braces. */
static int compile_capture(struct compiling *c, struct rs_str inside, struct rs__token *t)
{
	struct rs_str name = inside;

	t->form = RS__AS_IS;
	if (rs_str_ends(inside, ".g") || rs_str_ends(inside, ".l")) {
		t->form = inside.ptr[inside.len - 1] == 'g' ? RS__GLOBAL : RS__LOCAL;
		name.len -= 2;
	}
	for (size_t i = 0; i < name.len; i++)
		if (!word_char(name.ptr[i], i == 0))
			return refuse(c, "expected a name in braces", inside);
	if (name.len == 0)
		return refuse(c, "expected a name in braces", inside);
	if (find_capture(c, name, &t->capture) < 0)
		return -1;
	if (t->form != RS__AS_IS && c->open)
		return refuse(c, "expected {X} without .g or .l where names are matched", inside);
	if (t->form != RS__AS_IS && c->captures->at[t->capture].range == RS__NONE)
		return refuse(c, "expected a range before .g or .l", name);
	return 0;
}

static int compile_next(struct compiling *c, struct rs_str *rest, struct rs__token *t)
{
	const char *open = memchr(rest->ptr, '{', rest->len);
	const char *close = memchr(rest->ptr, '}', rest->len);
	size_t len = open ? (size_t)(open - rest->ptr) : rest->len;

	*t = (struct rs__token){.capture = RS__NONE};
	if ((open && !close) || (close && (!open || close < open)))
		return refuse(c, "expected braces in pairs", *rest);
	if (len == 0) { /* at an opening brace */
		struct rs_str inside = {rest->ptr + 1, (size_t)(close - rest->ptr - 1)};
		len = inside.len + 2;
		if (compile_capture(c, inside, t) < 0)
			return -1;
	} else {
		t->text = (struct rs_str){rest->ptr, len};
	}
	rest->ptr += len;
	rest->len -= len;
	return 0;
}

int rs__pattern_compile(struct rs__pattern *p, struct rs__captures *captures, bool open,
	const struct rs__range *ranges, uint32_t n_ranges, struct rs_arena *arena,
	struct rs_err *err)
{
	struct compiling c = {.p = p,
		.captures = captures,
		.open = open,
		.ranges = ranges,
		.n_ranges = n_ranges,
		.err = err};
	struct rs_str rest = p->text;
	struct rs__token *tokens;
	uint32_t n = 0;

	for (; rest.len > 0; n++) {
		if (n == TOKENS_MAX)
			return rs_fail(err, RS_LIMIT, "%s: more than %d parts in one pattern",
				p->where, TOKENS_MAX);
		if (compile_next(&c, &rest, &c.tokens[n]) < 0)
			return -1;
	}
	tokens = RS_NEW_N(arena, struct rs__token, n, err);
	if (!tokens)
		return -1;
	memcpy(tokens, c.tokens, n * sizeof(*tokens));
	p->tokens = tokens;
	p->n = n;
	return 0;
}

bool rs__pattern_has(const struct rs__pattern *p, uint32_t capture)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->tokens[i].capture == capture)
			return true;
	return false;
}

/* ----------------------------------------------------------------- matching */

struct matching {
	const struct rs__pattern *p;
	const struct rs__captures *captures;
	struct rs_str name;
	struct rs__value *values;
	uint32_t tries;
};

static bool has_text(const struct matching *m, size_t at, struct rs_str text)
{
	return rs_range_ok(at, text.len, m->name.len) &&
	       memcmp(m->name.ptr + at, text.ptr, text.len) == 0;
}

/* Indices fit 32 bits, and have one spelling each, so that name and number tell each other. */
static bool is_index(struct rs_str text, uint64_t *number)
{
	return rs_str_u64(text, number) && (text.len == 1 || text.ptr[0] != '0') &&
	       *number < RS_MAX_CELLS;
}

static bool match_from(struct matching *m, uint32_t token, size_t at);

/* Try every length of the capture, the longest first. */
static bool match_capture(struct matching *m, uint32_t token, size_t at)
{
	uint32_t capture = m->p->tokens[token].capture;
	struct rs__value *v = &m->values[capture];
	bool indexed = m->captures->at[capture].range != RS__NONE;
	size_t len = 0;

	if (v->text.ptr) /* stood before: the same again */
		return has_text(m, at, v->text) && match_from(m, token + 1, at + v->text.len);
	while (at + len < m->name.len && m->name.ptr[at + len] != '.')
		len++;
	for (; len > 0; len--) {
		v->text = (struct rs_str){m->name.ptr + at, len};
		if ((!indexed || is_index(v->text, &v->number)) &&
			match_from(m, token + 1, at + len))
			return true;
		if (m->tries > TRIES_MAX)
			break;
	}
	v->text = (struct rs_str){0};
	return false;
}

static bool match_from(struct matching *m, uint32_t token, size_t at)
{
	if (++m->tries > TRIES_MAX)
		return false;
	for (; token < m->p->n; token++) {
		const struct rs__token *t = &m->p->tokens[token];
		if (t->capture != RS__NONE)
			return match_capture(m, token, at);
		if (!has_text(m, at, t->text))
			return false;
		at += t->text.len;
	}
	return at == m->name.len;
}

int rs__pattern_match(const struct rs__pattern *p, const struct rs__captures *captures,
	struct rs_str name, struct rs__value *values, struct rs_err *err)
{
	struct matching m = {p, captures, name, values, 0};
	const struct rs__token *last = p->n ? &p->tokens[p->n - 1] : NULL;

	/* Most names differ at the end, and then no capture need be tried. */
	if (last && last->capture == RS__NONE &&
		(name.len < last->text.len || !has_text(&m, name.len - last->text.len, last->text)))
		return 0;
	memset(values, 0, RS__CAPTURES * sizeof(*values));
	if (match_from(&m, 0, 0))
		return 1;
	if (m.tries > TRIES_MAX)
		return rs_fail(err, RS_LIMIT, "%s: '%s': too many ways to match '%s'", p->where,
			RS_SHOW(p->text), RS_SHOW(name));
	return 0;
}

/* ------------------------------------------------------------------ filling */

bool rs__token_local(const struct rs__token *t, const struct rs__captures *captures,
	const struct rs__range *ranges)
{
	uint32_t range = t->capture == RS__NONE ? RS__NONE : captures->at[t->capture].range;

	if (range == RS__NONE || t->form == RS__GLOBAL)
		return false;
	return t->form == RS__LOCAL || ranges[range].renumber;
}

int rs__pattern_fill(const struct rs__pattern *p, const struct rs__captures *captures,
	const struct rs__range *ranges, const struct rs__value *values, const uint32_t *local,
	struct rs_arena *arena, struct rs_str *out, struct rs_err *err)
{
	struct rs_str pieces[TOKENS_MAX];
	char digits[TOKENS_MAX][24];
	size_t len = 0;
	char *to;

	for (uint32_t i = 0; i < p->n; i++) {
		const struct rs__token *t = &p->tokens[i];
		pieces[i] = t->text;
		if (t->capture != RS__NONE && captures->at[t->capture].range == RS__NONE) {
			pieces[i] = values[t->capture].text;
		} else if (t->capture != RS__NONE) {
			bool as_local = local && rs__token_local(t, captures, ranges);
			uint64_t n = as_local ? local[t->capture] : values[t->capture].number;
			size_t at = sizeof(digits[i]);
			do
				digits[i][--at] = (char)('0' + n % 10);
			while (n /= 10);
			pieces[i] = (struct rs_str){digits[i] + at, sizeof(digits[i]) - at};
		}
		len += pieces[i].len;
	}
	if (len > RS_MAX_NAME)
		return rs_fail(err, RS_LIMIT, "%s: '%s' makes a name of %zu bytes, the limit is %d",
			p->where, RS_SHOW(p->text), len, RS_MAX_NAME);
	to = rs_arena_alloc(arena, len + 1, err);
	if (!to)
		return -1;
	*out = (struct rs_str){to, len};
	for (uint32_t i = 0; i < p->n; i++) {
		memcpy(to, pieces[i].ptr, pieces[i].len);
		to += pieces[i].len;
	}
	return 0;
}
