/*
 * arrange.h - private to arrange*.c: from lists of ranks to files of a tree.
 *
 *   arrange.c         options that exclude each other; files under construction; the four layouts
 *   arrange_path.c    a plan's files.path: ranks that share a file, files cut by size
 *   arrange_name.c    patterns, parts and names of sources as file names
 *   arrange_split.c   which tensor goes to which part
 *   arrange_unified.c MindSpore's unified directory
 *   arrange_index.c   the texts of index files, as Python's json writes them
 */
#ifndef RESHARDFS_CORE_TARGET_ARRANGE_H
#define RESHARDFS_CORE_TARGET_ARRANGE_H

#include "core/target/internal.h"

#define RS__FILE_NAME_MAX 255  /* NAME_MAX of Linux */
#define RS__NO_PART UINT32_MAX /* an item that is in no file */

struct rs_arranged {
	/* Layouts of whole tensors: the one list, and the part of each item; NULL: lists of ranks.
	 */
	const struct rs_list *whole;
	const uint32_t *part_of;
	uint64_t limit;        /* of one file of a rank; 0: ranks have one file each */
	const uint64_t *shown; /* where ranks share files: the ranks, ascending, */
	const uint64_t *leads; /* and for each the lowest that shares its files */
	uint64_t n_shown;
};

/* Outputs under construction. */
struct rs__arranging {
	struct rs_target *t;
	const uint64_t *ranks;
	uint64_t n_ranks;
	const char *name;        /* pattern in rank_R/, or NULL */
	bool parts_from_0;       /* parts are NAME-part-0.safetensors, also when there is one */
	struct rs_output *items; /* heap */
	uint64_t n, cap;
};
int rs__output_add(struct rs__arranging *a, const struct rs_output *o, struct rs_err *err);
/* rs__add_companions - the source's config.json and so on, at the root, where nothing is called so.
 */
int rs__add_companions(struct rs__arranging *a, struct rs_err *err);

/* rs__list_whole - rank 0's list, once for all files; *part_of is to be filled. */
int rs__list_whole(struct rs__arranging *a, uint32_t **part_of, struct rs_err *err);

/* rs__item_stored - does a tensor file hold the item? Texts are in .ckpt files alone. */
static inline bool rs__item_stored(const struct rs_wanted *item)
{
	return item->dtype != RS_DT_STR;
}
int rs__item_bytes(const struct rs_wanted *item, uint64_t *bytes, struct rs_err *err);

/* arrange_name.c */
/*
 * rs__path_expand - @pattern for @rank: {rank}, and the axes of the target's mesh. What a file name
 * may not have becomes %XX; '/' stays. Owns: in the arena of @t.
 */
int rs__path_expand(const struct rs_target *t, const char *pattern, uint64_t rank, char **out,
	struct rs_err *err);
/* rs__name_escape - a name from a source as a file name: never a path, "." or "..", not hidden. */
char *rs__name_escape(struct rs_arena *arena, struct rs_str name, struct rs_err *err);
/* rs__part_name - "model.safetensors", part 0 of 3: "model-00001-of-00003.safetensors". */
char *rs__part_name(struct rs_arena *arena, const char *name, uint32_t part, uint32_t n_parts,
	struct rs_err *err);

/* arrange_path.c */
/* rs__arrange_path - the files of all ranks by the pattern of their path. */
int rs__arrange_path(struct rs__arranging *a, const char *pattern, struct rs_err *err);

/* arrange_split.c */
/*
 * rs__split - parts of at most @limit bytes in the order of the list (0: one part), by the rule of
 * huggingface_hub: a tensor over the limit is a part of its own and does not end the one that
 * grows.
 * @part_of: one per item. *n_parts is at least 1.
 */
int rs__split(const struct rs_list *list, uint64_t limit, uint32_t *part_of, uint32_t *n_parts,
	struct rs_err *err);
/*
 * rs__spread - parts of about @limit bytes, by the rule of unified_safetensors: names by falling
 * size, each to the smallest part. Items where @part_of is RS__NO_PART are left alone.
 * @by_size: the spread items in that order, n_by_size of them; in @arena.
 */
int rs__spread(const struct rs_list *list, uint64_t limit, uint32_t *part_of, uint32_t *n_parts,
	struct rs_arena *arena, uint64_t **by_size, uint64_t *n_by_size, struct rs_err *err);
/* rs__select - the items of one part, in @arena. */
int rs__select(const struct rs_list *list, const uint32_t *part_of, uint32_t part,
	struct rs_arena *arena, struct rs_list *out, struct rs_err *err);

/* arrange_index.c */
struct rs__mapped {
	struct rs_str name; /* of a tensor */
	const char *file;
};
/*
 * rs__index_hf - model.safetensors.index.json. @map: sorted in place.
 * Errors: RS_UNSUPPORTED (a name that is no UTF-8), RS_USAGE (one tensor in two files).
 */
int rs__index_hf(struct rs__mapped *map, uint64_t n, uint64_t total_size, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err);
/* rs__index_unified - param_name_map.json; the map stays in its order. */
int rs__index_unified(const struct rs__mapped *map, uint64_t n, uint64_t total_size,
	struct rs_arena *arena, struct rs_str *out, struct rs_err *err);

/* arrange_unified.c */
int rs__arrange_unified(struct rs__arranging *a, struct rs_err *err);

#endif
