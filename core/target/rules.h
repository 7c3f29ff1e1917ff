/*
 * rules.h - private to the kinds of targets that go by rules: plan files, and what is made from
 * them.
 */
#ifndef RESHARDFS_CORE_TARGET_RULES_H
#define RESHARDFS_CORE_TARGET_RULES_H

#include "core/target/internal.h"

/* An axis of the mesh of target ranks, and how many coordinates it has. */
struct rs__axis {
	struct rs_str name;
	uint64_t size;
};

/*
 * rs__rules_open - have @t go by the plan in @text (JSON; @name: for messages). Sets t->priv,
 * n_ranks, files, container, and what else depends on the plan.
 * @sizes: NULL for the mesh of the plan, else the mesh in its place, outermost axis first. Axes of
 * the plan that it does not name have one coordinate; an axis that the plan does not know must be
 * dp, and replicates.
 * Errors: RS_CORRUPT (no such language), RS_USAGE (axes), RS_UNSUPPORTED (format pt), RS_LIMIT.
 */
int rs__rules_open(struct rs_target *t, struct rs_str text, const char *name,
	const struct rs__axis *sizes, uint32_t n_sizes, struct rs_err *err);
/* The other members of struct rs_target_ops, for any target that rs__rules_open has opened. */
int rs__rules_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err);
int rs__rules_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks);
int rs__rules_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err);

#endif
