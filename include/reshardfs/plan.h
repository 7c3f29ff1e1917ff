/*
 * plan.h - floor 3: arithmetic between boxes. Which bytes of which pieces make a target tensor.
 *
 * A target tensor is a list of parts, each: a box of the target <- an equal box of a source tensor,
 * or fill. Placing the pieces of the source under the parts gives runs; the runs of one tensor,
 * sorted by where they land, are a nest of loops:
 *
 *   target 4 x 6 from two column pieces A (4 x 4) and B (4 x 2), one-byte elements:
 *
 *       A A A A B B        loop 4 times over 6 bytes of target
 *       A A A A B B          run of 4 bytes from A, 4 bytes further each time
 *       A A A A B B          run of 2 bytes from B, 2 bytes further each time
 *       A A A A B B
 *
 * Two runs and one loop describe it, whatever the number of rows. Building the nest is the
 * proof that every byte of the target comes from exactly one place: a hole or an overlap ends it.
 * No I/O and no format here, so that millions of random cases can be tested.
 */
#ifndef RESHARDFS_PLAN_H
#define RESHARDFS_PLAN_H

#include "reshardfs/base.h"
#include "reshardfs/catalog.h"

/* ------------------------------------------------------------------- wanted */

enum rs_part_kind {
	RS_PART_COPY, /* from a box of a source tensor */
	RS_PART_ZERO, /* zero bytes: padding that a plan asks for, never a stand-in for data */
};
struct rs_part {
	enum rs_part_kind kind;
	struct rs_box box;              /* where in the target tensor */
	const struct rs_tensor *source; /* RS_PART_COPY */
	uint64_t origin[RS_MAX_AXES];   /* of the box in the source tensor; lengths are box.len */
	/*
	 * Set when axes do not correspond one to one: axis a of the target then runs along axis
	 * axis[a] of the source (transposed, or with axes left out), or along none: RS_AXIS_NONE
	 * repeats what is there (stacking: length 1; padding with the last row: any length). A
	 * source axis that no target axis runs along is read at origin alone.
	 */
	bool mapped;
	uint8_t axis[RS_MAX_AXES];
};
#define RS_AXIS_NONE 255
/* One tensor that a target rank holds. */
struct rs_wanted {
	struct rs_str name;
	enum rs_dtype dtype;
	enum rs_dtype stored; /* of all its sources, when dtype is a cast of it; else RS_DT_NONE */
	bool zero_dims;       /* write a 0-d tensor's dims as [0] in .ckpt, as its source did */
	struct rs_shape shape;
	const struct rs_part *parts;
	uint32_t n_parts;
	uint32_t prefer; /* holder to prefer, see rs_catalog_pieces */
};

/* rs_wanted_stored - the dtype in which the sources of @w are; the one that its nest counts in. */
static inline enum rs_dtype rs_wanted_stored(const struct rs_wanted *w)
{
	return w->stored != RS_DT_NONE ? w->stored : w->dtype;
}

/* --------------------------------------------------------------------- nest */

/* A run: @bytes of target per repetition of the loops around it. */
struct rs_run {
	const struct rs_entry *entry; /* NULL: zeros */
	uint32_t unit;
	uint64_t first; /* byte offset in the content of the entry, all loops at turn 0 */
	/* bytes further in the content per turn of the loop at depth d + 1; the root never turns */
	uint64_t pitch[RS_MAX_AXES];
};
/*
 * A loop (or, with no children, a run): @count turns of @bytes each, one behind the other in the
 * target. The children of a loop fill one turn without hole or overlap.
 */
struct rs_loop {
	uint64_t start;             /* offset in one turn of the parent */
	uint64_t bytes;             /* of one turn */
	uint64_t count;             /* turns; 1 for a run that stands alone */
	uint32_t child, n_children; /* loops[child ..]; n_children 0: run */
	uint32_t run;               /* runs[run] when n_children is 0 */
};
#define RS_MAX_RUNS (1u << 20) /* of one tensor: a million-piece tensor is a mistake or hostile */
/*
 * The nest of one tensor. loops[0] is the root, depth 0: the whole tensor, one turn. A run lies at
 * depth 1 to RS_MAX_AXES. Immutable; any thread may walk it.
 */
struct rs_nest {
	uint64_t bytes; /* of the target tensor */
	const struct rs_loop *loops;
	const struct rs_run *runs;
	uint32_t n_loops, n_runs;
};

/*
 * rs_plan_nest - place the pieces under @want and prove that they cover it exactly once.
 * @cat: asked for pieces (rs_catalog_pieces), so headers of needed units load here.
 * Owns: the nest and its arrays are in @arena. A zero-size tensor gives a nest of 0 bytes, no
 * loops. Errors: those of rs_catalog_pieces; RS_CORRUPT for a hole or overlap of pieces or parts,
 * naming tensor, box and units; RS_UNSUPPORTED when a cut falls inside a byte (sub-byte dtypes);
 * RS_LIMIT over RS_MAX_RUNS.
 * Threads: one arena, one thread; @cat is shared.
 */
int rs_plan_nest(struct rs_catalog *cat, const struct rs_wanted *want, struct rs_arena *arena,
	struct rs_nest **out, struct rs_err *err);

/* --------------------------------------------------------------------- walk */

/*
 * A pull iterator over the rows behind target bytes [skip, skip + len) of a nest, in target order.
 * Lives on the stack, allocates nothing.
 */
struct rs_walk {
	const struct rs_nest *nest;
	const struct rs_catalog *cat;
	uint64_t start, pos, end; /* bytes of the target tensor; pos is where the next rows land */
};
void rs_walk_init(struct rs_walk *w, const struct rs_catalog *cat, const struct rs_nest *nest,
	uint64_t skip, uint64_t len);
/*
 * rs_walk_next - false at the end. @rows: target_off counts from @skip; rows->file is
 * RS_ROWS_ZERO for zeros (then only width and count matter).
 */
#define RS_ROWS_ZERO UINT32_MAX
bool rs_walk_next(struct rs_walk *w, struct rs_rows *rows);

#endif
