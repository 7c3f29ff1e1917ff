/*
 * model.h - a model in memory, whose elements know where they belong, and a plan that reshapes it.
 *
 * Element i (row-major) of the t-th tensor is the 32-bit number t << 20 | i, so that no element can
 * stand in for another. Tensors of other dtypes have no content, only a place in one large file:
 * for these, model_origin says which element of which tensor shows up at a place of a target.
 */
#ifndef TESTS_LIB_MODEL_H
#define TESTS_LIB_MODEL_H

#include "core/target/rules/rules.h"

#define MODEL_TENSORS 8192

struct model {
	struct rs_arena *arena;
	struct rs_source source; /* without ranks, unless a test says otherwise */
	uint8_t *bytes;          /* content of the file; NULL beyond a size */
	uint64_t file_bytes;
	struct rs_tensor tensors[MODEL_TENSORS];
	uint64_t at[MODEL_TENSORS]; /* in the file */
	uint32_t n;
};

void model_init(struct model *m);
/* model_add - a tensor of @n_axes axes; I32 gets labels. Returns its number. */
uint32_t model_add(struct model *m, const char *name, enum rs_dtype dtype, uint32_t n_axes, ...);
/* model_add_data - an I32 tensor in pieces along @dim: @n_pieces blocks of 32-bit numbers. */
uint32_t model_add_data(struct model *m, const char *name, const struct rs_shape *shape,
	uint32_t dim, const uint32_t *const *pieces, uint32_t n_pieces);
void model_seal(struct model *m);
void model_done(struct model *m);
uint32_t model_label(const struct model *m, const char *name, uint64_t element);

/* A model under a plan. */
struct run {
	struct rs_target t;
	struct rs_err err;
};
/* run_text - ' stands for " in @text. run_open - 0, or -1 with r->err. */
char *run_text(struct rs_arena *arena, const char *text);
int run_open(struct run *r, struct model *m, const char *text);
int run_open_sizes(struct run *r, struct model *m, const char *text, const struct rs__axis *sizes,
	uint32_t n_sizes);
void run_done(struct run *r);

/* What a rank holds; the list lives until rank_done. */
struct rank {
	struct model *m;
	struct rs_arena *arena;
	struct rs_list list;
};
void rank_open(struct rank *k, struct run *r, struct model *m, uint64_t rank);
void rank_done(struct rank *k);
/* rank_find - by name, or NULL. rank_want - fails the test when it is not there. */
const struct rs_wanted *rank_find(const struct rank *k, const char *name);
const struct rs_wanted *rank_want(const struct rank *k, const char *name);
/* rank_shape - fails the test when the shape is another. */
void rank_shape(const struct rank *k, const char *name, uint32_t n_axes, ...);
/* rank_data - the labels of a target of I32 sources; heap. */
uint32_t *rank_data(const struct rank *k, const char *name, uint64_t *n);
/* model_origin - the tensor (number) and element behind element @i of a target; -1 and 0: zero. */
int model_origin(const struct rank *k, const char *name, uint64_t i, uint64_t *element);

#endif
