/*
 * emit_plan.h - private to emit_plan.c and what it is made of.
 */
#ifndef RESHARDFS_CORE_TARGET_EMIT_PLAN_H
#define RESHARDFS_CORE_TARGET_EMIT_PLAN_H

#include "core/target/emit/emit.h"
#include "core/target/short/short.h"
#include "reshardfs/codec.h"

#define RS__BORDERS_MAX 24 /* more than a chain of divisors below RS_MAX_CELLS has */

/* Tensors that differ by their layer alone, and are placed by it. */
struct rs__layers {
	struct rs_str pattern; /* "model.layers.{N}.wo" */
	uint64_t item;         /* one of them */
	uint32_t stage;        /* where that one is */
};
struct rs__emit {
	struct rs_target *t;
	struct rs__survey survey;
	struct rs_jsonw w;
	uint32_t borders[RS__BORDERS_MAX]; /* of the axes in a stage: 1, ..., devices */
	uint32_t n_borders;
	const char *axes[RS__BORDERS_MAX]; /* innermost first */
	uint32_t sizes[RS__BORDERS_MAX];
	uint32_t n_axes;
	/* emit_layers.c: */
	uint64_t n_layers;
	bool *shared;              /* per item: a group says it */
	struct rs__layers *groups; /* heap */
	uint64_t n_groups, cap_groups;
};
/* rs__emit_layers - find the groups. No group is made where a pattern would say too much. */
int rs__emit_layers(struct rs__emit *e, struct rs_err *err);

/* Does the target go by rules? Then its plan is there, and gets the sizes of its mesh. */
bool rs__emit_has_rules(const struct rs_target *t);
int rs__emit_rules(struct rs_target *t, char **text, uint64_t *len, struct rs_err *err);

#endif
