/*
 * cut.h - private to cut*.c: a target that cuts whole tensors by layouts.
 */
#ifndef RESHARDFS_CORE_TARGET_CUT_H
#define RESHARDFS_CORE_TARGET_CUT_H

#include "core/target/internal.h"

/* The distinct layouts of a strategy, each with its grid: a few dozen among thousands of names. */
struct rs__layouts {
	const struct rs_layout **layouts; /* by address */
	struct rs_grid **grids;
	uint32_t n;
};

struct rs__cut {
	uint32_t devices; /* of a target stage */
	uint32_t n_stages;
	/* what the parameters of the source strategy are called after rename=; ptr NULL: left out
	 */
	const struct rs_str *names;
	struct rs__layouts target, source; /* empty when there is no strategy */
	struct rs_grid
		*whole[RS_MAX_AXES + 1]; /* by number of axes: one cell, held by all devices */
	/* per target stage: its parameters, as indexes into strategy->params */
	const uint32_t **params;
	uint64_t *n_params;
	/* per target stage: the source stages that hold anything it wants, ascending */
	const uint32_t **stages;
	uint32_t *n_source_stages;
};

/*
 * rs__cut_grid - how target stage @stage cuts a tensor @name of @n_axes axes: *out = NULL when the
 * stage does not want it. RS_USAGE when the layout has another number of axes.
 */
int rs__cut_grid(const struct rs_target *t, uint32_t stage, struct rs_str name, uint32_t n_axes,
	const struct rs_grid **out, struct rs_err *err);
/* rs__cut_fits - rs_grid_fits, with the target and the tensor named, and a hint. */
int rs__cut_fits(const struct rs_target *t, const struct rs_tensor *tensor,
	const struct rs_grid *grid, struct rs_err *err);
/* Does the source place the name in a layout? Does any stage of the target? */
bool rs__cut_source_knows(const struct rs_target *t, struct rs_str name);
bool rs__cut_target_knows(const struct rs_target *t, struct rs_str name);
/* rs__cut_missing - a tensor that the target wants and no file stores: an error, or a note. */
int rs__cut_missing(const struct rs_target *t, uint32_t stage, struct rs_str name,
	struct rs_notes *notes, struct rs_err *err);
/* rs__cut_left_out - do only= and exclude= say that @name is not wanted? 1, 0, or -1. */
int rs__cut_left_out(const struct rs_target *t, struct rs_str name, struct rs_err *err);
/* rs__cut_has - does a file with this header store what targets know as @name? 1, 0, or -1. */
int rs__cut_has(const struct rs_target *t, const struct rs_table *table, struct rs_str name,
	struct rs_err *err);
uint32_t rs__layouts_index(const struct rs__layouts *set, const struct rs_layout *l);

/*
 * rs__cut_open - have @t cut by t->strategy (NULL: not at all): sets t->priv, n_ranks, mindspore.
 * The three below are the other members of its rs_target_ops.
 */
int rs__cut_open(struct rs_target *t, struct rs_err *err);
int rs__cut_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err);
int rs__cut_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks);
int rs__cut_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err);

#endif
