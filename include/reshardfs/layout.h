/*
 * layout.h - floor 3: how a tensor is cut over ranks, and the MindSpore strategy files that say
 * so. Pure arithmetic and small files: no checkpoint is opened here.
 *
 * Words: device matrix D (its last dimension varies fastest over ranks), tensor map (per axis the
 * device dimensions that cut it, counted from the right), optimizer shard (a further cut of axis
 * 0 over ranks that would hold the same slice), stage (pipeline stage), local (rank - stage *
 * devices).
 */
#ifndef RESHARDFS_LAYOUT_H
#define RESHARDFS_LAYOUT_H

#include "reshardfs/base.h"
#include "reshardfs/catalog.h"

#define RS_MAX_DEVICE_DIMS 16
#define RS_MAP_NONE (-1) /* tensor map: the axis is not cut */

/*
 * The layout of one tensor in one stage, as the strategy file states it.
 * Axis a is cut by the device dimensions map[map_first[a] .. map_first[a+1]), the most significant
 * first; a value m means dimension n_dev - 1 - m of dev; RS_MAP_NONE members are skipped.
 */
struct rs_layout {
	uint32_t n_dev; /* an empty matrix in a file is read as {1} */
	uint32_t dev[RS_MAX_DEVICE_DIMS];
	uint32_t n_axes; /* 0: replicated, whatever the shape */
	uint32_t map_first[RS_MAX_AXES + 1];
	int32_t map[RS_MAX_AXES * RS_MAX_DEVICE_DIMS];
	bool nested;      /* the file has one list per axis; kept so that convert is faithful */
	int32_t opt_step; /* optimizer shard: 0 none; redundant, never computed from */
	int32_t opt_size; /* 0 none, -1 all replicas, else how many pieces */
	uint32_t field;   /* > 0: rows dealt out in this many interleaved blocks */
	uint32_t n_split; /* param_split_shape: rows of every piece of axis 0; 0 pieces: equal */
	const int64_t *split;
	uint32_t n_offsets; /* indices_offset: kept for convert, no meaning for the layout */
	const int64_t *offsets;
	uint32_t n_shape; /* tensor_shape of the JSON form; 0: not stated */
	const uint64_t *shape;
};
/* rs_layout_devices - product of the device matrix: ranks of the stage. */
uint64_t rs_layout_devices(const struct rs_layout *l);
bool rs_layout_eq(const struct rs_layout *a, const struct rs_layout *b); /* offsets, shape aside */

/*
 * rs_layout_grid - the grid that @l cuts over its devices (mindspore.md section 4, rules 1-6).
 * @n_axes: of the tensor. A layout without axes, and a 0-d tensor, give one cell held by all.
 * Owns: the grid is in @arena.
 * Errors: RS_CORRUPT (map value outside the matrix, n_axes differs, split list of the wrong
 * length, an optimizer shard over more ranks than there are replicas), RS_UNSUPPORTED (field and
 * split together), RS_LIMIT (over RS_MAX_CELLS devices).
 */
int rs_layout_grid(const struct rs_layout *l, uint32_t n_axes, struct rs_arena *arena,
	struct rs_grid **out, struct rs_err *err);
/* rs_grid_single - one cell held by @n_holders: whole tensors. */
struct rs_grid *rs_grid_single(
	uint32_t n_axes, uint32_t n_holders, struct rs_arena *arena, struct rs_err *err);
/* "dev [2, 4] map [0, -1] opt 8", for messages; cut to @size. */
const char *rs_layout_show(const struct rs_layout *l, char *buf, size_t size);

/* ----------------------------------------------------------- strategy files */

/* An operator's strategy: not needed for resharding, kept for merge, show and convert. */
struct rs_operator {
	struct rs_str name;
	uint32_t stage;
	uint32_t n_inputs;
	const uint32_t *const *cuts; /* per input */
	const uint32_t *n_cuts;
};
struct rs_placed {          /* a parameter in a stage */
	struct rs_str name; /* without "<stage>-" */
	uint32_t stage;
	const struct rs_layout *layout; /* equal layouts share one object */
};
/* A strategy: one file, or stage files merged. Immutable after reading; any thread may read. */
struct rs_strategy {
	struct rs_arena *arena; /* owns everything, this struct included */
	const char *path;       /* as given, for messages */
	bool json;
	bool merged;            /* names in the file carry "<stage>-" */
	uint32_t current_stage; /* counts saves; not the pipeline stage */
	uint32_t file_stage;    /* stage of the first operator: the stage of an unmerged file */
	struct rs_operator *operators; /* in file order */
	uint64_t n_operators;
	struct rs_placed *params; /* in file order */
	uint64_t n_params;
	const struct rs_layout *const *layouts; /* the distinct ones, in order of first use */
	uint64_t n_layouts;
	const uint32_t *by_name; /* indexes of params by (name, stage) */
	uint32_t n_stages;       /* valid after rs_strategy_check */
	uint32_t stage_devices;
};

/*
 * rs_strategy_is - does the file begin like a strategy? (0x08, or JSON with a
 * "parallel_layout_item" key); false also for files that cannot be read.
 */
bool rs_strategy_is(const struct rs_file *file);
/*
 * rs_strategy_read - a strategy file (protobuf or JSON, told by content), or a directory of
 * stage files, merged in memory as merge_pipeline_strategys does (mindspore.md 3.4), except that
 * two files of one stage that disagree are an error instead of first come, first served.
 * Owns: free with rs_strategy_free.
 * Errors: RS_MISSING, RS_IO, RS_CORRUPT (with offset or JSON path), RS_USAGE (.ckpt and .json
 * mixed in a directory; nothing there; an operator-strategy JSON without parameter layouts).
 */
int rs_strategy_read(const char *path, struct rs_strategy **out, struct rs_err *err);
/* rs_strategy_read_memory - one file's bytes, for tests and fuzzers. @name: for messages. */
int rs_strategy_read_memory(const void *bytes, uint64_t len, const char *name,
	struct rs_strategy **out, struct rs_err *err);
/*
 * rs_strategy_read_dir - the same as a directory path, beneath the fence of @dir; @sub may be
 * "". Only files that rs_strategy_is says yes to are taken; *out = NULL when there are none.
 */
int rs_strategy_read_dir(
	const struct rs_dir *dir, const char *sub, struct rs_strategy **out, struct rs_err *err);
/*
 * rs_strategy_make - the same from @n placements, for targets that are worked out and not read:
 * everything is copied. @name: its path in messages. It is checked as by rs_strategy_check.
 */
int rs_strategy_make(const char *name, const struct rs_placed *params, uint64_t n,
	struct rs_strategy **out, struct rs_err *err);
void rs_strategy_free(struct rs_strategy *s);
/*
 * rs_strategy_check - fit to cut by: stages are 0..n-1, all layouts have the same number of
 * devices, every layout makes a grid. Sets n_stages and stage_devices.
 * An unmerged file of a later stage counts as stage 0 unless other stages are present.
 */
int rs_strategy_check(struct rs_strategy *s, struct rs_err *err);
/* rs_strategy_find - layout of @name in @stage, or NULL. O(log n). */
const struct rs_layout *rs_strategy_find(
	const struct rs_strategy *s, uint32_t stage, struct rs_str name);
/*
 * rs_strategy_stages - the placements of @name, by ascending stage: *first points at the first
 * of the returned number of consecutive indexes into s->params (through s->by_name). 0: unknown.
 */
uint32_t rs_strategy_stages(
	const struct rs_strategy *s, struct rs_str name, const uint32_t **first);
/* rs_strategy_same - do both cut every parameter alike? RS_USAGE names the first that differs. */
int rs_strategy_same(const struct rs_strategy *a, const struct rs_strategy *b, struct rs_err *err);

/*
 * rs_strategy_encode - the file's bytes: protobuf, or JSON as MindSpore writes it (compact, keys
 * sorted). @merged: names get "<stage>-" and current_stage is 1.
 * Owns: heap, rs_free. Errors: RS_UNSUPPORTED when JSON cannot say it.
 */
int rs_strategy_encode(const struct rs_strategy *s, bool json, bool merged, char **bytes,
	uint64_t *len, struct rs_err *err);

#endif
