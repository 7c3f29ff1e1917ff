/*
 * ranks.c - `ranks SRC --target T RANK...`: which source ranks the given target ranks take from.
 *
 * Strategies and the listing decide; no header of a checkpoint file is read, so this answers for a
 * tree of thousands of ranks at once, and for one whose other ranks are on another machine. A
 * target that is worked out from shapes takes one header a stage. Refuses rank numbers that the
 * target does not have. Read next: target.h, rs_target_needs.
 */
#include "verbs.h"

#include <inttypes.h>

static int parse_rank(
	const struct rs_target *t, const char *word, uint64_t *rank, struct rs_err *err)
{
	if (!rs_str_u64(rs_str(word), rank)) {
		rs_fail(err, RS_USAGE, "%s: expected a target rank number", RS_SHOW(rs_str(word)));
		return rs_hint(err, "write each number: reshardfs ranks SOURCE 0 1 2 --target T");
	}
	if (*rank >= t->n_ranks)
		return rs_fail(err, RS_USAGE,
			"rank %" PRIu64 ": expected a target rank of 0 to %" PRIu64, *rank,
			t->n_ranks - 1);
	return 0;
}

static void print_needs(
	struct rs_jsonw *w, bool json, uint64_t rank, const uint8_t *needs, uint64_t n)
{
	const char *gap = "";

	if (json) {
		rs_jsonw_open(w, '{');
		fs__json_uint(w, "rank", rank);
		rs_jsonw_key(w, RS_STR("source_ranks"));
		rs_jsonw_open(w, '[');
	}
	for (uint64_t i = 0; i < n; i++) {
		if (!needs[i])
			continue;
		if (json) {
			rs_jsonw_uint(w, i);
		} else {
			printf("%s%" PRIu64, gap, i);
			gap = " ";
		}
	}
	if (json) {
		rs_jsonw_close(w, ']');
		rs_jsonw_close(w, '}');
	} else {
		putchar('\n');
	}
}

static int bind(struct rs_target *t, struct rs_err *err)
{
	if (t->bound)
		return 0;
	if (rs_source_describe(t->source, 0, err) < 0)
		return -1;
	return rs_target_bind(t, err);
}

/* All ranks are asked before the first line is printed: an answer is whole or an error. */
static int answer(const struct fs_options *o, struct rs_target *t, uint8_t *needs,
	struct rs_jsonw *w, struct rs_err *err)
{
	uint64_t n_source = t->source->n_ranks, rank;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 1; i < o->n_args; i++) {
			memset(needs, 0, (size_t)n_source);
			if (parse_rank(t, o->args[i], &rank, err) < 0 ||
				rs_target_needs(t, rank, needs, err) < 0)
				return -1;
			if (pass == 1)
				print_needs(w, o->json, rank, needs, n_source);
		}
		if (pass == 0 && o->json) {
			fs__json_begin(w, "ranks");
			rs_jsonw_key(w, RS_STR("ranks"));
			rs_jsonw_open(w, '[');
		}
	}
	if (o->json)
		rs_jsonw_close(w, ']');
	return 0;
}

int fs_verb_ranks(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct rs_source *src = NULL;
	struct rs_target *target = NULL;
	struct rs_jsonw w;
	uint8_t *needs = NULL;
	struct rs_err err = {0};
	int code = FS_EXIT_OK;

	if (rs_source_open(&opts.source, &src, &err) < 0 ||
		rs_target_open(&opts.target, src, &target, &err) < 0 || bind(target, &err) < 0 ||
		(needs = rs_alloc(rs_max(src->n_ranks, 1), &err)) == NULL ||
		answer(o, target, needs, &w, &err) < 0)
		code = fs__verb_fail(o, "ranks", &err);
	else
		code = o->json ? fs__json_end(&w, code) : code;
	rs_free(needs);
	if (target != NULL)
		rs_target_close(target);
	rs_source_close(src);
	return code;
}
