/*
 * image.h - floor 6: a virtual file: its size, and its segments. A segment is a stretch of the
 * file that is literal bytes (headers), a slice (bytes of a target tensor), or fill.
 *
 * A target format is one file in core/image/ and one line in the table of format.c. It
 * describes a file to a sink, from the first byte to the last; the same code runs into a
 * measuring sink (st_size) and a building one, so size and content cannot disagree.
 */
#ifndef RESHARDFS_IMAGE_H
#define RESHARDFS_IMAGE_H

#include "reshardfs/base.h"
#include "reshardfs/plan.h"
#include "reshardfs/target.h"

/* ---------------------------------------------------------------------- sink */

struct rs_sink {
	int (*bytes)(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err);
	/* bytes [skip, skip + len) of list item @item */
	int (*slice)(
		struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err);
	int (*fill)(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err);
	/*
	 * The first byte of list item @item, for a format whose text depends on it. NULL: this sink
	 * knows no content.
	 */
	int (*peek)(struct rs_sink *s, uint64_t item, uint8_t *byte, struct rs_err *err);
	uint64_t size; /* bytes described so far */
};
int rs_sink_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err);
int rs_sink_slice(
	struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err);
int rs_sink_fill(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err);

struct rs_format_ops {
	const char *name, *suffix; /* "safetensors", ".safetensors" */
	/*
	 * Describe the file that holds @list. @mindspore: whose metadata to write. @notes: what
	 * this format cannot hold and is left out; may be NULL.
	 * Errors: RS_UNSUPPORTED naming the tensor (a dtype without a word in this format),
	 * RS_MISSING (nothing to write and the format has no empty file), RS_LIMIT.
	 */
	int (*emit)(const struct rs_list *list, bool mindspore, struct rs_sink *to,
		struct rs_notes *notes, struct rs_err *err);
};
/* rs_format_find - by name, or NULL. */
const struct rs_format_ops *rs_format_find(const char *name);
const char *const *rs_format_names(void); /* NULL-terminated */
/* rs_format_measure - size in bytes of the file that emit describes. */
int rs_format_measure(const struct rs_format_ops *f, const struct rs_list *list, bool mindspore,
	uint64_t *size, struct rs_err *err);

/* --------------------------------------------------------------------- image */

enum rs_segment_kind { RS_SEGMENT_LITERAL, RS_SEGMENT_SLICE, RS_SEGMENT_FILL };
struct rs_segment {
	enum rs_segment_kind kind;
	uint8_t byte;               /* FILL */
	const void *data;           /* LITERAL: the bytes */
	const struct rs_nest *nest; /* SLICE */
	uint64_t skip;              /* SLICE: first byte of the tensor, as the file shows it */
	/* SLICE: the nest counts in cast_from, the file shows cast_to; RS_DT_NONE: no cast */
	enum rs_dtype cast_from, cast_to;
};
/* Immutable after building; any number of threads may read. */
struct rs_image {
	struct rs_arena *arena; /* owns everything, this struct included */
	uint64_t size;
	uint64_t n_segments;
	const uint64_t *start; /* n_segments + 1 offsets: segment i is [start[i], start[i+1]) */
	const struct rs_segment *segments;
	struct rs_list list;                /* what the file holds; lives in the arena */
	const struct rs_nest *const *nests; /* per list item */
	const uint32_t *files; /* catalog files that the bytes come from, ascending, distinct */
	uint32_t n_files;
	uint32_t mode, uid, gid; /* what all these files have in common; see rs_image_build */
	int64_t mtime_ns;        /* newest of these files; of SOURCE when there are none */
};
/*
 * rs_image_build - the image of a file, proved: every byte has exactly one origin. Loads the
 * headers of all units that the file takes from. A text made here takes from all files of the
 * source. Owns: rs_image_free. @notes may be NULL. mode: 0444 less every read bit that some file
 * lacks, and less those of classes that may not search a directory above it, up to SOURCE; the
 * group's bit holds for @gid alone, or with that of others. uid, gid: UINT32_MAX when the files
 * differ. Threads: any.
 */
int rs_image_build(struct rs_target *target, const struct rs_output *output, struct rs_image **out,
	struct rs_notes *notes, struct rs_err *err);
void rs_image_free(struct rs_image *img);
/*
 * rs_image_read - bytes [off, off + len) into @dst; the caller clamps to img->size.
 * All or nothing: on failure the content of @dst is undefined and must not be shown.
 * Allocates nothing once the files are open. Errors: RS_IO, RS_CHANGED. Threads: any.
 */
int rs_image_read(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	uint8_t *dst, struct rs_err *err);

/*
 * An answer put together from pieces: pointers into literals and mapped sources where these are
 * long enough to pay, gathered bytes in @buf for the rest, in file order over @iov. The kernel
 * copies from the pieces itself, and a mapped page that is gone fails its copy (EFAULT), not us.
 */
struct iovec;
struct rs_reply {
	struct iovec *iov;
	uint32_t n, max; /* max 0: everything is gathered in @buf, without any iov */
	uint8_t *buf;    /* room for the whole length that is asked for */
	uint64_t used;   /* bytes of buf */
};
/*
 * rs_image_reply - as rs_image_read, into @to, whose n and used the caller has set to 0. The
 * pointers are good as long as the image is held and the catalog lives.
 */
int rs_image_reply(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	struct rs_reply *to, struct rs_err *err);

/*
 * rs_cast - convert @n elements of a pair that rs_cast_known knows: round to nearest, ties to even;
 * what is too large becomes infinite; a NaN stays one, with sign and upper payload bits. BF16 to
 * F32 is exact. Alignment: none needed. @src and @dst do not overlap.
 */
void rs_cast(enum rs_dtype from, enum rs_dtype to, const uint8_t *src, uint8_t *dst, uint64_t n);

#endif
