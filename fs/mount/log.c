/*
 * log.c - what a running mount has to say: to stderr, syslog or a file, each message whole in one
 * write. A cause (a message text) is told once, so a damaged shard that a thousand readers meet
 * is one line. A log that cannot be written is not a reason to stop serving.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "fs/mount/internal.h"
#include "fs/mountinfo.h"

#define LINE_MAX_BYTES 1200

static int open_file(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

int fs__log_open(struct fs_log *log, const struct fs_options *o, struct rs_err *err)
{
	const char *where = o->log ? o->log : o->foreground ? "stderr" : "syslog";
	enum fs_log_level level = o->log_level;

	*log = (struct fs_log){.fd = -1};
	pthread_mutex_init(&log->lock, NULL);
	if (level == FS_LOG_DEFAULT) /* people at a terminal are told nothing while all is well */
		level = strcmp(where, "stderr") == 0 ? FS_LOG_WARNING : FS_LOG_INFO;
	atomic_init(&log->level, level);
	if (strcmp(where, "syslog") == 0) {
		openlog("reshardfs", LOG_PID, LOG_DAEMON);
		return 0;
	}
	if (strcmp(where, "stderr") == 0) {
		log->fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	} else {
		log->path = fs_path_absolute(where, o->arena, err);
		log->dated = true;
		if (!log->path)
			return -1;
		log->fd = open_file(log->path);
	}
	if (log->fd < 0)
		return rs_fail_sys(err, errno, "log %s", where);
	return 0;
}

void fs__log_close(struct fs_log *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
	pthread_mutex_destroy(&log->lock);
}

void fs__log_reopen(struct fs_log *log)
{
	int fd = log->path ? open_file(log->path) : -1;

	if (fd < 0)
		return; /* better the old file than none */
	pthread_mutex_lock(&log->lock);
	close(log->fd);
	log->fd = fd;
	pthread_mutex_unlock(&log->lock);
}

void fs__log_more(struct fs_log *log)
{
	unsigned int level = atomic_load(&log->level);

	atomic_store(&log->level, level == FS_LOG_DEBUG ? FS_LOG_INFO : FS_LOG_DEBUG);
	fs__log_line(log, FS_LOG_INFO, "log_level=%s", level == FS_LOG_DEBUG ? "info" : "debug");
}

static void send_text(struct fs_log *log, enum fs_log_level level, const char *text)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	static const char *const word[] = {"error", "warning", "info", "debug"};
	char line[LINE_MAX_BYTES], date[40] = "";
	int len;

	pthread_mutex_lock(&log->lock);
	if (log->fd < 0) {
		syslog(priority[level], "%s", text);
		pthread_mutex_unlock(&log->lock);
		return;
	}
	if (log->dated) {
		time_t now = time(NULL);
		struct tm utc;

		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ ", gmtime_r(&now, &utc));
		len = snprintf(line, sizeof(line), "%sreshardfs[%ld]: %s: %s\n", date,
			(long)getpid(), word[level], text);
	} else {
		len = snprintf(line, sizeof(line), "reshardfs: %s\n", text);
	}
	if (len > 0) {
		size_t n = rs_min((uint64_t)len, sizeof(line) - 1);

		line[n - 1] = '\n';
		while (write(log->fd, line, n) < 0 && errno == EINTR)
			;
	}
	pthread_mutex_unlock(&log->lock);
}

void fs__log_line(struct fs_log *log, enum fs_log_level level, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES - 100];
	va_list ap;

	if (level > atomic_load_explicit(&log->level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	send_text(log, level, text);
}

/* FNV-1a: two messages that collide are told as one, once in many billions. */
static uint64_t hash(const char *s)
{
	uint64_t h = 14695981039346656037u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 1099511628211u;
	return h;
}

/* True when this was not told yet; remembers it. */
static bool is_new(struct fs_log *log, uint64_t cause)
{
	bool new = true;

	pthread_mutex_lock(&log->lock);
	for (unsigned int i = 0; new &&i < FS_LOG_CAUSES &&i < log->n_causes; i++)
		new = log->causes[i] != cause;
	if (new)
		log->causes[log->n_causes++ % FS_LOG_CAUSES] = cause;
	pthread_mutex_unlock(&log->lock);
	return new;
}

void fs__log_cause(struct fs_log *log, const struct rs_err *err)
{
	if (!is_new(log, hash(err->msg)))
		return;
	if (err->hint[0])
		fs__log_line(log, FS_LOG_ERROR, "%s (hint: %s)", err->msg, err->hint);
	else
		fs__log_line(log, FS_LOG_ERROR, "%s", err->msg);
}
