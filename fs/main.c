/*
 * main.c - finds the verb and runs it. `reshardfs SOURCE MOUNTPOINT` is `reshardfs mount ...`;
 * a first word that is nearly a verb and no existing path is taken for a slip of the hand.
 * Next: options_table.c for what exists, fs/verbs/ and fs/mount/session.c for what it does.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fs/fs.h"

static const struct {
	const char *name;
	fs_verb_fn run;
} verbs[] = {
	{"mount", fs_mount},
	{"inspect", fs_verb_inspect},
	{"plan", fs_verb_plan},
	{"explain", fs_verb_explain},
	{"ranks", fs_verb_ranks},
	{"ls", fs_verb_ls},
	{"cat", fs_verb_cat},
	{"strategy", fs_verb_strategy},
	{"umount", fs_verb_umount},
};

static fs_verb_fn runner(const char *verb)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verb, verbs[i].name) == 0)
			return verbs[i].run;
	return NULL;
}

/*
 * Descriptors 0 to 2 exist from here on. Otherwise a caller's `2>&-` would let the next file
 * that we open, perhaps /dev/fuse, receive our messages.
 */
static int open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

/* A checkpoint may be thousands of files, and each that is read stays open. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* -h, --help, -V or --version among the words, wherever: answered before anything is checked. */
static bool answer_help(const char *verb, int argc, char *const *argv)
{
	char fuse[64];

	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			fs_options_help(stdout, verb, argv[i][1] == '-');
			return true;
		}
		if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
			printf("reshardfs %s (%s)\n", RS_VERSION,
				fs_fuse_version(fuse, sizeof(fuse)));
			return true;
		}
	}
	return false;
}

/* `help` and `help VERB` are asked by habit; a directory called help still is a source. */
static bool answer_help_word(int argc, char *const *argv)
{
	bool known = argc > 1 && fs_verb_known(argv[1]);

	if (strcmp(argv[0], "help") != 0 || argc > 2 || (argc == 2 && !known) ||
		access(argv[0], F_OK) == 0)
		return false;
	fs_options_help(stdout, known ? argv[1] : NULL, true);
	return true;
}

/* "inspct /data": no such path, but nearly a verb. */
static int check_slip(const char *word, struct rs_err *err)
{
	const char *near = fs_verb_near(word);

	if (!near || strchr(word, '/') || access(word, F_OK) == 0)
		return 0;
	rs_fail(err, RS_USAGE, "'%s' is no verb and no path", RS_SHOW(rs_str(word)));
	return rs_hint(err, "did you mean '%s'?", near);
}

int main(int argc, char **argv)
{
	struct rs_err err = {0};
	struct fs_options options;
	bool named = argc > 1 && fs_verb_known(argv[1]);
	const char *verb = named ? argv[1] : "mount";
	int skip = named ? 2 : 1, code;

	if (open_standard() < 0)
		return FS_EXIT_IO;
	raise_file_limit();
	if (argc < 2) {
		fs_options_help(stderr, NULL, false);
		return FS_EXIT_USAGE;
	}
	if (answer_help(named ? verb : NULL, argc - 1, argv + 1))
		return fs_finish(FS_EXIT_OK);
	if (answer_help_word(argc - 1, argv + 1))
		return fs_finish(FS_EXIT_OK);
	if (!named && argv[1][0] != '-' && check_slip(argv[1], &err) < 0)
		return fs_report(&err);
	if (fs_options_parse(verb, argc - skip, argv + skip, &options, &err) < 0)
		code = fs_report(&err);
	else
		code = runner(verb)(&options);
	fs_options_done(&options);
	return fs_finish(code);
}
