/*
 * target.h - floor 5: what is wanted. For each target rank the ordered list of tensors that its
 * file holds, each a list of parts.
 *
 * A kind of target (a MindSpore strategy, `full`, `same`) is one file in core/target/ and one
 * line in the table of target.c. What a rank holds, in which order, and who is asked for
 * slices is written in docs/formats/mindspore.md, "What a target rank holds".
 */
#ifndef RESHARDFS_TARGET_H
#define RESHARDFS_TARGET_H

#include "reshardfs/base.h"
#include "reshardfs/plan.h"
#include "reshardfs/source.h"

enum rs_default { RS_DEFAULT_KEEP, RS_DEFAULT_ERROR, RS_DEFAULT_REPLICATE, RS_DEFAULT_DROP };
enum rs_missing { RS_MISSING_ERROR, RS_MISSING_SKIP };
enum rs_cast { RS_CAST_KEEP, RS_CAST_F32, RS_CAST_F16, RS_CAST_BF16 };
/* How files stand in the tree. All but the first are safetensors at the root. */
enum rs_arrangement {
	RS_ARRANGE_RANK,    /* rank_R/NAME, or as a plan says */
	RS_ARRANGE_HF,      /* whole tensors in model-00001-of-00003.safetensors, and an index */
	RS_ARRANGE_UNIFIED, /* whole tensors as MindSpore's unified_safetensors writes them */
	RS_ARRANGE_VLLM,    /* model-rank-R-part-0.safetensors, for vLLM's sharded_state */
};

struct rs_target_options {
	/* "full", "same", a short target ("tp4.pp2"), or the path of a strategy or of a plan */
	const char *target;
	const char *plan; /* plan=: shipped NAME or FILE with the rules of a short target; may be
			     NULL */
	const char *container;   /* format=: "ckpt", "safetensors", or NULL as the source */
	enum rs_default unknown; /* default=: a source tensor that no rank of the target names */
	enum rs_missing missing; /* missing=: a tensor that the target wants and no file stores */
	enum rs_cast cast;       /* dtype=: what floats are shown as */
	enum rs_arrangement layout;
	uint64_t max_file; /* max_file=: bytes of tensors in one file; 0: as the layout does it */
};

/* What one target rank's file holds. */
struct rs_list {
	const struct rs_wanted *items; /* in the order in which a .ckpt lists them */
	uint64_t n;
	const struct rs_meta *meta; /* own metadata of the file, when the target keeps it (same) */
	uint64_t n_meta;
	bool raw; /* one item, the bytes of a source file as they are: no container around it */
	uint64_t align; /* of tensor data in a safetensors file: a power of two; 0: 8 */
};

/* What a plan says of the files that it makes; path NULL: nothing, options and format decide. */
struct rs_files {
	const char *path;           /* "rank_{rank}/model.safetensors"; {rank} and axes in braces */
	uint64_t max_bytes;         /* of one file; 0: no limit */
	uint64_t align;             /* of tensor data: a power of two; 0: as the format does it */
	const char *index;          /* name of the index file, or NULL */
	const struct rs_meta *meta; /* as written in the plan */
	uint64_t n_meta;
};

/* An axis of a mesh of ranks. */
struct rs_axis {
	struct rs_str name;
	uint64_t size;
};

enum rs_output_kind {
	RS_OUTPUT_LIST, /* tensors: of a rank's list those of one part */
	RS_OUTPUT_TEXT, /* made here: an index */
	RS_OUTPUT_COPY, /* a companion of the source as it is */
};
/* A virtual file: what is in it, and where it stands. */
struct rs_output {
	enum rs_output_kind kind;
	bool at_root;       /* beside rank directories, not in the one of @rank */
	uint64_t rank;      /* whose list; when ranks share the file, the lowest of them */
	const char *name;   /* of [A-Za-z0-9._%-], at most 255 bytes */
	uint32_t part;      /* LIST: which part of the list */
	struct rs_str text; /* TEXT */
	uint32_t unit;      /* COPY */
};

struct rs_arranged; /* private: how lists come apart */
struct rs_target_ops;
struct rs_target {
	const struct rs_target_ops *ops;
	struct rs_target_options opts;      /* strings are copies */
	struct rs_source *source;           /* borrowed */
	struct rs_strategy *strategy;       /* of the target; NULL when it goes by none */
	uint64_t stage_devices;             /* ranks of a stage; 0: all ranks are one */
	const char *container;              /* resolved */
	const char *container_default_name; /* "checkpoint_{rank}.ckpt": name= when not given */
	struct rs_files files;
	const struct rs_axis *axes; /* of the mesh, outermost first: {tp} of files.path */
	uint32_t n_axes;
	bool mindspore; /* metadata "format" is "ms" */
	uint64_t n_ranks;
	const struct rs_output *outputs; /* root first, then by rank; each by name in byte order */
	uint64_t n_outputs;
	struct rs_arranged *arranged;
	struct rs_arena *arena; /* owns this */
	struct rs_notes notes;  /* remarks on the target as a whole */
	bool bound;             /* ops->bind was called, or there is none */
	void *priv;
};
struct rs_target_ops {
	const char *name;
	bool (*is)(const char *target); /* by the word or the file's first bytes */
	int (*open)(struct rs_target *t, struct rs_err *err);
	/*
	 * What open could not do because it takes shapes or the order of entries: once, between
	 * rs_source_describe and everything below. May be NULL.
	 */
	int (*bind)(struct rs_target *t, struct rs_err *err);
	int (*check)(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err);
	int (*needs)(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks);
	int (*list)(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
		struct rs_notes *notes, struct rs_err *err);
};

/*
 * rs_target_open - read the target; needs rs_source_open, no header.
 * Errors: RS_USAGE (nothing of that name; a target that fits no rule), RS_CORRUPT, RS_MISSING.
 */
int rs_target_open(const struct rs_target_options *opts, struct rs_source *source,
	struct rs_target **out, struct rs_err *err);
void rs_target_close(struct rs_target *t);
/* rs_target_local - local number of source rank whose entries @rank starts from, in any stage. */
uint32_t rs_target_local(const struct rs_target *t, uint64_t rank);
/*
 * rs_target_bind - finish what needs rs_source_describe. rs_target_check does it first; who asks
 * for less, does it here. Nothing happens the second time.
 */
int rs_target_bind(struct rs_target *t, struct rs_err *err);
/*
 * rs_target_check - all that strategies, listings and samples tell, for the @n shown @ranks:
 * names, cuts that do not divide, missing ranks that have no replacement. Needs
 * rs_source_describe. Fills t->notes.
 * Errors: RS_USAGE (a cut), RS_MISSING (tensor or rank).
 */
int rs_target_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err);
/*
 * rs_target_arrange - which files show what the @n shown @ranks (ascending) hold; needs
 * rs_target_check. Sets t->outputs. @name: pattern of a file in rank_R/, NULL: as plan and format
 * say. Where files are cut by size, the lists are made, and their headers load.
 * Errors: RS_USAGE (a path or an index that cannot be; ranks that share a file and disagree),
 * RS_UNSUPPORTED (names that no index can carry), RS_LIMIT, those of rs_target_list.
 */
int rs_target_arrange(struct rs_target *t, const uint64_t *ranks, uint64_t n, const char *name,
	struct rs_err *err);
/* rs_target_lead - the rank under which the files of @rank are listed: itself, unless it shares. */
uint64_t rs_target_lead(const struct rs_target *t, uint64_t rank);
/*
 * rs_target_output - the list of a file, as rs_target_list gives that of a rank. A text has no
 * items, a copy is raw. Owns: the list is in @arena, or in that of @t. Threads: any.
 */
int rs_target_output(struct rs_target *t, const struct rs_output *output, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err);
/*
 * rs_target_needs - which source ranks @rank takes from, by strategies and listing alone. The
 * target is bound: one for which t->bound is still false needs rs_source_describe and
 * rs_target_bind first.
 * @source_ranks: n_ranks bytes of the source, set to 1.
 */
int rs_target_needs(struct rs_target *t, uint64_t rank, uint8_t *source_ranks, struct rs_err *err);
/*
 * rs_target_emit_plan - a target that was checked, said as a plan (JSON text: heap, rs_free) that
 * makes the same files. rs_target_emit_strategy - as a MindSpore strategy (rs_strategy_free), which
 * a second mount on top of this one goes by. All lists are made, and their headers load. Errors:
 * RS_USAGE where the other language cannot say it: tensors put together from several boxes, unequal
 * slices; RS_LIMIT, those of rs_target_list.
 */
int rs_target_emit_plan(struct rs_target *t, char **text, uint64_t *len, struct rs_err *err);
int rs_target_emit_strategy(struct rs_target *t, struct rs_strategy **out, struct rs_err *err);
/*
 * rs_target_list - what @rank holds. Loads the headers of the units whose order or entries count.
 * Owns: the list is in @arena. @notes: remarks on this rank, may be NULL. Threads: any.
 * Errors: RS_MISSING, RS_CORRUPT, RS_USAGE, those of loading.
 */
int rs_target_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err);

#endif
