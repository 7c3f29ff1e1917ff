/*
 * body.h - the images of a view: who holds one, and which is dropped under memory=.
 */
#ifndef RESHARDFS_CORE_VIEW_BODY_H
#define RESHARDFS_CORE_VIEW_BODY_H

#include "core/view/internal.h"

/* A chain of files through next and prev; a file is in one at a time. Under the lock. */
void rs__chain_append(struct rs__chain *c, struct rs__vfile *f);
void rs__chain_prepend(struct rs__chain *c, struct rs__vfile *f);
void rs__chain_remove(struct rs__chain *c, struct rs__vfile *f);

/* rs__body_build - the image of @f, or NULL with "target rank N" or its name before the message. No
 * lock. */
struct rs_image *rs__body_build(
	struct rs_view *v, const struct rs__vfile *f, struct rs_notes *notes, struct rs_err *err);
/* rs__body_adopt - @img is the body of @f now, without holders. Under the lock. */
void rs__body_adopt(struct rs_view *v, struct rs__vfile *f, struct rs_image *img);
/* rs__body_trim - drop idle bodies, the longest unused first, while there are too many bytes. No
 * lock. */
void rs__body_trim(struct rs_view *v);

#endif
