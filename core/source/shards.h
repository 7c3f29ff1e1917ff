/*
 * shards.h - safetensors files that together hold whole tensors: what the sources hf (hf.c) and
 * unified (unified.c) share. shard_index.c reads the index that may say which tensor is in which
 * file, shards.c fills the catalog, config.c reads the config.json of a model.
 */
#ifndef RESHARDFS_CORE_SOURCE_SHARDS_H
#define RESHARDFS_CORE_SOURCE_SHARDS_H

#include "reshardfs/source.h"

/* ------------------------------------------------------------------ the index */

/* A line of the index: a tensor, and the file that it is expected in. */
struct rs__weight {
	struct rs_str name, file_name;
	uint32_t file; /* number of file_name among the files */
	bool seen;     /* found in that file; set by rs__shards_describe */
};
struct rs__index {
	const char *name;           /* for messages; borrowed */
	struct rs_arena *arena;     /* owns strings and files */
	struct rs__weight *weights; /* heap; by name */
	uint64_t n_weights, cap_weights;
	const char **files; /* the distinct file names, by byte order */
	uint32_t n_files;
	bool has_total_size;
	uint64_t total_size; /* of all tensors, as the index states it */
};
/*
 * rs__index_read - {"metadata": {"total_size": N}, "weight_map": {TENSOR: FILE, ...}}.
 * @bare: {TENSOR: FILE, ...} alone is fine, too (param_name_map.json of older MindSpore versions).
 * Every file name is proved to be relative and without "..", so that it may be opened beneath the
 * fence. Owns: rs__index_done, also after a failure.
 * Errors: RS_CORRUPT (JSON, a tensor twice, a file name that leads outside, foreign files),
 * RS_LIMIT, RS_IO. Format: docs/formats/huggingface.md.
 */
int rs__index_read(
	const struct rs_file *file, bool bare, struct rs__index *out, struct rs_err *err);
void rs__index_done(struct rs__index *index);
/* rs__index_find - the line of @name, or NULL. O(log n). */
struct rs__weight *rs__index_find(const struct rs__index *index, struct rs_str name);

/* rs__index_file - number of @path among the files of the index, or n_files. O(log n). */
uint32_t rs__index_file(const struct rs__index *index, const char *path);
/*
 * rs__text_read - all of a small file, in @arena. Errors: RS_LIMIT over @max_bytes, RS_CORRUPT for
 * what stands in place of a file (Git LFS pointer, HTML page, nothing), RS_IO.
 */
int rs__text_read(const struct rs_file *file, uint64_t max_bytes, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err);

/* ---------------------------------------------------------------- config.json */

/*
 * rs__config_read - model_type and the integers of a config.json, by name; those of a nested
 * text_config (language_config, llm_config) where the top level lacks them.
 * Owns: everything is in @arena. Errors: RS_CORRUPT, RS_LIMIT, RS_IO.
 */
int rs__config_read(const struct rs_file *file, struct rs_arena *arena, struct rs_config *out,
	struct rs_err *err);

/* ------------------------------------------------------------------- the files */

struct rs__shards {
	struct rs_source *src;
	bool indexed;
	struct rs__index index;
	uint32_t *unit_of;  /* per file of the index: its unit */
	uint32_t n_units;   /* of data: units 0 .. n_units - 1 */
	uint32_t loose;     /* the unit of entries without layout, or RS_NO_UNIT */
	const char *escape; /* hint for files and index that disagree; a literal */
};

/* rs__shards_new - in the arena of the catalog, and src->priv; rs__shards_done is its `done`. */
struct rs__shards *rs__shards_new(struct rs_source *src, struct rs_err *err);
void rs__shards_done(struct rs_source *src);
/* rs__shards_index - read the index @name that stands in SOURCE. */
int rs__shards_index(struct rs__shards *s, const char *name, bool bare, struct rs_err *err);
/*
 * rs__shards_add - the data files: a unit each, in this order. @paths: relative, in byte order, the
 * files of the index among them; "" for SOURCE when it is a file.
 * @loose: that one of @paths which stands in no index, or NULL.
 * Errors: RS_MISSING (a file that the index names is not there), RS_CORRUPT (no regular file; a
 * link that leads outside), RS_LIMIT.
 */
int rs__shards_add(struct rs__shards *s, const char *const *paths, uint32_t n, const char *loose,
	struct rs_err *err);
/* rs__shards_companion - one more unit of one raw file; call after rs__shards_add. */
int rs__shards_companion(
	struct rs__shards *s, const struct rs_dirent *e, uint32_t *unit, struct rs_err *err);
/*
 * rs__shards_describe - `describe` of both formats: all headers, a few at a time; index and files
 * are held against each other in both directions; then tensors of one listed piece each.
 * Errors: RS_CORRUPT (a tensor in two files, or where the index does not expect it), RS_MISSING (a
 * tensor that is not where the index expects it), those of headers.
 */
int rs__shards_describe(struct rs_source *src, uint32_t local, struct rs_err *err);

/*
 * rs__shards_listing - the entries of SOURCE in an arena of their own, and src->foreign with room
 * for all of them. Free *scratch.
 */
int rs__shards_listing(struct rs_source *src, struct rs_arena **scratch, struct rs_dirent **entries,
	uint64_t *n, struct rs_err *err);
/* rs__shards_foreign - @e is no part of the checkpoint. @why: a literal. */
int rs__shards_foreign(
	struct rs_source *src, const struct rs_dirent *e, const char *why, struct rs_err *err);
/*
 * rs__shards_why_not - why @e cannot be a data file, or NULL when it can: a file *.safetensors, or
 * a link so called, wherever it leads.
 */
const char *rs__shards_why_not(const struct rs_dirent *e);

#endif
