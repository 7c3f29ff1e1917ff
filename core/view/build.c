/*
 * build.c - files go from empty to ready or failed, once; requests wait for that, threads do not.
 *
 *   EMPTY --want--> QUEUED --builder--> LOADING --> READY | FAILED
 *     ^ \---------------rs_view_build-----^ |
 *     \------- what may pass: I/O, memory --/
 *
 * One mutex guards the states and lists of the view and is never held across I/O: a builder
 * takes a file from the queue, works without the lock, and comes back to publish. A waiter
 * whose inode is not 0 stands in the list of its file; whoever takes it out under the lock
 * sets that to 0 and alone may answer it.
 * Read next: body.c, where the built images live and die.
 */
#include <inttypes.h>

#include "core/view/body.h"
#include "core/view/internal.h"

/* ----------------------------------------------------------------- waiters */

/* Take all waiters of @f out of reach of rs_view_cancel. Under the lock. */
static struct rs_waiter *detach(struct rs__vfile *f)
{
	struct rs_waiter *list = f->waiters;

	for (struct rs_waiter *w = list; w; w = w->next)
		w->inode = 0;
	f->waiters = NULL;
	return list;
}

/* Without the lock. A waiter may be gone as soon as it has its answer. */
static void answer(struct rs_waiter *list, const struct rs_err *err)
{
	while (list) {
		struct rs_waiter *next = list->next;

		list->done(list, err);
		list = next;
	}
}

static void park(struct rs__vfile *f, uint64_t inode, struct rs_waiter *w)
{
	w->inode = inode;
	w->prev = NULL;
	w->next = f->waiters;
	if (w->next)
		w->next->prev = w;
	f->waiters = w;
}

bool rs_view_cancel(struct rs_view *v, struct rs_waiter *w)
{
	bool waits;

	pthread_mutex_lock(&v->lock);
	waits = w->inode != 0;
	if (waits) {
		if (w->next)
			w->next->prev = w->prev;
		if (w->prev)
			w->prev->next = w->next;
		else
			rs__view_file(v, w->inode)->waiters = w->next;
		w->inode = 0;
	}
	pthread_mutex_unlock(&v->lock);
	return waits;
}

static void fail_closing(struct rs_err *err)
{
	rs_fail(err, RS_IO, "the view was closed before the file was ready");
}

/* The waiter must have its answer now, and here it is; false when it was parked. */
static bool answer_now(struct rs_view *v, struct rs__vfile *f, uint64_t inode, struct rs_waiter *w,
	struct rs_err *err)
{
	w->inode = 0;
	if (!f) {
		rs_fail(err, RS_MISSING, "inode %" PRIu64 " is no file", inode);
		return true;
	}
	if (v->stopping) {
		fail_closing(err);
		return true;
	}
	if (f->state == RS__FAILED)
		*err = *f->failure;
	if (f->state == RS__FAILED || f->state == RS__READY)
		return true;
	if (f->state == RS__EMPTY) {
		f->state = RS__QUEUED;
		rs__chain_append(&v->queue, f);
		pthread_cond_signal(&v->work);
	}
	park(f, inode, w);
	return false;
}

void rs_view_want(struct rs_view *v, uint64_t inode, struct rs_waiter *w)
{
	struct rs_err err = {0};
	bool now;

	pthread_mutex_lock(&v->lock);
	now = answer_now(v, rs__view_file(v, inode), inode, w, &err);
	pthread_mutex_unlock(&v->lock);
	if (now)
		w->done(w, &err);
}

/* ---------------------------------------------------------------- building */

/* Keep what @err says for ever, unless it may pass or there is no memory to keep it in. */
static void keep_failure(struct rs__vfile *f, const struct rs_err *err)
{
	f->state = RS__EMPTY;
	if (rs_err_passes(err))
		return;
	f->failure = rs_alloc(sizeof(*f->failure), NULL);
	if (!f->failure)
		return;
	*f->failure = *err;
	f->state = RS__FAILED;
}

/* Publish the end of LOADING and answer who waited for it. */
static void settle(
	struct rs_view *v, struct rs__vfile *f, struct rs_image *img, const struct rs_err *err)
{
	struct rs_waiter *list;

	pthread_mutex_lock(&v->lock);
	if (img) {
		f->state = RS__READY;
		f->size = img->size;
		f->mode = 0400 | img->mode;
		f->gid = img->gid;
		f->mtime_ns = img->mtime_ns;
		rs__body_adopt(v, f, img);
	} else {
		keep_failure(f, err);
	}
	list = detach(f);
	pthread_cond_broadcast(&v->settled);
	pthread_mutex_unlock(&v->lock);
	answer(list, err);
	rs__body_trim(v);
}

/* The file is LOADING and ours. */
static int load(struct rs_view *v, struct rs__vfile *f, struct rs_notes *notes, struct rs_err *err)
{
	struct rs_err why = {0};
	struct rs_image *img = rs__body_build(v, f, notes, &why);
	int rc = img ? 0 : -1;

	if (!img && err)
		*err = why;
	settle(v, f, img, &why);
	return rc;
}

static void *builder(void *arg)
{
	struct rs_view *v = arg;

	for (;;) {
		struct rs__vfile *f;

		pthread_mutex_lock(&v->lock);
		while (!v->queue.head && !v->stopping)
			pthread_cond_wait(&v->work, &v->lock);
		f = v->stopping ? NULL : v->queue.head;
		if (f) {
			rs__chain_remove(&v->queue, f);
			f->state = RS__LOADING;
		}
		pthread_mutex_unlock(&v->lock);
		if (!f)
			return NULL;
		load(v, f, NULL, NULL);
	}
}

/* ------------------------------------------------- building in the caller's thread */

/* 1: the file is LOADING and the caller's; 0: ready; -1: failed. */
static int claim(struct rs_view *v, struct rs__vfile *f, struct rs_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&v->lock);
	while (f->state == RS__LOADING)
		pthread_cond_wait(&v->settled, &v->lock);
	if (f->state == RS__FAILED) {
		if (err)
			*err = *f->failure;
		rc = -1;
	} else if (f->state != RS__READY) {
		if (f->state == RS__QUEUED)
			rs__chain_remove(&v->queue, f);
		f->state = RS__LOADING;
		rc = 1;
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

static void copy_notes(struct rs_notes *to, const struct rs_notes *from)
{
	for (uint64_t i = 0; from && i < from->n; i++)
		rs_note(to, "%s", from->items[i]);
}

/* Remarks stay with the file, so that a proof at open and a listing later tell the same. */
static int load_noted(struct rs_view *v, struct rs__vfile *f, struct rs_err *err)
{
	struct rs_notes fresh = {0}, *kept = NULL;
	int rc = load(v, f, &fresh, err);

	if (rc == 0 && fresh.n > 0)
		kept = rs_alloc(sizeof(*kept), NULL);
	if (!kept) {
		rs_notes_done(&fresh);
		return rc;
	}
	*kept = fresh;
	pthread_mutex_lock(&v->lock);
	f->notes = kept;
	pthread_mutex_unlock(&v->lock);
	return rc;
}

int rs_view_build(struct rs_view *v, uint64_t inode, struct rs_notes *notes, struct rs_err *err)
{
	struct rs__vfile *f = rs__view_file(v, inode);
	int rc;

	if (!f)
		return rs_fail(err, RS_MISSING, "inode %" PRIu64 " is no file", inode);
	rc = claim(v, f, err);
	if (rc == 1)
		rc = load_noted(v, f, err);
	if (rc == 0 && notes) {
		pthread_mutex_lock(&v->lock);
		copy_notes(notes, f->notes);
		pthread_mutex_unlock(&v->lock);
	}
	return rc;
}

/* ------------------------------------------------------------------- proof */

struct proof {
	struct rs_view *view;
	pthread_mutex_t lock;
	uint64_t next;   /* file to build next; guarded by lock, as all below */
	uint64_t failed; /* lowest file that failed, or UINT64_MAX */
	struct rs_err err;
};

/*
 * Files are taken in ascending order and none after a failure, so every file below the failed one
 * has been taken, and the lowest failure is the same at every run.
 */
static void *prove(void *arg)
{
	struct proof *p = arg;
	struct rs_view *v = p->view;

	for (;;) {
		struct rs_err err = {0};
		uint64_t i;

		pthread_mutex_lock(&p->lock);
		i = p->failed == UINT64_MAX ? p->next++ : v->n_files;
		pthread_mutex_unlock(&p->lock);
		if (i >= v->n_files)
			return NULL;
		if (rs_view_build(v, v->files[i].inode, NULL, &err) == 0)
			continue;
		pthread_mutex_lock(&p->lock);
		if (i < p->failed) {
			p->failed = i;
			p->err = err;
		}
		pthread_mutex_unlock(&p->lock);
	}
}

int rs__view_prove(struct rs_view *v, struct rs_err *err)
{
	struct proof p = {.view = v, .failed = UINT64_MAX};
	pthread_t threads[RS__BUILDERS_MAX];
	uint32_t n = 0;

	pthread_mutex_init(&p.lock, NULL);
	/* The caller works, too: threads that cannot be had make it slower, and no more. */
	while (n + 1 < v->n_builders && n + 1 < v->n_files &&
		rs_thread_start(&threads[n], prove, &p) == 0)
		n++;
	prove(&p);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&p.lock);
	if (p.failed == UINT64_MAX)
		return 0;
	if (err)
		*err = p.err;
	return -1;
}

/* ---------------------------------------------------------- start and stop */

static void end_builders(struct rs_view *v)
{
	pthread_mutex_lock(&v->lock);
	v->stopping = true;
	pthread_cond_broadcast(&v->work);
	pthread_mutex_unlock(&v->lock);
	for (uint32_t i = 0; i < v->n_threads; i++)
		pthread_join(v->threads[i], NULL);
	v->n_threads = 0;
}

int rs_view_start(struct rs_view *v, struct rs_err *err)
{
	int failed = 0;

	while (v->n_threads < v->n_builders && failed == 0) {
		failed = rs_thread_start(&v->threads[v->n_threads], builder, v);
		v->n_threads += failed == 0;
	}
	if (failed == 0)
		return 0;
	end_builders(v);
	pthread_mutex_lock(&v->lock);
	v->stopping = false;
	pthread_mutex_unlock(&v->lock);
	return rs_fail(
		err, RS_LIMIT, "expected %u builder threads, the system gave fewer", v->n_builders);
}

/* Tell all who wait that nothing will come, then wait for the builders to put down their work. */
void rs__view_stop(struct rs_view *v)
{
	struct rs_err err = {0};

	fail_closing(&err);
	pthread_mutex_lock(&v->lock);
	v->stopping = true;
	pthread_mutex_unlock(&v->lock);
	for (uint64_t i = 0; i < v->n_files; i++) {
		struct rs_waiter *list;

		pthread_mutex_lock(&v->lock);
		list = detach(&v->files[i]);
		pthread_mutex_unlock(&v->lock);
		answer(list, &err);
	}
	end_builders(v);
	for (uint64_t i = 0; i < v->n_files; i++)
		rs_image_free(v->files[i].image);
}
