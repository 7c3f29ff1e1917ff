/*
 * options_table.c - the one table of options and the one of verbs. A new option is one line here
 * and one field in struct fs_options; parsing, refusals and --help follow from the line.
 * Next: options.c, which reads a command line by these tables.
 */
#include "fs/options.h"

/* The order of fs__verbs, as bits of fs_option.verbs. */
enum {
	MOUNT = 1 << 0,
	INSPECT = 1 << 1,
	PLAN = 1 << 2,
	EXPLAIN = 1 << 3,
	RANKS = 1 << 4,
	LS = 1 << 5,
	CAT = 1 << 6,
	STRATEGY = 1 << 7,
	UMOUNT = 1 << 8,
	VIEW = MOUNT | PLAN | EXPLAIN | LS | CAT,
	TARGET = VIEW | RANKS | STRATEGY,
	SOURCE = TARGET | INSPECT,
};

const struct fs_verb fs__verbs[] = {
	{"mount", "SOURCE MOUNTPOINT", "show SOURCE under another strategy (the word is optional)",
		2, 2, true},
	{"inspect", "SOURCE", "what is this? format, tensors, strategy, what is missing or odd", 1,
		1, false},
	{"plan", "SOURCE",
		"what each target rank would get, and from where; refuses as a mount does", 1, 1,
		true},
	{"explain", "SOURCE RANK TENSOR", "where each byte of one tensor of one rank comes from", 3,
		3, true},
	{"ranks", "SOURCE RANK...", "the source ranks that these target ranks need", 2, -1, true},
	{"ls", "SOURCE [PATH]", "the virtual tree with sizes, as a mount shows it", 1, 2, true},
	{"cat", "SOURCE PATH", "one virtual file to standard output", 2, 2, true},
	{"strategy", "merge DIR OUT | show FILE | convert IN OUT | emit SOURCE OUT",
		"MindSpore strategy files: join stages, print, change form, write a target's", 2, 3,
		false},
	{"umount", "MOUNTPOINT", "unmount; says who holds it when it is busy", 1, 1, false},
};
const size_t fs__n_verbs = sizeof(fs__verbs) / sizeof(fs__verbs[0]);

#define AT(field) offsetof(struct fs_options, field)

const struct fs_option fs__options[] = {
	{"target", 0, FS_KIND_TEXT, AT(view.target.target), 0, "T", "",
		"full (one rank), same, a short target (tp4.pp2), a strategy, or a plan", TARGET},
	{"plan", 0, FS_KIND_TEXT, AT(view.target.plan), 0, "NAME|FILE", "by model_type",
		"the rules of a short target: a shipped plan, or a file", TARGET},
	{"src_strategy", 0, FS_KIND_TEXT, AT(view.source.strategy), 0, "PATH",
		"looked for in SOURCE and SOURCE/strategy", "the strategy that wrote SOURCE",
		SOURCE},
	{"source", 0, FS_KIND_TEXT, AT(view.source.format), 0, "FORMAT", "probed", "what SOURCE is",
		SOURCE},
	{"select", 0, FS_KIND_TEXT, AT(view.source.select), 0, "last|merge|GLOB", "last",
		"which file of a rank directory that holds several", SOURCE},
	{"unique_id", 0, FS_KIND_TEXT, AT(view.source.unique_id), 0, "N", "the newest",
		"which save of a Paddle directory", SOURCE},
	{"prefix", 0, FS_KIND_TEXT, AT(view.source.prefix), 0, "NAME", "",
		"Paddle: only tensors called NAME or NAME.*, without \"NAME.\"", SOURCE},
	{"format", 0, FS_KIND_TEXT, AT(view.target.container), 0, "ckpt|safetensors|pdparams",
		"as the source", "container of the virtual files", TARGET},
	{"layout", 0, FS_KIND_CHOICE, AT(view.target.layout), 0, "rank|hf|unified|vllm", "rank",
		"how the files stand: in rank_R/, or at the root as these know them", VIEW},
	{"max_file", 0, FS_KIND_SIZE, AT(view.target.max_file), 0, "SIZE", "hf 5G, unified 3Gi",
		"bytes of tensors in one file of layout=hf, unified or vllm", VIEW},
	{"name", 0, FS_KIND_TEXT, AT(view.name), 0, "PATTERN", "by format",
		"file name in rank_R/, where {rank} is replaced", VIEW},
	{"ranks", 0, FS_KIND_TEXT, AT(view.ranks), 0, "LIST", "all",
		"show only these target ranks: 0-3+8", VIEW},
	{"default", 0, FS_KIND_CHOICE, AT(view.target.unknown), 0, "keep|error|replicate|drop",
		"keep", "a source tensor that the target does not name", TARGET},
	{"missing", 0, FS_KIND_CHOICE, AT(view.target.missing), 0, "error|skip", "error",
		"a tensor that the target wants and SOURCE lacks", TARGET},
	{"only", 0, FS_KIND_WORDS, AT(view.source.only), 0, "PATTERN|weights", "all",
		"the tensors that count: a glob on whole names; may be repeated", TARGET},
	{"exclude", 0, FS_KIND_WORDS, AT(view.source.exclude), 0, "PATTERN|weights", "none",
		"the tensors that do not; may be repeated", TARGET},
	{"rename", 0, FS_KIND_WORDS, AT(view.source.rename), 0, "OLD:NEW", "",
		"call tensors otherwise, a * on each side; the first that fits counts", TARGET},
	{"dtype", 0, FS_KIND_CHOICE, AT(view.target.cast), 0, "keep|F32|F16|BF16", "keep",
		"what tensors of floats are shown as", TARGET},
	{"symlinks", 0, FS_KIND_SWITCH, AT(view.source.deny_links), 0, "inside|deny", "inside",
		"links in SOURCE", SOURCE},
	{"beneath", 0, FS_KIND_TEXT, AT(view.source.beneath), 0, "DIR", "SOURCE",
		"the directory that no link may leave", SOURCE},
	{"verify", 0, FS_KIND_SWITCH, AT(view.proved), 0, "lazy|headers", "lazy",
		"headers: read and prove every header before the mount exists", MOUNT},
	{"memory", 0, FS_KIND_SIZE, AT(view.memory), 0, "SIZE", "256M",
		"cap of the plans kept in memory", MOUNT},
	{"builders", 0, FS_KIND_COUNT, AT(view.builders), 0, "N", "by processors, 2-8",
		"threads that read headers", MOUNT},
	{"threads", 0, FS_KIND_COUNT, AT(threads), 0, "N", "by processors, 2-16",
		"threads that serve requests", MOUNT},
	{"access", 0, FS_KIND_CHOICE, AT(view.access), 0, "auto|map|pread", "auto",
		"how SOURCE is read; auto maps files of local file systems", VIEW},
	{"io_timeout", 0, FS_KIND_COUNT, AT(view.io_timeout_s), AT(view.io_timeout_set), "SECONDS",
		"60", "give up a read of a file that is not mapped; 0: never", VIEW},
	{"cache", 0, FS_KIND_SWITCH, AT(direct), 0, "auto|never", "auto",
		"never: for one-pass readers; shared mappings need auto", MOUNT},
	{"allow_other", 0, FS_KIND_FLAG, AT(allow_other), 0, NULL, "",
		"other users may read, as far as modes let them", MOUNT},
	{"allow_root", 0, FS_KIND_FLAG, AT(allow_root), 0, NULL, "",
		"root may read what another user mounted", MOUNT},
	{"uid", 0, FS_KIND_COUNT, AT(uid), AT(uid_set), "N", "yours", "owner shown", MOUNT},
	{"gid", 0, FS_KIND_COUNT, AT(gid), AT(gid_set), "N", "yours", "group shown", MOUNT},
	{"umask", 0, FS_KIND_MODE, AT(umask), AT(umask_set), "OCTAL", "as the source files",
		"modes are 0444 and 0555 without these bits", MOUNT},
	{"noxattr", 0, FS_KIND_FLAG, AT(no_xattr), 0, NULL, "", "no extended attributes", MOUNT},
	{"nonempty", 0, FS_KIND_FLAG, AT(nonempty), 0, NULL, "",
		"mount over a directory that is not empty", MOUNT},
	{"foreground", 'f', FS_KIND_FLAG, AT(foreground), 0, NULL, "", "stay, for supervisors",
		MOUNT},
	{"log", 0, FS_KIND_TEXT, AT(log), 0, "stderr|syslog|FILE",
		"stderr in the foreground, else syslog", "where failures are told", MOUNT},
	{"log_level", 0, FS_KIND_CHOICE, AT(log_level), 0, "error|warning|info|debug",
		"info; warning on stderr", "how much", MOUNT},
	{"ready_fd", 0, FS_KIND_COUNT, AT(ready_fd), AT(ready_fd_set), "N", "",
		"write 's' there when serving, or 'f' and why not", MOUNT},
	{"pidfile", 0, FS_KIND_TEXT, AT(pidfile), 0, "FILE", "", "process number, while serving",
		MOUNT},
	{"fake", 0, FS_KIND_FLAG, AT(fake), 0, NULL, "", "check everything, mount nothing", MOUNT},
	{"json", 0, FS_KIND_FLAG, AT(json), 0, NULL, "", "one object on standard output",
		INSPECT | PLAN | EXPLAIN | RANKS | LS | STRATEGY},
	{"bytes", 0, FS_KIND_FLAG, AT(bytes), 0, NULL, "", "sizes as integers",
		INSPECT | PLAN | EXPLAIN | LS},
	{"emit", 0, FS_KIND_FLAG, AT(emit), 0, NULL, "",
		"print the target as a plan file, to read or to change", PLAN},
	{"quiet", 'q', FS_KIND_FLAG, AT(quiet), 0, NULL, "", "errors only",
		(INSPECT | PLAN | EXPLAIN | RANKS | LS | CAT | STRATEGY)},
	{"lazy", 0, FS_KIND_FLAG, AT(lazy), 0, NULL, "",
		"detach now; what is open goes on until it is closed", UMOUNT},
	{"wait", 0, FS_KIND_COUNT, AT(wait_s), 0, "SECONDS", "5",
		"how long to try again while it is busy", UMOUNT},
};
const size_t fs__n_options = sizeof(fs__options) / sizeof(fs__options[0]);

_Static_assert(sizeof(enum rs_default) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(enum rs_arrangement) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(enum rs_access) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(enum rs_cast) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(enum rs_missing) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(enum fs_log_level) == sizeof(unsigned int), "CHOICE stores unsigned int");
_Static_assert(sizeof(fs__verbs) / sizeof(fs__verbs[0]) == 9 && UMOUNT == 1 << 8,
	"the verb bits follow the order of fs__verbs");

bool fs__ignored(const char *word)
{
	static const char *const words[] = {"_netdev", "nofail", "noauto", "auto", "user", "users",
		"owner", "group", "defaults", "relatime", "norelatime", "strictatime", "noatime",
		"nodiratime", "lazytime", "nolazytime", "nosuid", "nodev", "noexec", "ro", "sloppy",
		"async", "silent"};

	if (strncmp(word, "x-", 2) == 0 || strncmp(word, "X-", 2) == 0)
		return true;
	if (strncmp(word, "comment=", 8) == 0 || strncmp(word, "user=", 5) == 0)
		return true;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

bool fs__ignored_letter(char letter)
{
	return letter == 'n' || letter == 's' || letter == 'v';
}

/* -------------------------------------------------------------------------- help */

static void print_options(FILE *to, unsigned int verbs)
{
	fputs("\noptions, as --name VALUE or in a list: -o name=value,name\n", to);
	for (size_t i = 0; i < fs__n_options; i++) {
		const struct fs_option *o = &fs__options[i];
		char left[64];

		if (!(o->verbs & verbs))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", o->name, o->value ? "=" : "",
			o->value ? o->value : "");
		fprintf(to, "  %-35s", left);
		if (o->letter)
			fprintf(to, "-%c: ", o->letter);
		fputs(o->meaning, to);
		if (*o->usually)
			fprintf(to, " (%s)", o->usually);
		fputc('\n', to);
	}
	fputs("sizes: K M G T are powers of 1000, Ki Mi Gi Ti of 1024\n", to);
	fputs("RESHARDFS_OPTS holds a list that is read first\n", to);
}

static void print_verb(FILE *to, const struct fs_verb *v)
{
	fprintf(to, "reshardfs %s %s%s\n  %s\n", v->name, v->operands,
		v->needs_target ? " --target T" : "", v->summary);
	print_options(to, fs__verb_bit(v));
}

void fs_options_help(FILE *to, const char *verb, bool full)
{
	for (size_t i = 0; verb && i < fs__n_verbs; i++)
		if (strcmp(verb, fs__verbs[i].name) == 0) {
			print_verb(to, &fs__verbs[i]);
			return;
		}
	fputs("reshardfs - mount a distributed checkpoint under another parallel strategy\n"
	      "\n"
	      "  reshardfs SOURCE MOUNTPOINT -o target=T[,...]   nothing is copied\n"
	      "  reshardfs VERB ...                              the same without a mount\n"
	      "\n"
	      "verbs\n",
		to);
	for (size_t i = 0; i < fs__n_verbs; i++)
		fprintf(to, "  %-9s %s\n%12s%s\n", fs__verbs[i].name, fs__verbs[i].operands, "",
			fs__verbs[i].summary);
	fputs("\nT is `full`, `same`, axes and sizes joined by dots, innermost first, such as\n"
	      "`tp4.pp2` (tp, ep, dp, pp; opt at the end cuts optimizer shards), or the path of a\n"
	      "plan or of a MindSpore strategy; a file called like tp4 is reached as ./tp4.\n"
	      "A directory called like a verb is reached as ./plan.\n"
	      "\n"
	      "exit codes\n"
	      "  0 done   2 usage, option or target   3 source missing, incomplete or corrupt\n"
	      "  4 unsupported   5 I/O, or the source changed   6 mount: FUSE, permission, busy\n"
	      "  7 limit or out of memory   8 destination   130 interrupted\n",
		to);
	if (full)
		print_options(to, ~0u);
	else
		fputs("\nreshardfs --help lists the options, reshardfs VERB --help those of a "
		      "verb\n",
			to);
}
