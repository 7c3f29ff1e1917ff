/*
 * internal.h - what the kinds of targets share.
 */
#ifndef RESHARDFS_CORE_TARGET_INTERNAL_H
#define RESHARDFS_CORE_TARGET_INTERNAL_H

#include "reshardfs/target.h"

extern const struct rs_target_ops rs__target_full;     /* cut.c: one rank, whole tensors */
extern const struct rs_target_ops rs__target_same;     /* same.c */
extern const struct rs_target_ops rs__target_short;    /* short.c: tp4.pp2 */
extern const struct rs_target_ops rs__target_strategy; /* cut.c: a MindSpore strategy */
extern const struct rs_target_ops rs__target_plan;     /* rules.c: a plan file */

/* A list under construction: a growing array of the arena that doubles. */
struct rs__list {
	struct rs_arena *arena;
	struct rs_wanted *items;
	uint64_t n, cap;
};
int rs__list_add(struct rs__list *l, const struct rs_wanted *w, struct rs_err *err);
/* rs__list_entry - add a stored entry as it is, called @name: an anonymous tensor of one piece. */
int rs__list_entry(struct rs__list *l, uint32_t unit, const struct rs_entry *e, struct rs_str name,
	struct rs_err *err);
/* rs__entry_tensor - a stored entry as an anonymous tensor of one piece. */
struct rs_tensor *rs__entry_tensor(
	struct rs_arena *arena, uint32_t unit, const struct rs_entry *e, struct rs_err *err);
/* rs__zero_dims - did a .ckpt store the 0-d tensor @t with dims [0]? Asks as for its pieces. */
int rs__zero_dims(struct rs_catalog *cat, const struct rs_tensor *t, uint32_t prefer, bool *out,
	struct rs_err *err);
/* rs__list_tensor - add a tensor of the catalog, whole. */
int rs__list_tensor(struct rs__list *l, const struct rs_tensor *tensor, struct rs_err *err);
/* rs__list_file - add the one file of a unit as it is: an entry of bytes. same.c */
int rs__list_file(
	struct rs__list *list, const struct rs_catalog *cat, uint32_t unit, struct rs_err *err);
/*
 * rs__source_order - the tensors of a source without ranks as they stand there: n pointers in
 * @arena, n = rs_catalog_n_tensors.
 */
int rs__source_order(const struct rs_catalog *cat, struct rs_arena *arena,
	const struct rs_tensor ***out, struct rs_err *err);

/* rs__arrange_open - refuse a layout that does not fit the target; after ops->open. arrange.c */
int rs__arrange_open(struct rs_target *t, struct rs_err *err);

/*
 * rs__cast_check - dtype= against all that is known: RS_UNSUPPORTED naming a tensor of floats that
 * cannot be cast. rs__cast_list - the list as dtype= wants it. rs__list_unique - no two of its
 * items were given one name: RS_USAGE. See finish.c.
 */
int rs__cast_check(const struct rs_target *t, struct rs_err *err);
int rs__cast_list(const struct rs_target *t, struct rs_list *list, struct rs_arena *arena,
	struct rs_err *err);
int rs__list_unique(const struct rs_target *t, const struct rs_list *list, struct rs_err *err);

/*
 * rs__missing_rank - the error for a source rank whose directory is not there; names all that are.
 * Returns -1.
 */
int rs__missing_rank(
	const struct rs_target *t, uint64_t rank, uint64_t wanted_by, struct rs_err *err);

/* rs__check_absent - RS_MISSING when a tensor of the source is in a file that is not there. */
int rs__check_absent(const struct rs_target *t, struct rs_err *err);
/* rs__source_whole - refuse a source of several ranks that nothing tells how to join. */
int rs__source_whole(const struct rs_target *t, struct rs_err *err);
/*
 * rs__mark_holders - mark the source ranks that are asked for @box of a tensor of @shape cut by
 * @grid, which begins at source rank @base: local rank @match if it has it, else the lowest.
 */
struct rs__asking {
	const struct rs_target *t;
	uint64_t rank, base;
	uint32_t match;
	const struct rs_grid *grid;
	struct rs_shape shape;
	struct rs_box box;
	uint8_t *source_ranks;
};
int rs__mark_holders(struct rs__asking *q, struct rs_err *err);

#endif
