/*
 * emit.h - private to emit*.c: a target is looked at rank by rank, and said in another language.
 *
 *   emit_survey.c    all lists of all ranks -> which cell of which tensor each rank holds
 *   emit_digits.c    cells as a function of the rank: strides, extents, axes
 *   emit_plan.c      as a plan, with emit_layers.c; of targets that have one: emit_rules.c
 *   emit_strategy.c  as a MindSpore strategy
 */
#ifndef RESHARDFS_CORE_TARGET_EMIT_H
#define RESHARDFS_CORE_TARGET_EMIT_H

#include "core/target/internal.h"

#define RS__ABSENT UINT32_MAX

/* A target tensor: on each rank it is an equal box of one source tensor, or not there. */
struct rs__seen {
	struct rs_str name, from; /* what the target and what the source calls it */
	struct rs_shape whole;
	enum rs_dtype dtype, stored;
	bool loose; /* an entry without layout: whole wherever it is */
	bool kept;  /* a slice that is copied as stored, since the target does not know it */
	uint32_t cuts[RS_MAX_AXES];
	uint32_t *cells; /* per rank, row-major over cuts, or RS__ABSENT */
};
struct rs__survey {
	struct rs__seen *items; /* in the order in which ranks list them first */
	uint64_t n;
	uint32_t n_ranks;
	/* ranks of a stage hold the same names; the fewest stages for which that is so */
	uint32_t n_stages, devices;
	uint64_t cap;    /* of items, which are heap, as all of this is */
	uint32_t *slots; /* hash table of items by name: index + 1 */
	uint64_t n_slots;
};
/*
 * rs__survey_run - look at all ranks of a target that was checked. Loads headers as lists do.
 * Errors: RS_USAGE (a tensor that is no equal box of one other), RS_LIMIT, those of lists.
 */
int rs__survey_run(struct rs_target *t, struct rs__survey *out, struct rs_err *err);
void rs__survey_done(struct rs__survey *s);

/* Ranks @stride apart, @extent of them in a row, hold cells that are @weight apart along @axis. */
struct rs__digit {
	uint32_t stride, extent, axis, weight;
};
#define RS__DIGITS_MAX 20 /* a stage has at most RS_MAX_CELLS ranks */
/*
 * rs__digits - the cells of the @devices ranks of one stage as digits, by stride; false when they
 * are no such function. Along each axis weights are 1, then the product of what is below.
 */
bool rs__digits(const struct rs__seen *s, const uint32_t *cells, uint32_t devices,
	struct rs__digit *out, uint32_t *n);
/* rs__digits_fail - the refusal of a tensor whose cells are none. Returns -1. */
int rs__digits_fail(const struct rs_target *t, const struct rs__seen *s, struct rs_err *err);

#endif
