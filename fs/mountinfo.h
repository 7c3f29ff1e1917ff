/*
 * mountinfo.h - what is mounted where, from /proc/self/mountinfo, without touching any mount.
 */
#ifndef RESHARDFS_FS_MOUNTINFO_H
#define RESHARDFS_FS_MOUNTINFO_H

#include "reshardfs/base.h"

#define FS_MOUNT_TYPE "fuse.reshardfs"

struct fs_mounted {
	unsigned int id, major, minor;
	const char *point, *type, *source; /* unescaped */
};

/*
 * fs_mountinfo_find - the topmost mount whose mount point is @path, as the kernel spells it.
 * Returns 1 and fills @out, 0 when nothing is mounted there, -1.
 * Owns: strings are in @arena.
 */
int fs_mountinfo_find(
	const char *path, struct rs_arena *arena, struct fs_mounted *out, struct rs_err *err);
/*
 * fs_path_absolute - @path with the working directory before it; links stay, nothing is looked up.
 */
const char *fs_path_absolute(const char *path, struct rs_arena *arena, struct rs_err *err);
/*
 * fs_path_resolved - the path as the kernel would spell it: links in the directories before the
 * last name are followed, that name itself is not looked at, so that a dead mount cannot stop us.
 */
const char *fs_path_resolved(const char *path, struct rs_arena *arena, struct rs_err *err);

#endif
