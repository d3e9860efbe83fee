"""Dotted names whose use in a specialised directory somebody has to look at. Tables only; `zone_calls` looks for them."""

from __future__ import annotations

UNSAFE_LOADS = frozenset({
    "pickle.load", "pickle.loads", "pickle.Unpickler", "_pickle.load", "_pickle.loads", "_pickle.Unpickler", "dill.load",
    "dill.loads", "cloudpickle.load", "cloudpickle.loads", "joblib.load", "torch.load", "torch.jit.load", "torch.package",
    "torch.export.load", "torch.hub.load", "marshal.load", "marshal.loads", "shelve.open", "numpy.load", "pandas.read_pickle",
    "pickle._loads", "pickle._load", "torch.storage._load_from_bytes", "torch.distributed.checkpoint.load",
    "numpy.lib.format.read_array", "pandas.read_hdf", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "yaml.load_all", "jsonpickle.decode", "torch.serialization.load",
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
    "codecs.register", "unittest.mock.patch", "unittest.mock.patch.object", "unittest.mock.patch.dict", "pydoc.locate",
    "pkgutil.resolve_name", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "torch.multiprocessing",
    "torch.hub", "torch.utils.model_zoo", "concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process", "os.spawnlp",
    "os.spawnvp", "os.spawnve", "os.posix_spawnp", "os.startfile", "os.execlpe", "os.dup2", "ftplib", "smtplib", "telnetlib",
    "socketserver", "http.server", "xmlrpc", "aiohttp", "webbrowser", "ctypes.cast", "ctypes.CFUNCTYPE", "ctypes.PYFUNCTYPE",
    "sys.monitoring", "types.ModuleType", "zipimport", "ensurepip", "sys._current_frames", "sys._current_exceptions",
    "sys.call_tracing", "inspect.trace", "inspect.getouterframes", "inspect.getinnerframes", "inspect.getmodule",
    "inspect.getgeneratorlocals", "inspect.getcoroutinelocals", "traceback.walk_stack", "traceback.walk_tb",
    "traceback.StackSummary", "traceback.TracebackException", "bdb", "pdb", "object.__subclasses__", "type.__subclasses__",
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
    "copyreg.pickle", "faulthandler.enable", "torch.seed", "torch.random.manual_seed", "torch.random.seed", "torch.set_rng_state",
    "torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_mem_efficient_sdp", "torch.backends.cuda.enable_math_sdp",
    "torch.backends.cuda.enable_cudnn_sdp", "torch.backends.cuda.preferred_linalg_library",
    "torch.backends.cuda.preferred_blas_library", "torch.backends.cudnn.set_flags", "torch.cuda.set_sync_debug_mode",
    "torch.nn.modules.module.register_module_full_backward_pre_hook",
    "torch.nn.modules.module.register_module_parameter_registration_hook",
    "torch.nn.modules.module.register_module_buffer_registration_hook", "torch.serialization.add_safe_globals",
    "torch.utils.rename_privateuse1_backend", "numpy.seterr", "numpy.random.set_state", "random.setstate", "sys.setprofile",
    "sys.set_asyncgen_hooks", "sys.set_coroutine_origin_tracking_depth", "threading.stack_size", "os.setsid", "os.setpgid",
    "os.setuid", "os.setgid", "os.setpriority", "os.sched_setscheduler", "tracemalloc.start", "time.tzset", "decimal.setcontext",
})  # fmt: skip
"""Calls that change something for everybody in the process."""

BACKGROUND = frozenset({
    "threading.Thread", "threading.Timer", "_thread.start_new_thread", "_thread.start_new", "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures.thread", "asyncio.run", "asyncio.create_task", "asyncio.ensure_future", "asyncio.new_event_loop",
    "sched.scheduler", "weakref.finalize", "torch.futures", "torch.jit.fork", "torch.jit._fork",
})  # fmt: skip
"""Work that goes on after a call has returned, or begins without one. ``atexit`` and ``signal`` change the process: above."""

TORCH_MODES = frozenset({
    "torch.overrides.TorchFunctionMode", "torch.overrides.BaseTorchFunctionMode", "torch.overrides._push_mode",
    "torch.utils._python_dispatch.TorchDispatchMode", "torch.utils._python_dispatch._push_mode", "torch._C._set_dispatch_mode",
    "torch._C._push_on_torch_function_stack", "torch._C._push_on_torch_dispatch_stack",
})  # fmt: skip
"""What answers every operator of the process while it is entered."""

IMPORT_WORK = frozenset({
    "os.makedirs", "os.mkdir", "os.remove", "os.unlink", "os.rename", "os.replace", "os.rmdir", "os.symlink", "os.link", "os.chmod",
    "shutil", "tempfile", "time.sleep", "torch.cuda.init", "torch.cuda.current_device", "torch.cuda.set_device",
    "torch.cuda.get_device_properties", "torch.cuda.get_device_capability", "torch.cuda.get_device_name", "torch.cuda.synchronize",
    "torch.cuda.Stream", "torch.cuda.Event", "torch.cuda.current_stream", "torch.cuda.mem_get_info", "torch.cuda.empty_cache",
    "torch.cuda.CUDAGraph", "torch.cuda.memory_allocated", "torch.distributed.init_process_group", "torch.distributed.new_group",
    "torch.distributed.barrier", "torch.distributed.all_reduce", "cuda.bindings.driver.cuInit", "pynvml.nvmlInit",
})  # fmt: skip
"""Files, waiting, a CUDA context, process groups: work that everybody pays for who only imports the file."""

TENSOR_MAKERS = frozenset(f"torch.{name}" for name in (
    "arange", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "tensor",
    "as_tensor", "zeros",
))  # fmt: skip
"""Calls that make a tensor: on a GPU (``device="cuda"``) they make a CUDA context."""

STOCK_OPERATORS = ("aten", "prim", "prims", "c10d", "_c10d_functional", "quantized", "mkldnn")
"""Namespaces of operators that are PyTorch's own."""

CHANGES_FIRST = frozenset({
    "setattr", "delattr", "functools.update_wrapper",
    "object.__setattr__", "object.__delattr__", "type.__setattr__", "type.__delattr__", "dict.__setitem__",
    "dict.__delitem__", "dict.update", "dict.pop", "dict.popitem", "dict.setdefault", "dict.clear", "list.append", "list.extend",
    "list.insert", "list.clear", "list.remove", "list.pop", "list.__setitem__", "list.__delitem__", "set.add", "set.update",
    "set.discard", "set.remove", "set.clear", "operator.setitem", "operator.delitem", "operator.iadd",
    "operator.ior", "operator.iconcat", "heapq.heappush", "bisect.insort", "random.shuffle",
})  # fmt: skip
"""Calls that change their first argument."""

CHANGES_CONTAINER = {
    "update": (0, 1), "setdefault": (1, 2), "pop": (0, 2), "popitem": (0, 1), "clear": (0, 0), "append": (1, 1), "extend": (1, 1),
    "insert": (2, 2), "remove": (1, 1), "add": (1, 1), "discard": (1, 1), "sort": (0, 0), "reverse": (0, 0), "appendleft": (1, 1),
    "extendleft": (1, 1), "move_to_end": (1, 2), "__setitem__": (2, 2), "__delitem__": (1, 1), "__setattr__": (2, 2),
    "__delattr__": (1, 1), "__ior__": (1, 1), "__iadd__": (1, 1),
}  # fmt: skip
"""Methods that change a list or a table, with the fewest and the most arguments that they take."""

CHANGES_BY_HAND = ("__setattr__", "__delattr__", "__setitem__", "__delitem__", "__ior__", "__iadd__")
"""Of these methods, those that change whatever they are called on, modules too; by way of a class, their first argument."""
