"""Dotted names whose use in a specialised directory somebody has to look at. Tables only; `zone_code` looks for them."""

from __future__ import annotations

UNSAFE_LOADS = frozenset({
    "pickle.load", "pickle.loads", "pickle.Unpickler", "_pickle.load", "_pickle.loads", "_pickle.Unpickler", "dill.load",
    "dill.loads", "cloudpickle.load", "cloudpickle.loads", "joblib.load", "torch.load", "torch.jit.load", "torch.package",
    "torch.export.load", "torch.hub.load", "marshal.load", "marshal.loads", "shelve.open", "numpy.load", "pandas.read_pickle",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "jsonpickle.decode", "torch.serialization.load",
})  # fmt: skip
"""Loading data by one of these may run code that the data holds. Tuning tables are JSON."""

RUNS_CODE = frozenset({
    "exec", "eval", "compile", "__import__", "builtins.exec", "builtins.eval",
    "builtins.compile", "builtins.__import__", "importlib.import_module", "importlib.reload", "importlib.__import__",
    "importlib.util.spec_from_file_location", "importlib.util.spec_from_loader", "importlib.util.module_from_spec",
    "importlib.machinery", "imp", "runpy", "code", "codeop", "ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll", "ctypes.pydll",
    "ctypes.pythonapi", "ctypes.memmove", "ctypes.memset", "ctypes.string_at", "cffi", "subprocess", "pty", "socket",
    "multiprocessing", "urllib.request", "http.client", "requests", "httpx", "os.system", "os.popen", "os.fork", "os.forkpty",
    "os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execle", "os.execlp", "os.posix_spawn", "os.spawnv",
    "os.spawnl", "os.kill", "os.ptrace", "types.FunctionType", "types.CodeType", "marshal", "pip", "setuptools",
    "sys.addaudithook", "sys.settrace", "sys.setprofile", "sys._getframe", "threading.settrace", "threading.setprofile",
    "inspect.stack", "inspect.currentframe", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    "torch.utils.cpp_extension", "torch.ops.load_library", "torch.classes.load_library", "torch.cuda._compile_kernel",
    "codecs.register", "unittest.mock.patch", "unittest.mock.patch.object", "unittest.mock.patch.dict",
})  # fmt: skip
"""Code from data, native code, other processes, the network, or the insides of the interpreter. A name covers what is below."""

PROCESS_WIDE = frozenset({
    "torch.set_default_dtype", "torch.set_default_device", "torch.set_default_tensor_type", "torch.set_num_threads",
    "torch.set_num_interop_threads", "torch.set_float32_matmul_precision", "torch.set_flush_denormal", "torch.set_warn_always",
    "torch.use_deterministic_algorithms", "torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all",
    "torch.cuda.set_per_process_memory_fraction", "torch.cuda.memory.change_current_allocator",
    "torch.autograd.set_detect_anomaly", "torch.nn.modules.module.register_module_forward_hook",
    "torch.nn.modules.module.register_module_forward_pre_hook", "torch.nn.modules.module.register_module_full_backward_hook",
    "torch.nn.modules.module.register_module_module_registration_hook", "random.seed", "numpy.random.seed", "signal.signal",
    "signal.setitimer", "signal.alarm", "atexit.register", "os.chdir", "os.putenv", "os.unsetenv", "os.umask",
    "os.sched_setaffinity", "os.nice", "resource.setrlimit", "locale.setlocale", "gc.disable", "gc.set_threshold", "gc.freeze",
    "sys.setrecursionlimit", "sys.setswitchinterval", "sys.setdlopenflags", "logging.basicConfig", "logging.disable",
    "copyreg.pickle", "faulthandler.enable",
})  # fmt: skip
"""Calls that change something for everybody in the process."""

STOCK_OPERATORS = ("aten", "prim", "prims", "c10d", "_c10d_functional", "quantized", "mkldnn")
"""Namespaces of operators that are PyTorch's own."""

CHANGES_CONTAINER = {
    "update": (0, 1), "setdefault": (1, 2), "pop": (0, 2), "popitem": (0, 1), "clear": (0, 0), "append": (1, 1), "extend": (1, 1),
    "insert": (2, 2), "remove": (1, 1), "__setitem__": (2, 2), "__delitem__": (1, 1), "__setattr__": (2, 2), "__delattr__": (1, 1),
}  # fmt: skip
"""Methods that change a list or a table, with the fewest and the most arguments that they take."""
