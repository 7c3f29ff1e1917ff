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

#endif
