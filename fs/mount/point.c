/*
 * point.c - the mount point: may we mount here, and how our mount is taken away again. libfuse
 * mounts over files and full directories without a word, so all of that is refused here, before
 * anything exists: missing, no directory, a link, not empty, inside SOURCE, a mount of ours, dead.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mount/internal.h"
#include "fs/mountinfo.h"

#define FUSE_DEVICE "/dev/fuse"
#define FUSE_CONF "/etc/fuse.conf"

extern char **environ;

/* 1 empty, 0 not, -1 with errno. */
static int is_empty(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int empty = 1;

	if (!dir)
		return -1;
	while (empty && (e = readdir(dir)))
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	closedir(dir);
	return empty;
}

static int refuse_dead(const char *point, struct rs_err *err)
{
	rs_fail(err, RS_IO, "%s: transport endpoint is not connected (a dead FUSE mount)", point);
	return rs_hint(err, "reshardfs umount %s", point);
}

/* Ours already? A mount of another kind may be mounted over, as long as it is empty. */
static int check_taken(const struct fs_mount *m, struct rs_err *err)
{
	struct fs_mounted old;
	int found = fs_mountinfo_find(m->point, m->o->arena, &old, err);

	if (found <= 0 || m->o->nonempty || strcmp(old.type, FS_MOUNT_TYPE) != 0)
		return found < 0 ? -1 : 0;
	rs_fail(err, RS_IO, "%s: is a reshardfs mount of %s already", m->point,
		RS_SHOW(rs_str(old.source)));
	return rs_hint(err, "reshardfs umount %s", m->point);
}

static int check_directory(const struct fs_mount *m, struct rs_err *err)
{
	const char *point = m->point;
	struct stat st;
	int empty;

	if (lstat(point, &st) < 0) {
		int sys = errno;

		rs_fail_sys(err, sys, "mount point %s", point);
		return sys == ENOENT ? rs_hint(err, "mkdir %s", point) : -1;
	}
	if (S_ISLNK(st.st_mode)) {
		rs_fail(err, RS_IO, "mount point %s: is a symbolic link", point);
		return rs_hint(err, "name the directory that it leads to");
	}
	if (!S_ISDIR(st.st_mode))
		return rs_fail(err, RS_IO, "mount point %s: is not a directory", point);
	if (geteuid() != 0 && access(point, W_OK) < 0) {
		rs_fail_sys(err, errno, "mount point %s", point);
		return rs_hint(err, "a user may mount on directories that he can write to");
	}
	empty = m->o->nonempty ? 1 : is_empty(point);
	if (empty < 0)
		return rs_fail_sys(err, errno, "mount point %s", point);
	if (empty == 0) {
		rs_fail(err, RS_IO, "mount point %s: is not empty", point);
		return rs_hint(err, "choose another directory, or -o nonempty");
	}
	return 0;
}

/* A mount inside SOURCE would be listed when the source is scanned again. */
static int check_outside(const struct fs_mount *m, struct rs_err *err)
{
	char source[PATH_MAX], point[PATH_MAX];
	size_t len;

	if (!realpath(m->source, source) || !realpath(m->point, point))
		return 0; /* one of them is gone; whoever needs it will say so */
	len = strlen(source);
	if (strncmp(point, source, len) != 0 ||
		(point[len] != '\0' && point[len] != '/' && len > 1))
		return 0;
	rs_fail(err, RS_IO, "mount point %s: is inside the source %s", m->point, m->source);
	return rs_hint(err, "choose a directory elsewhere");
}

/* Does a line of fuse.conf say user_allow_other? What cannot be read is left to fusermount3. */
static bool others_allowed(void)
{
	FILE *conf = fopen(FUSE_CONF, "re");
	char line[256];
	bool allowed = false;

	if (!conf)
		return errno == EACCES;
	while (!allowed && fgets(line, sizeof(line), conf)) {
		line[strcspn(line, " \t\r\n")] = '\0';
		allowed = strcmp(line, "user_allow_other") == 0;
	}
	fclose(conf);
	return allowed;
}

static int check_fuse(const struct fs_mount *m, struct rs_err *err)
{
	int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		rs_fail_sys(err, errno, "%s", FUSE_DEVICE);
		return rs_hint(err, errno == EACCES || errno == EPERM
					    ? "its mode should be 0666; in a container: --device "
					      "/dev/fuse"
					    : "modprobe fuse; in a container: --device /dev/fuse "
					      "--cap-add SYS_ADMIN");
	}
	close(fd);
	if (m->o->allow_other && m->o->allow_root)
		return rs_fail(err, RS_USAGE, "allow_other and allow_root exclude each other");
	if ((m->o->allow_other || m->o->allow_root) && geteuid() != 0 && !others_allowed()) {
		rs_fail(err, RS_USAGE, "%s needs 'user_allow_other' in %s when not root",
			m->o->allow_other ? "allow_other" : "allow_root", FUSE_CONF);
		return rs_hint(err, "root adds that line, or leave the option out");
	}
	return 0;
}

int fs__point_check(struct fs_mount *m, struct rs_err *err)
{
	struct statfs fs;

	m->point = fs_path_resolved(m->o->args[1], m->o->arena, err);
	if (!m->point)
		return rs_err_prefix(err, "mount point");
	/* A dead mount first; its attributes may be cached, so lstat would not notice. */
	if (statfs(m->point, &fs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED))
		return refuse_dead(m->point, err);
	if (check_taken(m, err) < 0 || check_directory(m, err) < 0 || check_outside(m, err) < 0)
		return -1;
	return check_fuse(m, err);
}

/* ------------------------------------------------------------------------- our mount */

int fs__point_note(struct fs_mount *m, struct rs_err *err)
{
	struct fs_mounted mounted;
	int found = fs_mountinfo_find(m->point, m->o->arena, &mounted, err);

	if (found < 0)
		return -1;
	if (!found || strcmp(mounted.type, FS_MOUNT_TYPE) != 0)
		return rs_fail(err, RS_IO, "%s: was mounted but is not in mountinfo", m->point);
	m->dev_major = mounted.major;
	m->dev_minor = mounted.minor;
	return 0;
}

/*
 * Is what is mounted there ours, as far as the kernel tells? Device numbers are used again at once,
 * so a successor's mount may have ours: then it is alive, while ours answers ENOTCONN as soon as
 * our connection is gone.
 */
static bool still_ours(const struct fs_mount *m)
{
	struct pollfd fuse = {.fd = fuse_session_fd(m->session)};
	struct fs_mounted mounted;
	struct statfs fs;

	if (fs_mountinfo_find(m->point, m->o->arena, &mounted, NULL) <= 0 ||
		mounted.major != m->dev_major || mounted.minor != m->dev_minor)
		return false;
	if (fuse.fd >= 0 && poll(&fuse, 1, 0) >= 0 && !(fuse.revents & (POLLERR | POLLNVAL)))
		return true;
	return statfs(m->point, &fs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

void fs__point_detach(const struct fs_mount *m)
{
	char program[] = "fusermount3", flags[] = "-uqz", end[] = "--", point[PATH_MAX];
	char *argv[] = {program, flags, end, point, NULL};
	pid_t pid;

	if (!still_ours(m))
		return;
	if (umount2(m->point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0)
		return;
	snprintf(point, sizeof(point), "%s", m->point);
	if (posix_spawnp(&pid, program, NULL, NULL, argv, environ) == 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
}
