/*
 * session.c - the life of a mount, in order: open and plan the source (all refusals go to the
 * terminal, nothing is mounted), check the mount point, go to the background, mount, start
 * threads, serve until unmounted or told to end, take everything down.
 * fork comes before the first thread and after the plan. Next: life.c, ops.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fs/mount/internal.h"
#include "fs/mountinfo.h"

#define THREADS_MIN 2
#define THREADS_MAX 16
#define NAME "reshardfs" /* argv[0] of libfuse's option parser, and the subtype */

/* --------------------------------------------------------------------------- libfuse */

const char *fs_fuse_version(char *buf, size_t size)
{
	struct utsname system;

	if (uname(&system) < 0)
		snprintf(buf, size, "libfuse %s", fuse_pkgversion());
	else
		snprintf(buf, size, "libfuse %s, %s %s", fuse_pkgversion(), system.sysname,
			system.release);
	return buf;
}

/* libfuse speaks to stderr until the daemon has left it; only errors are ours to pass on. */
static __attribute__((format(printf, 2, 0))) void fuse_says(
	enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];

	if (level > FUSE_LOG_ERR)
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	fprintf(stderr, "reshardfs: %s\n", text);
}

/*
 * The session, not mounted yet. fsname is escaped by libfuse, so a comma in the path of SOURCE
 * does not become an option.
 */
static int make_session(struct fs_mount *m, struct rs_err *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_lowlevel_ops ops = fs__ops;
	char max_read[32], *options = NULL;
	const char *name = rs_arena_printf(m->o->arena, err, "fsname=%s", m->source);
	int fail = name ? 0 : -1;

	fs__ops_readonly(&ops);
	snprintf(max_read, sizeof(max_read), "max_read=%u", FS_READ_MAX);
	fail = fail || fuse_opt_add_opt_escaped(&options, name) < 0 ||
	       fuse_opt_add_opt(&options, "subtype=" NAME) < 0 ||
	       fuse_opt_add_opt(&options, "ro,nosuid,nodev,noexec,noatime") < 0 ||
	       fuse_opt_add_opt(&options, "default_permissions") < 0 ||
	       fuse_opt_add_opt(&options, max_read) < 0 ||
	       (m->o->allow_other && fuse_opt_add_opt(&options, "allow_other") < 0) ||
	       (m->o->allow_root && fuse_opt_add_opt(&options, "allow_root") < 0) ||
	       fuse_opt_add_arg(&args, NAME) < 0 || fuse_opt_add_arg(&args, "-o") < 0 ||
	       fuse_opt_add_arg(&args, options) < 0;
	m->session = fail ? NULL : fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	free(options); /* libfuse's */
	return m->session ? 0 : rs_fail(err, RS_NOMEM, "libfuse has no memory for a session");
}

static int loop(struct fs_mount *m)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int threads = m->o->threads;
	int result;

	if (!config)
		return -ENOMEM;
	if (threads == 0)
		threads = cpus < THREADS_MIN   ? THREADS_MIN
			  : cpus > THREADS_MAX ? THREADS_MAX
					       : (unsigned int)cpus;
	fuse_loop_cfg_set_max_threads(config, threads);
	fuse_loop_cfg_set_idle_threads(config, threads); /* ending and starting threads costs */
	result = fuse_session_loop_mt(m->session, config);
	fuse_loop_cfg_destroy(config);
	return result;
}

/* ------------------------------------------------------------------------------ serving */

/* What the process lacks has an exit code of its own; all else is about mounting. */
static int exit_of(const struct rs_err *err)
{
	return err->code == RS_LIMIT || err->code == RS_NOMEM ? FS_EXIT_LIMIT : FS_EXIT_MOUNT;
}

/* Signals are for the thread of life.c; all threads inherit this. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a log at the limit of file sizes is no reason to end */
}

static int write_pidfile(const struct fs_options *o, struct rs_err *err)
{
	char text[24];
	int fd;

	if (!o->pidfile)
		return 0;
	fd = open(o->pidfile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd < 0)
		return rs_fail_sys(err, errno, "pidfile %s", o->pidfile);
	int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	ssize_t n = write(fd, text, (size_t)len);
	int fail = n == len ? 0 : n < 0 ? errno : ENOSPC;

	close(fd);
	return fail ? rs_fail_sys(err, fail, "pidfile %s", o->pidfile) : 0;
}

/* What the loop's return means, told where it belongs. */
static int loop_exit_code(struct fs_mount *m, int result)
{
	if (result < 0) {
		fs__log_line(&m->log, FS_LOG_ERROR, "%s: serving ended with error %d", m->point,
			-result);
		return FS_EXIT_IO;
	}
	fs__log_line(&m->log, FS_LOG_INFO, "%s: done", m->point);
	return FS_EXIT_OK;
}

/*
 * Mounted from here on. Takedown in this order: the mount point, so that nobody waits; the view,
 * whose builders answer every parked request; then libfuse's session, which those requests need.
 */
static int serve(struct fs_mount *m, struct fs_life *life, struct rs_err *err)
{
	int result;

	if (fs__init_complete(m, fuse_session_fd(m->session), err) < 0 ||
		fs__point_note(m, err) < 0 || rs_view_start(m->view, err) < 0 ||
		fs__life_begin(life, m, err) < 0) {
		fuse_session_unmount(m->session);
		return fs__life_fail(m->o, exit_of(err), err);
	}
	result = loop(m);
	fs__life_ending(life);
	fs__init_cut(m);
	fuse_session_unmount(m->session);
	fs__point_detach(m); /* an aborted connection leaves a dead mount, which libfuse leaves */
	rs_view_close(m->view);
	m->view = NULL;
	result = loop_exit_code(m, result);

	int code = fs__life_end(life);

	return code != FS_EXIT_OK ? code : result;
}

static int mount_and_serve(struct fs_mount *m, struct fs_life *life, struct rs_err *err)
{
	int code;

	atomic_init(&m->wire.greeted, false);
	pthread_rwlock_init(&m->wire.lock, NULL);
	if (pthread_key_create(&m->scratch, rs_free) != 0) {
		rs_fail(err, RS_LIMIT, "no thread-specific key left");
		return fs__life_fail(m->o, FS_EXIT_LIMIT, err);
	}
	fuse_set_log_func(fuse_says);
	block_signals();
	if (write_pidfile(m->o, err) < 0) {
		code = fs__life_fail(m->o, FS_EXIT_DEST, err);
	} else if (make_session(m, err) < 0) {
		code = fs__life_fail(m->o, FS_EXIT_LIMIT, err);
	} else if (fuse_session_mount(m->session, m->point) < 0) {
		rs_fail(err, RS_IO, "%s: cannot mount", m->point);
		if (geteuid() != 0)
			rs_hint(err,
				"fusermount3 (package fuse3) must be installed and setuid root");
		else
			rs_hint(err, "mounting needs CAP_SYS_ADMIN; in a container: --cap-add "
				     "SYS_ADMIN --device /dev/fuse");
		code = fs__life_fail(m->o, FS_EXIT_MOUNT, err);
	} else {
		code = serve(m, life, err);
	}
	if (m->o->pidfile)
		unlink(m->o->pidfile);
	if (m->session)
		fuse_session_destroy(m->session);
	pthread_key_delete(m->scratch);
	pthread_rwlock_destroy(&m->wire.lock);
	return code;
}

/* -------------------------------------------------------------------------------- the verb */

/* The daemon leaves its directory, so what is opened later has an absolute path. */
static int make_absolute(struct fs_options *o, struct fs_mount *m, struct rs_err *err)
{
	const char **paths[] = {
		&o->pidfile, &o->view.source.strategy, &o->view.source.beneath, &m->source};

	m->source = o->args[0];
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!*paths[i])
			continue;
		*paths[i] = fs_path_absolute(*paths[i], o->arena, err);
		if (!*paths[i])
			return -1;
	}
	o->view.source.path = m->source;
	return 0;
}

static int check_ready_fd(struct fs_options *o, struct rs_err *err)
{
	if (!o->ready_fd_set || fcntl((int)o->ready_fd, F_SETFD, FD_CLOEXEC) == 0)
		return 0;
	o->ready_fd_set = false;
	return rs_fail(err, RS_USAGE, "ready_fd=%u: expected an open descriptor", o->ready_fd);
}

/* Plan, check, and then be two processes or one. */
static int run(struct fs_options *o, struct fs_mount *m, struct rs_err *err)
{
	struct fs_life life = {.parent_fd = -1};
	int code = FS_EXIT_OK, forked = 0;

	if (fs__point_check(m, err) < 0)
		return fs__life_fail(o, exit_of(err), err);
	if (o->fake)
		return FS_EXIT_OK;
	if (fs__log_open(&m->log, o, err) < 0)
		return fs__life_fail(o, fs_exit_code(err->code), err);
	if (!o->foreground)
		forked = fs__life_fork(&life, &code, err);
	if (forked < 0)
		code = fs__life_fail(o, FS_EXIT_MOUNT, err);
	else if (forked == 0)
		code = mount_and_serve(m, &life, err);
	fs__life_tell_parent(&life, code); /* a no-op after readiness */
	fs__log_close(&m->log);
	return code;
}

int fs_mount(const struct fs_options *given)
{
	struct fs_options o = *given; /* with absolute paths; strings stay in the same arena */
	struct fs_mount m = {.o = &o};
	struct rs_err err = {0};
	int code;

	m.uid = o.uid_set ? o.uid : (uint32_t)geteuid();
	m.gid = o.gid_set ? o.gid : (uint32_t)getegid();
	if (check_ready_fd(&o, &err) < 0 || make_absolute(&o, &m, &err) < 0 ||
		rs_view_open(&o.view, &m.view, &err) < 0)
		return fs__life_fail(&o, fs_exit_code(err.code), &err);
	m.cat = rs_view_source(m.view)->cat;
	code = run(&o, &m, &err);
	rs_view_close(m.view);
	return code;
}
