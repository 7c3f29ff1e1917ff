/*
 * source.h - floor 4: from a directory of strangers' files to a sealed catalog.
 *
 * A source format is one file in core/source/ and one line in the table of source.c. Formats bid
 * for a directory (probe); the best bid opens it. Two steps, because the second reads headers and
 * should read as few as it can: rs_source_open lists names and reads strategies and indexes,
 * rs_source_describe loads the headers of one rank per stage and fills the catalog.
 */
#ifndef RESHARDFS_SOURCE_H
#define RESHARDFS_SOURCE_H

#include "reshardfs/base.h"
#include "reshardfs/catalog.h"
#include "reshardfs/layout.h"

/* What was given to an option that may be repeated. */
struct rs_words {
	const char **items;
	uint32_t n;
};

struct rs_source_options {
	const char *path;   /* SOURCE: a directory or one file */
	const char *format; /* source=: name of a format, or NULL to probe */
	const char
		*strategy;  /* src_strategy=: path, or NULL to look in SOURCE and SOURCE/strategy */
	const char *select; /* "last" (NULL), "merge", or a glob: which file of a rank directory */
	const char *beneath;   /* fence for links, NULL: SOURCE */
	const char *unique_id; /* which save of a Paddle directory; NULL: the newest */
	const char *prefix; /* Paddle: only tensors called PREFIX or PREFIX.*, without "PREFIX." */
	bool deny_links;    /* symlinks=deny */
	bool any_layout;    /* target=same: several ranks without a strategy are fine */
	/* only=, exclude=: globs on whole names, or "weights"; rename=: OLD:NEW, a * on each side
	 */
	struct rs_words only, exclude, rename;
};

/* A directory entry that is no part of the checkpoint. */
struct rs_foreign {
	const char *path; /* relative */
	const char *why;  /* "not a rank directory", "a half-written file", ... */
};

/* What a config.json beside the weights says: the numbers that plans count with. */
struct rs_config {
	struct rs_str model_type; /* empty: none said */
	/* integers of the top level, then those of text_config that it lacks; booleans as 0 and 1
	 */
	struct rs_var {
		struct rs_str name;
		int64_t value;
	} * vars;
	uint64_t n_vars;
};
/* A file that goes with the weights and is shown as it is: a unit whose table has no entries. */
struct rs_companion {
	const char *name; /* "tokenizer.json" */
	uint32_t unit;
};

/* Where a tensor stood in the nested dicts that a framework flattened. */
struct rs_flat {
	struct rs_str key;         /* as in the files */
	const struct rs_str *path; /* outermost first */
	uint32_t n_path;
};

struct rs_names;
struct rs_source_ops;
struct rs_source {
	const struct rs_source_ops *ops;
	struct rs_source_options opts; /* strings are copies */
	struct rs_dir *dir;            /* SOURCE, or the directory of the file SOURCE */
	const char *file;              /* name of SOURCE in dir when it is a file, else NULL */
	struct rs_catalog *cat;
	struct rs_strategy *strategy; /* NULL: none found, or none needed */
	/* how the data files are written: "ckpt", "safetensors", "distcp", "pdparams" */
	const char *container;
	const char *target_container; /* format= by default; NULL: the container */
	uint64_t n_ranks;             /* rank directories expected; 1 for sources without ranks */
	/* no rank_N: every tensor is listed piece by piece, and together they are one rank's file
	 */
	bool without_ranks;
	bool mindspore; /* MindSpore wrote it: names and metadata of target files follow MindSpore
			 */
	/* a strategy as target leaves out what it does not name (load_distributed_checkpoint) */
	bool strategy_selects;
	struct rs_config config;         /* in the arena of cat, like the companions */
	struct rs_companion *companions; /* by name; their units are the last ones */
	uint64_t n_companions;
	const struct rs_flat *flat; /* Paddle; in the arena of cat */
	uint64_t n_flat;
	struct rs_foreign *foreign; /* in the arena of cat */
	uint64_t n_foreign;
	struct rs_names *names; /* only=, exclude= and rename=; NULL: none of them was given */
	void *priv;             /* of the format */
};

/* A format. See CONTRIBUTING for "add a format", step by step. */
struct rs_source_ops {
	const char *name; /* what -o source= accepts */
	/* 0 no .. 100 certain; from names and first bytes alone; cannot fail */
	int (*probe)(const struct rs_dir *dir, const char *file);
	/* names, units, ranks, strategy; no header. Fills @src->cat, container, n_ranks. */
	int (*list)(struct rs_source *src, struct rs_err *err);
	/* headers of one rank per stage, tensors, seal. @local: see rs_source_describe. */
	int (*describe)(struct rs_source *src, uint32_t local, struct rs_err *err);
	void (*done)(struct rs_source *src); /* frees priv; may be NULL */
};

/*
 * rs_source_open - find out what SOURCE is; list its units; read its strategies.
 * Owns: rs_source_close frees the catalog and all.
 * Errors: RS_MISSING (no such path), RS_UNSUPPORTED (no format bids; lists what was looked for),
 * RS_USAGE (two bids tie; several ranks without a strategy; strategies in SOURCE and
 * SOURCE/strategy disagree; both kinds of files in rank directories), RS_CORRUPT, RS_IO.
 */
int rs_source_open(
	const struct rs_source_options *opts, struct rs_source **out, struct rs_err *err);
/*
 * rs_source_describe - load one header per stage (of local rank @local if present, else of the
 * lowest present one) and describe every tensor. Call once, before any rs_target_rank.
 * Tensors that the strategy names but no file of their replica group stores are left out, and so
 * are those that only= and exclude= leave out: a note says how many.
 */
int rs_source_describe(struct rs_source *src, uint32_t local, struct rs_err *err);
void rs_source_close(struct rs_source *src);
/*
 * rs_source_name - what targets know an entry as that is called @stored in its file: 1 with *out,
 * in
 * @arena where it was made, 0 when only= or exclude= leave it out. Tensors of the catalog went
 * through this. Errors: RS_USAGE (a name too long), RS_LIMIT, RS_NOMEM. Threads: any.
 */
int rs_source_name(const struct rs_source *src, struct rs_str stored, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err);
/* rs_source_formats - NULL-terminated names, for help and messages. */
const char *const *rs_source_formats(void);

/* ------------------------------------------ headers of files, usable by every format */

/*
 * rs_ckpt_header - the index of a MindSpore .ckpt: one entry per tensor or string, content
 * located and not read (mindspore.md section 1).
 * @out: a new table; rs_arena_free(table->arena) frees it. Entries are in file order; by_name is
 * set. Errors: RS_CORRUPT, RS_UNSUPPORTED (encrypted, map parameter, unknown type), RS_LIMIT,
 * RS_IO. Threads: any. Format: docs/formats/mindspore.md.
 */
int rs_ckpt_header(const struct rs_file *file, struct rs_table **out, struct rs_err *err);
/*
 * rs_safetensors_header - the same for a .safetensors file: the reference's validation, in its
 * order, with its error words; duplicate names refused. Entries are in offset order.
 * Format: docs/formats/safetensors.md.
 */
int rs_safetensors_header(const struct rs_file *file, struct rs_table **out, struct rs_err *err);
/*
 * rs_table_join - the tables of several files of one unit as one: later files win over
 * earlier ones by name, keeping the place of the first (load_segmented_checkpoints).
 * Takes the parts over: they are freed, also on failure.
 */
int rs_table_join(struct rs_table **parts, uint32_t n, struct rs_table **out, struct rs_err *err);

#endif
