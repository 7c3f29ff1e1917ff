/*
 * verbs.h - what the verbs share and no other room needs: the source of a command line, the frame
 * of every --json answer, a little parallelism, and reading nests as a list of runs.
 *
 * A verb is one file: it opens, looks, prints once, and turns the first error into the exit code.
 */
#ifndef FS_VERBS_VERBS_H
#define FS_VERBS_VERBS_H

#include "fs/fs.h"
#include "reshardfs/codec.h"

/* ------------------------------------------------------------- start and end */

/* fs__verb_view - the options of the view, with SRC and that only a target needs a strategy. */
struct rs_view_options fs__verb_view(const struct fs_options *o);
/* fs__verb_fail - report @err; with --json also as the one object on stdout. Exit code. */
int fs__verb_fail(const struct fs_options *o, const char *verb, const struct rs_err *err);

/* ----------------------------------------------------------------------- JSON */

/* The frame of an answer: {"schema": "reshardfs.VERB/1", ...}. */
void fs__json_begin(struct rs_jsonw *w, const char *verb);
/* fs__json_end - close the object and print it; returns @exit_code. The caller of verbs flushes. */
int fs__json_end(struct rs_jsonw *w, int exit_code);
void fs__json_uint(struct rs_jsonw *w, const char *key, uint64_t value);
void fs__json_bool(struct rs_jsonw *w, const char *key, bool value);
void fs__json_str(struct rs_jsonw *w, const char *key, const char *value); /* NULL: null */
void fs__json_err(struct rs_jsonw *w, const char *key, const struct rs_err *err);
void fs__json_err_value(struct rs_jsonw *w, const struct rs_err *err);
/* fs__json_notes - "notes": the remarks of all @n lists, sorted, each once. */
int fs__json_notes(
	struct rs_jsonw *w, const struct rs_notes *const *lists, uint64_t n, struct rs_err *err);
void fs__json_dims(struct rs_jsonw *w, const char *key, uint32_t n, const uint64_t *dims);

/* ----------------------------------------------------------------- small tools */

/*
 * fs__parallel - call @job for 0 .. n-1 from a few threads, this one among them. Jobs keep their
 * results apart by index, so that output does not depend on who was first.
 */
void fs__parallel(uint64_t n, void (*job)(void *arg, uint64_t i), void *arg);
/* fs__nearness - how unlike two names are (edits); a small number invites "did you mean". */
uint32_t fs__nearness(struct rs_str a, struct rs_str b);
/* fs__view_path - inode of @path ("", "rank_0", "rank_0/FILE"); RS_USAGE when there is none. */
int fs__view_path(const struct rs_view *v, const char *path, uint64_t *inode, struct rs_err *err);
/* fs__view_name - "rank_3/NAME" of a file, NAME at the root, or "rank_3". @path: 300 bytes. */
#define FS_VIEW_PATH_MAX 300
void fs__view_name(const struct rs_view *v, uint64_t inode, char *path);
/* fs__catalog_file_unit - unit of every catalog file, and rank of every unit (or UINT64_MAX). */
int fs__catalog_owners(const struct rs_catalog *cat, struct rs_arena *arena, uint32_t **file_unit,
	uint64_t **unit_rank, struct rs_err *err);
/* fs__source_file_name - "rank_3/x.ckpt", or the path of SOURCE when that is the file itself. */
const char *fs__source_file_name(const struct rs_source *src, uint32_t file);
/* Of data: what goes with it (companions) stands behind and does not count. */
uint32_t fs__source_n_units(const struct rs_source *src);
uint32_t fs__source_n_files(const struct rs_source *src);
uint64_t fs__source_bytes_on_disk(const struct rs_source *src);

/* fs__json_source, fs__json_target - "source": {...} and "target": {...}, the same in all verbs. */
void fs__json_source(struct rs_jsonw *w, const struct rs_source *src);
void fs__json_target(struct rs_jsonw *w, const struct rs_target *t);
uint64_t fs__source_bytes_unique(const struct rs_source *src); /* of all logical tensors */

/* ---------------------------------------------------------------- nests as runs */

/*
 * A run with the loops around it resolved: repetition (i0, i1, ...) lands at target byte
 * off + i0*step[0] + i1*step[1] ... and comes from content byte first + i0*pitch[0] + ...
 * of the entry. Outermost loop first; loops of one turn are left out.
 */
struct fs_leaf {
	const struct rs_run *run;
	uint64_t off, width;
	uint32_t n_loops;
	uint64_t count[RS_MAX_AXES], step[RS_MAX_AXES], pitch[RS_MAX_AXES];
	uint32_t level[RS_MAX_AXES]; /* private: which pitch of the run each loop has */
};
/* fs__nest_leaves - every run in target order; non-zero from @visit stops and is returned. */
int fs__nest_leaves(
	const struct rs_nest *nest, int (*visit)(void *arg, const struct fs_leaf *leaf), void *arg);
uint64_t fs__leaf_reads(const struct fs_leaf *leaf); /* repetitions */
/*
 * fs__leaf_touched - bytes that leave the disk for this run when a 4 KiB page is the unit and the
 * rows begin anywhere in a page: an expectation, from widths and pitches alone.
 */
uint64_t fs__leaf_touched(const struct fs_leaf *leaf);
/* fs__nest_at - the run that target byte @off comes from; NULL past the end. */
const struct rs_run *fs__nest_at(const struct rs_nest *nest, uint64_t off);

/* ------------------------------------------------------------- what a file costs */

/* All that `plan` says about one file. */
struct fs_measure {
	enum rs_output_kind kind;
	bool ranked; /* it shows tensors of rank @rank */
	uint64_t rank;
	char path[FS_VIEW_PATH_MAX];
	uint64_t bytes, tensors;
	uint64_t served;          /* bytes that come from source files: the rest is header text */
	uint64_t reads;           /* separate stretches of source files that serving it all takes */
	uint64_t touched;         /* bytes of the pages that these lie in */
	uint64_t memory;          /* of the built image */
	uint32_t n_files;         /* source files that bytes come from */
	uint32_t *units, n_units; /* and their units, ascending; heap */
	char remark[RS_SHOW_MAX + 40];
	struct rs_notes notes;
	struct rs_err err; /* code RS_OK: all of the above holds */
};
/*
 * fs__measure_all - build every file's image, several at a time, and measure it.
 * Owns: *out is heap, one per file, free with fs__measure_free.
 */
int fs__measure_all(struct rs_view *v, struct fs_measure **out, uint64_t *n, struct rs_err *err);
void fs__measure_free(struct fs_measure *m, uint64_t n);

#endif
