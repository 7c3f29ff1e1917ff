/*
 * internal.h - the doors of the room: the few calls that can fail for reasons outside this program.
 *
 * They stand alone in sys.c, so that tests/lib/fault.c can be linked in its place and make the n-th
 * of them fail. A function that is added here must be added there, too; a forgotten one does not
 * link.
 */
#ifndef RESHARDFS_BASE_INTERNAL_H
#define RESHARDFS_BASE_INTERNAL_H

#include <stdint.h>
#include <sys/types.h>

#include "reshardfs/base.h"

/* The C library's calloc(1, bytes), realloc and free. */
void *rs__calloc(size_t bytes);
void *rs__realloc(void *p, size_t bytes);
void rs__free(void *p);
/* pread(2). */
ssize_t rs__pread(int fd, void *buf, size_t len, off_t off);
/* openat2(2) without a mode; @resolve: RESOLVE_*. -1 and errno; ENOSYS where the kernel is older.
 */
int rs__openat2(int dirfd, const char *path, int flags, uint64_t resolve);

/* rs__scrub - replace control bytes in @s by '?': the last guard between a file and a terminal. */
void rs__scrub(char *s);
/*
 * rs__file_adopt - finish opening: @fd must be a regular file; fills @out or closes @fd.
 * Errors: RS_CORRUPT (not a regular file), RS_IO.
 */
int rs__file_adopt(int fd, const char *name, struct rs_file *out, struct rs_err *err);
/* rs__read_rows - gather rows, proved to lie inside the file, by pread, in this thread. */
int rs__read_rows(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err);
/* rs__pool_read - the same through the pool of @file. */
int rs__pool_read(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err);
/* rs__pool_check - rs_file_check through the pool of @file. */
int rs__pool_check(const struct rs_file *file, struct rs_err *err);
/* rs__file_unmap - undo rs_file_map. */
void rs__file_unmap(struct rs_file *file);
/* rs__map_copy - copy rows, proved to lie inside the file, from its mapping; false: a page is gone.
 */
bool rs__map_copy(const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst);
/* rs__fail_open - the error for a failed open of @name, by errno @sys. */
int rs__fail_open(struct rs_err *err, int sys, const char *name);
/* rs__identity - what fstat told, in our words. */
struct stat;
struct rs_identity rs__identity(const struct stat *st);

/*
 * Paths and file names in messages: names from a disk are no safer than names from a file, but
 * more of them is worth showing.
 */
#define RS__PATH_MAX 200
#define RS__PATH(s) rs_show(rs_str(s), (char[RS__PATH_MAX]){0}, RS__PATH_MAX)

/* Flags of every open of a source file; O_NONBLOCK so that a FIFO cannot hold us. */
#define RS__OPEN_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_LARGEFILE)

#endif
