/*
 * options.c - a command line becomes struct fs_options: RESHARDFS_OPTS first, then the words in
 * order, later ones win. What an option is and which verbs take it stands in options_table.c.
 * Refused: unknown names (with the nearest known one), values that do not fit their kind, a
 * wrong number of operands. Words that fstab and mount(8) use among themselves are skipped.
 */
#include "fs/options.h"

#include <limits.h>
#include <stdlib.h>

#define OPTIONS_MEMORY (1u << 20) /* a command line of a megabyte is a mistake */
#define WORD_MAX 32               /* longer words are near to no option */
#define WAIT_S 5

struct parser {
	struct fs_options *out;
	const struct fs_verb *verb;
	bool environment; /* reading RESHARDFS_OPTS, which is meant for every verb */
	struct rs_err *err;
};

/* --------------------------------------------------------------------- nearest name */

/*
 * Edits that turn @a into @b: insert, remove, replace, or swap two neighbours.
 * A big number when one of them is too long to be compared.
 */
static unsigned int edits(const char *a, const char *b)
{
	unsigned int d[WORD_MAX + 1][WORD_MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return UINT_MAX;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = (unsigned int)(i + j);
				continue;
			}
			unsigned int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			best = (unsigned int)rs_min(best, d[i - 1][j] + 1);
			best = (unsigned int)rs_min(best, d[i][j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = (unsigned int)rs_min(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	}
	return d[n][m];
}

/* Two slips of the hand are near, but not so many that a short word becomes another. */
static bool nearer(const char *word, const char *known, unsigned int *best)
{
	unsigned int distance = edits(word, known);

	if (distance >= *best || distance > 2 || distance * 2 >= strlen(known))
		return false;
	*best = distance;
	return true;
}

static const struct fs_verb *find_verb(const char *word)
{
	for (size_t i = 0; i < fs__n_verbs; i++)
		if (strcmp(word, fs__verbs[i].name) == 0)
			return &fs__verbs[i];
	return NULL;
}

bool fs_verb_known(const char *word)
{
	return find_verb(word) != NULL;
}

const char *fs_verb_near(const char *word)
{
	const char *found = NULL;
	unsigned int best = UINT_MAX;

	for (size_t i = 0; i < fs__n_verbs; i++)
		if (nearer(word, fs__verbs[i].name, &best))
			found = fs__verbs[i].name;
	return found;
}

static int refuse_unknown(const struct parser *p, const char *name)
{
	const char *near = NULL;
	unsigned int best = UINT_MAX;

	for (size_t i = 0; i < fs__n_options; i++)
		if (fs__options[i].verbs & fs__verb_bit(p->verb))
			if (nearer(name, fs__options[i].name, &best))
				near = fs__options[i].name;
	rs_fail(p->err, RS_USAGE, "%s: no option '%s'", p->verb->name, RS_SHOW(rs_str(name)));
	if (near)
		return rs_hint(p->err, "did you mean '%s'?", near);
	if (name[0] && !name[1])
		return rs_hint(p->err,
			"options are words, as --target T or -o target=T; see: reshardfs %s --help",
			p->verb->name);
	return rs_hint(p->err, "see: reshardfs %s --help", p->verb->name);
}

static int refuse_other(const struct parser *p, const struct fs_option *o)
{
	char takers[128] = "";
	size_t used = 0;

	for (size_t i = 0; i < fs__n_verbs && used < sizeof(takers); i++)
		if (o->verbs & fs__verb_bit(&fs__verbs[i]))
			used += (size_t)snprintf(takers + used, sizeof(takers) - used, "%s%s",
				used ? ", " : "", fs__verbs[i].name);
	rs_fail(p->err, RS_USAGE, "%s: takes no option '%s'", p->verb->name, o->name);
	return rs_hint(p->err, "'%s' is for %s", o->name, takers);
}

/* ----------------------------------------------------------------------------- values */

static int refuse_value(const struct parser *p, const struct fs_option *o, const char *value)
{
	return rs_fail(p->err, RS_USAGE, "%s: option %s: expected %s, found '%s'", p->verb->name,
		o->name, o->value, RS_SHOW(rs_str(value)));
}

/* The number of @value among "one|two|three", or -1. */
static int word_number(const char *words, const char *value)
{
	size_t len = strlen(value);

	for (int i = 0;; i++) {
		const char *end = strchrnul(words, '|');

		if ((size_t)(end - words) == len && memcmp(words, value, len) == 0)
			return i;
		if (!*end)
			return -1;
		words = end + 1;
	}
}

/* "256M", "4Gi", "1000": decimal digits, then a unit. */
static bool parse_size(const char *value, uint64_t *out)
{
	static const char units[] = "KMGT";
	size_t digits = strspn(value, "0123456789");
	const char *unit = value + digits;
	uint64_t step = 1000;

	if (!rs_str_u64((struct rs_str){value, digits}, out))
		return false;
	if (!*unit)
		return true;
	const char *which = strchr(units, *unit);

	if (!which)
		return false;
	if (unit[1] == 'i') {
		step = 1024;
		unit++;
	}
	if (unit[1])
		return false;
	for (const char *u = units; u <= which; u++)
		if (!rs_mul(*out, step, out))
			return false;
	return true;
}

static bool parse_octal(const char *value, unsigned int *out)
{
	size_t len = strlen(value);

	if (len == 0 || len > 4 || strspn(value, "01234567") != len)
		return false;
	*out = (unsigned int)strtoul(value, NULL, 8);
	return *out <= 0777;
}

static int add_word(const struct parser *p, struct rs_words *words, const char *value)
{
	const char **items = RS_NEW_N(p->out->arena, const char *, words->n + 1u, p->err);

	if (!items)
		return -1;
	if (words->n)
		memcpy(items, words->items, words->n * sizeof(*items));
	items[words->n++] = value;
	words->items = items;
	return 0;
}

static int store(const struct parser *p, const struct fs_option *o, const char *value)
{
	char *field = (char *)p->out + o->at;
	uint64_t n;
	int word;

	switch (o->kind) {
	case FS_KIND_FLAG:
		*(bool *)field = true;
		return 0;
	case FS_KIND_TEXT:
		if (!*value)
			return refuse_value(p, o, value);
		*(const char **)(void *)field = value;
		return 0;
	case FS_KIND_WORDS:
		return *value ? add_word(p, (struct rs_words *)(void *)field, value)
			      : refuse_value(p, o, value);
	case FS_KIND_SWITCH:
	case FS_KIND_CHOICE:
		word = word_number(o->value, value);
		if (word < 0)
			return refuse_value(p, o, value);
		if (o->kind == FS_KIND_SWITCH)
			*(bool *)field = word == 1;
		else
			*(unsigned int *)(void *)field = (unsigned int)word;
		return 0;
	case FS_KIND_COUNT:
		if (!rs_str_u64(rs_str(value), &n) || n > INT_MAX)
			return refuse_value(p, o, value);
		*(unsigned int *)(void *)field = (unsigned int)n;
		return 0;
	case FS_KIND_SIZE:
		if (!parse_size(value, &n))
			return refuse_value(p, o, value);
		*(uint64_t *)(void *)field = n;
		return 0;
	case FS_KIND_MODE:
		return parse_octal(value, (unsigned int *)(void *)field)
			       ? 0
			       : refuse_value(p, o, value);
	}
	return refuse_value(p, o, value);
}

/* -------------------------------------------------------------------------------- names */

static const struct fs_option *find_option(const char *name)
{
	for (size_t i = 0; i < fs__n_options; i++)
		if (strcmp(name, fs__options[i].name) == 0)
			return &fs__options[i];
	return NULL;
}

/* One option. @value is NULL when none was written. */
static int take(const struct parser *p, const struct fs_option *o, const char *value)
{
	if (!(o->verbs & fs__verb_bit(p->verb)))
		return p->environment ? 0 : refuse_other(p, o);
	if (o->kind == FS_KIND_FLAG && value)
		return rs_fail(p->err, RS_USAGE, "%s: option %s takes no value, found '%s'",
			p->verb->name, o->name, RS_SHOW(rs_str(value)));
	if (o->kind != FS_KIND_FLAG && !value)
		return rs_fail(p->err, RS_USAGE, "%s: option %s needs a value: %s=%s",
			p->verb->name, o->name, o->name, o->value);
	if (store(p, o, value) < 0)
		return -1;
	if (o->at_set)
		*(bool *)((char *)p->out + o->at_set) = true;
	return 0;
}

/* One word of a -o list; @word is ours to write to. */
static int take_word(const struct parser *p, char *word)
{
	if (!*word || fs__ignored(word))
		return 0;
	if (strcmp(word, "rw") == 0) {
		rs_fail(p->err, RS_USAGE, "%s: rw: a view can only be read", p->verb->name);
		return rs_hint(p->err, "leave it out, or say ro");
	}
	char *value = strchr(word, '=');

	if (value)
		*value++ = '\0';
	const struct fs_option *o = find_option(word);

	return o ? take(p, o, value) : refuse_unknown(p, word);
}

/* "a=b,c": a comma that belongs to a value is written "\,". */
static int take_list(const struct parser *p, const char *list)
{
	char *copy = rs_arena_copy(p->out->arena, list, strlen(list), p->err);

	if (!copy)
		return -1;
	for (char *word = copy, *to = copy, *at = copy;; at++) {
		if (at[0] == '\\' && at[1] == ',') {
			*to++ = *++at;
		} else if (*at && *at != ',') {
			*to++ = *at;
		} else {
			bool last = !*at;

			*to = '\0';
			if (take_word(p, word) < 0)
				return -1;
			if (last)
				return 0;
			word = to = at + 1;
		}
	}
}

/* "--name=value", "--name value", "--flag". @next: the word behind, or NULL. */
static int take_long(const struct parser *p, const char *text, const char *next, int *used)
{
	char *name = rs_arena_copy(p->out->arena, text, strlen(text), p->err);

	if (!name)
		return -1;
	char *value = strchr(name, '=');

	if (value)
		*value++ = '\0';
	for (char *c = name; *c; c++)
		if (*c == '-')
			*c = '_';
	const struct fs_option *o = find_option(name);

	if (!o)
		return refuse_unknown(p, name);
	if (o->kind == FS_KIND_FLAG || value)
		return take(p, o, value);
	*used += next != NULL;
	return take(p, o, next);
}

/* "-f", "-fq", "-o LIST", "-oLIST". */
static int take_short(const struct parser *p, const char *letters, const char *next, int *used)
{
	for (; *letters; letters++) {
		const struct fs_option *o = NULL;

		if (*letters == 'o') {
			const char *list = letters[1] ? letters + 1 : next;

			if (!list)
				return rs_fail(p->err, RS_USAGE, "%s: -o needs a list: -o a=b,c",
					p->verb->name);
			*used += letters[1] == '\0';
			return take_list(p, list);
		}
		if (fs__ignored_letter(*letters))
			continue;
		for (size_t i = 0; i < fs__n_options; i++)
			if (fs__options[i].letter == *letters)
				o = &fs__options[i];
		if (!o)
			return refuse_unknown(p, letters);
		if (take(p, o, NULL) < 0)
			return -1;
	}
	return 0;
}

/* ----------------------------------------------------------------------------- the whole */

/* "CKPT MNT target=T": the word that has lost its -o, or NULL. */
static const char *bare_option(const struct parser *p)
{
	for (int i = 0; i < p->out->n_args; i++)
		for (size_t k = 0; k < fs__n_options; k++) {
			const char *word = p->out->args[i], *name = fs__options[k].name;
			size_t len = strlen(name);

			if (strncmp(word, name, len) == 0 && word[len] == '=')
				return word;
		}
	return NULL;
}

static int check_operands(const struct parser *p)
{
	const char *bare = bare_option(p);

	const struct fs_verb *v = p->verb;
	const struct fs_options *o = p->out;

	if (o->n_args < v->min_args || (v->max_args >= 0 && o->n_args > v->max_args)) {
		rs_fail(p->err, RS_USAGE, "%s: expected %s, found %d operand%s", v->name,
			v->operands, o->n_args, o->n_args == 1 ? "" : "s");
		if (bare)
			return rs_hint(
				p->err, "an option goes after -o: -o %s", RS_SHOW(rs_str(bare)));
		return rs_hint(p->err, "see: reshardfs %s --help", v->name);
	}
	if (v->needs_target && !o->view.target.target) {
		rs_fail(p->err, RS_USAGE, "%s: no target", v->name);
		return rs_hint(p->err, "give one: -o target=full, same, tp4.pp2, or the path of a "
				       "strategy or plan");
	}
	return 0;
}

static int take_environment(struct parser *p)
{
	const char *list = getenv("RESHARDFS_OPTS");

	if (!list)
		return 0;
	p->environment = true;
	if (take_list(p, list) < 0)
		return rs_err_prefix(p->err, "RESHARDFS_OPTS");
	p->environment = false;
	return 0;
}

int fs_options_parse(
	const char *verb, int argc, char *const *argv, struct fs_options *out, struct rs_err *err)
{
	struct parser p = {.out = out, .verb = find_verb(verb), .err = err};

	*out = (struct fs_options){.log_level = FS_LOG_DEFAULT, .wait_s = WAIT_S};
	if (!p.verb)
		return rs_fail(err, RS_USAGE, "no verb '%s'", RS_SHOW(rs_str(verb)));
	out->arena = rs_arena_new(OPTIONS_MEMORY, err);
	if (!out->arena)
		return -1;
	out->args = RS_NEW_N(out->arena, const char *, (uint64_t)argc + 1, err);
	if (!out->args || take_environment(&p) < 0)
		return -1;
	for (int i = 0, operands = false; i < argc; i++) {
		const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
		int fail = 0;

		if (operands || word[0] != '-' || !word[1])
			out->args[out->n_args++] = word;
		else if (strcmp(word, "--") == 0)
			operands = true;
		else if (word[1] == '-')
			fail = take_long(&p, word + 2, next, &i);
		else
			fail = take_short(&p, word + 1, next, &i);
		if (fail < 0)
			return -1;
	}
	return check_operands(&p);
}

void fs_options_done(struct fs_options *o)
{
	rs_arena_free(o->arena);
	o->arena = NULL;
}
