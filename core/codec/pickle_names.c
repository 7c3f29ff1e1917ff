/*
 * pickle_names.c - what the names in pickles mean: a list of what is data, and one of what runs.
 *
 * Names are matched whole, module and name, so that nothing is reached by a path of attributes.
 * The first list wins. A name in neither is unknown: calling it yields an opaque node. Since no
 * name is ever looked up, the second list guards nobody from us; it tells the user that a file
 * which holds such a call is an attack, or was made by one who did not mind how it looks.
 */
#include "core/codec/pickling.h"

#include <stdlib.h>

struct row {
	const char *module, *name;
	enum rs__pickle_kind kind;
};

/* By module, then name, in byte order. */
static const struct row known[] = {
	{"__builtin__", "bool", RS__NAME_OPAQUE},
	{"__builtin__", "bytearray", RS__NAME_BYTES},
	{"__builtin__", "bytes", RS__NAME_BYTES},
	{"__builtin__", "complex", RS__NAME_OPAQUE},
	{"__builtin__", "dict", RS__NAME_DICT},
	{"__builtin__", "eval", RS__NAME_EVAL},
	{"__builtin__", "float", RS__NAME_OPAQUE},
	{"__builtin__", "frozenset", RS__NAME_SET},
	{"__builtin__", "int", RS__NAME_OPAQUE},
	{"__builtin__", "list", RS__NAME_SEQUENCE},
	{"__builtin__", "long", RS__NAME_OPAQUE},
	{"__builtin__", "object", RS__NAME_OPAQUE},
	{"__builtin__", "range", RS__NAME_OPAQUE},
	{"__builtin__", "set", RS__NAME_SET},
	{"__builtin__", "slice", RS__NAME_OPAQUE},
	{"__builtin__", "str", RS__NAME_OPAQUE},
	{"__builtin__", "tuple", RS__NAME_SEQUENCE},
	{"__builtin__", "unicode", RS__NAME_OPAQUE},
	{"__builtin__", "xrange", RS__NAME_OPAQUE},
	{"_codecs", "encode", RS__NAME_ENCODE},
	{"_io", "BytesIO", RS__NAME_OPAQUE},
	{"builtins", "bool", RS__NAME_OPAQUE},
	{"builtins", "bytearray", RS__NAME_BYTES},
	{"builtins", "bytes", RS__NAME_BYTES},
	{"builtins", "complex", RS__NAME_OPAQUE},
	{"builtins", "dict", RS__NAME_DICT},
	{"builtins", "eval", RS__NAME_EVAL},
	{"builtins", "float", RS__NAME_OPAQUE},
	{"builtins", "frozenset", RS__NAME_SET},
	{"builtins", "int", RS__NAME_OPAQUE},
	{"builtins", "list", RS__NAME_SEQUENCE},
	{"builtins", "object", RS__NAME_OPAQUE},
	{"builtins", "range", RS__NAME_OPAQUE},
	{"builtins", "set", RS__NAME_SET},
	{"builtins", "slice", RS__NAME_OPAQUE},
	{"builtins", "str", RS__NAME_OPAQUE},
	{"builtins", "tuple", RS__NAME_SEQUENCE},
	{"collections", "Counter", RS__NAME_DICT},
	{"collections", "OrderedDict", RS__NAME_DICT},
	{"collections", "defaultdict", RS__NAME_DEFAULT_DICT},
	{"copy_reg", "__newobj__", RS__NAME_NEWOBJ},
	{"copy_reg", "_reconstructor", RS__NAME_RECONSTRUCTOR},
	{"copyreg", "__newobj__", RS__NAME_NEWOBJ},
	{"copyreg", "_reconstructor", RS__NAME_RECONSTRUCTOR},
	{"numpy", "bool", RS__NAME_NUMPY_TYPE},
	{"numpy", "bool_", RS__NAME_NUMPY_TYPE},
	{"numpy", "complex128", RS__NAME_NUMPY_TYPE},
	{"numpy", "complex64", RS__NAME_NUMPY_TYPE},
	{"numpy", "dtype", RS__NAME_DTYPE},
	{"numpy", "float16", RS__NAME_NUMPY_TYPE},
	{"numpy", "float32", RS__NAME_NUMPY_TYPE},
	{"numpy", "float64", RS__NAME_NUMPY_TYPE},
	{"numpy", "int16", RS__NAME_NUMPY_TYPE},
	{"numpy", "int32", RS__NAME_NUMPY_TYPE},
	{"numpy", "int64", RS__NAME_NUMPY_TYPE},
	{"numpy", "int8", RS__NAME_NUMPY_TYPE},
	{"numpy", "ndarray", RS__NAME_ARRAY_CLASS},
	{"numpy", "uint16", RS__NAME_NUMPY_TYPE},
	{"numpy", "uint32", RS__NAME_NUMPY_TYPE},
	{"numpy", "uint64", RS__NAME_NUMPY_TYPE},
	{"numpy", "uint8", RS__NAME_NUMPY_TYPE},
	{"numpy._core.multiarray", "_reconstruct", RS__NAME_ARRAY},
	{"numpy._core.multiarray", "scalar", RS__NAME_SCALAR},
	{"numpy._core.numeric", "_frombuffer", RS__NAME_FROMBUFFER},
	{"numpy.core.multiarray", "_reconstruct", RS__NAME_ARRAY},
	{"numpy.core.multiarray", "scalar", RS__NAME_SCALAR},
	{"numpy.core.numeric", "_frombuffer", RS__NAME_FROMBUFFER},
	{"paddle.distributed.checkpoint.metadata", "LocalTensorIndex", RS__NAME_CLASS},
	{"paddle.distributed.checkpoint.metadata", "LocalTensorMetadata", RS__NAME_CLASS},
	{"paddle.distributed.checkpoint.metadata", "Metadata", RS__NAME_CLASS},
	{"paddle.distributed.flex_checkpoint.dcp.metadata", "LocalTensorIndex", RS__NAME_CLASS},
	{"paddle.distributed.flex_checkpoint.dcp.metadata", "LocalTensorMetadata", RS__NAME_CLASS},
	{"paddle.distributed.flex_checkpoint.dcp.metadata", "Metadata", RS__NAME_CLASS},
	{"paddle.framework.io_utils", "_reconstruct_dense_tensor_data", RS__NAME_IDENTITY},
	{"pathlib", "PosixPath", RS__NAME_PATH},
	{"pathlib", "PurePosixPath", RS__NAME_PATH},
	{"pathlib", "PureWindowsPath", RS__NAME_PATH},
	{"pathlib", "WindowsPath", RS__NAME_PATH},
	{"pathlib._local", "PosixPath", RS__NAME_PATH},
	{"pathlib._local", "PurePosixPath", RS__NAME_PATH},
	{"pathlib._local", "PureWindowsPath", RS__NAME_PATH},
	{"pathlib._local", "WindowsPath", RS__NAME_PATH},
	{"torch", "Size", RS__NAME_SIZE},
	{"torch", "Tensor", RS__NAME_OPAQUE},
	{"torch", "device", RS__NAME_OPAQUE},
	{"torch._tensor", "_rebuild_from_type_v2", RS__NAME_CALL},
	{"torch._utils", "_rebuild_parameter", RS__NAME_CALL},
	{"torch._utils", "_rebuild_parameter_with_state", RS__NAME_CALL},
	{"torch._utils", "_rebuild_tensor", RS__NAME_CALL},
	{"torch._utils", "_rebuild_tensor_v2", RS__NAME_CALL},
	{"torch._utils", "_rebuild_tensor_v3", RS__NAME_CALL},
	{"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING",
		RS__NAME_OPAQUE},
	{"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.filesystem", "_StorageInfo", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.filesystem", "_StoragePrefix", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "BytesStorageMetadata", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "Metadata", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "MetadataIndex", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "StorageMeta", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "TensorProperties", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "TensorStorageMetadata", RS__NAME_CLASS},
	{"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", RS__NAME_OPAQUE},
	{"torch.nn.parameter", "Parameter", RS__NAME_OPAQUE},
	{"torch.serialization", "_get_layout", RS__NAME_OPAQUE},
};

/* Modules, with all below them, whose functions run, open, fetch or import things; in byte order.
 */
static const char *const unsafe[] = {
	"Cython",
	"IPython",
	"SocketServer",
	"__builtin__",
	"_ctypes",
	"_functools",
	"_io",
	"_operator",
	"_pickle",
	"_posixsubprocess",
	"_socket",
	"_thread",
	"_winapi",
	"aiohttp",
	"antigravity",
	"asyncio",
	"atexit",
	"bdb",
	"builtins",
	"cPickle",
	"cProfile",
	"cffi",
	"cloudpickle",
	"code",
	"codeop",
	"commands",
	"concurrent",
	"ctypes",
	"dbm",
	"dill",
	"distutils",
	"doctest",
	"ensurepip",
	"fcntl",
	"fileinput",
	"ftplib",
	"functools",
	"gc",
	"glob",
	"http",
	"httplib",
	"idlelib",
	"imaplib",
	"imp",
	"importlib",
	"inspect",
	"io",
	"itertools",
	"joblib",
	"lib2to3",
	"linecache",
	"logging",
	"marshal",
	"mmap",
	"msvcrt",
	"multiprocessing",
	"nt",
	"ntpath",
	"nturl2path",
	"numba",
	"numpy.compat",
	"numpy.ctypeslib",
	"numpy.distutils",
	"numpy.f2py",
	"numpy.lib",
	"numpy.testing",
	"operator",
	"os",
	"paddle.distributed.launch",
	"paddle.hub",
	"paddle.jit",
	"paddle.utils",
	"pdb",
	"pickle",
	"pip",
	"pkgutil",
	"platform",
	"popen2",
	"poplib",
	"posix",
	"posixpath",
	"profile",
	"pty",
	"pydoc",
	"pytest",
	"requests",
	"resource",
	"rlcompleter",
	"runpy",
	"sched",
	"select",
	"selectors",
	"setuptools",
	"shelve",
	"shutil",
	"signal",
	"site",
	"smtplib",
	"socket",
	"socketserver",
	"sqlite3",
	"ssl",
	"subprocess",
	"sys",
	"sysconfig",
	"telnetlib",
	"tempfile",
	"test",
	"this",
	"threading",
	"timeit",
	"tkinter",
	"torch._dynamo",
	"torch._inductor",
	"torch.distributed.launch",
	"torch.distributed.run",
	"torch.fx",
	"torch.hub",
	"torch.jit",
	"torch.multiprocessing",
	"torch.package",
	"torch.serialization",
	"torch.storage",
	"torch.testing",
	"torch.utils",
	"trace",
	"turtle",
	"types",
	"unittest",
	"urllib",
	"urllib2",
	"urllib3",
	"venv",
	"webbrowser",
	"winreg",
	"wsgiref",
	"xmlrpc",
	"zipimport",
};

/* Numpy's scalar types, in byte order. */
static const char *const codes[][2] = {
	{"bool", "b1"},
	{"bool_", "b1"},
	{"complex128", "c16"},
	{"complex64", "c8"},
	{"float16", "f2"},
	{"float32", "f4"},
	{"float64", "f8"},
	{"int16", "i2"},
	{"int32", "i4"},
	{"int64", "i8"},
	{"int8", "i1"},
	{"uint16", "u2"},
	{"uint32", "u4"},
	{"uint64", "u8"},
	{"uint8", "u1"},
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static int by_names(const void *a, const void *b)
{
	const struct rs_str *key = a;
	const struct row *row = b;
	int order = rs_str_cmp(key[0], rs_str(row->module));
	return order ? order : rs_str_cmp(key[1], rs_str(row->name));
}

static int by_module(const void *a, const void *b)
{
	return rs_str_cmp(*(const struct rs_str *)a, rs_str(*(const char *const *)b));
}

/* Is the module, or one that it lies in, on the second list? */
static bool is_unsafe(struct rs_str module)
{
	struct rs_str part = {module.ptr, 0};

	while (part.len < module.len) {
		const char *dot = memchr(module.ptr + part.len, '.', module.len - part.len);
		part.len = dot ? (size_t)(dot - module.ptr) : module.len;
		if (bsearch(&part, unsafe, COUNT(unsafe), sizeof(*unsafe), by_module))
			return true;
		part.len += part.len < module.len;
	}
	return false;
}

enum rs__pickle_kind rs__pickle_kind(struct rs_str module, struct rs_str name)
{
	const struct rs_str key[2] = {module, name};
	const struct row *row = bsearch(key, known, COUNT(known), sizeof(*known), by_names);

	if (row)
		return row->kind;
	return is_unsafe(module) ? RS__NAME_UNSAFE : RS__NAME_UNKNOWN;
}

const char *rs__pickle_code(struct rs_str name)
{
	for (size_t i = 0; i < COUNT(codes); i++)
		if (rs_str_is(name, codes[i][0]))
			return codes[i][1];
	return NULL;
}
