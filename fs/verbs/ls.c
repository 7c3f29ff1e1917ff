/*
 * ls.c - `ls SRC --target T [PATH]`: the virtual tree with modes and sizes, as a mount would show
 * it: files at the root, then rank directories and the files in them, a line each.
 *
 * Sizes need the headers of the source ranks, so every listed file is built (several at a time). A
 * file that cannot be built is listed with question marks, its error goes to stderr, and the
 * first one decides the exit code. Read next: view.h.
 */
#include "verbs.h"

#define SIZE_COLUMN 12

struct row {
	char path[FS_VIEW_PATH_MAX];
	uint64_t inode;
	struct rs_attr attr;
	struct rs_err err; /* code RS_OK: attr holds */
};
struct listing {
	struct rs_view *v;
	struct row *rows; /* heap */
	uint64_t n, cap;
};

static int add_row(struct listing *l, uint64_t inode, const char *path, struct rs_err *err)
{
	struct row *row;

	if (rs_grow(&l->rows, &l->cap, l->n + 1, sizeof(*l->rows), err) < 0)
		return -1;
	row = &l->rows[l->n++];
	memset(row, 0, sizeof(*row));
	snprintf(row->path, sizeof(row->path), "%s", path);
	row->inode = inode;
	return 0;
}

/* The entries of @dir, called @prefix; under the root also what is in each rank directory. */
static int add_children(struct listing *l, uint64_t dir, const char *prefix, struct rs_err *err)
{
	char name[256], path[FS_VIEW_PATH_MAX];
	uint64_t inode;

	for (uint64_t i = 0; rs_view_entry(l->v, dir, i, name, &inode); i++) {
		snprintf(path, sizeof(path), "%.40s%s%.255s", prefix, prefix[0] ? "/" : "", name);
		if (add_row(l, inode, path, err) < 0)
			return -1;
		if (rs_view_node(l->v, inode) == RS_NODE_RANK &&
			add_children(l, inode, path, err) < 0)
			return -1;
	}
	return 0;
}

static int list(struct listing *l, const char *path, struct rs_err *err)
{
	uint64_t inode;
	char clean[FS_VIEW_PATH_MAX] = "";

	if (fs__view_path(l->v, path, &inode, err) < 0)
		return -1;
	if (rs_view_node(l->v, inode) != RS_NODE_ROOT)
		fs__view_name(l->v, inode, clean);
	if (rs_view_node(l->v, inode) == RS_NODE_FILE)
		return add_row(l, inode, clean, err);
	return add_children(l, inode, clean, err);
}

static void look(void *arg, uint64_t i)
{
	struct listing *l = arg;
	struct row *row = &l->rows[i];

	if (rs_view_node(l->v, row->inode) == RS_NODE_FILE &&
		rs_view_build(l->v, row->inode, NULL, &row->err) < 0)
		return;
	rs_view_attr(l->v, row->inode, &row->attr, &row->err);
}

static const char *mode_text(const struct rs_attr *a, char *text)
{
	static const char letters[] = "rwxrwxrwx";

	text[0] = a->kind == RS_NODE_FILE ? '-' : 'd';
	for (unsigned int i = 0; i < 9; i++)
		text[1 + i] = (a->mode >> (8 - i)) & 1 ? letters[i] : '-';
	text[10] = '\0';
	return text;
}

static void print_text(const struct row *row, bool bytes)
{
	char mode[11], shown[2 * FS_VIEW_PATH_MAX];
	char size[32] = "";

	rs_show(rs_str(row->path), shown, sizeof(shown));
	if (row->err.code != RS_OK) {
		printf("?????????? %*s  %s\n", SIZE_COLUMN, "?", shown);
		return;
	}
	if (row->attr.kind == RS_NODE_FILE)
		fs_size(row->attr.size, bytes, size, sizeof(size));
	printf("%s %*s  %s\n", mode_text(&row->attr, mode), SIZE_COLUMN, size, shown);
}

static void print_json(struct rs_jsonw *w, const struct row *row, bool file)
{

	rs_jsonw_open(w, '{');
	fs__json_str(w, "path", row->path);
	fs__json_str(w, "type", file ? "file" : "directory");
	if (row->err.code == RS_OK) {
		fs__json_uint(w, "mode", row->attr.mode);
		fs__json_uint(w, "inode", row->attr.inode);
		if (file)
			fs__json_uint(w, "bytes", row->attr.size);
	} else {
		fs__json_err(w, "error", &row->err);
	}
	rs_jsonw_close(w, '}');
}

static int print_listing(const struct fs_options *o, const struct listing *l)
{
	struct rs_jsonw w;
	int code = FS_EXIT_OK;

	if (o->json) {
		fs__json_begin(&w, "ls");
		rs_jsonw_key(&w, RS_STR("entries"));
		rs_jsonw_open(&w, '[');
	}
	for (uint64_t i = 0; i < l->n; i++) {
		const struct row *row = &l->rows[i];

		if (o->json)
			print_json(&w, row, rs_view_node(l->v, row->inode) == RS_NODE_FILE);
		else
			print_text(row, o->bytes);
		if (row->err.code != RS_OK) {
			int this_code = fs_report(&row->err);

			code = code != FS_EXIT_OK ? code : this_code;
		}
	}
	if (!o->json)
		return code;
	rs_jsonw_close(&w, ']');
	return fs__json_end(&w, code);
}

int fs_verb_ls(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct listing l = {0};
	struct rs_err err = {0};
	int code;

	if (rs_view_open(&opts, &l.v, &err) < 0 ||
		list(&l, o->n_args > 1 ? o->args[1] : "", &err) < 0) {
		code = fs__verb_fail(o, "ls", &err);
	} else {
		fs__parallel(l.n, look, &l);
		code = print_listing(o, &l);
	}
	rs_free(l.rows);
	rs_view_close(l.v);
	return code;
}
