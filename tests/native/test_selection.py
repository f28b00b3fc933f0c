"""Which processes are observed, and what they are called: as the Python side does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from argus_training import identity
from argus_training.boot import _argus_boot
from native.app import run
from native.builds import Build
from native.listener import Listener


def unit(build: Build, *words: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [str(build.unit), *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    "text",
    ["gemm", "x" * 256, "x" * 257, "ü" * 200, "a" + "ü" * 200, "漢" * 100, "x" * 246 + "漢字" * 9, "𝛿" * 80],
    ids=lambda text: f"{text[0]}{len(text)}",
)
def test_names_are_cut_as_the_wire_says(plain: Build, text: str) -> None:
    """256 bytes, at a character, marked by the CRC-32 of the whole."""
    assert bytes.fromhex(unit(plain, "name", text)[0]) == wire.Name(1, wire.encode_name(text)).pack()[4:]


@pytest.mark.parametrize(
    ("linker", "readable"),
    [
        ("_ZN2at6native12some_functorIfE3runEv", "at::native::some_functor<float>::run()"),
        ("flash_fwd_kernel", "flash_fwd_kernel"),
        ("_Z", "_Z"),
    ],
)
def test_names_are_readable(plain: Build, linker: str, readable: str) -> None:
    """What is no linker name stays as it is."""
    assert unit(plain, "demangle", linker) == [readable]


@pytest.mark.parametrize(("size", "readable"), [(1_000, True), (1_030, False)])
def test_very_long_linker_names_stay_as_they_are(plain: Build, size: int, readable: bool) -> None:
    """The demangler refuses more than 1,024 bytes (docs/kernels.md)."""
    linker = "_Z1fIJ" + "8Traits99" * ((size - 10) // 9) + "EEvv"
    (name,) = unit(plain, "demangle", linker)
    assert (name != linker) is readable


@pytest.mark.parametrize(
    "words",
    [
        ["train.py"],
        ["-u", "train.py", "--steps", "9"],
        ["-X", "utf8", "-W", "ignore", "train.py"],
        ["-Xutf8", "-Bu", "sub/train.v2.py", "-m"],
        ["-m", "pkg.train"],
        ["-um", "pkg.train"],
        ["-m", "pkg"],
        ["pkg/__main__.py"],
        ["-c", "pass"],
        ["pkg"],
    ],
    ids=" ".join,
)
def test_a_job_is_called_what_python_calls_it(plain: Build, tmp_path: Path, words: list[str]) -> None:
    """The exporter joins phases and kernels by job and rank: both sides must find one name."""
    show = "import sys\nfrom argus_training.identity import script_name\nprint(script_name(sys.argv))\n"
    (tmp_path / "pkg").mkdir()
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "sub/train.v2.py", "pkg/train.py", "pkg/__main__.py", "pkg/__init__.py"):
        (tmp_path / name).write_text("" if name.endswith("__init__.py") else show)
    told = [show if word == "pass" else word for word in words]
    done = subprocess.run([sys.executable, *told], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert unit(plain, "script", sys.executable, *told) == done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"},
        {"RANK": "3", "SLURM_PROCID": "9", "SLURM_JOB_NAME": "llama"},
        {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"},
        {"OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "0"},
        {"RANK": "x1"},
        {"RANK": "0", "TORCHELASTIC_RUN_ID": "none"},
        {"RANK": "0", "TORCHELASTIC_RUN_ID": "nightly"},
        {"RANK": "0", "TORCHELASTIC_RUN_ID": "01234567-89ab-cdef-0123-456789abcdef"},
        {"RANK": "0", "ARGUS_JOB": "named", "SLURM_JOB_NAME": "llama"},
        {"RANK": "0", "XDG_RUNTIME_DIR": "/run/user/7"},
        {"RANK": "0", "ARGUS_SOCKET": "/run/argus/a.sock"},
    ],
    ids=lambda e: " ".join(e) or "nothing",
)
def test_rank_job_and_socket_are_what_python_finds(
    plain: Build, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twins: identity.place, identity.training_job, link.default_socket_path."""
    from argus_core.link import default_socket_path

    rank, local_rank, world_size, job, path, skip, wait = unit(
        plain, "job", "python", "train.py", **environment
    )
    monkeypatch.setattr("os.environ", environment)
    try:
        place = identity.place(environment)
    except identity.NoRank:
        assert (rank, skip, wait) == ("-1", "", "no rank in the environment")
    else:
        assert (int(rank), int(local_rank), int(world_size)) == (
            place.rank, place.local_rank, place.world_size,
        )  # fmt: skip
        assert (skip, wait) == ("", "")
    assert job == identity.training_job(environment.get("ARGUS_JOB", ""), environment, ["train.py"])
    assert path == str(default_socket_path())


@pytest.mark.parametrize(
    ("command", "helper"),
    [
        ("/usr/bin/torchrun train.py", "torchrun"),
        ("/usr/bin/python3 -u /opt/bin/torchrun train.py", "torchrun"),
        ("python -W ignore -X dev -m torch.distributed.run train.py", "torch.distributed.run"),
        ("python -um torch.distributed.launch train.py", "torch.distributed.launch"),
        ("python /site/torch/distributed/run.py train.py", "torch/distributed/run.py"),
        ("python /site/torch/_inductor/compile_worker/__main__.py --workers=8",
         "torch/_inductor/compile_worker/__main__.py"),
        ("python -m torch._inductor.compile_worker", "torch._inductor"),
        ("python -cfrom_multiprocessing.resource_tracker_import_main", "resource_tracker"),
        ("python /opt/bin/argus-exporter run -- torchrun train.py", "argus-exporter"),
        ("python -m argus_exporter.cli", "argus_exporter.cli"),
        ("python /home/me/multigpu_torchrun.py", ""),
        ("python -u /home/me/multigpu_torchrun.py", ""),
        ("python /data/ninja/train.py", ""),
        ("/opt/envs/torchrun/bin/python train.py", ""),
        ("python /jobs/nvccl_test/train.py", ""),
        ("python train.py -m torch.distributed.run", ""),
        ("python -m my.torch.distributed.running", ""),
        ("python", ""),
    ],
)  # fmt: skip
def test_launchers_and_helpers_are_known_by_what_they_run(plain: Build, command: str, helper: str) -> None:
    """Not by the name of a folder or of a user's script; the hook of Python goes by the same names."""
    words = command.split()
    skip = unit(plain, "job", *words, RANK="0")[-2]
    assert skip == (f"helper process: {helper}" if helper else "")
    assert _argus_boot._helps([word.encode() for word in words]) is bool(helper)


@pytest.mark.parametrize("compiler", ["ptxas", "cicc", "nvcc", "ninja"])
def test_compilers_are_not_observed(plain: Build, compiler: str) -> None:
    assert (
        unit(plain, "job", f"/usr/local/cuda/bin/{compiler}", RANK="0")[-2] == f"helper process: {compiler}"
    )


@pytest.mark.parametrize(
    ("environment", "command", "why"),
    [
        ({"ARGUS_DISABLE": "1"}, "python train.py", "switched off"),
        ({"ARGUS_DISABLE_KERNELS": "yes"}, "python train.py", "switched off"),
        ({"ARGUS_PRODUCER_PID": "1"}, "python train.py", "process 1 reports for this rank"),
        ({}, "python train.py torchrun", ""),
        ({}, "python -c multiprocessing.forkserver", ""),
        ({}, "python -c multiprocessing.spawn", ""),
        ({"ARGUS_COMMAND_EXCLUDE": "eval[.]py"}, "python eval.py", "matches ARGUS_COMMAND_EXCLUDE"),
        ({"ARGUS_COMMAND_EXCLUDE": "eval[.]py"}, "python train.py", ""),
        ({"ARGUS_COMMAND_INCLUDE": "train|tune"}, "python eval.py", "does not match ARGUS_COMMAND_INCLUDE"),
        ({"ARGUS_COMMAND_INCLUDE": "train|tune"}, "python tune.py", ""),
        ({"ARGUS_COMMAND_INCLUDE": "train"}, "python x.py " + "y " * 50_000, "does not match"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else " ".join(value) or "-",
)
def test_only_ranks_themselves_are_observed(
    plain: Build, environment: dict[str, str], command: str, why: str
) -> None:
    """Everything that a job starts inherits the injection."""
    skip = unit(plain, "job", *command.split(), RANK="0", **environment)[-2]
    assert skip.endswith(why) if why.startswith(("sw", "pr")) else why in skip
    assert bool(skip) is bool(why)


def test_what_is_said_to_nobody_ends_no_program(plain: Build) -> None:
    """A closed pipe raises SIGPIPE, which only Python ignores."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(plain.unit), "say", "hello"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writing, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, "lives\n")


def test_a_process_that_is_not_selected_loads_nothing(plain: Build, socket: Path, listener: Listener) -> None:
    """No CUPTI, no connection, no thread."""
    done = run(plain, socket, "kernels:100", RANK="", ARGUS_DEBUG=1)
    assert not done["active"]
    assert "wait for its rank: no rank in the environment" in done.said
    assert listener.connections == []


@pytest.mark.parametrize(
    "start",
    [
        "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
        "from multiprocessing.forkserver import main; main(8, 9, ['__main__'])",
    ],
)
def test_the_rank_of_a_process_of_mp_spawn_is_not_its_parents(plain: Build, start: str) -> None:
    """Each of them inherits the launcher's variables of one process."""
    words = ("python", "-c", start)
    assert unit(plain, "job", *words, RANK="0")[-2:] == ["", "multiprocessing started it"]


def test_a_process_that_is_told_its_rank_is_observed_from_then_on(
    injector: Build, socket: Path, listener: Listener
) -> None:
    """A plain script, Lightning's children, those of mp.spawn: no CUPTI before, then all that others have."""
    actions = ("kernels:160", "adopt:3", "kernels:1600", "settle", "adopt:2")
    done = run(injector, socket, *actions, RANK="", LOCAL_RANK="", WORLD_SIZE="", ARGUS_ISSUE_LATENCY=1)
    (connection,) = listener.wait_ended()
    hello = connection.hello
    assert (hello.rank, hello.local_rank, hello.world_size) == (3, 1, 4)
    assert wire.decode_text(hello.training_job) == "adopted"
    assert len(connection.kernels) == 1725
    issued = connection.kernels["issue_ns"][connection.kernels["operation"] == wire.Operation.KERNEL]
    assert set(issued.tolist()) == {8_000}, "CUDA was up already: launch calls need their kinds"
    assert (done["active"], done["adopted"]) == (True, -1), "once"


def test_who_has_a_rank_is_not_told_another(plain: Build, socket: Path, listener: Listener) -> None:
    done = run(plain, socket, "adopt:3", "kernels:160", "settle")
    (connection,) = listener.wait_ended()
    assert (done["adopted"], connection.hello.rank) == (-1, 0)


def test_two_processes_that_are_told_the_same_rank(plain: Build, socket: Path, listener: Listener) -> None:
    """The second is refused, and observes nothing."""
    variables = {"RANK": "", "ARGUS_DEBUG": 1}
    done = run(plain, socket, "adopt:3", "kernels:160", "settle", "spawn:adopt:3", **variables)
    assert done["adopted"] == 0
    assert "another process has rank 3" in done.said
    assert len(listener.wait_ended()) == len(listener.connections) == 1


def test_a_wrong_expression_is_said_and_ignored(plain: Build, socket: Path, listener: Listener) -> None:
    """The training and its observation go on."""
    done = run(plain, socket, "kernels:100", "settle", ARGUS_COMMAND_EXCLUDE="(", ARGUS_CUPTI_BUFFERS="many")
    assert "ARGUS_COMMAND_EXCLUDE is '('; allowed: a POSIX extended regular expression" in done.said
    assert "ARGUS_CUPTI_BUFFERS is 'many'; allowed: a whole number of 2 or more; using 32" in done.said
    listener.wait_ended()


def test_a_child_program_does_not_speak_for_its_rank(
    injector: Build, socket: Path, listener: Listener
) -> None:
    """It inherits rank and injection, but the rank is taken as long as its parent lives."""
    done = run(injector, socket, "kernels:160", "settle", "spawn:kernels:1600", "kernels:160", "settle")
    (connection,) = listener.wait_ended()
    assert done["child_status"] == 0
    assert len(connection.kernels) == 2 * 173
    assert len(listener.connections) == 1


def test_a_program_that_replaces_the_rank_is_observed(
    injector: Build, socket: Path, listener: Listener
) -> None:
    """exec: the old connection ends, the new program is the rank now."""
    run(injector, socket, "kernels:160", "settle", "exec:kernels:1600")
    first, second = listener.wait_ended(2)
    assert (len(first.kernels), len(second.kernels)) == (173, 1725)
    assert first.hello.pid == second.hello.pid


def test_another_injection_library_is_chained(plain: Build, socket: Path, tmp_path: Path) -> None:
    """Also where this process is not observed; one that is none is said and ignored."""
    library, mark = tmp_path / "other.so", tmp_path / "called"
    source = (
        f'#include <stdio.h>\nint InitializeInjection(void) {{ fclose(fopen("{mark}", "w")); return 1; }}\n'
    )
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    run(plain, socket, RANK="", ARGUS_NEXT_INJECTION=str(library))
    assert mark.exists()
    done = run(plain, socket, ARGUS_NEXT_INJECTION="/nowhere.so")
    assert "ARGUS_NEXT_INJECTION is '/nowhere.so'" in done.said
