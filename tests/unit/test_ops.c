/*
 * test_ops.c - the mount room at the other end of a socket: this test is the kernel, and the view
 * behind the room is a fake of one rank and one file whose state the test sets. So every moment
 * of a request that waits can be had: before, while and after it is parked.
 *
 *   test --FUSE request--> socket --> libfuse --> fs/mount --> fake view
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/mount/internal.h"

#define DIR_INODE (1u << RS_INODE_SHIFT)
#define FILE_INODE (DIR_INODE + 1)
#define FILE_BYTES 3000000u
#define DAY_S 86400

/* ------------------------------------------------------------------------- the fake view */

static struct {
	int state; /* as rs_view_attr: 0 ready, 1 not yet, -1 failed */
	struct rs_err failure;
	struct rs_waiter *parked;
	int holds, wants;
	bool read_fails;
	struct rs_image image;
} fake;

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8));
}

enum rs_node_kind rs_view_node(const struct rs_view *v, uint64_t inode)
{
	(void)v;
	return inode == RS_INODE_ROOT ? RS_NODE_ROOT
	       : inode == DIR_INODE   ? RS_NODE_RANK
	       : inode == FILE_INODE  ? RS_NODE_FILE
				      : RS_NODE_NONE;
}

uint64_t rs_view_n_files(const struct rs_view *v)
{
	(void)v;
	return 1;
}

uint64_t rs_view_file(const struct rs_view *v, uint64_t i)
{
	(void)v;
	(void)i;
	return FILE_INODE;
}

const struct rs_output *rs_view_output(const struct rs_view *v, uint64_t inode)
{
	static const struct rs_output output = {.kind = RS_OUTPUT_LIST, .name = "file"};

	(void)v;
	return inode == FILE_INODE ? &output : NULL;
}

uint64_t rs_view_inode_rank(const struct rs_view *v, uint64_t inode)
{
	(void)v;
	return (inode >> RS_INODE_SHIFT) - 1;
}

uint64_t rs_view_parent(const struct rs_view *v, uint64_t inode)
{
	(void)v;
	return inode == FILE_INODE ? DIR_INODE : RS_INODE_ROOT;
}

bool rs_view_entry(const struct rs_view *v, uint64_t dir, uint64_t i, char *name, uint64_t *inode)
{
	(void)v;
	if (i > 0 || (dir != RS_INODE_ROOT && dir != DIR_INODE))
		return false;
	*inode = dir == DIR_INODE ? FILE_INODE : DIR_INODE;
	snprintf(name, FS_NAME_MAX + 1, "%s", dir == DIR_INODE ? "file" : "rank_0");
	return true;
}

uint64_t rs_view_child(const struct rs_view *v, uint64_t parent, const char *name)
{
	char own[FS_NAME_MAX + 1];
	uint64_t inode;

	return rs_view_entry(v, parent, 0, own, &inode) && strcmp(own, name) == 0 ? inode : 0;
}

int rs_view_attr(struct rs_view *v, uint64_t inode, struct rs_attr *out, struct rs_err *err)
{
	bool file = inode == FILE_INODE;

	(void)v;
	if (file && fake.state) {
		if (fake.state < 0 && err)
			*err = fake.failure;
		return fake.state;
	}
	*out = (struct rs_attr){.kind = rs_view_node(v, inode),
		.inode = inode,
		.size = file ? FILE_BYTES : 0,
		.mode = file ? 0444 : 0555,
		.mtime_ns = -1,
		.nlink = file                     ? 1
			 : inode == RS_INODE_ROOT ? 3
						  : 2};
	return 0;
}

void rs_view_want(struct rs_view *v, uint64_t inode, struct rs_waiter *w)
{
	(void)v;
	fake.wants++;
	if (fake.state == 1) {
		w->inode = inode;
		fake.parked = w;
		return;
	}
	w->done(w, &fake.failure);
}

bool rs_view_cancel(struct rs_view *v, struct rs_waiter *w)
{
	bool waits = w->inode != 0;

	(void)v;
	w->inode = 0;
	if (waits)
		fake.parked = NULL;
	return waits;
}

/* What a builder does when it is done. */
static void finish(enum rs_code code)
{
	struct rs_waiter *w = fake.parked;

	fake.failure = (struct rs_err){.code = code};
	if (code != RS_OK)
		rs_fail(&fake.failure, code, "a cause");
	fake.state = code == RS_OK ? 0 : -1;
	fake.parked = NULL;
	if (w) {
		w->inode = 0;
		w->done(w, &fake.failure);
	}
}

struct rs_image *rs_view_hold(struct rs_view *v, uint64_t inode, struct rs_err *err)
{
	(void)v;
	if (inode != FILE_INODE || fake.state) {
		rs_fail(err, RS_IO, "nothing to hold");
		return NULL;
	}
	fake.holds++;
	return &fake.image;
}

void rs_view_release(struct rs_view *v, uint64_t inode, struct rs_image *img)
{
	(void)v;
	(void)inode;
	assert_ptr_equal(img, &fake.image);
	fake.holds--;
}

int rs_image_reply(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	struct rs_reply *to, struct rs_err *err)
{
	(void)cat;
	assert_true(rs_range_ok(off, len, img->size));
	assert_in_range(len, 1, FS_READ_MAX);
	if (fake.read_fails)
		return rs_fail(err, RS_IO, "a read failed");
	for (uint64_t i = 0; i < len; i++)
		to->buf[i] = byte_at(off + i);
	/* in two pieces, as an answer may be */
	to->iov[0] = (struct iovec){to->buf, len / 2};
	to->iov[1] = (struct iovec){to->buf + len / 2, len - len / 2};
	to->n = 2;
	return 0;
}

/* ------------------------------------------------------------------------- the fake kernel */

static struct {
	int kernel, daemon, log;
	struct fs_options o;
	struct fs_mount m;
	struct fuse_buf request;
	uint64_t unique;
	struct {
		struct fuse_out_header head;
		uint8_t body[FS_READ_MAX];
	} got;
	size_t got_bytes; /* of the body */
} wire;

/* Give the daemon one request, and let it do what it does at once. */
static void ask(uint32_t opcode, uint64_t node, uint64_t unique, const void *body, size_t len)
{
	uint8_t message[FUSE_MIN_READ_BUFFER + 4096] = {0};
	struct fuse_in_header head = {.len = (uint32_t)(sizeof(head) + len),
		.opcode = opcode,
		.unique = unique,
		.nodeid = node};

	assert_true(len <= sizeof(message) - sizeof(head));
	memcpy(message, &head, sizeof(head));
	if (len)
		memcpy(message + sizeof(head), body, len);
	assert_int_equal(send(wire.kernel, message, sizeof(head) + len, 0), sizeof(head) + len);
	assert_true(fuse_session_receive_buf(wire.m.session, &wire.request) > 0);
	fuse_session_process_buf(wire.m.session, &wire.request);
}

/* The next reply, if there is one. */
static bool answered(void)
{
	ssize_t n = recv(wire.kernel, &wire.got, sizeof(wire.got), MSG_DONTWAIT);

	if (n < 0)
		return false;
	assert_true((size_t)n >= sizeof(wire.got.head) && (size_t)n == wire.got.head.len);
	wire.got_bytes = (size_t)n - sizeof(wire.got.head);
	return true;
}

/* Ask, and get exactly one reply: its error as an errno, 0 for none. */
static int call(uint32_t opcode, uint64_t node, const void *body, size_t len)
{
	uint64_t unique = ++wire.unique * 2;

	ask(opcode, node, unique, body, len);
	assert_true(answered());
	assert_int_equal(wire.got.head.unique, unique);
	int error = wire.got.head.error;

	assert_false(wire.got.head.error && wire.got_bytes);
	return -error;
}

static int call_name(uint32_t opcode, uint64_t node, const char *name)
{
	return call(opcode, node, name, strlen(name) + 1);
}

static void greet(void)
{
	struct fuse_init_in init = {.major = 7,
		.minor = 31,
		.max_readahead = 131072,
		.flags = ~(uint32_t)FUSE_INIT_EXT};

	assert_int_equal(call(FUSE_INIT, 0, &init, sizeof(init)), 0);
}

/* One source file, for the attribute that names it. */
static int make_catalog(void)
{
	const struct rs_source_file file = {.path = "rank_0/x.ckpt"};
	uint32_t unit;

	wire.m.cat = rs_catalog_new(1 << 20, NULL);
	return wire.m.cat ? rs_catalog_add_unit(wire.m.cat, "rank_0", &file, 1, &unit, NULL) : -1;
}

static int set_up(void **state)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_lowlevel_ops ops = fs__ops;
	int fds[2], room = 4 << 20;
	struct rs_err err = {0};

	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(&wire, 0, sizeof(wire));
	if (make_catalog() < 0)
		return -1;
	fake.image = (struct rs_image){.size = FILE_BYTES, .n_files = 1, .files = (uint32_t[]){0}};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -1;
	wire.kernel = fds[0];
	wire.daemon = fds[1];
	setsockopt(wire.daemon, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	setsockopt(wire.daemon, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	wire.log = memfd_create("log", MFD_CLOEXEC);
	wire.o.view.target.target = "same";
	wire.m.o = &wire.o;
	wire.m.source = "/src";
	wire.m.log.fd = wire.log;
	atomic_init(&wire.m.log.level, FS_LOG_INFO);
	pthread_mutex_init(&wire.m.log.lock, NULL);
	pthread_rwlock_init(&wire.m.wire.lock, NULL);
	if (pthread_key_create(&wire.m.scratch, rs_free) != 0)
		return -1;
	fs__ops_readonly(&ops);
	fuse_opt_add_arg(&args, "test");
	fuse_opt_add_arg(&args, "-omax_read=1048576");
	wire.m.session = fuse_session_new(&args, &ops, sizeof(ops), &wire.m);
	fuse_opt_free_args(&args);
	return wire.m.session ? fs__init_complete(&wire.m, wire.daemon, &err) : -1;
}

static int tear_down(void **state)
{
	(void)state;
	fs__init_cut(&wire.m);
	fuse_session_destroy(wire.m.session); /* closes wire.daemon */
	rs_free(pthread_getspecific(wire.m.scratch));
	pthread_key_delete(wire.m.scratch);
	rs_catalog_free(wire.m.cat);
	free(wire.request.mem);
	close(wire.kernel);
	close(wire.log);
	return fake.holds;
}

static off_t log_bytes(void)
{
	return lseek(wire.log, 0, SEEK_END);
}

static const struct fuse_entry_out *entry(void)
{
	assert_int_equal(wire.got_bytes, sizeof(struct fuse_entry_out));
	return (const struct fuse_entry_out *)(const void *)wire.got.body;
}

/* --------------------------------------------------------------------------------- greeting */

static void test_greeting(void **state)
{
	const struct fuse_init_out *out = (const struct fuse_init_out *)(const void *)wire.got.body;
	const uint32_t want = FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
			      FUSE_CACHE_SYMLINKS | FUSE_MAX_PAGES;
	const uint32_t refuse = FUSE_SPLICE_READ | FUSE_SPLICE_WRITE | FUSE_SPLICE_MOVE |
				FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
				FUSE_EXPORT_SUPPORT | FUSE_WRITEBACK_CACHE | FUSE_POSIX_LOCKS |
				FUSE_FLOCK_LOCKS;

	(void)state;
	greet();
	assert_int_equal(out->flags & want, want);
	assert_int_equal(out->flags & refuse, 0);
	assert_int_equal(out->max_write, FS_READ_MAX);
	assert_int_equal(out->max_pages, FS_READ_MAX / 4096);
	assert_int_equal(out->max_background, 64);
	assert_int_equal(out->congestion_threshold, 48);
	assert_int_equal(out->time_gran, 1);
}

/* ----------------------------------------------------------------------------------- lookup */

static void test_lookup(void **state)
{
	char longest[FS_NAME_MAX + 2] = {0};

	(void)state;
	greet();
	assert_int_equal(call_name(FUSE_LOOKUP, FUSE_ROOT_ID, "rank_0"), 0);
	assert_int_equal(entry()->nodeid, DIR_INODE);
	assert_int_equal(entry()->entry_valid, DAY_S);
	assert_int_equal(entry()->attr_valid, DAY_S);
	assert_int_equal(entry()->attr.mode, S_IFDIR | 0555);
	/* what is not there will not be there tomorrow */
	assert_int_equal(call_name(FUSE_LOOKUP, FUSE_ROOT_ID, "rank_1"), 0);
	assert_int_equal(entry()->nodeid, 0);
	assert_int_equal(entry()->entry_valid, DAY_S);
	memset(longest, 'n', FS_NAME_MAX);
	assert_int_equal(call_name(FUSE_LOOKUP, DIR_INODE, longest), 0);
	longest[FS_NAME_MAX] = 'n';
	assert_int_equal(call(FUSE_LOOKUP, DIR_INODE, longest, sizeof(longest)), ENAMETOOLONG);
	/* a ready file needs no builder */
	assert_int_equal(call_name(FUSE_LOOKUP, DIR_INODE, "file"), 0);
	assert_int_equal(entry()->attr.size, FILE_BYTES);
	assert_int_equal(entry()->attr.blksize, FS_READ_MAX);
	assert_int_equal(entry()->attr.blocks, (FILE_BYTES + 511) / 512);
	assert_int_equal(entry()->attr.mtime, UINT64_MAX);
	assert_int_equal(entry()->attr.mtimensec, 999999999);
	assert_int_equal(fake.wants, 0);
}

static void test_waiting(void **state)
{
	(void)state;
	greet();
	fake.state = 1;
	ask(FUSE_LOOKUP, DIR_INODE, 1000, "file", 5);
	assert_false(answered());
	/* nobody else waits for that */
	assert_int_equal(call_name(FUSE_LOOKUP, FUSE_ROOT_ID, "rank_0"), 0);
	finish(RS_OK);
	assert_true(answered());
	assert_int_equal(wire.got.head.unique, 1000);
	assert_int_equal(entry()->nodeid, FILE_INODE);
	assert_false(answered());
}

static void interrupt(uint64_t unique)
{
	const struct fuse_interrupt_in in = {.unique = unique};

	ask(FUSE_INTERRUPT, 0, unique + 1, &in, sizeof(in));
}

static void test_interrupted_while_parked(void **state)
{
	(void)state;
	greet();
	fake.state = 1;
	ask(FUSE_LOOKUP, DIR_INODE, 1000, "file", 5);
	assert_false(answered());
	interrupt(1000);
	assert_true(answered());
	assert_int_equal(wire.got.head.unique, 1000);
	assert_int_equal(wire.got.head.error, -EINTR);
	assert_null(fake.parked);
	finish(RS_OK);
	assert_false(answered());
}

/* The interrupt overtook its request on another thread. */
static void test_interrupted_before_it_came(void **state)
{
	(void)state;
	greet();
	fake.state = 1;
	interrupt(1000);
	assert_false(answered());
	ask(FUSE_LOOKUP, DIR_INODE, 1000, "file", 5);
	assert_true(answered());
	assert_int_equal(wire.got.head.error, -EINTR);
	assert_null(fake.parked);
	assert_false(answered());
}

/* A builder has taken the request and not answered yet: the builder answers. */
static void test_interrupted_while_answered(void **state)
{
	struct rs_waiter *w;

	(void)state;
	greet();
	fake.state = 1;
	ask(FUSE_LOOKUP, DIR_INODE, 1000, "file", 5);
	w = fake.parked;
	w->inode = 0;
	fake.parked = NULL;
	fake.state = 0;
	interrupt(1000);
	assert_false(answered());
	w->done(w, &fake.failure);
	assert_true(answered());
	assert_int_equal(wire.got.head.error, 0);
	assert_false(answered());
}

static void test_failures(void **state)
{
	static const struct {
		enum rs_code code;
		int sys;
	} rows[] = {{RS_CORRUPT, EIO}, {RS_MISSING, EIO}, {RS_USAGE, EIO}, {RS_UNSUPPORTED, EIO},
		{RS_IO, EIO}, {RS_LIMIT, EIO}, {RS_CHANGED, ESTALE}, {RS_NOMEM, ENOMEM}};

	(void)state;
	greet();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		off_t told = log_bytes();

		fake.state = 1;
		ask(FUSE_LOOKUP, DIR_INODE, 1000, "file", 5);
		assert_false(answered());
		finish(rows[i].code);
		assert_true(answered());
		assert_int_equal(wire.got.head.error, -rows[i].sys);
		/* asked again, it is answered at once, and the log keeps silent */
		assert_int_equal(call_name(FUSE_LOOKUP, DIR_INODE, "file"), rows[i].sys);
		assert_int_equal(
			log_bytes() - told, i == 0 ? (off_t)strlen("reshardfs: a cause\n") : 0);
	}
}

/* ------------------------------------------------------------------------------ open, read */

static int open_file(int flags, struct fuse_open_out *out)
{
	const struct fuse_open_in in = {.flags = (uint32_t)flags};
	int error = call(FUSE_OPEN, FILE_INODE, &in, sizeof(in));

	if (error == 0)
		memcpy(out, wire.got.body, sizeof(*out));
	return error;
}

static void release_file(uint64_t handle)
{
	const struct fuse_release_in in = {.fh = handle};

	assert_int_equal(call(FUSE_RELEASE, FILE_INODE, &in, sizeof(in)), 0);
}

static int read_file(uint64_t handle, uint64_t off, uint32_t size)
{
	const struct fuse_read_in in = {.fh = handle, .offset = off, .size = size};

	return call(FUSE_READ, FILE_INODE, &in, sizeof(in));
}

static void test_open(void **state)
{
	struct fuse_open_out out;
	const struct fuse_open_in in = {.flags = O_RDONLY};

	(void)state;
	greet();
	assert_int_equal(open_file(O_WRONLY, &out), EROFS);
	assert_int_equal(open_file(O_RDWR, &out), EROFS);
	assert_int_equal(open_file(O_RDONLY | O_TRUNC, &out), EROFS);
	assert_int_equal(call(FUSE_OPEN, DIR_INODE, &in, sizeof(in)), ESTALE);
	assert_int_equal(open_file(O_RDONLY, &out), 0);
	assert_int_equal(out.open_flags, FOPEN_KEEP_CACHE | FOPEN_NOFLUSH);
	assert_int_equal(fake.holds, 1);
	release_file(out.fh);
	wire.o.direct = true;
	assert_int_equal(open_file(O_RDONLY, &out), 0);
	assert_int_equal(out.open_flags, FOPEN_DIRECT_IO | FOPEN_NOFLUSH);
	release_file(out.fh);
	/* an open may wait, too, and be interrupted */
	fake.state = 1;
	ask(FUSE_OPEN, FILE_INODE, 1000, &in, sizeof(in));
	assert_false(answered());
	interrupt(1000);
	assert_true(answered());
	assert_int_equal(wire.got.head.error, -EINTR);
	ask(FUSE_OPEN, FILE_INODE, 2000, &in, sizeof(in));
	finish(RS_OK);
	assert_true(answered());
	memcpy(&out, wire.got.body, sizeof(out));
	assert_int_equal(fake.holds, 1);
	release_file(out.fh);
}

static void test_read(void **state)
{
	static const struct {
		uint64_t off;
		uint32_t size, got;
	} rows[] = {
		{0, 1, 1},
		{0, 0, 0},
		{1, 4096, 4096},
		{0, FS_READ_MAX, FS_READ_MAX},
		{FILE_BYTES - 1, 1, 1},
		{FILE_BYTES - 1, 4096, 1},
		{FILE_BYTES, 4096, 0},
		{FILE_BYTES + 1, 4096, 0},
		{INT64_MAX, 4096, 0},
		{FILE_BYTES - 5000, 4096, 4096},
	};
	struct fuse_open_out out;

	(void)state;
	greet();
	assert_int_equal(open_file(O_RDONLY, &out), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(read_file(out.fh, rows[i].off, rows[i].size), 0);
		assert_int_equal(wire.got_bytes, rows[i].got);
		for (size_t b = 0; b < wire.got_bytes; b++)
			if (wire.got.body[b] != byte_at(rows[i].off + b))
				fail_msg("row %zu: byte %zu differs", i, b);
	}
	/* what the kernel never asks */
	assert_int_equal(read_file(out.fh, 1ull << 63, 4096), EINVAL);
	assert_int_equal(read_file(out.fh, 0, FS_READ_MAX + 1), EINVAL);
	/* an error says nothing of the bytes */
	fake.read_fails = true;
	assert_int_equal(read_file(out.fh, 0, 4096), EIO);
	assert_true(log_bytes() > 0);
	release_file(out.fh);
}

/* -------------------------------------------------------------------------------- listing */

static void test_readdir_resumes_anywhere(void **state)
{
	static const char *const names[] = {".", "..", "rank_0"};
	static const uint64_t inodes[] = {RS_INODE_ROOT, RS_INODE_ROOT, DIR_INODE};

	(void)state;
	greet();
	for (uint64_t first = 0; first < 5; first++) {
		for (uint32_t size = 0; size < 200; size++) {
			const struct fuse_read_in in = {.offset = first, .size = size};
			size_t at = 0;
			uint64_t i = first;

			assert_int_equal(call(FUSE_READDIR, FUSE_ROOT_ID, &in, sizeof(in)), 0);
			assert_true(wire.got_bytes <= size);
			while (at < wire.got_bytes) {
				struct fuse_dirent d;

				memcpy(&d, wire.got.body + at, FUSE_NAME_OFFSET);
				assert_true(i < 3 && d.ino == inodes[i] && d.off == i + 1);
				assert_int_equal(d.namelen, strlen(names[i]));
				assert_memory_equal(
					wire.got.body + at + FUSE_NAME_OFFSET, names[i], d.namelen);
				at += (FUSE_NAME_OFFSET + d.namelen + 7) / 8 * 8;
				i++;
			}
			/* all that fits: a listing that stops early would seem complete */
			assert_true(i >= 3 || size - at < FUSE_NAME_OFFSET + 16);
		}
	}
}

static int xattr(uint64_t node, const char *name, uint32_t size)
{
	uint8_t body[sizeof(struct fuse_getxattr_in) + 64] = {0};
	const struct fuse_getxattr_in in = {.size = size};

	memcpy(body, &in, sizeof(in));
	memcpy(body + sizeof(in), name, strlen(name));
	return call(FUSE_GETXATTR, node, body, sizeof(in) + strlen(name) + 1);
}

static void test_xattr(void **state)
{
	const struct fuse_getxattr_in list = {.size = 4096};

	(void)state;
	greet();
	assert_int_equal(xattr(FILE_INODE, "user.reshardfs.sources", 64), 0);
	assert_int_equal(wire.got_bytes, 13);
	assert_memory_equal(wire.got.body, "rank_0/x.ckpt", 13);
	assert_int_equal(xattr(FILE_INODE, "user.reshardfs.sources", 12), ERANGE);
	assert_int_equal(xattr(FILE_INODE, "user.reshardfs.rank", 0), 0);
	assert_int_equal(((struct fuse_getxattr_out *)(void *)wire.got.body)->size, 1);
	assert_int_equal(xattr(FILE_INODE, "user.reshardfs.", 64), ENODATA);
	assert_int_equal(xattr(FILE_INODE, "security.capability", 64), ENODATA);
	assert_int_equal(xattr(DIR_INODE, "user.reshardfs.rank", 64), ENODATA);
	assert_int_equal(xattr(FUSE_ROOT_ID, "user.reshardfs.source", 64), 0);
	assert_memory_equal(wire.got.body, "/src", 4);
	assert_int_equal(call(FUSE_LISTXATTR, DIR_INODE, &list, sizeof(list)), 0);
	assert_int_equal(wire.got_bytes, 0);
	assert_int_equal(call(FUSE_LISTXATTR, FILE_INODE, &list, sizeof(list)), 0);
	assert_int_equal(wire.got.body[wire.got_bytes - 1], '\0');
	wire.o.no_xattr = true;
	assert_int_equal(xattr(FILE_INODE, "user.reshardfs.rank", 64), ENODATA);
}

/* --------------------------------------------------------------------------- what is refused */

static void test_every_write_is_refused(void **state)
{
	static const uint32_t opcodes[] = {FUSE_SETATTR, FUSE_MKNOD, FUSE_MKDIR, FUSE_UNLINK,
		FUSE_RMDIR, FUSE_SYMLINK, FUSE_RENAME, FUSE_RENAME2, FUSE_LINK, FUSE_CREATE,
		FUSE_WRITE, FUSE_SETXATTR, FUSE_REMOVEXATTR, FUSE_FALLOCATE};
	uint8_t body[256] = {0};

	(void)state;
	greet();
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		assert_int_equal(call(opcodes[i], FILE_INODE, body, sizeof(body)), EROFS);
}

static void test_strangers(void **state)
{
	static const uint64_t nodes[] = {
		0, 2, 15, DIR_INODE + 2, FILE_INODE + DIR_INODE, UINT64_MAX};
	const struct fuse_getattr_in in = {0};

	(void)state;
	greet();
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		assert_int_equal(call(FUSE_GETATTR, nodes[i], &in, sizeof(in)), ESTALE);
		assert_int_equal(call(FUSE_OPEN, nodes[i], &in, sizeof(in)), ESTALE);
		assert_int_equal(call(FUSE_OPENDIR, nodes[i], &in, sizeof(in)), ENOTDIR);
	}
	assert_int_equal(call(777, FILE_INODE, NULL, 0), ENOSYS);
}

/* Any opcode for any node with any body, in every state: one reply at most, and none is lost. */
static void test_random_requests(void **state)
{
	static const uint32_t opcodes[] = {FUSE_LOOKUP, FUSE_GETATTR, FUSE_OPEN, FUSE_STATFS,
		FUSE_OPENDIR, FUSE_READDIR, FUSE_GETXATTR, FUSE_LISTXATTR, FUSE_RELEASEDIR,
		FUSE_SETATTR, FUSE_WRITE, FUSE_CREATE, FUSE_RENAME2, FUSE_LSEEK, FUSE_ACCESS,
		FUSE_POLL, FUSE_GETLK, FUSE_SYNCFS, FUSE_READDIRPLUS, FUSE_COPY_FILE_RANGE, 0, 62};
	static const uint64_t nodes[] = {FUSE_ROOT_ID, DIR_INODE, FILE_INODE, 0, 12345};
	uint64_t unique = 1 << 20;

	(void)state;
	greet();
	srand(1);
	for (int turn = 0; turn < 20000; turn++) {
		uint32_t opcode = opcodes[(size_t)rand() % (sizeof(opcodes) / sizeof(opcodes[0]))];
		uint64_t node = nodes[(size_t)rand() % (sizeof(nodes) / sizeof(nodes[0]))];
		uint8_t body[256] = {0};

		for (size_t i = 0; i < 160; i++)
			body[i] = (uint8_t)(rand() % 3 ? 0 : rand());
		fake.state = rand() % 3 - 1;
		rs_fail(&fake.failure, RS_IO, "turn %d", turn % 3);
		unique += 2;
		ask(opcode, node, unique, body, sizeof(body));
		if (fake.parked && rand() % 2)
			interrupt(unique);
		if (fake.parked)
			finish(rand() % 2 ? RS_OK : RS_CORRUPT);
		if (!answered())
			fail_msg("turn %d: opcode %u got no answer", turn, opcode);
		assert_int_equal(wire.got.head.unique, unique);
		if (opcode == FUSE_OPEN && wire.got.head.error == 0)
			fake.holds--;
		while (answered()) /* an interrupt that found nobody is told to come again */
			assert_int_equal(wire.got.head.error, -EAGAIN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_greeting, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lookup, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_waiting, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_interrupted_while_parked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_interrupted_before_it_came, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_interrupted_while_answered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_open, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_readdir_resumes_anywhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_xattr, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_every_write_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_strangers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_random_requests, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
