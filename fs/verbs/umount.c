/*
 * umount.c - `reshardfs umount MOUNTPOINT [--lazy] [--wait S]`: umount2 as root, fusermount3 for
 * others; tries again while the mount is busy and then names the processes that hold it.
 * Refuses what is no reshardfs mount. Nothing here looks into the mount, which may be dead:
 * holders are found by what /proc says about their descriptors, not by stat.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/fs.h"
#include "fs/mountinfo.h"

#define RETRY_MS 50
#define HOLDERS_SHOWN 8

extern char **environ;

/* --------------------------------------------------------------------------- who holds it */

static bool below(const char *path, const char *point)
{
	size_t len = strlen(point);

	return strncmp(path, point, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool link_below(int dir, const char *name, const char *point)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(dir, name, to, sizeof(to) - 1);

	if (n < 0)
		return false;
	to[n] = '\0';
	return below(to, point);
}

/* Files mapped from the mount: the device stands in every line of /proc/PID/maps. */
static bool maps_hold(int proc, const struct fs_mounted *m)
{
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	char line[PATH_MAX + 128];
	bool held = false;

	if (!maps) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!held && fgets(line, sizeof(line), maps)) {
		unsigned int major, minor;

		held = sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2 &&
		       major == m->major && minor == m->minor;
	}
	fclose(maps);
	return held;
}

static bool descriptors_hold(int proc, const char *point)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool held = false;
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!held && (e = readdir(dir)))
		held = e->d_name[0] != '.' && link_below(dirfd(dir), e->d_name, point);
	closedir(dir);
	return held;
}

static bool process_holds(const char *pid, const struct fs_mounted *m)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%.16s", pid);
	int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (proc < 0)
		return false;
	bool held = link_below(proc, "cwd", m->point) || link_below(proc, "root", m->point) ||
		    link_below(proc, "exe", m->point) || descriptors_hold(proc, m->point) ||
		    maps_hold(proc, m);

	close(proc);
	return held;
}

/* "812 (python3), 900 (cat)" in @buf; false when nobody was found. */
static bool holders(const struct fs_mounted *m, char *buf, size_t size)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	size_t used = 0;
	unsigned int found = 0;

	*buf = '\0';
	while (dir && (e = readdir(dir))) {
		uint64_t pid;
		char path[40], name[32] = "";

		if (!rs_str_u64(rs_str(e->d_name), &pid) || !process_holds(e->d_name, m))
			continue;
		if (found++ == HOLDERS_SHOWN || used >= size)
			break;
		snprintf(path, sizeof(path), "/proc/%" PRIu64 "/comm", pid);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, name, sizeof(name) - 1);

		if (fd >= 0)
			close(fd);
		used += (size_t)snprintf(buf + used, size - used, "%s%" PRIu64 " (%s)",
			used ? ", " : "", pid,
			RS_SHOW(((struct rs_str){name, n > 0 ? (size_t)n - 1 : 0})));
	}
	if (dir)
		closedir(dir);
	return found > 0;
}

/* ------------------------------------------------------------------------------ unmounting */

/*
 * fusermount3 -u for those who may not call umount2.
 * Returns 0, or an errno guessed from what it says: it has one exit code for everything.
 */
static int run_fusermount(const char *point, bool lazy, char *said, size_t size)
{
	char program[] = "fusermount3", flag[] = "-u", detach[] = "-z", end[] = "--";
	char path[PATH_MAX];
	char *lazy_argv[] = {program, flag, detach, end, path, NULL};
	char *argv[] = {program, flag, end, path, NULL};
	posix_spawn_file_actions_t actions;
	int fds[2], status = -1, fail;
	pid_t pid;

	*said = '\0';
	if ((size_t)snprintf(path, sizeof(path), "%s", point) >= sizeof(path))
		return ENAMETOOLONG;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
	fail = posix_spawnp(&pid, program, &actions, NULL, lazy ? lazy_argv : argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (fail == 0) {
		ssize_t n = read(fds[0], said, size - 1);

		said[n > 0 ? n : 0] = '\0';
		said[strcspn(said, "\n")] = '\0';
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	close(fds[0]);
	if (fail)
		return fail;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return strstr(said, "busy") ? EBUSY : EPERM;
}

static int unmount_once(const char *point, bool lazy, char *said, size_t size)
{
	*said = '\0';
	if (geteuid() != 0)
		return run_fusermount(point, lazy, said, size);
	return umount2(point, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? errno : 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int unmount(const struct fs_mounted *m, const struct fs_options *o, struct rs_err *err)
{
	const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
	int64_t end = now_ms() + (int64_t)o->wait_s * 1000;
	char said[200], who[300];
	int fail;

	while ((fail = unmount_once(m->point, o->lazy, said, sizeof(said))) == EBUSY &&
		now_ms() < end)
		nanosleep(&pause, NULL);
	if (fail == 0)
		return 0;
	if (fail == EBUSY) {
		if (holders(m, who, sizeof(who)))
			rs_fail(err, RS_IO, "%s: busy, held by %s", m->point, who);
		else
			rs_fail(err, RS_IO, "%s: busy, held by a process that is not ours to see",
				m->point);
		if (strstr(who, "(reshardfs)"))
			return rs_hint(err, "it is the source of another mount: unmount that one "
					    "first (findmnt "
					    "-t fuse.reshardfs)");
		return rs_hint(err, "end them, or: reshardfs umount --lazy %s", m->point);
	}
	rs_fail_sys(err, fail, "%s: cannot unmount%s%s", m->point, *said ? ": " : "",
		RS_SHOW(rs_str(said)));
	if (fail == ENOENT && geteuid() != 0)
		rs_hint(err, "fusermount3 was not found: install fuse3");
	return -1;
}

/* The mount at @path: as it is spelled, or where a link leads to. */
static int find_mount(
	const char *path, const struct fs_options *o, struct fs_mounted *out, struct rs_err *err)
{
	const char *point = fs_path_resolved(path, o->arena, err);
	char real[PATH_MAX];

	if (!point)
		return -1;
	int found = fs_mountinfo_find(point, o->arena, out, err);

	if (found == 0 && realpath(point, real))
		found = fs_mountinfo_find(real, o->arena, out, err);
	if (found < 0)
		return -1;
	if (found == 0)
		return rs_fail(err, RS_MISSING, "%s: nothing is mounted here", point);
	if (strcmp(out->type, FS_MOUNT_TYPE) != 0) {
		rs_fail(err, RS_USAGE, "%s: not a reshardfs mount (%s of %s)", point,
			RS_SHOW(rs_str(out->type)), RS_SHOW(rs_str(out->source)));
		return rs_hint(err, "umount(8) unmounts other file systems");
	}
	return 0;
}

int fs_verb_umount(const struct fs_options *o)
{
	struct fs_mounted mounted;
	struct rs_err err = {0};

	if (find_mount(o->args[0], o, &mounted, &err) < 0 || unmount(&mounted, o, &err) < 0)
		return fs_report_as(FS_EXIT_MOUNT, &err);
	return FS_EXIT_OK;
}
