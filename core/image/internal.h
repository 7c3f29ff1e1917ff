/*
 * internal.h - what the files of the image room share: the two sinks of the room and the check
 * that every format makes first.
 */
#ifndef RESHARDFS_CORE_IMAGE_INTERNAL_H
#define RESHARDFS_CORE_IMAGE_INTERNAL_H

#include "reshardfs/image.h"

extern const struct rs_format_ops rs__format_mindspore;
extern const struct rs_format_ops rs__format_pdparams;
extern const struct rs_format_ops rs__format_safetensors;

/* rs__list_raw - describe a list that is raw: its one item, nothing around it. */
int rs__list_raw(const struct rs_list *list, struct rs_sink *to, struct rs_err *err);
/* rs__wanted_bytes - content of a list item; RS_LIMIT naming the tensor on overflow. */
int rs__wanted_bytes(const struct rs_wanted *item, uint64_t *bytes, struct rs_err *err);

/* rs__sink_measure - a sink that counts and forgets. */
struct rs_sink rs__sink_measure(void);

/*
 * The building sink: segments of an image. Literals that follow each other become one blob, so a
 * .ckpt has two segments a tensor and a safetensors file one more than it has tensors.
 */
struct rs__stretch {
	uint64_t start;
	struct rs_segment segment;
};
struct rs__builder {
	struct rs_sink sink; /* first, so that a sink leads back to its builder */
	struct rs_arena *arena;
	struct rs_catalog *cat;
	const struct rs_list *list;
	const struct rs_nest *const *nests; /* per list item */
	struct rs__stretch *stretches;      /* heap, as the two below, until finish */
	uint64_t n_stretches, cap_stretches;
	uint8_t *literal; /* the blob that is growing; it began at literal_start */
	uint64_t literal_len, literal_cap, literal_start;
};
/* @cat: where the tensors of @list are stored, for formats that peek; NULL: none does. */
void rs__builder_init(struct rs__builder *b, struct rs_arena *arena, struct rs_catalog *cat,
	const struct rs_list *list, const struct rs_nest *const *nests);
/* rs__builder_finish - fill size, start, segments and n_segments of @img, in the arena. */
int rs__builder_finish(struct rs__builder *b, struct rs_image *img, struct rs_err *err);
void rs__builder_done(struct rs__builder *b); /* after finish, and after a failure */

#endif
