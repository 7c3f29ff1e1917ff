/*
 * body.c - the bodies of files: images, counted by open handles, kept in the order of their last
 * use while they have none, dropped under memory= and built again when they are wanted.
 *
 * The measure of a file (size, mode, mtime) was told to the kernel and stays; a body that is built
 * again must agree with it, or the source is not what it was (RS_CHANGED).
 * Read next: core/image/image.c, which builds; core/image/read.c, which reads what is held.
 */
#include <inttypes.h>

#include "core/view/body.h"

/* ------------------------------------------------------------------ chains */

void rs__chain_append(struct rs__chain *c, struct rs__vfile *f)
{
	f->next = NULL;
	f->prev = c->tail;
	if (c->tail)
		c->tail->next = f;
	else
		c->head = f;
	c->tail = f;
}

void rs__chain_prepend(struct rs__chain *c, struct rs__vfile *f)
{
	f->prev = NULL;
	f->next = c->head;
	if (c->head)
		c->head->prev = f;
	else
		c->tail = f;
	c->head = f;
}

void rs__chain_remove(struct rs__chain *c, struct rs__vfile *f)
{
	if (f->prev)
		f->prev->next = f->next;
	else
		c->head = f->next;
	if (f->next)
		f->next->prev = f->prev;
	else
		c->tail = f->prev;
	f->next = f->prev = NULL;
}

/* ------------------------------------------------------------------ bodies */

/* Say of which file an error is. */
static void tell_file(const struct rs__vfile *f, struct rs_err *err)
{
	if (f->output->at_root)
		rs_err_prefix(err, "%s", f->output->name);
	else
		rs_err_prefix(err, "target rank %" PRIu64, f->output->rank);
}

struct rs_image *rs__body_build(
	struct rs_view *v, const struct rs__vfile *f, struct rs_notes *notes, struct rs_err *err)
{
	struct rs_image *img = NULL;

	if (rs_image_build(v->target, f->output, &img, notes, err) == 0)
		return img;
	tell_file(f, err);
	return NULL;
}

void rs__body_adopt(struct rs_view *v, struct rs__vfile *f, struct rs_image *img)
{
	f->image = img;
	v->body_bytes += rs_arena_held(img->arena);
	rs__chain_prepend(&v->idle, f);
}

/* Take the longest unused body out if there are too many bytes; freeing is for outside the lock. */
static struct rs_image *take_surplus(struct rs_view *v)
{
	struct rs__vfile *f;
	struct rs_image *img = NULL;

	pthread_mutex_lock(&v->lock);
	f = v->body_bytes > v->memory ? v->idle.tail : NULL;
	if (f) {
		img = f->image;
		f->image = NULL;
		v->body_bytes -= rs_arena_held(img->arena);
		rs__chain_remove(&v->idle, f);
	}
	pthread_mutex_unlock(&v->lock);
	return img;
}

void rs__body_trim(struct rs_view *v)
{
	struct rs_image *img;

	while ((img = take_surplus(v)))
		rs_image_free(img);
}

/* ----------------------------------------------------------- hold, release */

/* Count a holder in; NULL when the body must be built again, which then is the caller's to do. */
static struct rs_image *take(struct rs_view *v, struct rs__vfile *f)
{
	struct rs_image *img;

	pthread_mutex_lock(&v->lock);
	while (!f->image && f->rebuilding)
		pthread_cond_wait(&v->settled, &v->lock);
	img = f->image;
	if (!img)
		f->rebuilding = true;
	else if (f->holders++ == 0)
		rs__chain_remove(&v->idle, f);
	pthread_mutex_unlock(&v->lock);
	return img;
}

static struct rs_image *rebuild(struct rs_view *v, struct rs__vfile *f, struct rs_err *err)
{
	struct rs_image *img = rs__body_build(v, f, NULL, err);

	/* The measure is final once the file is READY, so it may be read without the lock. */
	if (img && img->size != f->size) {
		rs_fail(err, RS_CHANGED,
			"expected a file of %" PRIu64 " bytes as at the first look, found %" PRIu64,
			f->size, img->size);
		tell_file(f, err);
		rs_image_free(img);
		img = NULL;
	}
	pthread_mutex_lock(&v->lock);
	f->rebuilding = false;
	if (img) {
		rs__body_adopt(v, f, img);
		f->holders++;
		rs__chain_remove(&v->idle, f);
	}
	pthread_cond_broadcast(&v->settled);
	pthread_mutex_unlock(&v->lock);
	return img;
}

struct rs_image *rs_view_hold(struct rs_view *v, uint64_t inode, struct rs_err *err)
{
	struct rs__vfile *f;
	struct rs_image *img;

	if (rs_view_build(v, inode, NULL, err) < 0)
		return NULL;
	f = rs__view_file(v, inode);
	img = take(v, f);
	if (!img)
		img = rebuild(v, f, err);
	rs__body_trim(v);
	return img;
}

void rs_view_release(struct rs_view *v, uint64_t inode, struct rs_image *img)
{
	struct rs__vfile *f = rs__view_file(v, inode);

	pthread_mutex_lock(&v->lock);
	if (f && f->image == img && f->holders > 0 && --f->holders == 0)
		rs__chain_prepend(&v->idle, f);
	pthread_mutex_unlock(&v->lock);
	rs__body_trim(v);
}

/* -------------------------------------------------------------- attributes */

static int file_attr(
	struct rs_view *v, const struct rs__vfile *f, struct rs_attr *out, struct rs_err *err)
{
	int rc = 1;

	pthread_mutex_lock(&v->lock);
	if (f->state == RS__READY) {
		out->size = f->size;
		out->mode = f->mode;
		out->gid = f->gid;
		out->mtime_ns = f->mtime_ns;
		out->nlink = 1;
		rc = 0;
	} else if (f->state == RS__FAILED) {
		if (err)
			*err = *f->failure;
		rc = -1;
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

int rs_view_attr(struct rs_view *v, uint64_t inode, struct rs_attr *out, struct rs_err *err)
{
	*out = (struct rs_attr){.kind = rs_view_node(v, inode), .inode = inode};
	switch (out->kind) {
	case RS_NODE_FILE:
		return file_attr(v, rs__view_file(v, inode), out, err);
	case RS_NODE_ROOT:
	case RS_NODE_RANK:
		out->mode = v->dir_mode;
		out->gid = v->dir_gid;
		out->mtime_ns = v->dir_mtime_ns;
		out->nlink = out->kind == RS_NODE_RANK
				     ? 2
				     : (uint32_t)rs_min(v->n_dirs, UINT32_MAX - 2) + 2;
		return 0;
	default:
		return rs_fail(err, RS_MISSING, "inode %" PRIu64 " is not in the tree", inode);
	}
}
