/*
 * options.h - the shape of the option and verb tables, between options.c (reads a command line
 * by them) and options_table.c (holds them and prints help from them). Nobody else includes it.
 */
#ifndef RESHARDFS_FS_OPTIONS_H
#define RESHARDFS_FS_OPTIONS_H

#include "fs/fs.h"

enum fs_option_kind {
	FS_KIND_FLAG,   /* bool; takes no value */
	FS_KIND_TEXT,   /* const char * */
	FS_KIND_WORDS,  /* struct rs_words: may be given again and again */
	FS_KIND_SWITCH, /* bool: false by the first of two words, true by the second */
	FS_KIND_CHOICE, /* an enum that begins at 0: the number of the word */
	FS_KIND_COUNT,  /* unsigned int, decimal */
	FS_KIND_SIZE,   /* uint64_t bytes: K M G T are powers of 1000, Ki Mi Gi Ti of 1024 */
	FS_KIND_MODE,   /* unsigned int, octal */
};

struct fs_option {
	const char *name; /* in -o and behind --, where '-' may stand for '_' */
	char letter;      /* short form, 0: none */
	enum fs_option_kind kind;
	size_t at;           /* offset in struct fs_options */
	size_t at_set;       /* offset of a bool that notes its presence; 0: none */
	const char *value;   /* "N", "PATH"; of SWITCH and CHOICE the words, "lazy|headers" */
	const char *usually; /* the default, for people; "" when there is nothing to say */
	const char *meaning;
	unsigned int verbs; /* FS_VERB_BIT of those that take it */
};

struct fs_verb {
	const char *name, *operands, *summary;
	int min_args, max_args;
	bool needs_target;
};

extern const struct fs_option fs__options[];
extern const size_t fs__n_options;
extern const struct fs_verb fs__verbs[];
extern const size_t fs__n_verbs;

static inline unsigned int fs__verb_bit(const struct fs_verb *v)
{
	return 1u << (unsigned int)(v - fs__verbs);
}
/* fs__ignored - a word that fstab and mount(8) use among themselves, such as _netdev. */
bool fs__ignored(const char *word);
/* fs__ignored_letter - the same for -n, -s and -v, which mount(8) hands to helpers. */
bool fs__ignored_letter(char letter);

#endif
