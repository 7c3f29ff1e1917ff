/*
 * paddle.h - what the files of the Paddle source share. paddle_dir.c picks a save, paddle_meta.c
 * reads its metadata, paddle_describe.c turns shards into pieces; paddle_data.c reads the headers
 * of data files, paddle_array.c one array of them. paddle.c holds it together.
 */
#ifndef RESHARDFS_CORE_SOURCE_PADDLE_H
#define RESHARDFS_CORE_SOURCE_PADDLE_H

#include "reshardfs/pickle.h"
#include "reshardfs/source.h"

/* ------------------------------------------------------------- which files (paddle_dir.c) */

/* The save that was picked in SOURCE. All in the arena of the catalog. */
struct rs__pd_dir {
	struct rs_dirent *entries; /* of SOURCE, in byte order */
	uint64_t n_entries;
	const char *id;       /* decimal; NULL: no data file tells one */
	struct rs_str *metas; /* metadata files of the save */
	uint64_t n_metas;
};
/* rs__pd_data_id - the id in a name like 0_11.distcp. */
bool rs__pd_data_id(struct rs_str name, struct rs_str *id);
/*
 * rs__pd_choose - list SOURCE and pick the save that unique_id= asks for, else the newest.
 * Errors: RS_USAGE (unique_id= is no number), RS_MISSING (no metadata), RS_IO.
 */
int rs__pd_choose(struct rs_source *src, struct rs__pd_dir *out, struct rs_err *err);
const struct rs_dirent *rs__pd_find(const struct rs__pd_dir *dir, struct rs_str name);
/* rs__pd_foreign - fill src->foreign: all of SOURCE but the metadata and @files (by name). */
int rs__pd_foreign(struct rs_source *src, const struct rs__pd_dir *dir, const struct rs_str *files,
	uint64_t n_files, struct rs_err *err);

/* ---------------------------------------------------------------- metadata (paddle_meta.c) */

/* A shard of a tensor, as LocalTensorMetadata says. Numbers are nodes that hold integers. */
struct rs__pd_shard {
	struct rs_str key;
	uint32_t n_axes;
	struct rs_value *const *offset, *const *shape; /* n_axes each; lengths may be negative */
	struct rs_value *const *whole;                 /* n_axes, or NULL */
	struct rs_str dtype;                           /* ptr NULL: not told */
	bool flat; /* only elements [start, stop) of the box, in row-major order */
	int64_t start, stop;
};
/* Where a shard is, as LocalTensorIndex says. */
struct rs__pd_place {
	uint64_t hash; /* of key, offset and range; the array is sorted by it */
	struct rs_str key, file;
	struct rs_value *const *offset;
	uint32_t n_axes;
	bool flat;
	int64_t start, stop, replica; /* 0: the main copy */
	uint64_t seq;                 /* of two alike the later counts */
	uint32_t meta;                /* the metadata file that says so */
};
/* The metadata of a save; everything points into the arena. */
struct rs__pd_meta {
	struct rs_arena *arena;
	const char *shown;           /* name of the first metadata file, for messages */
	struct rs__pd_shard *shards; /* those of a key side by side, keys in their order */
	uint64_t n_shards;
	struct rs__pd_place *places;
	uint64_t n_places;
	struct rs_str *files; /* distinct data files, in byte order */
	uint64_t n_files;
};
/*
 * rs__pd_meta_read - read the metadata files of @dir; *out must be zeroed, rs__pd_meta_done ends it
 * after a failure, too. Fills src->flat.
 * Errors: those of rs_pickle_read; RS_CORRUPT (not what Metadata holds, a file name that leads out
 * of the directory, two files that contradict each other), RS_LIMIT.
 */
int rs__pd_meta_read(struct rs_source *src, const struct rs__pd_dir *dir, struct rs__pd_meta *out,
	struct rs_err *err);
void rs__pd_meta_done(struct rs__pd_meta *meta);
/* rs__pd_places - the places of @shard, main copy first, then replicas; *n may be 0. */
const struct rs__pd_place *rs__pd_places(
	const struct rs__pd_meta *meta, const struct rs__pd_shard *shard, uint64_t *n);

/* Metadata being read; between paddle_meta.c and paddle_places.c. */
struct rs__pd_reading {
	struct rs_source *src;
	struct rs__pd_meta *out;
	const char *shown; /* the file under work */
	uint32_t number;   /* of it */
	uint64_t cap_shards, cap_places, cap_files;
	uint64_t most_shards; /* each takes opcodes: more of them are one list, shared */
	uint64_t settle_at;   /* so many names of files: throw out what stands twice */
	struct rs_str key;    /* under work */
	struct rs_err *err;
};
/* rs__pd_refuse - RS_CORRUPT: "expected WANTED as WHAT, found ..." of the key under work. */
int rs__pd_refuse(const struct rs__pd_reading *r, const char *what, const char *wanted,
	const struct rs_value *found);
static inline bool rs__pd_is_none(const struct rs_value *v)
{
	return !v || v->type == RS_VALUE_NONE;
}
/* rs__pd_integers - a tuple or list of at most RS_MAX_AXES integers. */
int rs__pd_integers(const struct rs__pd_reading *r, const char *what, const struct rs_value *v,
	struct rs_value *const **out, uint32_t *n);
/* rs__pd_range - flattened_range of @object: None, or (start, stop). */
int rs__pd_range(const struct rs__pd_reading *r, const struct rs_value *object, bool *flat,
	int64_t *start, int64_t *stop);
/* rs__pd_places_read - take over storage_metadata; _finish: once all files were read. */
int rs__pd_places_read(struct rs__pd_reading *r, const struct rs_value *dict);
int rs__pd_places_finish(struct rs__pd_reading *r);

/* ------------------------------------------------------------------ data files (paddle_data.c) */

/* What the metadata says of a key: data files hold u2 for bfloat16, and bytes for float8. */
struct rs__pd_known {
	struct rs_str key;
	enum rs_dtype dtype; /* RS_DT_NONE: not told */
};
/* The keys that count, by name in byte order; n 0 with keys NULL: all of them. */
struct rs__pd_keys {
	const struct rs__pd_known *keys;
	uint64_t n;
};
/*
 * rs__pd_header - the header of a .distcp, .pdparams or .pdopt file: one entry an array.
 * @left_out: keys that are no arrays; may be NULL.
 * Errors: RS_CORRUPT, RS_UNSUPPORTED, RS_LIMIT, RS_IO. Threads: any.
 */
int rs__pd_header(const struct rs_file *file, const struct rs__pd_keys *keys, uint64_t *left_out,
	struct rs_table **out, struct rs_err *err);

/* -------------------------------------------------------------------- arrays (paddle_array.c) */

struct rs__pd_arrays {
	const struct rs_file *file;
	struct rs_arena *arena; /* of the table */
	uint64_t scanned;       /* bytes of texts */
	uint8_t *buffer;        /* heap, RS__PD_BUFFER bytes; for texts */
	struct rs_err *err;
};
#define RS__PD_BUFFER 65536
/*
 * rs__pd_entry - fill @e (whose name is set) from @n arrays that follow each other in one tensor.
 * @shape: of the whole, when there are several; NULL: that of the one array.
 * @told: the dtype by the metadata, or RS_DT_NONE.
 */
int rs__pd_entry(struct rs__pd_arrays *r, const struct rs_value *const *arrays, uint32_t n,
	const struct rs_value *shape, enum rs_dtype told, struct rs_entry *e);
/* rs__pd_dtype - by Paddle's word ("bfloat16", "paddle.bfloat16"), or RS_DT_NONE. */
enum rs_dtype rs__pd_dtype(struct rs_str word);

/* -------------------------------------------------------------------------- the source (paddle.c)
 */

/* A file's path in the catalog, and what it is called in messages: with SOURCE in front. */
struct rs__pd_name {
	const char *path, *shown;
	uint32_t unit;
};
struct rs__paddle {
	struct rs_source *src;
	struct rs__pd_name *names; /* by path; in the arena of the catalog */
	uint64_t n_names;
	struct rs__pd_keys keys; /* set by describe, before any header is loaded */
	struct rs__pd_meta meta; /* from list to describe */
};
/* rs__pd_unit - the unit of a data file that the metadata names. */
uint32_t rs__pd_unit(const struct rs__paddle *p, struct rs_str file);
/* rs__pd_shown - SOURCE/@name in the arena of the catalog, or NULL. */
const char *rs__pd_shown(struct rs_source *src, struct rs_str name, struct rs_err *err);
/* rs__pd_describe - shards to tensors (paddle_describe.c). */
int rs__pd_describe(struct rs_source *src, struct rs_err *err);

#endif
