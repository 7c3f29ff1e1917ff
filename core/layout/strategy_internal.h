/*
 * strategy_internal.h - what the strategy files of the layout room share: a builder that both
 * decoders and the merge pour into, so that names are checked, equal layouts are shared and
 * (name, stage) is unique whatever a strategy was made from.
 */
#ifndef RS_LAYOUT_STRATEGY_INTERNAL_H
#define RS_LAYOUT_STRATEGY_INTERNAL_H

#include "reshardfs/layout.h"

/*
 * Limits. The largest real strategies (100 thousand parameters, as many operators) have some
 * 20 MB in either form. A parsed JSON tree costs up to 32 bytes for one of text, hence its own.
 */
#define RS_STRATEGY_MAX (UINT64_C(256) << 20)     /* bytes of a protobuf file */
#define RS_STRATEGY_JSON_MAX (UINT64_C(64) << 20) /* bytes of a JSON file */
#define RS_STRATEGY_MEMORY (UINT64_C(2) << 30)    /* a strategy in memory, or its scratch */
#define RS_MAX_INPUTS 65536                       /* inputs of one operator */

struct rs__build {
	struct rs_strategy *s; /* under construction */
	uint64_t max_operators, max_params;
	const struct rs_layout **slots; /* heap: open-addressing hash set of the distinct layouts */
	uint64_t n_slots;               /* a power of two */
	const struct rs_layout **list;  /* heap: the same, in order of first use */
	uint64_t n_list, cap_list;
};

/* An operator before its cuts are copied: the cuts of input i are dims[first[i] .. first[i+1]). */
struct rs__cuts {
	uint32_t *dims; /* heap */
	uint64_t n_dims, cap_dims;
	uint64_t *first; /* heap; n_inputs + 1 long once an input was added */
	uint64_t n_inputs, cap_first;
};

/*
 * begin .. (operator | param)* .. name_stages (decoders) .. seal, or drop at any time.
 * The counts given to begin are exact upper bounds. Every function: RS_NOMEM, RS_LIMIT.
 */
int rs__build_begin(struct rs__build *b, const char *path, uint64_t n_operators, uint64_t n_params,
	struct rs_err *err);
/* rs__build_operator - names and cuts are copied. RS_CORRUPT: a name that is not text. */
int rs__build_operator(struct rs__build *b, struct rs_str name, uint32_t stage,
	const struct rs__cuts *cuts, struct rs_err *err);
/* rs__build_param - @l and all that it points at are copied, once per distinct layout. */
int rs__build_param(struct rs__build *b, struct rs_str name, uint32_t stage,
	const struct rs_layout *l, struct rs_err *err);
/*
 * rs__build_name_stages - tell a merged file from one stage's and give every parameter its stage.
 * A merged file is one in which every name begins with "<digits>-": merging puts it on all.
 */
void rs__build_name_stages(struct rs__build *b);
/* rs__build_seal - index by name; a parameter that stands twice is RS_CORRUPT. Frees @b. */
int rs__build_seal(struct rs__build *b, struct rs_strategy **out, struct rs_err *err);
void rs__build_drop(struct rs__build *b);

int rs__cuts_input(struct rs__cuts *c, struct rs_err *err); /* begin the next input */
int rs__cuts_dim(struct rs__cuts *c, uint32_t dim, struct rs_err *err);
void rs__cuts_reset(struct rs__cuts *c);
void rs__cuts_done(struct rs__cuts *c);

/* Filling a layout on the stack, checked: dimensions, then axes, then rows of a manual split. */
int rs__layout_add_dev(struct rs_layout *l, uint64_t extent, struct rs_err *err);
int rs__layout_open_axis(struct rs_layout *l, struct rs_err *err);
int rs__layout_add_map(
	struct rs_layout *l, int64_t value, struct rs_err *err); /* to the open axis */
int rs__layout_close(struct rs_layout *l, struct rs_err *err);   /* the last checks */

/* The decoders: one file's bytes. @name is copied. */
int rs__strategy_from_pb(const void *bytes, uint64_t len, const char *name,
	struct rs_strategy **out, struct rs_err *err);
int rs__strategy_from_json(
	struct rs_str text, const char *name, struct rs_strategy **out, struct rs_err *err);

/* What the first bytes of a file promise; a JSON file may still be anything. */
enum rs__form { RS__FORM_NONE, RS__FORM_PB, RS__FORM_JSON };
int rs__strategy_form(const struct rs_file *file, enum rs__form *out, struct rs_err *err);
/* rs__strategy_has_layouts - does this JSON text have the key "parallel_layout_item" on top? */
bool rs__strategy_has_layouts(struct rs_str text);
/* rs__strategy_slurp - the whole of @file on the heap, within the limit of its form. */
int rs__strategy_slurp(
	const struct rs_file *file, enum rs__form form, char **out, struct rs_err *err);

#endif
