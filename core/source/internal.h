/*
 * internal.h - the formats that source.c knows.
 */
#ifndef RESHARDFS_CORE_SOURCE_INTERNAL_H
#define RESHARDFS_CORE_SOURCE_INTERNAL_H

#include "reshardfs/source.h"

extern const struct rs_source_ops rs__source_mindspore;
extern const struct rs_source_ops rs__source_unified;
extern const struct rs_source_ops rs__source_hf;
extern const struct rs_source_ops rs__source_paddle;

/*
 * rs__names_set - read only=, exclude= and rename= of @src->opts, and have the catalog go by them.
 * RS_USAGE: a pattern that is none. rs__names_report - once everything is described: notes on what
 * is left out. RS_USAGE: nothing is left.
 */
int rs__names_set(struct rs_source *src, struct rs_err *err);
int rs__names_report(struct rs_source *src, struct rs_err *err);
void rs__names_done(struct rs_names *names);

/* rs__glob - does @pattern fit all of @name? rs__glob_ok - is it a pattern? See glob.c. */
bool rs__glob(struct rs_str pattern, struct rs_str name);
bool rs__glob_ok(struct rs_str pattern);

#endif
