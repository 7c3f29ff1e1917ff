/*
 * wait.c - requests that need an image which is not built yet. They wait, threads do not: the
 * request is parked on the image and answered by the builder that finishes it, so a hung
 * source rank stops its own files only.
 *
 * Who answers is decided by rs_view_cancel alone. An interrupt may arrive before the request is
 * parked, while it is, or while a builder answers it:
 *   before   noted in `interrupted`; whoever parks looks there afterwards and cancels
 *   parked   cancel succeeds, the interrupt answers EINTR
 *   after    cancel fails, the builder answers; it first unregisters the interrupt, which waits
 *            until a running one has let go of the request
 * Hence two references: one of the thread that parks, one of whoever answers.
 */
#include <errno.h>

#include "fs/mount/internal.h"

struct parked {
	struct rs_waiter waiter; /* first: rs_waiter and parked are the same address */
	struct fs_mount *mount;
	fuse_req_t req;
	fuse_ino_t ino;
	fs__answer_fn answer;
	struct fuse_file_info file;
	atomic_uint refs;
	atomic_bool interrupted;
};

static void put(struct parked *p)
{
	if (atomic_fetch_sub(&p->refs, 1) == 1)
		rs_free(p);
}

static void done(struct rs_waiter *w, const struct rs_err *err)
{
	struct parked *p = (struct parked *)(void *)w;

	fuse_req_interrupt_func(p->req, NULL, NULL);
	if (err->code == RS_OK)
		p->answer(p->mount, p->req, p->ino, &p->file);
	else
		fs__reply_failed(p->mount, p->req, err);
	put(p);
}

static void interrupt(fuse_req_t req, void *data)
{
	struct parked *p = data;

	atomic_store(&p->interrupted, true);
	if (rs_view_cancel(p->mount->view, &p->waiter)) {
		fuse_reply_err(req, EINTR);
		put(p);
	}
}

static void park(struct parked *p)
{
	struct rs_view *view = p->mount->view;

	fuse_req_interrupt_func(p->req, interrupt, p);
	rs_view_want(view, p->ino, &p->waiter);
	if (atomic_load(&p->interrupted) && rs_view_cancel(view, &p->waiter)) {
		fuse_req_interrupt_func(p->req, NULL, NULL);
		fuse_reply_err(p->req, EINTR);
		put(p);
	}
	put(p);
}

void fs__when_ready(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino,
	const struct fuse_file_info *file, fs__answer_fn answer)
{
	struct fuse_file_info none = {0};
	struct rs_attr attr;

	if (rs_view_attr(m->view, ino, &attr, NULL) == 0) {
		struct fuse_file_info mine = file ? *file : none;

		answer(m, req, ino, &mine);
		return;
	}
	struct parked *p = rs_alloc(sizeof(*p), NULL);

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	*p = (struct parked){
		.waiter.done = done,
		.mount = m,
		.req = req,
		.ino = ino,
		.answer = answer,
		.file = file ? *file : none,
	};
	atomic_init(&p->refs, 2);
	atomic_init(&p->interrupted, false);
	park(p);
}
