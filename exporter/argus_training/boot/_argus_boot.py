"""Has ARGUS attach once this Python process imports torch: what both ways into it share.

`sitecustomize` beside this file is one, where the folder is on PYTHONPATH; the other is the .pth file that
`argus-exporter install-hook` writes.

It costs a few ms in a process that imports torch and next to nothing anywhere else: no torch, no argus before
the process imports torch by itself. Only where torch is installed it loads four small modules of argus_core,
which set variables while there is one thread. Two finders go in front of `sys.meta_path`: one finds
argus_core and argus_training where this file lies (and nothing else: the training process may use another
environment, so our site-packages must not leak into it), the other attaches ARGUS when the import of torch
has ended.
"""

# It must cost little in every Python process and parse in old ones: os.path, open and % formats are meant.
# ruff: noqa: PTH100, PTH110, PTH112, PTH118, PTH120, PTH123, UP031, ARG003
# mypy: allow-untyped-defs, allow-untyped-calls

import atexit
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))
_OURS = ("argus_core", "argus_training")
# Launchers, and helpers of a rank that inherit its environment: none of them trains. What else may or may not
# train attaches, and speaks only once it does: a plain script, a process that mp.spawn started.
# Twin: native/injector/selection.cpp.
_PROGRAMS = (
    b"torchrun",
    b"torch/distributed/run.py",
    b"torch/distributed/launch.py",
    b"torch/_inductor/compile_worker/__main__.py",
    b"argus-exporter",
)
_MODULES = (b"torch.distributed.run", b"torch.distributed.launch", b"torch._inductor", b"argus_exporter.cli")
_IN_CODE = (
    b"torch.distributed.run",
    b"torch.distributed.launch",
    b"argus_exporter.cli",
    b"compile_worker",
    b"resource_tracker",
)
_FORKSERVER = b"multiprocessing.forkserver"
PLACES = (
    "/run/user/{0}/argus/exporter.sock",
    "/tmp/argus-{0}/exporter.sock",
    "/run/argus/exporter.sock",
)
"""Where an exporter of user {0}, or of the host, listens. Twins: those in commands/install_hook.py."""
_OLDEST_PYTHON = (3, 9)


class _OwnPackages:
    """Finds our two packages beside this file; every other name is none of its business."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or name not in _OURS:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [_ROOT], target)


class _AttachAfterTorch:
    """Lets the other finders find torch, and has ARGUS attach once its import has ended.

    Who only asks whether torch is there (`importlib.util.find_spec`, as transformers does) throws the spec
    away, and the import makes another: each is followed. A torch that is imported past us (by a finder in
    front) is seen at the next look-up of anything. It stays on `sys.meta_path`: a finder that is taken out
    makes whoever walks the list at that moment skip the next one.
    """

    waits = True
    asks = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if cls.waits and _has_run(sys.modules.get("torch")):
            cls.imported(sys.modules["torch"])
        # Another finder may ask all others too, so us again; Python itself looks up one name at a time.
        if name != "torch" or path is not None or not cls.waits or cls.asks:
            return None
        cls.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            cls.asks = False
        if spec is not None:
            cls.follow(spec.loader)
        return spec

    @classmethod
    def follow(cls, loader):
        """Hear when this loader has executed torch. One that cannot tell is left alone."""
        if "exec_module" in getattr(loader, "__dict__", ("exec_module",)):
            return
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            if module.__name__ == "torch":  # the loader of an archive is that of all that lies in it
                loader.__dict__.pop("exec_module", None)
                cls.imported(module)

        loader.exec_module = exec_module

    @classmethod
    def imported(cls, torch):
        """The import of torch has ended."""
        if cls.waits:
            cls.waits = False
            _attach(torch)


def _has_run(torch):
    """Whether the import of this module has ended; asks nothing that would make a lazy one load."""
    if type(torch).__getattribute__ is not type(sys).__getattribute__:  # type: ignore[comparison-overlap]
        return False
    names = torch.__dict__
    if "__version__" not in names or getattr(names.get("__spec__"), "_initializing", False):
        return False
    frame = sys._getframe().f_back
    while frame is not None and frame.f_globals is not names:  # somebody executes it by hand
        frame = frame.f_back
    return frame is None


def _warn_if_missed():
    """At exit: a process that was part of a process group was never observed."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if _AttachAfterTorch.waits and getattr(distributed, "_backend", None) is not None:
        sys.stderr.write(
            "argus: this process was not observed: sys.meta_path was replaced before torch was imported\n"
        )
        if _OwnPackages not in sys.meta_path:
            sys.meta_path.insert(0, _OwnPackages)
        try:
            from argus_training.missed import tell

            tell()
        except Exception as error:
            sys.stderr.write("argus: no exporter was told: %r\n" % (error,))


def _attach(torch):
    try:
        from argus_training.attach import attach

        attach(torch)
    except Exception as error:
        sys.stderr.write("argus: not attached, the training goes on without it: %r\n" % (error,))


def _may_train():
    """Whether this process may turn out to train: none of the launchers and helpers around a rank does."""
    if _switched_on("ARGUS_DISABLE"):
        return False
    observed = os.environ.get("ARGUS_PRODUCER_PID", "")
    if observed.isdigit() and int(observed) not in (0, os.getpid()):
        return False  # started by a rank that is observed already
    return not _helps(_command())


def _command():
    """The words that started this process; empty: not known."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def _helps(command):
    """Whether this is the command of a launcher or a helper: by the program and what it is told to run.

    A folder, or what a script is given as arguments, may have any name.
    """
    script, module, code = _run_by(command)
    paths = [b"/" + path for path in (*command[:1], script)]
    return (
        any(path.endswith(b"/" + name) for path in paths for name in _PROGRAMS)
        or any((module + b".").startswith(name + b".") for name in _MODULES)
        or any(name in code for name in _IN_CODE)
    )


def _run_by(command):
    """Script, module and code that Python is told to run; two of them are empty, or all."""
    words = iter(command[1:])
    for word in words:
        if len(word) < 2 or word[:1] != b"-":
            return word, b"", b""
        if word[:2] == b"--":
            if word == b"--check-hash-based-pycs":
                next(words, b"")
            continue
        # Short switches may be joined (-um pkg); the value of some is the rest of the word or the next word.
        for at in range(1, len(word)):
            option = word[at : at + 1]
            if option in b"cmWX":
                value = word[at + 1 :] or next(words, b"")
                if option == b"c":
                    return b"", b"", value
                if option == b"m":
                    return b"", value, b""
                break
    return b"", b"", b""


def _torch_is_here():
    """Whether this interpreter could import torch."""
    return any(os.path.isdir(os.path.join(entry, "torch")) for entry in sys.path)


def _switched_on(name):
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def default_socket():
    """As argus_core.link.default_socket_path, which would cost more imports than there is to do."""
    named = os.environ.get("ARGUS_SOCKET")
    if named:
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = os.path.join(runtime, "argus") if runtime else "/tmp/argus-%d" % os.getuid()
    return os.path.join(folder, "exporter.sock")


def usual_socket():
    """The default one, unless only another usual place has an exporter or its file of settings.

    A launcher that drops variables drops ARGUS_SOCKET and XDG_RUNTIME_DIR, or ssh sets the latter anew.
    """
    default = default_socket()
    if os.environ.get("ARGUS_SOCKET"):
        return default
    for path in (default, *(place.format(os.getuid()) for place in PLACES)):
        if os.path.exists(path) or os.path.exists(path + ".env"):
            return path
    return default


def _prepare():
    """Change the environment while nobody else reads it: later, when torch is there, other threads run."""
    from argus_core import injection, process_environment, settings_file

    if not process_environment.alone():
        return
    for name, value in settings_file.read(default_socket() + ".env")[0].items():
        os.environ.setdefault(name, value)  # what is wrong with one is said when ARGUS attaches
    if _switched_on("ARGUS_DISABLE"):
        return
    process_environment.reserve_producer()
    without = _switched_on("ARGUS_DISABLE_KERNELS") or _switched_on("ARGUS_KERNELS_FALLBACK")
    library = "" if without else injection.find([_ROOT, *sys.path])
    injection.place(os.environ, library, alone=True)
    if _switched_on("ARGUS_NCCL"):
        plugin = injection.find([_ROOT, *sys.path], injection.PROFILER)
        injection.place_profiler(
            os.environ, plugin, alone=True
        )  # why it cannot be is said when ARGUS attaches


def start(socket=""):
    """Wait for torch, once, where this process may turn out to train.

    `socket`: where an exporter or its file of settings is, if the caller has looked.
    """
    if _OwnPackages in sys.meta_path or not _may_train():
        return
    if sys.version_info < _OLDEST_PYTHON:
        sys.stderr.write("argus: not attached, it needs Python %d.%d or newer\n" % _OLDEST_PYTHON)
        return
    sys.meta_path.insert(0, _OwnPackages)
    torch_is_here = _torch_is_here()
    found = socket or (usual_socket() if torch_is_here else "")
    if found and found != default_socket():
        from argus_core.process_environment import alone

        if alone():
            os.environ["ARGUS_SOCKET"] = found
        elif socket:
            return
    if torch_is_here:
        _prepare()
    if _switched_on("ARGUS_DISABLE"):
        return
    if _FORKSERVER in _run_by(_command())[2]:
        # Its children may train. It never does, and what attached in it would be silent in them: a torch that
        # it has preloaded is seen at the first look-up of each.
        os.register_at_fork(after_in_child=_wait_for_torch)
    else:
        _wait_for_torch()


def _wait_for_torch():
    """In children of a child, too: once is enough."""
    if _AttachAfterTorch not in sys.meta_path:
        sys.meta_path.insert(1, _AttachAfterTorch)
        atexit.register(_warn_if_missed)
