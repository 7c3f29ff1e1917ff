/*
 * mindspore.c - MindSpore rank trees as a source: rank_N directories plus the strategy that cut
 * them, or one file of whole tensors.
 *
 * Opening lists names and reads strategies; no checkpoint header is read until describe
 * (mindspore_describe.c). Refuses several ranks without a strategy, strategies in two places that
 * disagree, and trees that lack a whole stage. Single missing ranks are only noted: whether they
 * matter depends on the target. Format: docs/formats/mindspore.md. Next: mindspore_dir.c.
 */
#include "core/source/mindspore/mindspore.h"
#include "core/source/internal.h"
#include "core/source/loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------ probing */

#define PROBE_MAX_BYTES (UINT64_C(64) << 20)
#define HEAD_BYTES 65536u

/*
 * A safetensors file of MindSpore says so in its metadata, which the reference writer puts first.
 * Only the beginning is looked at: whoever lacks the words there can say -o source=mindspore.
 */
static bool says_mindspore(const struct rs_dir *dir, const char *name)
{
	static const char words[] = "\"format\":\"ms\"", tensor[] = "\"data_offsets\"";
	struct rs_file file;
	bool says = false;
	char *head;

	if (rs_dir_file(dir, name, NULL, &file, NULL) < 0)
		return false;
	uint64_t len = rs_min(file.size, HEAD_BYTES);
	head = rs_alloc(len, NULL);
	if (head && rs_file_read(&file, 0, head, len, NULL) == 0) {
		const char *at = memmem(head, len, words, sizeof(words) - 1);
		const char *first = memmem(head, len, tensor, sizeof(tensor) - 1);
		says = at && (!first || at < first);
	}
	rs_free(head);
	rs_file_close(&file);
	return says;
}

/*
 * 90 for rank directories. One file of whole tensors: 80 for safetensors that say that MindSpore
 * wrote them and 40 for others, which hf reads just as well; 60 for a .ckpt, so that it ties with
 * safetensors files beside it.
 */
static int bid_for(const struct rs_dir *dir, const struct rs_dirent *entries, uint64_t n)
{
	const struct rs_dirent *safe = NULL;
	uint64_t n_ckpt = 0, n_safe = 0, rank;

	for (uint64_t i = 0; i < n; i++) {
		const struct rs_dirent *e = &entries[i];
		if (e->kind != RS_KIND_FILE && rs__ms_rank_of(e->name, &rank))
			return 90;
		if (e->kind == RS_KIND_DIR || !rs__ms_container(e->name))
			continue;
		if (rs_str_ends(e->name, ".ckpt")) {
			n_ckpt++;
		} else {
			n_safe++;
			safe = e;
		}
	}
	if (n_ckpt)
		return 60;
	if (n_safe == 1 && says_mindspore(dir, safe->name.ptr))
		return 80;
	return n_safe ? 40 : 0;
}

static int probe(const struct rs_dir *dir, const char *file)
{
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	uint64_t n;
	int bid = 0;

	if (file && !rs__ms_container(rs_str(file)))
		return 0;
	if (file)
		return rs_str_ends(rs_str(file), ".ckpt") || says_mindspore(dir, file) ? 80 : 40;
	scratch = rs_arena_new(PROBE_MAX_BYTES, NULL);
	if (scratch && rs_dir_list(dir, "", scratch, &entries, &n, NULL) == 0)
		bid = bid_for(dir, entries, n);
	rs_arena_free(scratch);
	return bid;
}

/* ------------------------------------------------------------------ the strategy */

static int find_strategy(struct rs_source *src, const struct rs__ms_tree *tree, struct rs_err *err)
{
	struct rs_strategy *beside = NULL, *below = NULL;
	struct rs_err why = {0};

	if (src->opts.strategy)
		return rs_strategy_read(src->opts.strategy, &src->strategy, err);
	if (src->file)
		return 0;
	if (rs_strategy_read_dir(src->dir, "", &beside, err) < 0)
		return -1;
	src->strategy = beside;
	if (!tree->strategy_dir)
		return 0;
	if (rs_strategy_read_dir(src->dir, "strategy", &below, err) < 0)
		return -1;
	if (!beside) {
		src->strategy = below;
		return 0;
	}
	int same = below ? rs_strategy_same(beside, below, &why) : 0;
	rs_strategy_free(below);
	if (same == 0)
		return 0;
	(void)rs_fail(err, RS_USAGE, "%s: the strategies there and in strategy/ disagree: %s",
		src->opts.path, why.msg);
	return rs_hint(err, "say which one wrote the files: -o src_strategy=PATH");
}

static int refuse_no_strategy(
	const struct rs_source *src, const struct rs__ms_tree *tree, struct rs_err *err)
{
	char path[4096];
	struct stat st;
	int len = snprintf(path, sizeof(path), "%s/../strategy", src->opts.path);

	(void)rs_fail(err, RS_USAGE,
		"%s: %" PRIu64 " rank directories (%s%s) and no strategy file: nothing tells how "
		"the tensors are cut",
		src->opts.path, tree->n_ranks, RS_SHOW(rs_str(tree->ranks[0].name)),
		tree->n_ranks > 1 ? ", ..." : "");
	/* Nothing outside SOURCE is read unasked, but it may be proposed. */
	if (len > 0 && (size_t)len < sizeof(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return rs_hint(err, "there is one beside it: -o src_strategy=%s", path);
	return rs_hint(err, "give the strategy that wrote them: -o src_strategy=PATH");
}

/* How many stages and devices there are, from the strategy or the lack of one. */
static int find_mesh(struct rs_source *src, const struct rs__ms_tree *tree, uint32_t *n_stages,
	uint32_t *devices, struct rs_err *err)
{
	uint64_t highest = tree->ranks[tree->n_ranks - 1].rank;

	*n_stages = *devices = 1;
	if (src->strategy) {
		if (rs_strategy_check(src->strategy, err) < 0)
			return -1;
		*n_stages = src->strategy->n_stages;
		*devices = src->strategy->stage_devices;
	} else if (highest > 0 && !src->opts.any_layout) {
		return refuse_no_strategy(src, tree, err);
	} else if (highest >= RS_MAX_CELLS) {
		return rs_fail(err, RS_LIMIT, "%s: rank %" PRIu64 ", the limit is %u ranks",
			src->opts.path, highest, RS_MAX_CELLS);
	} else {
		*devices = (uint32_t)highest + 1;
	}
	src->n_ranks = (uint64_t)*n_stages * *devices;
	if (src->n_ranks > RS_MAX_CELLS)
		return rs_fail(err, RS_LIMIT, "%s: %" PRIu64 " ranks, the limit is %u",
			src->strategy->path, src->n_ranks, RS_MAX_CELLS);
	return 0;
}

/* ------------------------------------------------------------------- ranks and units */

/* Units of the ranks that the strategy knows; others are foreign. */
static int add_units(
	struct rs_source *src, struct rs__ms_tree *tree, uint32_t *units, struct rs_err *err)
{
	for (uint64_t r = 0; r < src->n_ranks; r++)
		units[r] = RS_NO_UNIT;
	for (uint64_t i = 0; i < tree->n_ranks; i++) {
		const struct rs__ms_rank *rank = &tree->ranks[i];
		if (rank->rank >= src->n_ranks) {
			rs_note(rs_catalog_notes(src->cat),
				"%s is left out: the strategy has ranks 0 to %" PRIu64,
				RS_SHOW(rs_str(rank->name)), src->n_ranks - 1);
			if (rs__ms_foreign(src, tree, "", rs_str(rank->name),
				    "a rank that the strategy does not have", err) < 0)
				return -1;
			continue;
		}
		if (rank->n_files == 0) {
			rs_note(rs_catalog_notes(src->cat), "%s holds no checkpoint file%s",
				RS_SHOW(rs_str(rank->name)),
				src->opts.select ? " that select= chooses" : "");
			continue;
		}
		if (rs_catalog_add_unit(src->cat, rank->name, rank->files, rank->n_files,
			    &units[rank->rank], err) < 0)
			return -1;
	}
	return 0;
}

/* "0-3, 6-7": the ranks in [begin, end) that are there, or that are not; cut to @size. */
static const char *show_ranks(
	const uint32_t *units, uint64_t begin, uint64_t end, bool there, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = 0;
	for (uint64_t r = begin; r < end; r++) {
		uint64_t first = r;
		if ((units[r] != RS_NO_UNIT) != there)
			continue;
		while (r + 1 < end && (units[r + 1] != RS_NO_UNIT) == there)
			r++;
		if (at + 48 > size) {
			(void)snprintf(buf + at, size - at, ", ...");
			break;
		}
		at += (size_t)snprintf(buf + at, size - at, "%s%" PRIu64, at ? ", " : "", first);
		if (r > first)
			at += (size_t)snprintf(buf + at, size - at, "-%" PRIu64, r);
	}
	return buf[0] ? buf : "none";
}

static int refuse_missing(const struct rs_source *src, const uint32_t *units, uint64_t begin,
	uint64_t end, const char *what, struct rs_err *err)
{
	char found[128];

	(void)rs_fail(err, RS_MISSING,
		"%s: %s missing (expected rank_%" PRIu64 "/*.%s to rank_%" PRIu64
		"/*.%s, found ranks %s)",
		src->opts.path, what, begin, src->container, end - 1, src->container,
		show_ranks(units, 0, src->n_ranks, true, found, sizeof(found)));
	return rs_hint(err, "on another node? gather the directories first; is the strategy of "
			    "another run?");
}

/*
 * A missing rank may have replicas; a missing stage has none, and without any rank there is
 * nothing to look at.
 */
static int check_ranks(const struct rs_source *src, const uint32_t *units, uint32_t n_stages,
	uint32_t devices, struct rs_err *err)
{
	char absent[128], what[64];
	uint64_t n_absent = 0;

	for (uint32_t stage = 0; stage < n_stages; stage++) {
		uint64_t begin = (uint64_t)stage * devices, end = begin + devices, missing = 0;
		for (uint64_t r = begin; r < end; r++)
			missing += units[r] == RS_NO_UNIT;
		(void)snprintf(what, sizeof(what), "all ranks of stage %" PRIu32, stage);
		if (missing == devices)
			return refuse_missing(src, units, begin, end, what, err);
		n_absent += missing;
	}
	if (n_absent)
		rs_note(rs_catalog_notes(src->cat),
			"%" PRIu64 " of %" PRIu64 " ranks missing: %s (expected rank_N/*.%s)",
			n_absent, src->n_ranks,
			show_ranks(units, 0, src->n_ranks, false, absent, sizeof(absent)),
			src->container);
	return 0;
}

static int keep_foreign(struct rs_source *src, const struct rs__ms_tree *tree, struct rs_err *err)
{
	src->foreign =
		RS_NEW_N(rs_catalog_arena(src->cat), struct rs_foreign, tree->n_foreign, err);
	if (!src->foreign)
		return -1;
	if (tree->n_foreign)
		memcpy(src->foreign, tree->foreign, tree->n_foreign * sizeof(*src->foreign));
	src->n_foreign = tree->n_foreign;
	return 0;
}

static int fit(struct rs_source *src, struct rs__ms_tree *tree, struct rs_err *err)
{
	uint32_t n_stages, devices, *units;
	int status = -1;

	if (find_strategy(src, tree, err) < 0 || find_mesh(src, tree, &n_stages, &devices, err) < 0)
		return -1;
	units = rs_alloc(src->n_ranks * sizeof(*units), err);
	if (units && add_units(src, tree, units, err) == 0 &&
		check_ranks(src, units, n_stages, devices, err) == 0 &&
		rs_catalog_set_ranks(src->cat, units, n_stages, devices, err) == 0)
		status = keep_foreign(src, tree, err);
	rs_free(units);
	return status;
}

static int list(struct rs_source *src, struct rs_err *err)
{
	struct rs__ms_tree tree = {0};
	int status = -1;

	if (rs__ms_list(src, &tree, err) == 0) {
		src->mindspore = true;
		src->container = tree.container;
		status = fit(src, &tree, err);
	}
	rs__ms_tree_done(&tree);
	if (status < 0)
		return -1;
	return rs__loader_set(src,
		strcmp(src->container, "ckpt") == 0 ? rs_ckpt_header : rs_safetensors_header,
		UINT32_MAX, err);
}

const struct rs_source_ops rs__source_mindspore = {
	.name = "mindspore",
	.probe = probe,
	.list = list,
	.describe = rs__ms_describe,
};
