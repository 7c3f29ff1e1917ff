/*
 * mountinfo.c - reads /proc/self/mountinfo, whose lines look like
 *   36 35 0:45 / /mnt/x ro,nosuid shared:1 - fuse.reshardfs /data/ckpt ro,user_id=0
 * with blanks inside a field written as \040. Lines that look otherwise are skipped.
 * Used by the mount (is it taken? is it dead?) and by `reshardfs umount`.
 */
#include "fs/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define MOUNTINFO "/proc/self/mountinfo"
#define MOUNTINFO_STEP 65536

/* All of the file with a 0 behind it; the caller frees *out. */
static int slurp(char **out, struct rs_err *err)
{
	int fd = open(MOUNTINFO, O_RDONLY | O_CLOEXEC);
	uint64_t len = 0, cap = 0;

	*out = NULL;
	if (fd < 0)
		return rs_fail_sys(err, errno, "%s", MOUNTINFO);
	while (rs_grow(out, &cap, len + MOUNTINFO_STEP, 1, err) == 0) {
		ssize_t n = read(fd, *out + len, MOUNTINFO_STEP - 1);

		if (n == 0) {
			(*out)[len] = '\0';
			close(fd);
			return 0;
		}
		if (n > 0) {
			len += (uint64_t)n;
		} else if (errno != EINTR) {
			rs_fail_sys(err, errno, "%s", MOUNTINFO);
			break;
		}
	}
	close(fd);
	rs_free(*out);
	return -1;
}

/* \040 and its like, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
			s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* The next blank-separated field, or NULL at the end of the line. */
static char *field(char **at)
{
	char *start = *at, *end = strchr(start, ' ');

	if (!*start)
		return NULL;
	*at = end ? end + 1 : start + strlen(start);
	if (end)
		*end = '\0';
	return start;
}

static bool parse_line(char *line, struct fs_mounted *out)
{
	char *words[5], *word;
	uint64_t id, major, minor;

	for (size_t i = 0; i < 5; i++)
		if (!(words[i] = field(&line)))
			return false;
	while ((word = field(&line)) && strcmp(word, "-") != 0)
		;
	char *type = field(&line), *source = type ? field(&line) : NULL;
	char *colon = strchr(words[2], ':');

	if (!source || !colon || !rs_str_u64(rs_str(words[0]), &id) ||
		!rs_str_u64((struct rs_str){words[2], (size_t)(colon - words[2])}, &major) ||
		!rs_str_u64(rs_str(colon + 1), &minor))
		return false;
	unescape(words[4]);
	unescape(source);
	*out = (struct fs_mounted){
		(unsigned int)id, (unsigned int)major, (unsigned int)minor, words[4], type, source};
	return true;
}

int fs_mountinfo_find(
	const char *path, struct rs_arena *arena, struct fs_mounted *out, struct rs_err *err)
{
	struct fs_mounted found = {0};
	char *text;
	int result = 0;

	if (slurp(&text, err) < 0)
		return -1;
	for (char *line = text, *end; *line; line = end) {
		struct fs_mounted m;

		end = strchrnul(line, '\n');
		if (*end)
			*end++ = '\0';
		if (parse_line(line, &m) && strcmp(m.point, path) == 0) {
			found = m; /* the last one lies on top */
			result = 1;
		}
	}
	if (result) {
		*out = found;
		out->point = rs_arena_copy(arena, found.point, strlen(found.point), err);
		out->type = rs_arena_copy(arena, found.type, strlen(found.type), err);
		out->source = rs_arena_copy(arena, found.source, strlen(found.source), err);
		if (!out->point || !out->type || !out->source)
			result = -1;
	}
	rs_free(text);
	return result;
}

const char *fs_path_absolute(const char *path, struct rs_arena *arena, struct rs_err *err)
{
	char cwd[PATH_MAX];

	if (path[0] == '/')
		return path;
	if (!getcwd(cwd, sizeof(cwd))) {
		rs_fail_sys(err, errno, "%s: working directory", path);
		return NULL;
	}
	return rs_arena_printf(arena, err, "%s/%s", cwd, path);
}

const char *fs_path_resolved(const char *path, struct rs_arena *arena, struct rs_err *err)
{
	char real[PATH_MAX];
	char *copy = rs_arena_copy(arena, path, strlen(path), err);

	if (!copy)
		return NULL;
	for (size_t len = strlen(copy); len > 1 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
	char *slash = strrchr(copy, '/');
	const char *name = slash ? slash + 1 : copy, *dir = slash ? copy : ".";

	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		if (realpath(path, real))
			return rs_arena_copy(arena, real, strlen(real), err);
		rs_fail_sys(err, errno, "%s", path);
		return NULL;
	}
	if (slash)
		*slash = '\0';
	if (!realpath(*dir ? dir : "/", real)) {
		rs_fail_sys(err, errno, "%s", path);
		return NULL;
	}
	return rs_arena_printf(arena, err, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name);
}
