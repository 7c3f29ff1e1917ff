/*
 * catalog.h - floor 2: what exists. Tensors, the pieces of them that source files store, and
 * where the bytes of a piece are. No file format and no target is known here.
 *
 *   unit     what is loaded as one: a rank directory, a shard, a data file
 *   table    the header of a unit: its entries, in file order; units with equal headers share it
 *   entry    a stored tensor (or string): name, dtype, dims, spans
 *   span     a byte range of one file; the spans of an entry, joined, are its content
 *   tensor   a logical, global tensor: name, dtype, whole shape, and how it is cut
 *   piece    a box of a tensor, stored as (part of) the content of one entry of one unit
 *   grid     the usual way to be cut: equal cells, each held by one or more ranks (replicas)
 *
 * A tree of 4096 ranks with 2000 tensors has eight million pieces. Nobody stores them: a tensor
 * names its grid (a few dozen distinct ones per tree) and pieces are computed when asked for.
 *
 * Life: a source fills the catalog (one thread), rs_catalog_seal ends that, and from then on it is
 * read by any thread without locks, except that units load on demand (rs_catalog_table).
 */
#ifndef RESHARDFS_CATALOG_H
#define RESHARDFS_CATALOG_H

#include "reshardfs/base.h"

#define RS_MAX_AXES 8          /* the longest shapes in the field have 6 axes */
#define RS_MAX_TENSORS 4000000 /* entries of one unit; headers beyond are hostile or a mistake */
#define RS_MAX_NAME 65535      /* bytes of a tensor name */

/* ------------------------------------------------------------------ dtypes */

enum rs_dtype {
	RS_DT_NONE,
	/* the safetensors enumeration in its order: their writer sorts by it, descending */
	RS_DT_BOOL,
	RS_DT_F4,
	RS_DT_F6_E2M3,
	RS_DT_F6_E3M2,
	RS_DT_U8,
	RS_DT_I8,
	RS_DT_F8_E5M2,
	RS_DT_F8_E4M3,
	RS_DT_F8_E8M0,
	RS_DT_F8_E4M3FNUZ,
	RS_DT_F8_E5M2FNUZ,
	RS_DT_I16,
	RS_DT_U16,
	RS_DT_F16,
	RS_DT_BF16,
	RS_DT_I32,
	RS_DT_U32,
	RS_DT_F32,
	RS_DT_C64,
	RS_DT_F64,
	RS_DT_I64,
	RS_DT_U64,
	RS_DT_INT4X2, /* MindSpore qint4x2: one byte holds two values and the shape counts bytes */
	RS_DT_STR,    /* a text entry of a .ckpt: UTF-32LE code points, dims = {characters} */
	RS_DT_COUNT,
};
/* rs_dtype_bits - bits of one element; 0 for RS_DT_NONE. */
uint32_t rs_dtype_bits(enum rs_dtype dt);
const char *rs_dtype_name(enum rs_dtype dt);          /* safetensors word ("BF16"); "Int4", "str" */
const char *rs_dtype_mindspore(enum rs_dtype dt);     /* "BFloat16"; NULL when .ckpt has no word */
enum rs_dtype rs_dtype_from_name(struct rs_str name); /* RS_DT_NONE when unknown */
enum rs_dtype rs_dtype_from_mindspore(struct rs_str name); /* also "mindspore.float16" */
/*
 * rs_cast_known - can elements of @from be shown as @to? Both of F64, F32, F16, BF16, and @to not
 * F64. What does it is rs_cast (image.h).
 */
bool rs_cast_known(enum rs_dtype from, enum rs_dtype to);

/* ---------------------------------------------------------- shapes and boxes */

struct rs_shape {
	uint32_t n_axes;
	uint64_t dims[RS_MAX_AXES]; /* outermost first, in elements */
};
/* A box: [origin, origin + len) per axis, in elements. */
struct rs_box {
	uint32_t n_axes;
	uint64_t origin[RS_MAX_AXES], len[RS_MAX_AXES];
};
bool rs_shape_eq(const struct rs_shape *a, const struct rs_shape *b);
/* rs_shape_count - elements; 1 for 0-d. False when the product (left to right) overflows. */
bool rs_shape_count(const struct rs_shape *s, uint64_t *out);
/* rs_shape_bytes - bytes of @s in @dt; false on overflow or when bits do not fill bytes. */
bool rs_shape_bytes(const struct rs_shape *s, enum rs_dtype dt, uint64_t *out);
struct rs_box rs_box_whole(const struct rs_shape *s);
struct rs_shape rs_box_shape(const struct rs_box *b);
uint64_t rs_box_count(const struct rs_box *b); /* for boxes inside a checked shape: no overflow */
bool rs_box_eq(const struct rs_box *a, const struct rs_box *b);
bool rs_box_inside(const struct rs_box *b, const struct rs_shape *s);
/* rs_box_intersect - false when nothing is common (a zero-size box has nothing). */
bool rs_box_intersect(const struct rs_box *a, const struct rs_box *b, struct rs_box *out);
/* "[4096, 11008]" and "[0:1024, 0:4096]", cut to @size; return @buf. */
const char *rs_shape_show(const struct rs_shape *s, char *buf, size_t size);
const char *rs_box_show(const struct rs_box *b, char *buf, size_t size);
#define RS_SHAPE_SHOW(s) rs_shape_show((s), (char[RS_SHOW_MAX]){0}, RS_SHOW_MAX)
#define RS_BOX_SHOW(b) rs_box_show((b), (char[RS_SHOW_MAX]){0}, RS_SHOW_MAX)

/* -------------------------------------------------------------------- stored */

struct rs_span {
	uint32_t file; /* index among the files of the unit */
	uint64_t off, len;
};
/*
 * How to find a place in bytes that a pickle of protocol 2 keeps as UTF-8 text of latin-1
 * characters: bytes from 0x80 on take two. at[i] is the file offset of decoded byte i * step.
 */
struct rs_latin1 {
	uint64_t step, n;
	const uint64_t *at;
	uint64_t end; /* file offset behind the text */
};
/*
 * A stored tensor: the content is the spans, joined: row-major, little-endian, unless the three
 * last fields say otherwise.
 */
struct rs_entry {
	struct rs_str name;
	enum rs_dtype dtype;
	bool zero_dims; /* a 0-d tensor that its .ckpt stored with dims [0] (mindspore.md 1.3) */
	struct rs_shape shape;
	uint64_t bytes; /* of the content = shape x dtype = sum of the spans */
	uint32_t n_spans;
	const struct rs_span *spans;
	uint8_t swap; /* big-endian: bytes to turn around (2, 4, 8); 0: as they are */
	bool fortran; /* column-major: pieces that are whole entries get their strides from it */
	const struct rs_latin1
		*latin1; /* per span, or NULL: raw; then span.len counts decoded bytes */
};
/* Key and value of a file's own metadata (safetensors `__metadata__`). */
struct rs_meta {
	struct rs_str key, value;
};
/* The header of a unit. Immutable once published; units with equal headers share one. */
struct rs_table {
	const struct rs_entry *entries; /* in file order */
	uint64_t n_entries;
	const uint32_t *by_name;    /* indexes of entries, by name in byte order */
	const uint64_t *file_bytes; /* per file of the unit: the size that this header implies */
	uint32_t n_files;
	const struct rs_meta *meta;
	uint64_t n_meta;
	bool crc;               /* the file carries a checksum */
	bool deduplicated;      /* the file says that redundancy was removed */
	bool leading_space;     /* a safetensors header that begins with white space */
	struct rs_arena *arena; /* owns all of the above, the table included */
};
/* rs_table_find - the entry called @name, or NULL. O(log n). */
const struct rs_entry *rs_table_find(const struct rs_table *t, struct rs_str name);
/*
 * rs_table_finish - build by_name for a filled table; a name that stands twice is RS_CORRUPT.
 * @file: for the message.
 */
int rs_table_finish(struct rs_table *t, const char *file, struct rs_err *err);

struct rs_source_file {
	const char
		*path; /* relative to SOURCE ("" when SOURCE is the file itself); also the name */
	struct rs_identity id; /* as listed */
};
struct rs_unit {
	const char *name; /* "rank_3", "model-00001-of-00002.safetensors": for messages */
	uint32_t first_file, n_files; /* in the file table of the catalog */
	bool absent;                  /* an index names it, and it is not there: loading it fails */
};

/* ------------------------------------------------------------------- logical */

/*
 * A piece: @box of its tensor is stored in @entry of @unit, beginning @first elements into the
 * content. Along axis a, neighbours are stride[a] elements apart; strides are those of a
 * row-major array of shape box.len unless a format (Fortran order, views) says otherwise.
 */
struct rs_piece {
	struct rs_box box;
	uint32_t unit;
	/*
	 * NULL in a listed piece whose unit is not loaded yet: rs_catalog_pieces looks it up by
	 * the stored name of the tensor and holds it against @stored.
	 */
	const struct rs_entry *entry;
	const struct rs_shape *stored; /* shape of the entry; NULL: that of the box */
	uint64_t first;
	uint64_t stride[RS_MAX_AXES];
};
void rs_piece_row_major(struct rs_piece *p); /* fill stride from box.len */

/*
 * A grid: the tensor is cut into cuts[a] pieces along axis a; all equal, except that axis 0
 * may have explicit borders (@edges) or be dealt out in @fields interleaved blocks.
 * Cells are numbered row-major over cuts. Holder h (a rank, counted from 0 in its stage) stores
 * cell cell_of[h]; the holders of cell c, ascending, are holders[first[c] .. first[c+1]).
 * Worked example: 16 rows, cuts {2}, fields 2. Rows 0-3 belong to cell 0, 4-7 to cell 1, 8-11 to
 * cell 0 again, 12-15 to cell 1: full row (f*2 + cell)*4 + j is row f*4 + j of the slice.
 */
struct rs_grid {
	uint32_t n_axes;
	uint32_t cuts[RS_MAX_AXES];
	const uint64_t *edges; /* cuts[0] + 1 borders of axis 0, from 0; NULL: equal */
	uint32_t fields;       /* 1: contiguous */
	uint32_t n_holders, n_cells;
	const uint32_t *cell_of, *first, *holders;
};
#define RS_MAX_CELLS (1u << 20) /* cells or holders of a grid: a million ranks a stage */
/*
 * rs_grid_fits - can @shape be cut by @g? RS_USAGE naming the axis when a length does not
 * divide, or the number of axes or the borders do not fit.
 */
int rs_grid_fits(const struct rs_grid *g, const struct rs_shape *shape, struct rs_err *err);
/* rs_grid_slice - shape of what a holder of @cell stores of a tensor of @shape (that fits). */
struct rs_shape rs_grid_slice(const struct rs_grid *g, const struct rs_shape *shape, uint32_t cell);
/*
 * rs_grid_whole - the inverse: the whole shape, given the slice of @cell.
 * RS_CORRUPT: slice has another number of axes or rows than the grid says; RS_LIMIT: overflow.
 */
int rs_grid_whole(const struct rs_grid *g, const struct rs_shape *slice, uint32_t cell,
	struct rs_shape *out, struct rs_err *err);
/*
 * rs_grid_box - the @field-th of the g->fields boxes of @cell in the whole tensor; *@at gets its
 * place inside the slice (same lengths; only the origin of axis 0 can differ from zero).
 */
struct rs_box rs_grid_box(const struct rs_grid *g, const struct rs_shape *shape, uint32_t cell,
	uint32_t field, struct rs_box *at);

/*
 * rs_grid_meet - the cells of a tensor of @shape (that fits) whose boxes may meet @box, in
 * row-major order; with fields every cell along axis 0 counts. A box without elements meets none.
 * @visit: non-zero stops and is returned.
 */
typedef int (*rs_cell_fn)(void *arg, uint32_t cell, struct rs_err *err);
int rs_grid_meet(const struct rs_grid *g, const struct rs_shape *shape, const struct rs_box *box,
	rs_cell_fn visit, void *arg, struct rs_err *err);

/* A logical tensor: cut by a grid over consecutive units, or listed piece by piece. */
struct rs_tensor {
	struct rs_str name;
	struct rs_str stored; /* the name in its files, where it differs; else empty */
	enum rs_dtype dtype;
	struct rs_shape shape;
	const struct rs_grid *grid; /* holder h of the grid is rank first_rank + h */
	uint32_t first_rank;
	const struct rs_piece *pieces; /* when grid is NULL */
	uint32_t n_pieces;
	bool distinct;    /* no two listed pieces have the same box: there are no replicas */
	uint32_t order;   /* place in the order of the source, where the source has no ranks */
	bool unplaced;    /* an entry without layout: a strategy gives it to every rank as it is */
	uint32_t witness; /* the unit whose header told dtype and shape, for messages */
};

/* ------------------------------------------------------------------- catalog */

struct rs_catalog;

/* What a source gives the catalog to work with, and keeps alive as long as it. */
struct rs_loader {
	/* open file number @file (its path is rs_catalog_file_info) */
	rs_open_fn open;
	/*
	 * read the header of @unit: @files are open, @n of them. Fills a table in a new arena.
	 * Called by any thread, once per unit (again after RS_IO).
	 */
	int (*load)(void *self, const struct rs_unit *unit, const struct rs_file *const *files,
		struct rs_table **out, struct rs_err *err);
	void (*free)(void *self);
	void *self;
};

struct rs_catalog *rs_catalog_new(uint64_t limit_bytes, struct rs_err *err);
/* rs_catalog_hangs - is a thread still inside a read that was given up? Then free nothing. */
bool rs_catalog_hangs(const struct rs_catalog *c);
void rs_catalog_free(struct rs_catalog *c); /* closes files, frees tables and the loader */
struct rs_arena *rs_catalog_arena(struct rs_catalog *c); /* for what lives as long; before seal */
struct rs_notes *rs_catalog_notes(struct rs_catalog *c); /* remarks on the source; before seal */
void rs_catalog_set_loader(struct rs_catalog *c, struct rs_loader loader);
/* rs_catalog_set_access - how files opened from now on are read; RS_ACCESS_PREAD unless told. */
void rs_catalog_set_access(struct rs_catalog *c, enum rs_access access);
/*
 * rs_catalog_set_timeout - a deadline for reads of files that are not mapped, headers included.
 * Before anything is opened. RS_NOMEM.
 */
int rs_catalog_set_timeout(struct rs_catalog *c, uint32_t timeout_ms, struct rs_err *err);

/* Building. Paths and names are copied. Every function: RS_NOMEM, RS_LIMIT. */
int rs_catalog_add_unit(struct rs_catalog *c, const char *name, const struct rs_source_file *files,
	uint32_t n_files, uint32_t *unit, struct rs_err *err);
/* rs_catalog_set_absent - @unit is not there, see struct rs_unit. */
void rs_catalog_set_absent(struct rs_catalog *c, uint32_t unit);
/*
 * rs_catalog_set_ranks - the source is a tree of ranks: @units[r] is the unit of rank r, or
 * RS_NO_UNIT when its directory is missing; rank = stage * stage_devices + local.
 * A source without ranks is one stage of one device, rank 0.
 */
#define RS_NO_UNIT UINT32_MAX
int rs_catalog_set_ranks(struct rs_catalog *c, const uint32_t *units, uint32_t n_stages,
	uint32_t stage_devices, struct rs_err *err);
/*
 * rs_catalog_set_names - what tensors are called that are added from now on: @fn turns the name of
 * @t into *out (in the arena) and returns 1, or 0 to leave the tensor out, or -1. What it calls
 * otherwise keeps its old name as stored.
 */
typedef int (*rs_name_fn)(
	void *arg, const struct rs_tensor *t, struct rs_str *out, struct rs_err *err);
void rs_catalog_set_names(struct rs_catalog *c, rs_name_fn fn, void *arg);
/* rs_catalog_add_tensor - @t is copied; its grid, pieces and name must live as long (arena). */
int rs_catalog_add_tensor(struct rs_catalog *c, const struct rs_tensor *t, struct rs_err *err);
/*
 * rs_catalog_seal - sort by name; a tensor that stands twice is RS_CORRUPT, two that were given one
 * name are RS_USAGE. Idempotent: the life of a rank tree adds units first, loads samples, then
 * tensors, then seals.
 */
int rs_catalog_seal(struct rs_catalog *c, struct rs_err *err);

/* Looking. Any thread. */
uint32_t rs_catalog_n_units(const struct rs_catalog *c);
const struct rs_unit *rs_catalog_unit(const struct rs_catalog *c, uint32_t unit);
uint32_t rs_catalog_n_stages(const struct rs_catalog *c);
uint32_t rs_catalog_stage_devices(const struct rs_catalog *c);
uint32_t rs_catalog_rank_unit(const struct rs_catalog *c, uint64_t rank); /* or RS_NO_UNIT */
uint64_t rs_catalog_n_tensors(const struct rs_catalog *c);
const struct rs_tensor *rs_catalog_tensor(const struct rs_catalog *c, uint64_t i); /* by name */
const struct rs_tensor *rs_catalog_find(const struct rs_catalog *c, struct rs_str name);
uint32_t rs_catalog_n_files(const struct rs_catalog *c);
const struct rs_source_file *rs_catalog_file_info(const struct rs_catalog *c, uint32_t file);

/*
 * rs_catalog_table - the header of a unit, loaded at the first call. Concurrent callers wait
 * for the one that loads. A failure is kept and told again, except RS_IO, which is tried anew.
 * Works before the seal, too (samples). Threads: any.
 */
const struct rs_table *rs_catalog_table(struct rs_catalog *c, uint32_t unit, struct rs_err *err);
bool rs_catalog_loaded(const struct rs_catalog *c, uint32_t unit);
/*
 * rs_catalog_file - file number @file, open. Stays open until the catalog is freed, so a file
 * that is renamed or deleted meanwhile goes on serving its old, complete bytes.
 * RS_CHANGED when what is found is not what was listed. Threads: any.
 */
const struct rs_file *rs_catalog_file(struct rs_catalog *c, uint32_t file, struct rs_err *err);

/*
 * rs_catalog_pieces - the pieces of @t that meet @box, each exactly once: of a grid cell the
 * holder @prefer (local number in its stage) if it stores the tensor, else the lowest that does.
 * Loads the headers of the units it names, and proves that each of these stores what the
 * tensor says (dtype, slice shape).
 * @visit: called per piece with a piece on the stack; non-zero stops and is returned.
 * Errors: RS_MISSING when no present rank stores a cell (names tensor, box and ranks), RS_CORRUPT
 * when stored and logical tensor disagree (names both files), and those of loading.
 * Threads: any.
 */
#define RS_PREFER_NONE UINT32_MAX
typedef int (*rs_piece_fn)(void *arg, const struct rs_piece *piece, struct rs_err *err);
int rs_catalog_pieces(struct rs_catalog *c, const struct rs_tensor *t, const struct rs_box *box,
	uint32_t prefer, rs_piece_fn visit, void *arg, struct rs_err *err);

/*
 * rs_content_gather - rs_io_gather for rows with @encoded set: decodes and turns bytes around on
 * the way. Allocates nothing. @file: the file of the rows.
 * Errors: RS_IO, RS_CHANGED, RS_CORRUPT (text that is no latin-1). Threads: any.
 */
int rs_content_gather(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err);

/* rs_tensor_stored - the name under which files store @t. */
static inline struct rs_str rs_tensor_stored(const struct rs_tensor *t)
{
	return t->stored.ptr ? t->stored : t->name;
}

#endif
