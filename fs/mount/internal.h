/*
 * internal.h - what the files of the mount room share. Read them in this order:
 *
 *   session.c   the life of a mount, from options to exit code
 *   point.c     is the mount point fit? and taking the mount away
 *   life.c      the parent that waits, readiness, signals, the end within five seconds
 *   init.c      what kernel and daemon agree on first
 *   ops.c       what the kernel may ask (readonly.c: what it may not; xattr.c: attributes)
 *   wait.c      requests that wait for an image while threads do not
 *   reply.c     answers, and what an error is called in errno
 *   log.c       where failures are told, once per cause
 */
#ifndef RESHARDFS_FS_MOUNT_INTERNAL_H
#define RESHARDFS_FS_MOUNT_INTERNAL_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "fs/fs.h"

#define FS_READ_MAX (1u << 20) /* of one request: max_read, max_pages and the thread's buffer */
#define FS_FOREVER_S 86400.0   /* a day: the tree does not change while it is mounted */
#define FS_NAME_MAX 255

/* ------------------------------------------------------------------------------- log */

#define FS_LOG_CAUSES 256
struct fs_log {
	int fd;            /* -1: syslog; guarded by lock, as all but level */
	bool dated;        /* a file: time, process and level before each line */
	const char *path;  /* of the file, absolute; NULL: none. Immutable */
	atomic_uint level; /* enum fs_log_level */
	pthread_mutex_t lock;
	uint64_t causes[FS_LOG_CAUSES]; /* hashes of what was told, the oldest overwritten */
	unsigned int n_causes;          /* told so far */
};
/* fs__log_open - RS_IO when the file cannot be written. @background: stderr will go away. */
int fs__log_open(struct fs_log *log, const struct fs_options *o, struct rs_err *err);
void fs__log_close(struct fs_log *log);
void fs__log_reopen(struct fs_log *log); /* after logrotate */
void fs__log_more(struct fs_log *log);   /* info and debug take turns */
void fs__log_line(struct fs_log *log, enum fs_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* fs__log_cause - message and hint of a failure; the same message is told once. */
void fs__log_cause(struct fs_log *log, const struct rs_err *err);

/* ----------------------------------------------------------------------------- mount */

/* A mount; the userdata of every request. Immutable while requests are served, but for log. */
struct fs_mount {
	const struct fs_options *o;
	struct rs_view *view;
	struct rs_catalog *cat;
	struct fuse_session *session;
	const char *source, *point;        /* absolute */
	unsigned int dev_major, dev_minor; /* of the mount, once it is mounted */
	uint32_t uid, gid;
	pthread_key_t scratch;       /* struct fs_scratch of each thread */
	struct fs_wire {             /* see init.c */
		atomic_bool greeted; /* INIT was answered */
		pthread_rwlock_t lock;
		bool cut; /* no reply may go out any more; guarded by lock */
	} wire;
	struct fs_log log;
};

/* ----------------------------------------------------------------------------- point */

/*
 * fs__point_check - may we mount at m->o's mount point? Sets m->point. The errors here have the
 * exit code FS_EXIT_MOUNT, whatever their rs_code.
 */
int fs__point_check(struct fs_mount *m, struct rs_err *err);
/* fs__point_note - remember which device was mounted there. */
int fs__point_note(struct fs_mount *m, struct rs_err *err);
/* fs__point_detach - take our mount away if it is still there; readers keep nothing. */
void fs__point_detach(const struct fs_mount *m);

/* ------------------------------------------------------------------------------ life */

struct fs_life {
	struct fs_mount *m;
	pthread_t main, thread;
	int parent_fd;      /* status byte for the waiting parent; -1: none */
	atomic_bool ending; /* the loop has returned */
	atomic_bool over;   /* all is taken down */
	int exit_code;      /* written by the thread, read after fs__life_end */
};
/*
 * fs__life_fork - go to the background. In the parent: waits, and returns 1 with the exit code.
 * In the child: returns 0, life->parent_fd is set. -1: no fork.
 */
int fs__life_fork(struct fs_life *life, int *exit_code, struct rs_err *err);
/* fs__life_begin - block signals and start the thread that announces readiness and obeys them. */
int fs__life_begin(struct fs_life *life, struct fs_mount *m, struct rs_err *err);
/* fs__life_ending - the loop is over: what is left to do has five seconds. */
void fs__life_ending(struct fs_life *life);
int fs__life_end(struct fs_life *life); /* exit code */
/* fs__life_fail - print why nothing is mounted, tell ready_fd, return the exit code. */
int fs__life_fail(const struct fs_options *o, int exit_code, const struct rs_err *err);
/* fs__life_tell_parent - the exit code that the parent shall have; once. */
bool fs__life_tell_parent(struct fs_life *life, int exit_code);

/* -------------------------------------------------------------------------- requests */

extern const struct fuse_lowlevel_ops fs__ops; /* without fs__ops_readonly */
void fs__op_init(void *userdata, struct fuse_conn_info *conn);
/* fs__init_complete - say to the kernel what libfuse keeps to itself. @fd: of the mount. */
int fs__init_complete(struct fs_mount *m, int fd, struct rs_err *err);
/* fs__init_cut - let no reply through any more, so that libfuse may close its descriptor. */
void fs__init_cut(struct fs_mount *m);
/* fs__ops_readonly - every way to write, answered with EROFS. */
void fs__ops_readonly(struct fuse_lowlevel_ops *ops);
void fs__op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs__op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

/*
 * fs__when_ready - call @answer when the image of file @ino is there, or has failed. At once
 * when it is known already; otherwise the request is parked and the calling thread free.
 * @file: copied; NULL for requests without. An interrupted request is answered EINTR.
 */
typedef void (*fs__answer_fn)(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file);
void fs__when_ready(struct fs_mount *m, fuse_req_t req, fuse_ino_t ino,
	const struct fuse_file_info *file, fs__answer_fn answer);

static inline struct fs_mount *fs__mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
/*
 * fs__scratch - what this thread answers with: room for one whole read, and for the pieces of an
 * answer (the kernel takes 1024, libfuse puts its header before ours). NULL: no memory.
 */
#define FS_PIECES 1023
struct fs_scratch {
	uint8_t bytes[FS_READ_MAX];
	struct iovec pieces[FS_PIECES];
	bool torn; /* a page of the last answer was not there any more */
};
struct fs_scratch *fs__scratch(struct fs_mount *m);
/* fs__reply_failed - EIO, ESTALE or ENOMEM, and a line in the log once per cause. */
void fs__reply_failed(struct fs_mount *m, fuse_req_t req, const struct rs_err *err);
void fs__reply_attr(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file);
void fs__reply_entry(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file);
void fs__reply_open(
	struct fs_mount *m, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file);

#endif
