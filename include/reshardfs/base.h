/*
 * base.h - floor 0: errors, strings, arenas, checked numbers and files.
 *
 * Nothing here knows what a tensor is. Every other room builds on these few words, and plain
 * malloc and every read(2) of a source file live behind them, so that tests can make each fail.
 *
 * Conventions of the whole tree: functions return 0 or -1 (or a pointer or NULL) and fill
 * @err; @err may be NULL. Sizes and offsets are uint64_t bytes. What a function does not say
 * about threads is: one object, one thread.
 */
#ifndef RESHARDFS_BASE_H
#define RESHARDFS_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ------------------------------------------------------------------ errors */

/* What kind of failure: decides the exit code of a verb and the errno of a reader (fs/). */
enum rs_code {
	RS_OK,
	RS_USAGE,       /* an option or a target that makes no sense          -> exit 2 */
	RS_MISSING,     /* a rank, file or tensor that should be there is not -> exit 3 */
	RS_CORRUPT,     /* bytes that break their format                      -> exit 3 */
	RS_UNSUPPORTED, /* valid perhaps, but not something that we read      -> exit 4 */
	RS_IO,          /* the system refused or failed a read                -> exit 5 */
	RS_CHANGED,     /* the source is not what it was at the first look    -> exit 5, ESTALE */
	RS_LIMIT,       /* larger than a named limit                          -> exit 7 */
	RS_NOMEM,       /* out of memory                                      -> exit 7, ENOMEM */
};

struct rs_err {
	enum rs_code code;
	int sys;        /* errno behind it, else 0 */
	char msg[480];  /* "file[@offset]: tensor 'name': expected ..., found ..." */
	char hint[240]; /* what to do next, or "" */
};

/*
 * rs_fail - fill @err and return -1, so that callers write `return rs_fail(...)`.
 * Clears any older hint. The message is cut, never overrun.
 */
int rs_fail(struct rs_err *err, enum rs_code code, const char *fmt, ...)
	__attribute__((cold, format(printf, 3, 4)));
/*
 * rs_fail_sys - the same by errno @sys, whose text is appended behind ": ": RS_NOMEM and RS_LIMIT
 * when the system lacks memory or descriptors, else RS_IO.
 */
int rs_fail_sys(struct rs_err *err, int sys, const char *fmt, ...)
	__attribute__((cold, format(printf, 3, 4)));
/* rs_hint - set the hint of a filled error; returns -1. */
int rs_hint(struct rs_err *err, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));
/* rs_err_prefix - put "text: " before the message; returns -1. */
int rs_err_prefix(struct rs_err *err, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));
/* rs_err_passes - may the same attempt succeed later? Not when a file or a limit of ours decides.
 */
bool rs_err_passes(const struct rs_err *err);
/* rs_code_name - "corrupt", "missing", ...: the word used in --json output. */
const char *rs_code_name(enum rs_code code);

/* ----------------------------------------------------------------- strings */

/* A counted string, not terminated; the bytes belong to somebody else. */
struct rs_str {
	const char *ptr;
	size_t len;
};

#define RS_STR(literal) ((struct rs_str){(literal), sizeof(literal) - 1})

static inline struct rs_str rs_str(const char *s)
{
	return (struct rs_str){s, s ? strlen(s) : 0};
}
/* rs_str_cmp - byte order (of UTF-8: code point order), shorter first. */
int rs_str_cmp(struct rs_str a, struct rs_str b);
static inline bool rs_str_eq(struct rs_str a, struct rs_str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool rs_str_is(struct rs_str a, const char *s)
{
	return rs_str_eq(a, rs_str(s));
}
bool rs_str_starts(struct rs_str s, const char *prefix);
bool rs_str_ends(struct rs_str s, const char *suffix);
/*
 * rs_str_u64 - all of @s as a decimal number.
 * Returns false for an empty string, anything but digits, or above 2^64-1. Leading zeros pass.
 */
bool rs_str_u64(struct rs_str s, uint64_t *out);

/*
 * rs_show - a name from a file, made safe to print: control bytes and invalid UTF-8 become
 * \xNN, and what does not fit @size is cut with "...". Returns @buf, terminated.
 */
#define RS_SHOW_MAX 120
const char *rs_show(struct rs_str s, char *buf, size_t size);
#define RS_SHOW(s) rs_show((s), (char[RS_SHOW_MAX]){0}, RS_SHOW_MAX)

/*
 * rs_append - snprintf at offset @at of a buffer that may be full already; returns the new length,
 * what did not fit included, so that a chain of calls needs no check. The text is terminated.
 */
size_t rs_append(char *buf, size_t size, size_t at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* rs_utf8_ok - true when @s is valid UTF-8 (no surrogates, no overlong forms). */
bool rs_utf8_ok(struct rs_str s);

/* ----------------------------------------------------------------- numbers */

/* Checked arithmetic: false when the result does not fit, and then *out is undefined. */
static inline bool rs_add(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}
static inline bool rs_mul(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}
/* rs_range_ok - [off, off + len) lies inside [0, size). */
static inline bool rs_range_ok(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}
static inline uint64_t rs_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
static inline uint64_t rs_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ------------------------------------------------------------------ memory */

/*
 * An arena: everything of one lifetime, freed at once. It has a byte limit, so that a hostile
 * header yields RS_LIMIT rather than the attention of the OOM killer. Not thread-safe.
 */
struct rs_arena;

struct rs_arena *rs_arena_new(uint64_t limit_bytes, struct rs_err *err);
void rs_arena_free(struct rs_arena *a); /* NULL is fine */
/* rs_arena_alloc - @bytes zeroed bytes, aligned for any object; NULL on RS_LIMIT, RS_NOMEM. */
void *rs_arena_alloc(struct rs_arena *a, uint64_t bytes, struct rs_err *err);
/* rs_arena_array - @n objects of @size bytes, the product checked. n = 0 gives a valid pointer. */
void *rs_arena_array(struct rs_arena *a, uint64_t n, uint64_t size, struct rs_err *err);
/* rs_arena_copy - a copy of @len bytes with a 0 byte behind it (not counted). */
char *rs_arena_copy(struct rs_arena *a, const void *src, uint64_t len, struct rs_err *err);
int rs_arena_str(struct rs_arena *a, struct rs_str src, struct rs_str *out, struct rs_err *err);
char *rs_arena_printf(struct rs_arena *a, struct rs_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
uint64_t rs_arena_used(const struct rs_arena *a); /* bytes handed out, rounding included */
uint64_t rs_arena_held(const struct rs_arena *a); /* bytes taken from the system */

#define RS_NEW(arena, type, err) ((type *)rs_arena_alloc((arena), sizeof(type), (err)))
#define RS_NEW_N(arena, type, n, err) ((type *)rs_arena_array((arena), (n), sizeof(type), (err)))

/* Heap memory for objects that live alone; rs_free(NULL) is fine. Zeroed. */
void *rs_alloc(uint64_t bytes, struct rs_err *err);
void rs_free(void *p);
/*
 * rs_grow - make room for at least @need objects in a heap array that doubles.
 * @items: address of the array pointer (any object pointer); @cap: its capacity in objects.
 * The array stays valid on failure. Free it with rs_free.
 */
int rs_grow(void *items, uint64_t *cap, uint64_t need, uint64_t size, struct rs_err *err);

/*
 * rs_thread_start - a thread that leaves all signals to others, but for faults of its own. @thread
 * NULL: detached. Returns 0 or an errno.
 */
int rs_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Remarks for people, collected while something is opened or planned; printed by `plan`. */
struct rs_notes {
	char **items; /* heap, each too */
	uint64_t n, cap;
};
/* rs_note - append one; a remark that stands there already is not repeated. NULL @notes: no-op. */
void rs_note(struct rs_notes *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void rs_notes_done(struct rs_notes *notes);

/* ------------------------------------------------------------------- files */

/* What tells one state of a file from another; recorded when its header is read. */
struct rs_identity {
	uint64_t ino, size;
	int64_t mtime_ns, ctime_ns;
	uint32_t mode, uid, gid, nlink;
};

/*
 * A source file, or a block of memory that stands for one (tests and fuzzers).
 * Immutable after open, so any number of threads may read from it.
 */
struct rs_file {
	int fd;             /* -1: memory */
	const uint8_t *mem; /* memory block; NULL for a descriptor */
	const uint8_t *map; /* the same bytes mapped, see rs_file_map; NULL: read with pread */
	uint64_t size;
	const char *name; /* for messages; borrowed */
	struct rs_identity id;
	struct rs_pool *pool; /* reads go through it, with a deadline; NULL: directly */
};

/*
 * rs_file_open - open a regular file by path for reading.
 * Never blocks on a FIFO or device (RS_CORRUPT: not a regular file), does not touch atime where
 * permitted. @name: kept, not copied, for messages; NULL means @path.
 * Errors: RS_MISSING (ENOENT), RS_IO, RS_CORRUPT.
 */
int rs_file_open(const char *path, const char *name, struct rs_file *out, struct rs_err *err);
void rs_file_memory(const void *bytes, uint64_t size, const char *name, struct rs_file *out);
void rs_file_close(struct rs_file *file);
/*
 * rs_file_map - have rs_io_gather copy from mapped pages: no system call, and no bytes between the
 * rows. AUTO maps on local file systems only, since a page of a dead file server cannot be timed
 * out. Where mapping fails, reading goes on by pread. Call before the file is shared.
 * A copy that meets a page which is gone (the file was truncated) is RS_CHANGED and not SIGBUS;
 * who reads through file->map itself must live with SIGBUS, or let the kernel do the reading.
 */
enum rs_access { RS_ACCESS_AUTO, RS_ACCESS_MAP, RS_ACCESS_PREAD };
void rs_file_map(struct rs_file *file, enum rs_access access);
/*
 * Threads that read in our stead, so that we can stop waiting: at most @timeout_ms for each MiB.
 * RS_IO (sys ETIMEDOUT) at the deadline. A pool may be freed while reads hang; it then goes when
 * these return. Threads: any.
 */
#define RS_POOL_HUNG 64 /* reads given up and not returned; beyond, reads fail at once */
struct rs_pool *rs_pool_new(uint32_t timeout_ms, struct rs_err *err);
void rs_pool_free(struct rs_pool *p);
/*
 * rs_pool_open - open a file by @open(@self, @path), which must stay good until that returns,
 * deadline or not: see rs_pool_hangs. A file that is opened too late is closed again.
 */
typedef int (*rs_open_fn)(void *self, const char *path, struct rs_file *out, struct rs_err *err);
int rs_pool_open(struct rs_pool *p, rs_open_fn open, void *self, const char *path,
	struct rs_file *out, struct rs_err *err);
/* rs_pool_hangs - is a job given up and not back? Then what it was given must not be freed. */
bool rs_pool_hangs(struct rs_pool *p);

/*
 * rs_file_read - exactly @len bytes at @off into @buf.
 * Short reads loop, EINTR retries. A file that ends early is RS_CHANGED when it once was long
 * enough (id.size), which callers guarantee by checking @off + @len against file->size first.
 * Threads: any.
 */
int rs_file_read(
	const struct rs_file *file, uint64_t off, void *buf, uint64_t len, struct rs_err *err);
/*
 * rs_file_check - RS_CHANGED when the open file is no longer what it was when opened: inode, size,
 * mtime or ctime differ. A ctime that moved along with mode, owner or number of links tells of
 * those and not of the content, so a file that is deleted or closed to others keeps serving.
 */
int rs_file_check(const struct rs_file *file, struct rs_err *err);

/*
 * A source directory, and the fence around it: names from indexes and links resolve inside
 * @beneath or are refused (openat2 RESOLVE_BENEATH).
 */
struct rs_dir;

/*
 * rs_dir_open - @path: the directory; @beneath: the fence, NULL for @path itself, else a
 * directory that contains it. @links: follow symbolic links inside the fence.
 * Errors: RS_MISSING (no such directory, not a directory), RS_IO, RS_USAGE (@beneath does not
 * contain @path).
 */
int rs_dir_open(
	const char *path, const char *beneath, bool links, struct rs_dir **out, struct rs_err *err);
void rs_dir_close(struct rs_dir *dir);
const char *rs_dir_path(const struct rs_dir *dir); /* as given to rs_dir_open */
struct rs_identity rs_dir_identity(const struct rs_dir *dir);

enum rs_kind { RS_KIND_FILE, RS_KIND_DIR, RS_KIND_OTHER }; /* links are resolved first */
struct rs_dirent {
	struct rs_str name;
	enum rs_kind kind;
	struct rs_identity id;
};
/*
 * rs_dir_list - entries of @sub ("" for the directory itself; no "." and ".."), in byte order.
 * A link that leaves the fence, dangles or loops is listed as RS_KIND_OTHER.
 * Owns: entries and names are in @arena.
 */
int rs_dir_list(const struct rs_dir *dir, const char *sub, struct rs_arena *arena,
	struct rs_dirent **out, uint64_t *n, struct rs_err *err);
/*
 * rs_dir_stat - what @rel is ("": the directory itself, as it is now), links inside the fence
 * resolved. Opens nothing for reading, allocates nothing. Errors: as rs_dir_file.
 */
int rs_dir_stat(const struct rs_dir *dir, const char *rel, enum rs_kind *kind,
	struct rs_identity *out, struct rs_err *err);
/*
 * rs_dir_file - open the regular file @rel ("rank_3/x.ckpt") beneath the fence.
 * @name: for messages, kept and not copied. A path that leaves the fence is RS_CORRUPT with
 * the words "outside the checkpoint" and, when it leads to a regular file, a hint on beneath=.
 */
int rs_dir_file(const struct rs_dir *dir, const char *rel, const char *name, struct rs_file *out,
	struct rs_err *err);

struct rs_entry; /* catalog.h */

/*
 * Rows: @count equal runs of @width bytes, @pitch bytes apart in one file, which land
 * one behind the other at @target_off. The unit in which the read path talks to files.
 */
struct rs_rows {
	uint32_t file; /* index in the catalog's file table */
	uint64_t off, pitch, width, count;
	uint64_t target_off;
	/* Not NULL: the bytes are stored in another form, and off counts in the entry's content. */
	const struct rs_entry *encoded;
};

/*
 * rs_io_gather - copy the rows from @file to @dst (count * width bytes, contiguous).
 * Allocates nothing. Errors: RS_IO, RS_CHANGED. Threads: any.
 */
int rs_io_gather(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err);

#endif
