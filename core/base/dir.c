/*
 * dir.c - source directories, and the fence around them. Every name that comes from a listing, a
 * link or an index is resolved by the kernel beneath the fence (openat2, RESOLVE_BENEATH), so no
 * swapping of links can lead outside. Refuses absolute names and "..", and, where the kernel
 * lacks openat2, every symbolic link. Keeps descriptors and no paths, for the program changes its
 * directory. Next: io.c, which reads what is opened here.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* A rename during resolution makes the kernel ask for another try. */
#define RACE_TRIES 16

struct rs_dir {
	int fd;       /* the directory */
	int fence;    /* a directory above it that links may not leave; -1: the directory itself */
	bool links;   /* follow symbolic links inside the fence */
	char *path;   /* as given, for messages */
	char *prefix; /* from the fence to the directory: "snapshots/0a1b/", "" without fence */
	struct rs_identity id;
};

/* ------------------------------------------------------------- resolving names */

/*
 * The same as openat2 with RESOLVE_NO_SYMLINKS, one component at a time, for kernels before 5.6 and
 * for sandboxes that know no openat2. There is no ".." in @path: the callers see to that.
 */
static int open_steps(int at, const char *path, int flags)
{
	int fd = -1, sys = 0;

	for (;;) {
		size_t len = strcspn(path, "/");
		bool last = path[len + strspn(path + len, "/")] == 0;
		char part[NAME_MAX + 1];
		struct stat st;
		int next;

		if (len > NAME_MAX) {
			sys = ENAMETOOLONG;
			break;
		}
		memcpy(part, path, len);
		part[len] = 0;
		next = openat(
			at, part, last ? flags | O_NOFOLLOW : O_PATH | O_NOFOLLOW | O_CLOEXEC);
		sys = next < 0 ? errno : 0;
		/* O_PATH opens a link itself, be it the last part or not. */
		if (next >= 0 && fstat(next, &st) == 0 && S_ISLNK(st.st_mode)) {
			close(next);
			next = -1;
			sys = ELOOP;
		}
		if (fd >= 0)
			close(fd);
		fd = at = next;
		if (fd < 0 || last)
			break;
		path += len + strspn(path + len, "/");
	}
	errno = sys;
	return fd;
}

/* openat2 beneath @at, as far as the machine knows it. Returns a descriptor, or -1 and errno. */
static int open_beneath(int at, const char *path, int flags, bool links)
{
	uint64_t resolve =
		RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (links ? 0 : RESOLVE_NO_SYMLINKS);
	int tries = RACE_TRIES, fd, sys;

	for (;;) {
		fd = rs__openat2(at, path, flags, resolve);
		if (fd >= 0)
			return fd;
		sys = errno;
		if (sys == EINTR || (sys == EAGAIN && tries-- > 0))
			continue;
		if (sys == EPERM && (flags & O_NOATIME))
			flags &= ~O_NOATIME; /* for owners only */
		else
			break;
	}
	/* Some container sandboxes answer EPERM to system calls that they do not know. */
	if (sys == ENOSYS || sys == EPERM)
		return open_steps(at, path, flags);
	errno = sys;
	return -1;
}

/*
 * Open @rel beneath the directory, or failing that beneath the fence. The directory comes first
 * because its descriptor stays good when somebody renames what lies between.
 */
static int open_in(const struct rs_dir *dir, const char *rel, int flags)
{
	int fd = open_beneath(dir->fd, rel, flags, dir->links);
	char path[PATH_MAX];
	int len;

	if (fd >= 0 || errno != EXDEV || dir->fence < 0)
		return fd;
	len = snprintf(path, sizeof(path), "%s%s", dir->prefix, rel);
	if (len < 0 || (size_t)len >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open_beneath(dir->fence, path, flags, dir->links);
}

/* What is wrong with a name before anything is opened; NULL when it may be tried. */
static const char *name_fault(const char *rel)
{
	if (rel[0] == 0)
		return "an empty name";
	if (rel[0] == '/')
		return "an absolute path";
	if (strlen(rel) >= PATH_MAX)
		return "a name of 4096 bytes or more";
	while (*rel) {
		size_t len = strcspn(rel, "/");

		if (len == 2 && memcmp(rel, "..", 2) == 0)
			return "'..' in it";
		rel += len;
		rel += strspn(rel, "/");
	}
	return NULL;
}

static int fail_name(
	const struct rs_dir *dir, const char *name, const char *fault, struct rs_err *err)
{
	return rs_fail(err, RS_CORRUPT,
		"%s: expected a name in %s, found %s: nothing outside the checkpoint is opened",
		RS__PATH(name), RS__PATH(dir->path), fault);
}

static int fail_outside(
	const struct rs_dir *dir, const char *rel, const char *name, struct rs_err *err)
{
	struct stat st;

	rs_fail(err, RS_CORRUPT,
		"%s: expected a file in %s, found a link that leads outside the checkpoint",
		RS__PATH(name), RS__PATH(dir->path));
	/* Looking at what the link leads to opens nothing. */
	if (fstatat(dir->fd, rel, &st, 0) == 0 && S_ISREG(st.st_mode))
		rs_hint(err,
			"if the link is meant, allow it: beneath=DIR, a directory that holds both "
			"the link and the file it leads to");
	return -1;
}

/* A link was met and not followed: because it cannot end, may not be, or cannot be safely. */
static int fail_link(
	const struct rs_dir *dir, const char *rel, const char *name, struct rs_err *err)
{
	static const char unsafe[] = "this system cannot keep links inside the checkpoint";
	struct stat st;

	if (dir->links && fstatat(dir->fd, rel, &st, 0) < 0 && errno == ELOOP)
		return rs_fail(err, RS_CORRUPT,
			"%s: expected a file, found symbolic links in a loop", RS__PATH(name));
	rs_fail(err, RS_CORRUPT, "%s: expected a file, found a symbolic link, and %s",
		RS__PATH(name), dir->links ? unsafe : "links are refused");
	return rs_hint(err, "put a copy or a hard link in its place%s",
		dir->links ? "" : ", or allow links: symlinks=inside");
}

static int fail_in(
	const struct rs_dir *dir, const char *rel, const char *name, int sys, struct rs_err *err)
{
	struct stat st;

	switch (sys) {
	case EXDEV:
		return fail_outside(dir, rel, name, err);
	case ELOOP:
		return fail_link(dir, rel, name, err);
	case EAGAIN:
		return rs_fail_sys(err, sys, "%s: directories were renamed while it was opened",
			RS__PATH(name));
	case ENOENT:
		if (fstatat(dir->fd, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
			return rs_fail(err, RS_CORRUPT,
				"%s: expected a file, found a symbolic link that leads nowhere",
				RS__PATH(name));
		break;
	}
	return rs__fail_open(err, sys, name);
}

int rs_dir_file(const struct rs_dir *dir, const char *rel, const char *name, struct rs_file *out,
	struct rs_err *err)
{
	const char *fault = name_fault(rel);
	int fd;

	if (!name)
		name = rel;
	if (fault)
		return fail_name(dir, name, fault, err);
	fd = open_in(dir, rel, RS__OPEN_FLAGS | O_NOATIME);
	if (fd < 0)
		return fail_in(dir, rel, name, errno, err);
	return rs__file_adopt(fd, name, out, err);
}

static enum rs_kind kind_of(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return RS_KIND_FILE;
	return S_ISDIR(st->st_mode) ? RS_KIND_DIR : RS_KIND_OTHER;
}

/* fstat of what @rel leads to; 0, or -1 and errno. */
static int stat_in(const struct rs_dir *dir, const char *rel, struct stat *st)
{
	int fd = open_in(dir, rel, O_PATH | O_CLOEXEC), status;

	if (fd < 0)
		return -1;
	status = fstat(fd, st);
	close(fd);
	return status;
}

int rs_dir_stat(const struct rs_dir *dir, const char *rel, enum rs_kind *kind,
	struct rs_identity *out, struct rs_err *err)
{
	const char *name = rel[0] ? rel : ".", *fault = name_fault(name);
	struct stat st;

	if (fault)
		return fail_name(dir, rel, fault, err);
	if (stat_in(dir, name, &st) < 0)
		return fail_in(dir, name, name, errno, err);
	*kind = kind_of(&st);
	*out = rs__identity(&st);
	return 0;
}

/* --------------------------------------------------------------- opening a directory */

static int fail_dir(struct rs_err *err, int sys, const char *path)
{
	rs_fail_sys(err, sys, "%s: expected a directory that can be read", RS__PATH(path));
	/* All of these say that no checkpoint is here for us; others are the system's fault. */
	if (err && (sys == ENOENT || sys == ENOTDIR || sys == EACCES || sys == ELOOP ||
			   sys == ENAMETOOLONG))
		err->code = RS_MISSING;
	return -1;
}

static int copy_text(const char *text, const char *tail, char **out, struct rs_err *err)
{
	size_t len = strlen(text), more = strlen(tail);
	char *copy = rs_alloc(len + more + 1, err);

	if (!copy)
		return -1;
	memcpy(copy, text, len);
	memcpy(copy + len, tail, more + 1);
	*out = copy;
	return 0;
}

/* With a fence above the directory: open it, and the directory through it. */
static int open_fenced(struct rs_dir *dir, const char *beneath, struct rs_err *err)
{
	char inner[PATH_MAX], outer[PATH_MAX];
	const char *rest;
	size_t len;

	if (!realpath(beneath, outer))
		return fail_dir(err, errno, beneath);
	if (!realpath(dir->path, inner))
		return fail_dir(err, errno, dir->path);
	len = strcmp(outer, "/") ? strlen(outer) : 0;
	rest = inner + len;
	if (strncmp(inner, outer, len) != 0 || (*rest && *rest != '/')) {
		rs_fail(err, RS_USAGE, "beneath=%s: expected a directory that contains %s",
			RS__PATH(outer), RS__PATH(inner));
		return rs_hint(err, "beneath= names a directory above the checkpoint");
	}
	rest += strspn(rest, "/");
	if (*rest == 0)
		return 0; /* the directory itself, as without a fence */
	if (copy_text(rest, "/", &dir->prefix, err) < 0)
		return -1;
	dir->fence = open(outer, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir->fence < 0)
		return fail_dir(err, errno, beneath);
	dir->fd = open_beneath(dir->fence, rest, O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	return dir->fd < 0 ? fail_dir(err, errno, dir->path) : 0;
}

int rs_dir_open(
	const char *path, const char *beneath, bool links, struct rs_dir **out, struct rs_err *err)
{
	struct rs_dir *dir = rs_alloc(sizeof(*dir), err);
	struct stat st;

	if (!dir)
		return -1;
	dir->fd = dir->fence = -1;
	dir->links = links;
	if (copy_text(path, "", &dir->path, err) < 0)
		goto fail;
	if (beneath && open_fenced(dir, beneath, err) < 0)
		goto fail;
	if (dir->fd < 0)
		dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0 || fstat(dir->fd, &st) < 0) {
		fail_dir(err, errno, path);
		goto fail;
	}
	dir->id = rs__identity(&st);
	*out = dir;
	return 0;
fail:
	rs_dir_close(dir);
	return -1;
}

void rs_dir_close(struct rs_dir *dir)
{
	if (!dir)
		return;
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->fence >= 0)
		close(dir->fence);
	rs_free(dir->prefix);
	rs_free(dir->path);
	rs_free(dir);
}

const char *rs_dir_path(const struct rs_dir *dir)
{
	return dir->path;
}

struct rs_identity rs_dir_identity(const struct rs_dir *dir)
{
	return dir->id;
}

/* --------------------------------------------------------------------- listing */

struct listing {
	const struct rs_dir *dir;
	const char *sub;
	DIR *stream;
	struct rs_dirent *items; /* heap, while it grows */
	uint64_t n, cap;
};

/* What a link stands for: what it leads to inside the fence, else nothing that we serve. */
static bool follow(const struct listing *l, const char *name, struct stat *st)
{
	char rel[PATH_MAX];
	int len;

	if (!l->dir->links)
		return false;
	len = snprintf(rel, sizeof(rel), "%s%s%s", l->sub, l->sub[0] ? "/" : "", name);
	return len > 0 && (size_t)len < sizeof(rel) && stat_in(l->dir, rel, st) == 0;
}

static int add_entry(
	struct listing *l, const char *name, struct rs_arena *arena, struct rs_err *err)
{
	struct rs_dirent *e;
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (fstatat(dirfd(l->stream), name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0; /* deleted since it was listed */
		return rs_fail_sys(err, errno, "%s/%s: cannot be examined", RS__PATH(l->dir->path),
			RS_SHOW(rs_str(name)));
	}
	if (S_ISLNK(st.st_mode))
		(void)follow(l, name, &st); /* else it stays a link, which is OTHER */
	if (rs_grow(&l->items, &l->cap, l->n + 1, sizeof(*l->items), err) < 0)
		return -1;
	e = &l->items[l->n];
	if (rs_arena_str(arena, rs_str(name), &e->name, err) < 0)
		return -1;
	e->kind = kind_of(&st);
	e->id = rs__identity(&st);
	l->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct rs_dirent *x = a, *y = b;

	return rs_str_cmp(x->name, y->name);
}

/* The entries of an open stream, as the file system orders them. */
static int read_entries(struct listing *l, struct rs_arena *arena, struct rs_err *err)
{
	const struct dirent *e;

	for (;;) {
		errno = 0;
		e = readdir(l->stream);
		if (!e)
			break;
		if (add_entry(l, e->d_name, arena, err) < 0)
			return -1;
	}
	if (errno)
		return rs_fail_sys(err, errno, "%s/%s: listing failed", RS__PATH(l->dir->path),
			RS__PATH(l->sub));
	return 0;
}

int rs_dir_list(const struct rs_dir *dir, const char *sub, struct rs_arena *arena,
	struct rs_dirent **out, uint64_t *n, struct rs_err *err)
{
	struct listing l = {.dir = dir, .sub = sub};
	const char *name = sub[0] ? sub : ".", *fault = name_fault(name);
	struct rs_dirent *copy;
	int fd, status = -1;

	if (fault)
		return fail_name(dir, sub, fault, err);
	fd = open_in(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fail_in(dir, name, sub[0] ? sub : dir->path, errno, err);
	l.stream = fdopendir(fd);
	if (!l.stream) {
		close(fd);
		return rs_fail(err, RS_NOMEM, "%s: out of memory", RS__PATH(dir->path));
	}
	if (read_entries(&l, arena, err) < 0)
		goto out;
	copy = RS_NEW_N(arena, struct rs_dirent, l.n, err);
	if (!copy)
		goto out;
	if (l.n) {
		qsort(l.items, (size_t)l.n, sizeof(*l.items), by_name);
		memcpy(copy, l.items, (size_t)l.n * sizeof(*copy));
	}
	*out = copy;
	*n = l.n;
	status = 0;
out:
	closedir(l.stream);
	rs_free(l.items);
	return status;
}
