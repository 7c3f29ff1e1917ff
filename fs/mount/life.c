/*
 * life.c - what surrounds serving. In the background a child serves and the parent waits for one
 * byte, its exit code, so that a mount command which returned 0 can be used at once; a parent
 * that was killed meanwhile takes the mount with it. One thread announces readiness and then
 * waits for signals: SIGTERM and SIGINT end the mount within five seconds, SIGHUP reopens the
 * log, SIGUSR2 makes it tell more.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/mount/internal.h"

#define ENDING_S 5
#define NUDGE_MS 20
#define SIGNAL_NUDGE SIGUSR1 /* ends the main thread's wait, so that it looks whether to go on */

/* ---------------------------------------------------------------------------- the parent */

static void write_all(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

int fs__life_fail(const struct fs_options *o, int exit_code, const struct rs_err *err)
{
	if (o->ready_fd_set) {
		write_all((int)o->ready_fd, "f", 1);
		write_all((int)o->ready_fd, err->msg, strlen(err->msg));
	}
	return fs_report_as(exit_code, err);
}

int fs__life_fork(struct fs_life *life, int *exit_code, struct rs_err *err)
{
	int fds[2];
	unsigned char status;
	ssize_t n;

	life->parent_fd = -1;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return rs_fail_sys(err, errno, "pipe");
	fflush(NULL);
	pid_t child = fork();

	if (child < 0) {
		rs_fail_sys(err, errno, "fork");
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	if (child == 0) {
		close(fds[0]);
		life->parent_fd = fds[1];
		setsid();
		if (chdir("/") < 0)
			return rs_fail_sys(err, errno, "/");
		return 0;
	}
	close(fds[1]);
	while ((n = read(fds[0], &status, 1)) < 0 && errno == EINTR)
		;
	close(fds[0]);
	if (n == 1) {
		*exit_code = status;
		return 1;
	}
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return rs_fail(err, RS_IO, "the serving process died before it was ready");
}

bool fs__life_tell_parent(struct fs_life *life, int exit_code)
{
	unsigned char status = (unsigned char)exit_code;
	int fd = life->parent_fd;
	ssize_t n;

	if (fd < 0)
		return true;
	life->parent_fd = -1;
	while ((n = write(fd, &status, 1)) < 0 && errno == EINTR)
		;
	close(fd);
	return n == 1;
}

/* ------------------------------------------------------------------------------ readiness */

/* True when the mount point answers, and from us. */
static int check_serving(const struct fs_mount *m, struct rs_err *err)
{
	struct statx st;

	if (statx(AT_FDCWD, m->point, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) < 0)
		return rs_fail_sys(err, errno, "%s: mounted, but does not answer", m->point);
	if (st.stx_ino != RS_INODE_ROOT || st.stx_dev_major != m->dev_major ||
		st.stx_dev_minor != m->dev_minor)
		return rs_fail(err, RS_IO, "%s: mounted, but something else answers", m->point);
	return 0;
}

/*
 * Has somebody unmounted us already? Whoever watches for the mount to appear may be done with it
 * before we have looked at it ourselves, and that is no failure.
 */
static bool is_gone(struct fs_life *life)
{
	struct pollfd fuse = {.fd = fuse_session_fd(life->m->session)};

	return atomic_load(&life->ending) || fuse.fd < 0 ||
	       (poll(&fuse, 1, 0) > 0 && (fuse.revents & (POLLERR | POLLNVAL)));
}

/* The caller may wait for the end of our output, so none of it may stay open in the daemon. */
static void leave_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++)
		dup2(fd, standard);
	close(fd);
}

static int announce(struct fs_life *life, struct rs_err *err)
{
	struct fs_mount *m = life->m;
	const struct fs_options *o = m->o;

	if (check_serving(m, err) < 0 && !is_gone(life))
		return -1;
	fs__log_line(&m->log, FS_LOG_INFO, "serving %s on %s, target %s", m->source, m->point,
		o->view.target.target);
	if (life->parent_fd >= 0)
		leave_terminal();
	if (!fs__life_tell_parent(life, FS_EXIT_OK))
		return rs_fail(err, RS_IO, "%s: the mount command was killed", m->point);
	if (o->ready_fd_set) {
		write_all((int)o->ready_fd, "s", 1);
		close((int)o->ready_fd);
	}
	return 0;
}

/* --------------------------------------------------------------------------------- the end */

static void nudge_handler(int sig)
{
	(void)sig;
}

/* What is left to do took too long: a source that hangs must not keep the mount alive. */
static _Noreturn void give_up(struct fs_life *life)
{
	fs__log_line(&life->m->log, FS_LOG_WARNING, "%s: not done after %d s, leaving",
		life->m->point, ENDING_S);
	fs__point_detach(life->m);
	if (life->m->o->pidfile)
		unlink(life->m->o->pidfile);
	_exit(life->exit_code);
}

/* Until the main thread is done, or five seconds, or a second SIGTERM. */
static void end(struct fs_life *life, const sigset_t *signals)
{
	const struct timespec nudge = {.tv_nsec = NUDGE_MS * 1000000L};
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	fuse_session_exit(life->m->session);
	while (!atomic_load(&life->over)) {
		if (!atomic_load(&life->ending))
			pthread_kill(life->main, SIGNAL_NUDGE);
		int sig = sigtimedwait(signals, NULL, &nudge);

		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((sig == SIGTERM && !atomic_load(&life->over)) ||
			now.tv_sec - start.tv_sec >= ENDING_S)
			give_up(life);
	}
}

static void *live(void *arg)
{
	struct fs_life *life = arg;
	struct rs_err err = {0};
	sigset_t signals;
	int sig;

	if (announce(life, &err) < 0) {
		life->exit_code = fs__life_fail(life->m->o, FS_EXIT_MOUNT, &err);
		fuse_session_exit(life->m->session);
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGUSR2);
	while (life->exit_code == FS_EXIT_OK && sigwait(&signals, &sig) == 0) {
		if (sig == SIGHUP)
			fs__log_reopen(&life->m->log);
		else if (sig == SIGUSR2)
			fs__log_more(&life->m->log);
		else
			break;
	}
	end(life, &signals);
	return NULL;
}

int fs__life_begin(struct fs_life *life, struct fs_mount *m, struct rs_err *err)
{
	const struct sigaction nudge = {.sa_handler = nudge_handler};
	int fail;

	life->m = m;
	life->main = pthread_self();
	life->exit_code = FS_EXIT_OK;
	atomic_init(&life->ending, false);
	atomic_init(&life->over, false);
	sigaction(SIGNAL_NUDGE, &nudge, NULL);
	fail = pthread_create(&life->thread, NULL, live, life);
	return fail ? rs_fail_sys(err, fail, "no thread for signals") : 0;
}

void fs__life_ending(struct fs_life *life)
{
	atomic_store(&life->ending, true);
	pthread_kill(life->thread, SIGINT); /* a second SIGTERM would mean: at once */
}

int fs__life_end(struct fs_life *life)
{
	atomic_store(&life->over, true);
	pthread_join(life->thread, NULL);
	return life->exit_code;
}
