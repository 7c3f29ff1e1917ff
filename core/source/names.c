/*
 * names.c - which names of a source count, and what targets know them as: only=, exclude=, rename=.
 *
 *   only=model.*  exclude=*.bias  rename=model.*:backbone.*
 *   model.norm.weight -> backbone.norm.weight    model.norm.bias, step -> left out
 *
 * The names in source files are asked, before any rule or strategy of a target sees them. A name
 * counts when one of only= fits it and none of exclude=; the first rename= that fits gives it a new
 * one. What is left out is told in a note, with numbers. Refuses patterns that are none, and
 * choices that leave nothing. Read next: glob.c; rs_catalog_add_tensor.
 */
#include "core/source/internal.h"

#include <inttypes.h>
#include <stdlib.h>

struct rename {
	const char *text;                           /* as given */
	struct rs_str head, tail, to_head, to_tail; /* around the *, where there is one */
	bool star;
};
struct left {
	struct rs_str name;
	const char *why; /* "exclude=*.bias" */
};
struct rs_names {
	struct rs_words only, exclude;
	struct rename *renames;
	uint32_t n_renames;
	const char *why_only;     /* "only=a, only=b" */
	const char **why_exclude; /* per pattern */
	/* while the source is described, by one thread: */
	struct rs_arena *arena;
	struct left *left; /* heap */
	uint64_t n_left, cap_left, n_kept;
	bool *renamed; /* per rename: it was of use */
};

/* ------------------------------------------------------------------------ weights */

/* Optimizer state and the counters of a training run, by the names that frameworks give them. */
static bool is_state(struct rs_str name)
{
	static const char *const prefixes[] = {"adam_m.", "adam_v.", "moments.", "moment1.",
		"moment2.", "accum.", "accu_grads.", "exp_avg.", "exp_avg_sq.", "velocity.",
		"mean_square.", "mean_gradient.", "optimizer.", "master_weights."};
	static const char *const suffixes[] = {"_moment1_0", "_moment2_0", "_beta1_pow_acc_0",
		"_beta2_pow_acc_0", "_velocity_0", "_fp32_master_0"};
	static const char *const names[] = {"learning_rate", "momentum", "weight_decay",
		"beta1_power", "beta2_power", "global_step", "step_num", "epoch_num", "batch_num",
		"global_batch_size", "loss_scale", "scale_sense", "current_iterator_step",
		"last_overflow_iterator_step", "overflow"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (rs_str_starts(name, prefixes[i]))
			return true;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rs_str_ends(name, suffixes[i]))
			return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (rs_str_is(name, names[i]))
			return true;
	return false;
}

static bool fits(const char *pattern, struct rs_str name)
{
	if (strcmp(pattern, "weights") == 0)
		return !is_state(name);
	return rs__glob(rs_str(pattern), name);
}

/* NULL when @name counts, else why it does not. */
static const char *why_not(const struct rs_names *n, struct rs_str name)
{
	bool wanted = n->only.n == 0;

	for (uint32_t i = 0; i < n->only.n && !wanted; i++)
		wanted = fits(n->only.items[i], name);
	if (!wanted)
		return n->why_only;
	for (uint32_t i = 0; i < n->exclude.n; i++)
		if (fits(n->exclude.items[i], name))
			return n->why_exclude[i];
	return NULL;
}

/* ------------------------------------------------------------------------ renaming */

static bool rename_fits(const struct rename *r, struct rs_str name)
{
	size_t fixed = r->head.len + r->tail.len;

	if (!r->star)
		return rs_str_eq(name, r->head);
	return name.len >= fixed && memcmp(name.ptr, r->head.ptr, r->head.len) == 0 &&
	       memcmp(name.ptr + name.len - r->tail.len, r->tail.ptr, r->tail.len) == 0;
}

static int rename_to(const struct rename *r, struct rs_str name, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err)
{
	struct rs_str middle = {name.ptr + r->head.len, name.len - r->head.len - r->tail.len};
	char *text;

	if (!r->star)
		middle.len = 0;
	out->len = r->to_head.len + middle.len + r->to_tail.len;
	if (out->len == 0 || out->len > RS_MAX_NAME)
		return rs_fail(err, RS_USAGE,
			"rename=%s: gives tensor '%s' a name of %zu bytes (expected 1 to %d)",
			r->text, RS_SHOW(name), out->len, RS_MAX_NAME);
	text = rs_arena_alloc(arena, out->len, err);
	if (!text)
		return -1;
	memcpy(text, r->to_head.ptr, r->to_head.len);
	memcpy(text + r->to_head.len, middle.ptr, middle.len);
	memcpy(text + r->to_head.len + middle.len, r->to_tail.ptr, r->to_tail.len);
	out->ptr = text;
	return 0;
}

/* The rename that counts for @name, or n_renames. */
static uint32_t find_rename(const struct rs_names *n, struct rs_str name)
{
	uint32_t i = 0;

	while (i < n->n_renames && !rename_fits(&n->renames[i], name))
		i++;
	return i;
}

int rs_source_name(const struct rs_source *src, struct rs_str stored, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err)
{
	const struct rs_names *n = src->names;
	uint32_t i;

	*out = stored;
	if (!n)
		return 1;
	if (why_not(n, stored))
		return 0;
	i = find_rename(n, stored);
	if (i < n->n_renames && rename_to(&n->renames[i], stored, arena, out, err) < 0)
		return -1;
	return 1;
}

/* ------------------------------------------------------------------------- reading */

static int refuse_rename(const char *text, struct rs_err *err)
{
	rs_fail(err, RS_USAGE, "rename=%s: expected OLD:NEW", RS_SHOW(rs_str(text)));
	return rs_hint(err, "one * on each side stands for the same text, or none on either: "
			    "rename=model.*:backbone.*");
}

/* "a*b": what stands before and behind the star. False for more than one. */
static bool split_star(struct rs_str side, struct rs_str *head, struct rs_str *tail, bool *star)
{
	const char *at = memchr(side.ptr, '*', side.len);
	size_t before = at ? (size_t)(at - side.ptr) : side.len;

	*star = at != NULL;
	*head = (struct rs_str){side.ptr, before};
	*tail = (struct rs_str){side.ptr + before + *star, side.len - before - *star};
	return side.len > 0 && !memchr(tail->ptr, '*', tail->len);
}

static int read_rename(const char *text, struct rename *r, struct rs_err *err)
{
	const char *colon = strchr(text, ':');
	bool star;

	r->text = text;
	if (!colon || strchr(colon + 1, ':'))
		return refuse_rename(text, err);
	if (!split_star(
		    (struct rs_str){text, (size_t)(colon - text)}, &r->head, &r->tail, &r->star) ||
		!split_star(rs_str(colon + 1), &r->to_head, &r->to_tail, &star) || star != r->star)
		return refuse_rename(text, err);
	return 0;
}

static int copy_words(struct rs_arena *arena, struct rs_words *words, struct rs_err *err)
{
	const char **items = RS_NEW_N(arena, const char *, words->n, err);

	if (!items)
		return -1;
	for (uint32_t i = 0; i < words->n; i++) {
		items[i] = rs_arena_copy(arena, words->items[i], strlen(words->items[i]), err);
		if (!items[i])
			return -1;
	}
	words->items = items;
	return 0;
}

static int check_globs(const char *option, const struct rs_words *words, struct rs_err *err)
{
	for (uint32_t i = 0; i < words->n; i++)
		if (!rs__glob_ok(rs_str(words->items[i]))) {
			rs_fail(err, RS_USAGE, "%s=%s: expected a pattern", option,
				RS_SHOW(rs_str(words->items[i])));
			return rs_hint(err,
				"* any text, ? one byte, [a-z] one of these, \\ takes the "
				"next byte as it is; or the word weights");
		}
	return 0;
}

static int read_reasons(struct rs_names *n, struct rs_err *err)
{
	n->why_only = "";
	for (uint32_t i = 0; i < n->only.n && n->why_only; i++)
		n->why_only = rs_arena_printf(
			n->arena, err, "%s%sonly=%s", n->why_only, i ? ", " : "", n->only.items[i]);
	n->why_exclude = RS_NEW_N(n->arena, const char *, n->exclude.n, err);
	if (!n->why_only || !n->why_exclude)
		return -1;
	for (uint32_t i = 0; i < n->exclude.n; i++) {
		n->why_exclude[i] =
			rs_arena_printf(n->arena, err, "exclude=%s", n->exclude.items[i]);
		if (!n->why_exclude[i])
			return -1;
	}
	return 0;
}

/* Called by the catalog for every tensor that a format describes. */
static int name_tensor(void *arg, const struct rs_tensor *t, struct rs_str *out, struct rs_err *err)
{
	struct rs_source *src = arg;
	struct rs_names *n = src->names;
	const char *why = why_not(n, t->name);
	uint32_t i = find_rename(n, t->name);

	if (why) {
		if (rs_grow(&n->left, &n->cap_left, n->n_left + 1, sizeof(*n->left), err) < 0)
			return -1;
		n->left[n->n_left++] = (struct left){t->name, why};
		return 0;
	}
	n->n_kept++;
	if (i < n->n_renames)
		n->renamed[i] = true;
	return rs_source_name(src, t->name, n->arena, out, err);
}

int rs__names_set(struct rs_source *src, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	struct rs_source_options *o = &src->opts;
	struct rs_names *n;

	if (!o->only.n && !o->exclude.n && !o->rename.n)
		return 0;
	n = rs_alloc(sizeof(*n), err);
	if (!n)
		return -1;
	src->names = n;
	n->arena = arena;
	n->n_renames = o->rename.n;
	n->renames = RS_NEW_N(arena, struct rename, o->rename.n, err);
	n->renamed = RS_NEW_N(arena, bool, o->rename.n, err);
	if (!n->renames || !n->renamed || copy_words(arena, &o->only, err) < 0 ||
		copy_words(arena, &o->exclude, err) < 0 || copy_words(arena, &o->rename, err) < 0 ||
		check_globs("only", &o->only, err) < 0 ||
		check_globs("exclude", &o->exclude, err) < 0)
		return -1;
	n->only = o->only;
	n->exclude = o->exclude;
	for (uint32_t i = 0; i < o->rename.n; i++)
		if (read_rename(o->rename.items[i], &n->renames[i], err) < 0)
			return -1;
	rs_catalog_set_names(src->cat, name_tensor, src);
	return read_reasons(n, err);
}

/* ------------------------------------------------------------------------ reporting */

static int by_why_then_name(const void *a, const void *b)
{
	const struct left *x = a, *y = b;

	if (x->why != y->why) /* one text a pattern; their order is that of the options */
		return (uintptr_t)x->why < (uintptr_t)y->why ? -1 : 1;
	return rs_str_cmp(x->name, y->name);
}

/* Entries that are no tensors of the catalog: counters and texts in the headers that were read. */
static int add_entries(struct rs_source *src, struct rs_err *err)
{
	for (uint32_t u = 0; u < rs_catalog_n_units(src->cat); u++) {
		const struct rs_table *table =
			rs_catalog_loaded(src->cat, u) ? rs_catalog_table(src->cat, u, NULL) : NULL;
		for (uint64_t i = 0; table && i < table->n_entries; i++) {
			struct rs_tensor t = {.name = table->entries[i].name};
			struct rs_str ignored;
			if (name_tensor(src, &t, &ignored, err) < 0)
				return -1;
		}
	}
	return 0;
}

int rs__names_report(struct rs_source *src, struct rs_err *err)
{
	struct rs_names *n = src->names;
	struct rs_notes *notes = rs_catalog_notes(src->cat);

	if (!n)
		return 0;
	/* Where there are no ranks, entries may be parts, and all tensors are in the catalog. */
	if (!src->without_ranks && add_entries(src, err) < 0)
		return -1;
	if (n->n_left)
		qsort(n->left, n->n_left, sizeof(*n->left), by_why_then_name);
	for (uint64_t i = 0, next; i < n->n_left; i = next) {
		uint64_t count = 1;
		for (next = i + 1; next < n->n_left && n->left[next].why == n->left[i].why; next++)
			count += !rs_str_eq(n->left[next].name, n->left[next - 1].name);
		rs_note(notes, "'%s' and %" PRIu64 " more are left out because of -o %s",
			RS_SHOW(n->left[i].name), count - 1, n->left[i].why);
	}
	for (uint32_t i = 0; i < n->n_renames; i++)
		if (!n->renamed[i])
			rs_note(notes, "rename=%s fits no name", n->renames[i].text);
	if (n->n_kept == 0) {
		rs_fail(err, RS_USAGE, "%s: only= and exclude= leave no tensor", src->opts.path);
		return rs_hint(err, "see the names with: reshardfs inspect %s", src->opts.path);
	}
	return 0;
}

void rs__names_done(struct rs_names *names)
{
	if (names)
		rs_free(names->left);
	rs_free(names);
}
