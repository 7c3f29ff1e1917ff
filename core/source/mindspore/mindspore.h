/*
 * mindspore.h - what the three files of the MindSpore source share: mindspore_dir.c lists a tree
 * and picks files, mindspore.c fits them to a strategy, mindspore_describe.c reads samples.
 */
#ifndef RESHARDFS_CORE_SOURCE_MINDSPORE_H
#define RESHARDFS_CORE_SOURCE_MINDSPORE_H

#include "reshardfs/source.h"

/* A directory rank_N, or SOURCE itself when it holds one file: the files that were picked there. */
struct rs__ms_rank {
	uint64_t rank;
	const char *name;             /* "rank_3", or the name of the one file */
	struct rs_identity dir;       /* of the directory, for the modes of its files */
	struct rs_source_file *files; /* none: nothing there that is a checkpoint or was selected */
	uint32_t n_files;
};
/* What stands in SOURCE. Everything is in the arena of the catalog, but for the growing arrays. */
struct rs__ms_tree {
	struct rs__ms_rank *ranks; /* heap; by rank */
	uint64_t n_ranks, cap_ranks;
	bool in_dirs;               /* rank directories, not one file */
	bool strategy_dir;          /* there is a directory SOURCE/strategy */
	const char *container;      /* of every picked file; NULL while none is */
	const char *witness;        /* path of the first file, for messages */
	struct rs_foreign *foreign; /* heap */
	uint64_t n_foreign, cap_foreign;
	uint64_t n_several; /* directories where one of several files was picked */
};

/* rs__ms_container - "ckpt" or "safetensors" by a file's extension, or NULL. */
const char *rs__ms_container(struct rs_str name);
/*
 * rs__ms_rank_of - the rank of a directory name: "rank_" and a digit in front, and nothing but
 * digits behind the last "rank_".
 */
bool rs__ms_rank_of(struct rs_str name, uint64_t *rank);
/* rs__ms_cmp_numbers - order of two paths by the last two numbers in each (mindspore_pick.c). */
int rs__ms_cmp_numbers(const char *path_a, const char *path_b);
/*
 * rs__ms_list - list SOURCE and pick the files of every rank (select=).
 * Errors: RS_USAGE (both kinds of files, two directories of one rank, several files and no rank),
 * RS_UNSUPPORTED (an index of another layout), RS_MISSING (nothing selected), RS_IO, RS_CORRUPT.
 */
int rs__ms_list(struct rs_source *src, struct rs__ms_tree *tree, struct rs_err *err);
/* rs__ms_foreign - remember that @path (copied) is no part of the checkpoint. @why: a literal. */
int rs__ms_foreign(struct rs_source *src, struct rs__ms_tree *tree, const char *sub,
	struct rs_str name, const char *why, struct rs_err *err);
void rs__ms_tree_done(struct rs__ms_tree *tree);

int rs__ms_describe(struct rs_source *src, uint32_t local, struct rs_err *err);

#endif
