/*
 * cut_check.c - what is refused before a mount exists: all that strategies, listings and one
 * header per stage can tell. Cuts that do not divide, tensors that nobody stores, ranks that
 * are missing and have no replica to stand in.
 */
#include "core/target/cut.h"

#include <inttypes.h>

/* Is @name stored as it is in the sample of a stage that @stage starts from? 1, 0, or -1. */
static int in_samples(
	const struct rs_target *t, uint32_t stage, struct rs_str name, struct rs_err *err)
{
	const struct rs__cut *cut = t->priv;
	struct rs_catalog *cat = t->source->cat;
	uint32_t devices = rs_catalog_stage_devices(cat);

	for (uint32_t i = 0; i < cut->n_source_stages[stage]; i++)
		for (uint32_t local = 0; local < devices; local++) {
			uint64_t rank = (uint64_t)cut->stages[stage][i] * devices + local;
			uint32_t unit = rs_catalog_rank_unit(cat, rank);
			/* Samples are loaded; nothing else is at this time, and nothing shall be.
			 */
			if (unit == RS_NO_UNIT || !rs_catalog_loaded(cat, unit))
				continue;
			const struct rs_table *table = rs_catalog_table(cat, unit, NULL);
			int has = table ? rs__cut_has(t, table, name, err) : 0;
			if (has)
				return has;
		}
	return 0;
}

/* A name that the stage wants and that is no tensor of the source. */
static int check_absent(struct rs_target *t, uint32_t stage, struct rs_str name, struct rs_err *err)
{
	int fine = rs__cut_left_out(t, name, err);

	if (fine == 0)
		fine = in_samples(t, stage, name, err);
	if (fine == 0)
		return rs__cut_missing(t, stage, name, &t->notes, err);
	return fine < 0 ? -1 : 0;
}

static int check_stage(struct rs_target *t, uint32_t stage, struct rs_err *err)
{
	const struct rs__cut *cut = t->priv;
	const struct rs_grid *grid;

	for (uint64_t i = 0; i < cut->n_params[stage]; i++) {
		struct rs_str name = t->strategy->params[cut->params[stage][i]].name;
		const struct rs_tensor *tensor = rs_catalog_find(t->source->cat, name);
		if (!tensor) {
			if (check_absent(t, stage, name, err) < 0)
				return -1;
			continue;
		}
		if (tensor->unplaced)
			continue;
		if (rs__cut_grid(t, stage, name, tensor->shape.n_axes, &grid, err) < 0 ||
			rs__cut_fits(t, tensor, grid, err) < 0)
			return -1;
	}
	return 0;
}

static int check_unknown(struct rs_target *t, struct rs_err *err)
{
	static const char *const fate[] = {
		[RS_DEFAULT_KEEP] = "copied as stored (a slice stays a slice)",
		[RS_DEFAULT_ERROR] = "refused",
		[RS_DEFAULT_REPLICATE] = "given whole to every rank of the stages that start there",
		[RS_DEFAULT_DROP] = "left out",
	};
	struct rs_str first = {0};
	uint64_t n = 0;

	for (uint64_t i = 0; i < rs_catalog_n_tensors(t->source->cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(t->source->cat, i);
		if (tensor->unplaced || rs__cut_target_knows(t, tensor->name))
			continue;
		if (n++ == 0)
			first = tensor->name;
	}
	if (n == 0)
		return 0;
	if (t->opts.unknown == RS_DEFAULT_ERROR) {
		rs_fail(err, RS_MISSING,
			"tensor '%s' and %" PRIu64 " more: the target %s does not name them",
			RS_SHOW(first), n - 1, t->opts.target);
		return rs_hint(err, "-o default=replicate, keep or drop says what becomes of them");
	}
	bool selects = t->source->strategy_selects && t->opts.unknown == RS_DEFAULT_KEEP;
	rs_note(&t->notes, "'%s' and %" PRIu64 " more tensors are unknown to the target: %s",
		RS_SHOW(first), n - 1,
		selects ? "left out, as MindSpore does (default=replicate gives them to all ranks)"
			: fate[t->opts.unknown]);
	return 0;
}

static bool any_rank_missing(const struct rs_target *t)
{
	if (t->source->without_ranks)
		return false;
	for (uint64_t r = 0; r < t->source->n_ranks; r++)
		if (rs_catalog_rank_unit(t->source->cat, r) == RS_NO_UNIT)
			return true;
	return false;
}

/* A missing rank is fatal only where a shown rank has nobody else to ask. */
static int check_ranks(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	int rc = 0;

	if (!any_rank_missing(t))
		return 0;
	uint8_t *marks = rs_alloc(t->source->n_ranks, err);
	if (!marks)
		return -1;
	for (uint64_t i = 0; rc == 0 && i < n; i++)
		rc = rs__cut_needs(t, ranks[i], err, marks);
	rs_free(marks);
	for (uint64_t r = 0; rc == 0 && r < t->source->n_ranks; r++)
		if (rs_catalog_rank_unit(t->source->cat, r) == RS_NO_UNIT)
			rs_note(&t->notes,
				"source rank %" PRIu64 " is missing; the shown ranks do without it",
				r);
	return rc;
}

int rs__cut_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	const struct rs__cut *cut = t->priv;
	uint32_t last = UINT32_MAX;

	if (check_ranks(t, ranks, n, err) < 0 || (!t->strategy && rs__check_absent(t, err) < 0))
		return -1;
	for (uint64_t i = 0; i < n; i++) { /* ranks ascend, so stages do */
		uint32_t stage = (uint32_t)(ranks[i] / cut->devices);
		if (stage != last && check_stage(t, stage, err) < 0)
			return -1;
		last = stage;
	}
	return check_unknown(t, err);
}
