/*
 * fs.h - floor 8: what the program's rooms share: options, exit codes, printing, the verbs.
 * Nothing here knows FUSE; fs/mount/ alone does.
 */
#ifndef RESHARDFS_FS_H
#define RESHARDFS_FS_H

#include <stdio.h>

#include "reshardfs/view.h"

/* Exit codes (user experience: one table, printed by --help). */
enum fs_exit {
	FS_EXIT_OK = 0,
	FS_EXIT_FOUND = 1, /* verify, doctor: found a problem */
	FS_EXIT_USAGE = 2,
	FS_EXIT_SOURCE = 3, /* missing, incomplete or corrupt */
	FS_EXIT_UNSUPPORTED = 4,
	FS_EXIT_IO = 5,
	FS_EXIT_MOUNT = 6, /* FUSE, permission, busy */
	FS_EXIT_LIMIT = 7,
	FS_EXIT_DEST = 8,
	FS_EXIT_INTERRUPTED = 130,
};
int fs_exit_code(enum rs_code code);

enum fs_log_level { FS_LOG_ERROR, FS_LOG_WARNING, FS_LOG_INFO, FS_LOG_DEBUG, FS_LOG_DEFAULT };

/* All options of all verbs; which of them a verb takes stands in the table of options_table.c. */
struct fs_options {
	struct rs_view_options view;
	/* for verbs */
	bool json, bytes, quiet;
	bool emit; /* plan: print the target as a plan */
	/* for mount */
	bool foreground, allow_other, allow_root, nonempty, no_xattr, fake;
	bool direct; /* cache=never: the kernel keeps no pages of the virtual files */
	bool uid_set, gid_set, umask_set;
	unsigned int uid, gid, umask;
	const char *log; /* "stderr", "syslog", or a file; NULL: by foreground */
	enum fs_log_level log_level;
	bool ready_fd_set;
	unsigned int ready_fd;
	const char *pidfile;
	unsigned int threads; /* 0: by the machine */
	/* for umount */
	bool lazy;
	unsigned int wait_s;
	/* what is no option, in order */
	const char **args;
	int n_args;
	struct rs_arena *arena; /* owns strings */
};

/*
 * fs_options_parse - RESHARDFS_OPTS, then -o, --long and short forms, for @verb ("mount" too).
 * @argv: what follows the verb, @argc words. Strings are kept, not copied.
 * An option that the verb does not take is refused with the nearest known name; so is a wrong
 * number of operands. Call fs_options_done after a failure, too.
 */
int fs_options_parse(
	const char *verb, int argc, char *const *argv, struct fs_options *out, struct rs_err *err);
void fs_options_done(struct fs_options *o);
/* From the same table. @verb NULL: the program; @full: --help, with every option. */
void fs_options_help(FILE *to, const char *verb, bool full);
bool fs_verb_known(const char *word);
/* fs_verb_near - the verb that was perhaps meant by @word, or NULL. */
const char *fs_verb_near(const char *word);

/* "reshardfs: MESSAGE", and the hint on a line of its own. Returns the exit code. */
int fs_report(const struct rs_err *err);
/* fs_report_as - the same with an exit code that no rs_code stands for (FS_EXIT_MOUNT, _DEST). */
int fs_report_as(int exit_code, const struct rs_err *err);
void fs_notes(FILE *to, const struct rs_notes *notes); /* "warning: ..." a line each */
/* "13.5 GB" in @buf, or the integer with --bytes. */
const char *fs_size(uint64_t bytes, bool exact, char *buf, size_t size);
#define FS_SIZE(n, exact) fs_size((n), (exact), (char[32]){0}, 32)
/* fs_finish - flush stdout; a failed write (full disk, closed pipe) becomes exit code 5. */
int fs_finish(int exit_code);

/* A verb: exit code. */
typedef int (*fs_verb_fn)(const struct fs_options *o);
int fs_verb_inspect(const struct fs_options *o);
int fs_verb_plan(const struct fs_options *o);
int fs_verb_explain(const struct fs_options *o);
int fs_verb_ranks(const struct fs_options *o);
int fs_verb_ls(const struct fs_options *o);
int fs_verb_cat(const struct fs_options *o);
int fs_verb_strategy(const struct fs_options *o);
int fs_verb_umount(const struct fs_options *o);
int fs_mount(const struct fs_options *o);            /* fs/mount/session.c */
const char *fs_fuse_version(char *buf, size_t size); /* "libfuse 3.14.0, Linux 6.18.4" */

#endif
