/*
 * short.c - targets of a few words: tp4.ep2.dp8.pp2.opt8.
 *
 * Words are axes and their sizes, innermost first; opt comes last and asks for optimizer shards.
 * Who knows what an axis cuts depends on the source: rules (plan=, or those shipped for the model
 * that config.json names), the strategy that wrote it, or the pieces that it lists. The number of
 * ranks is known from the words alone, the rest once the source is described (bind). Refuses
 * unknown axes and models. Read next: short_make.c; presets.c for the rules.
 */
#include "core/target/short/short.h"

#include <ctype.h>
#include <inttypes.h>
#include <unistd.h>

#define AXES_KNOWN                                                                                 \
	"axes are tp (or mp), ep, dp and pp, each at most once, innermost first; opt or "          \
	"optN comes last; a file called like this is reached as ./NAME"

const char *const rs__role_names[RS__N_ROLES] = {"tp", "ep", "dp", "pp"};

/* ------------------------------------------------------------------------- words */

/* Cut the word before the next dot off @rest. */
static struct rs_str next_word(struct rs_str *rest)
{
	const char *dot = memchr(rest->ptr, '.', rest->len);
	struct rs_str word = {rest->ptr, dot ? (size_t)(dot - rest->ptr) : rest->len};

	rest->ptr = dot ? dot + 1 : rest->ptr + rest->len;
	rest->len -= word.len + (dot != NULL);
	return word;
}

static bool split_word(struct rs_str word, struct rs_str *letters, struct rs_str *digits)
{
	size_t n = 0, end;

	while (n < word.len && word.ptr[n] >= 'a' && word.ptr[n] <= 'z')
		n++;
	for (end = n; end < word.len && isdigit((unsigned char)word.ptr[end]);)
		end++;
	*letters = (struct rs_str){word.ptr, n};
	*digits = (struct rs_str){word.ptr + n, word.len - n};
	if (n == 0 || end != word.len)
		return false;
	return digits->len ? digits->ptr[0] != '0' : rs_str_is(*letters, "opt");
}

bool rs__short_is(struct rs_str text)
{
	struct rs_str letters, digits;

	if (text.len == 0 || text.ptr[text.len - 1] == '.')
		return false;
	while (text.len)
		if (!split_word(next_word(&text), &letters, &digits))
			return false;
	return true;
}

static int add_word(struct rs__short *s, struct rs_str name, uint64_t size, struct rs_str text,
	struct rs_err *err)
{
	if (rs_str_is(name, "mp"))
		name = RS_STR("tp");
	for (uint32_t i = 0; i < s->n_words; i++)
		if (rs_str_eq(s->words[i].name, name)) {
			rs_fail(err, RS_USAGE, "target %s: axis '%s' stands twice", RS_SHOW(text),
				RS_SHOW(name));
			return rs_hint(err, AXES_KNOWN);
		}
	if (s->n_words == RS__WORDS_MAX)
		return rs_fail(err, RS_USAGE, "target %s: expected at most %d axes", RS_SHOW(text),
			RS__WORDS_MAX);
	s->words[s->n_words++] = (struct rs__word){name, size};
	return 0;
}

int rs__short_parse(struct rs_str text, struct rs__short *out, struct rs_err *err)
{
	struct rs_str rest = text, letters, digits;

	*out = (struct rs__short){.n_ranks = 1};
	while (rest.len) {
		uint64_t n = 0;
		bool good = split_word(next_word(&rest), &letters, &digits);
		if (!good || (digits.len && !rs_str_u64(digits, &n)) || n > RS_MAX_CELLS)
			return rs_fail(err, RS_LIMIT, "target %s: a size is larger than %u",
				RS_SHOW(text), RS_MAX_CELLS);
		if (!rs_str_is(letters, "opt")) {
			if (add_word(out, letters, n, text, err) < 0)
				return -1;
			out->n_ranks *= n; /* at most 2^40 before the next line */
			if (out->n_ranks > RS_MAX_CELLS)
				return rs_fail(err, RS_LIMIT, "target %s: more than %u ranks",
					RS_SHOW(text), RS_MAX_CELLS);
			continue;
		}
		if (rest.len) {
			rs_fail(err, RS_USAGE, "target %s: expected opt as the last word",
				RS_SHOW(text));
			return rs_hint(err, AXES_KNOWN);
		}
		out->opt = n != 1; /* one shard is none */
		out->opt_size = n;
	}
	return 0;
}

int rs__short_roles(struct rs__short *s, struct rs_str text, struct rs_err *err)
{
	for (uint32_t r = 0; r < RS__N_ROLES; r++)
		s->size[r] = 1;
	for (uint32_t i = 0; i < s->n_words; i++) {
		uint32_t r = 0;
		while (r < RS__N_ROLES && !rs_str_is(s->words[i].name, rs__role_names[r]))
			r++;
		if (r == RS__N_ROLES) {
			rs_fail(err, RS_USAGE, "target %s: unknown axis '%s'", RS_SHOW(text),
				RS_SHOW(s->words[i].name));
			return rs_hint(err, AXES_KNOWN);
		}
		s->roles[i] = (enum rs__role)r;
		s->size[r] = s->words[i].size;
		s->named[r] = true;
		if (r == RS__PP && i + 1 < s->n_words) {
			rs_fail(err, RS_USAGE, "target %s: expected pp as the last axis",
				RS_SHOW(text));
			return rs_hint(err, "stages are the outermost axis of such a source");
		}
	}
	return 0;
}

/* -------------------------------------------------------------------------- kind */

static bool is_short(const char *target)
{
	return rs__short_is(rs_str(target));
}

static int open_short(struct rs_target *t, struct rs_err *err)
{
	struct rs__short *s = RS_NEW(t->arena, struct rs__short, err);

	if (!s)
		return -1;
	int rc = rs__short_parse(rs_str(t->opts.target), s, err);
	if (rc == 0 && (t->opts.plan || (!t->source->strategy && t->source->config.model_type.len)))
		rc = rs__short_open_rules(t, s, err);
	else if (rc == 0)
		rc = rs__short_open(t, s, err);
	/* A strategy directory called st2 reads like an axis; who meant it has to be told. */
	if (rc < 0 && access(t->opts.target, F_OK) == 0)
		rs_hint(err, "the file or directory of that name is reached as ./%s",
			t->opts.target);
	return rc;
}

const struct rs_target_ops rs__target_short = {
	.name = "short",
	.is = is_short,
	.open = open_short,
};
