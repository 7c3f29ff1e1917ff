/*
 * pool.c - reads with a deadline. A read of a dead file server cannot be called off, so another
 * thread does it, into a buffer of its own, and we wait no longer than we want to.
 *
 * At the deadline thread and buffer are given up together; when the read returns after all, they go
 * back to the others. At most RS_POOL_HUNG may be given up at a time: beyond that, reads fail
 * at once, because a file system that swallowed 64 threads will swallow more. Threads are
 * started when they are needed, and anew in a child after fork.
 * A rows group is one job, so that the hand-over is paid once and not per row.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define JOB_BYTES (1u << 20)

enum job { READ, OPEN, CHECK };
enum state { IDLE, BUSY, DONE, GIVEN_UP };

struct worker {
	struct rs_pool *pool;
	struct worker *next; /* in the list of idle ones; guarded by pool->lock, as all below */
	enum state state;
	pthread_cond_t wake, done;
	enum job job;
	rs_open_fn open; /* OPEN: self, path */
	void *self;
	const char *path;
	struct rs_file file; /* read from, or opened */
	struct rs_rows rows; /* target_off is not used */
	int result;
	struct rs_err why;
	uint8_t *buf; /* JOB_BYTES; the worker's while BUSY or GIVEN_UP, else of who waits for it */
};

struct rs_pool {
	pthread_mutex_t lock; /* never held across I/O */
	uint32_t timeout_ms;
	struct worker *idle;
	uint32_t n_workers, n_hung;
	pid_t pid; /* whose threads these are */
	bool closing;
};

static void free_worker(struct worker *w)
{
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->done);
	rs_free(w->buf);
	rs_free(w);
}

static void free_pool(struct rs_pool *p)
{
	pthread_mutex_destroy(&p->lock);
	rs_free(p);
}

struct rs_pool *rs_pool_new(uint32_t timeout_ms, struct rs_err *err)
{
	struct rs_pool *p = rs_alloc(sizeof(*p), err);

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->timeout_ms = timeout_ms;
	p->pid = getpid();
	return p;
}

/* The last to leave frees the pool: a thread in a hung read may leave long after everybody else. */
void rs_pool_free(struct rs_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	for (struct worker *w = p->idle; w; w = w->next)
		pthread_cond_signal(&w->wake);
	bool last = p->n_workers == 0 || p->pid != getpid();
	pthread_mutex_unlock(&p->lock);
	if (last)
		free_pool(p);
}

static int run(struct worker *w)
{
	switch (w->job) {
	case OPEN:
		return w->open(w->self, w->path, &w->file, &w->why);
	case CHECK:
		return rs_file_check(&w->file, &w->why);
	case READ:
		break;
	}
	return rs__read_rows(&w->file, &w->rows, w->buf, &w->why);
}

/* One job; the lock is held but for the reading. */
static void serve(struct worker *w)
{
	struct rs_pool *p = w->pool;

	pthread_mutex_unlock(&p->lock);
	int result = run(w);
	pthread_mutex_lock(&p->lock);
	w->result = result;
	if (w->state == GIVEN_UP) { /* nobody waits any more */
		if (w->job == OPEN && result == 0)
			rs_file_close(&w->file);
		w->state = IDLE;
		w->next = p->idle;
		p->idle = w;
		p->n_hung--;
	} else {
		w->state = DONE;
		pthread_cond_signal(&w->done);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct rs_pool *p = w->pool;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (w->state != BUSY && !(p->closing && w->state == IDLE))
			pthread_cond_wait(&w->wake, &p->lock);
		if (w->state != BUSY)
			break;
		serve(w);
	}
	bool last = --p->n_workers == 0;
	pthread_mutex_unlock(&p->lock);
	free_worker(w);
	if (last)
		free_pool(p);
	return NULL;
}

static struct worker *start_worker(struct rs_pool *p, struct rs_err *err)
{
	struct worker *w = rs_alloc(sizeof(*w), err);
	pthread_condattr_t monotonic;

	if (!w)
		return NULL;
	w->buf = rs_alloc(JOB_BYTES, err);
	if (!w->buf) {
		rs_free(w);
		return NULL;
	}
	w->pool = p;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, NULL);
	pthread_cond_init(&w->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int failed = rs_thread_start(NULL, work, w);
	if (failed) {
		free_worker(w);
		rs_fail_sys(err, failed, "no thread for reading");
		return NULL;
	}
	p->n_workers++;
	return w;
}

/* A worker that is ours until it is put back. @name: what for, for the message. */
static struct worker *take(struct rs_pool *p, const char *name, struct rs_err *err)
{
	struct worker *w = NULL;

	pthread_mutex_lock(&p->lock);
	if (p->pid !=
		getpid()) { /* after fork the threads are the parent's, and so is their list */
		p->pid = getpid();
		p->idle = NULL;
		p->n_workers = p->n_hung = 0;
	}
	if (p->n_hung >= RS_POOL_HUNG) {
		rs_fail(err, RS_IO, "%s: not read, %u reads hang already", RS__PATH(name),
			p->n_hung);
	} else if (p->idle) {
		w = p->idle;
		p->idle = w->next;
	} else {
		w = start_worker(p, err);
	}
	pthread_mutex_unlock(&p->lock);
	return w;
}

static struct timespec deadline(uint32_t timeout_ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_ms / 1000;
	t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

/* Have the job of @w done, whose worker is ours. -1: given up, with the worker. */
static int wait_for(struct rs_pool *p, struct worker *w)
{
	struct timespec until = deadline(p->timeout_ms);
	int late = 0;

	pthread_mutex_lock(&p->lock);
	w->state = BUSY;
	pthread_cond_signal(&w->wake);
	while (w->state == BUSY && late != ETIMEDOUT)
		late = pthread_cond_timedwait(&w->done, &p->lock, &until);
	bool given_up = w->state == BUSY;
	if (given_up) {
		w->state = GIVEN_UP;
		p->n_hung++;
	}
	pthread_mutex_unlock(&p->lock);
	return given_up ? -1 : 0;
}

/* Its job is DONE, and what it made taken. */
static int put_back(struct rs_pool *p, struct worker *w, struct rs_err *err)
{
	int result = w->result;

	if (result < 0 && err)
		*err = w->why;
	pthread_mutex_lock(&p->lock);
	w->state = IDLE;
	w->next = p->idle;
	p->idle = w;
	if (p->closing)
		pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&p->lock);
	return result;
}

static int job(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err)
{
	struct rs_pool *p = file->pool;
	struct worker *w = take(p, file->name, err);

	if (!w)
		return -1;
	w->job = READ;
	w->file = *file;
	w->file.pool = NULL;
	w->rows = *rows;
	if (wait_for(p, w) < 0)
		return rs_fail_sys(err, ETIMEDOUT,
			"%s@%" PRIu64 ": no answer within %" PRIu32 " ms", RS__PATH(file->name),
			rows->off, p->timeout_ms);
	if (w->result == 0)
		memcpy(dst, w->buf, (size_t)(rows->width * rows->count));
	return put_back(p, w, err);
}

int rs_pool_open(struct rs_pool *p, rs_open_fn open, void *self, const char *path,
	struct rs_file *out, struct rs_err *err)
{
	struct worker *w = take(p, path, err);

	if (!w)
		return -1;
	w->job = OPEN;
	w->open = open;
	w->self = self;
	w->path = path;
	if (wait_for(p, w) < 0)
		return rs_fail_sys(err, ETIMEDOUT, "%s: no answer within %" PRIu32 " ms",
			RS__PATH(path), p->timeout_ms);
	if (w->result == 0)
		*out = w->file;
	return put_back(p, w, err);
}

int rs__pool_check(const struct rs_file *file, struct rs_err *err)
{
	struct rs_pool *p = file->pool;
	struct worker *w = take(p, file->name, err);

	if (!w)
		return -1;
	w->job = CHECK;
	w->file = *file;
	w->file.pool = NULL;
	if (wait_for(p, w) < 0)
		return rs_fail_sys(err, ETIMEDOUT, "%s: no answer within %" PRIu32 " ms",
			RS__PATH(file->name), p->timeout_ms);
	return put_back(p, w, err);
}

bool rs_pool_hangs(struct rs_pool *p)
{
	if (!p)
		return false;
	pthread_mutex_lock(&p->lock);
	bool hangs = p->n_hung > 0 && p->pid == getpid();
	pthread_mutex_unlock(&p->lock);
	return hangs;
}

int rs__pool_read(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err)
{
	struct rs_rows part = *rows;
	uint64_t done_rows = 0;

	if (rows->width > JOB_BYTES) { /* long rows, piece by piece */
		part.count = 1;
		for (uint64_t r = 0; r < rows->count; r++)
			for (uint64_t at = 0; at < rows->width; at += part.width) {
				part.off = rows->off + r * rows->pitch + at;
				part.width = rs_min(JOB_BYTES, rows->width - at);
				if (job(file, &part, dst + r * rows->width + at, err) < 0)
					return -1;
			}
		return 0;
	}
	while (done_rows < rows->count) {
		part.off = rows->off + done_rows * rows->pitch;
		part.count = rs_min(JOB_BYTES / rows->width, rows->count - done_rows);
		if (job(file, &part, dst + done_rows * rows->width, err) < 0)
			return -1;
		done_rows += part.count;
	}
	return 0;
}
