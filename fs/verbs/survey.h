/*
 * survey.h - what `inspect` finds out about a source, apart from how it prints it.
 */
#ifndef FS_VERBS_SURVEY_H
#define FS_VERBS_SURVEY_H

#include "verbs.h"

struct survey_dtype {
	uint64_t tensors;       /* distinct names */
	uint64_t bytes;         /* of whole tensors, each once */
	uint64_t bytes_on_disk; /* of all stored slices */
};
struct survey {
	struct rs_source *src;
	uint64_t n_found; /* ranks (or files) that are there */
	bool known; /* the catalog tells whole tensors: there is a strategy, or no need of one */
	uint64_t n_placed; /* tensors that the strategy places, or whole ones */
	uint64_t n_others; /* names without a layout: counters and the like */
	struct survey_dtype dtypes[RS_DT_COUNT];
	uint64_t bytes, bytes_on_disk;       /* sum of dtypes' bytes; of whole files */
	uint64_t n_crc, n_deduplicated;      /* units that carry a checksum; that lack replicas */
	uint32_t replicas_min, replicas_max; /* of a slice; 0: unknown */
	uint64_t cut_gcd; /* of the lengths of all axes that tensor maps cut; 0: none */
	/* what is wrong, in the order of the ranks; heap. The first decides the exit code */
	struct rs_err *errors;
	uint64_t n_errors, cap_errors;
};

/*
 * fs__survey_run - load every header (several at a time), describe the tensors, hold every file
 * against them, and look for slices that nobody stores. What is wrong with the source goes to
 * @s->errors and does not end the survey. -1: the survey itself failed (memory).
 */
int fs__survey_run(struct survey *s, struct rs_source *src, struct rs_err *err);
void fs__survey_done(struct survey *s);

#endif
