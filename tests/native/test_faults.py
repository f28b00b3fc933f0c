"""What goes wrong: no exporter, a slow one, other users of CUPTI, forks, nonsense: no loss is silent."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from native import app
from native.app import heard, run
from native.builds import Build
from native.listener import Connection, Listener, listening
from stranger import PLACES, as_root, stranger_listening


def told(connection: Connection) -> int:
    """Kernels that came, and those that the connection's last words count as dropped."""
    return len(connection.kernels) + connection.unsent + connection.states[-1].dropped


def compiled(library: Path, source: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)


def test_without_an_exporter_everything_is_counted(injector: Build, socket: Path) -> None:
    """Nothing blocks, nothing fails, every record is a counted drop."""
    done = run(injector, socket, "kernels:8000", "settle")
    assert (done["sent"], done["dropped_socket"]) == (0, done["kept"])
    assert done["records"] == done["kept"] == 8625


@as_root
@pytest.mark.parametrize(("parent", "folder", "believed"), PLACES)
def test_it_reports_to_nobody_who_slipped_in_a_socket(
    plain: Build, tmp_path: Path, parent: tuple[int, int], folder: tuple[int, int], believed: bool
) -> None:
    """To another user only where no third one could have put the socket there, as the Python producer."""
    with stranger_listening(tmp_path, parent, folder) as path:
        done = run(plain, path, "kernels:160", "settle")
    assert (done["connects"] > 0) is believed
    assert believed or done["dropped_socket"] == done["kept"]


def test_an_exporter_that_reads_nothing_costs_counted_drops(injector: Build, socket: Path) -> None:
    """The socket is full: records are dropped, and the count travels with what comes later."""
    with listening(socket, paused=True) as listener:
        process = app.start(
            injector, socket, "kernels:100000@500000", "sleep:1000", "kernels:160", "settle",
            ARGUS_CUPTI_BUFFERS=4, ARGUS_CUPTI_BUFFER_KIBIBYTES=256,
        )  # fmt: skip
        listener.wait_unread(100_000)  # about half of what the kernel holds for a socket
        listener.resume()
        done = app.finish(process)
        (connection,) = listener.wait_ended()
    assert told(connection) == done["kept"]


def test_an_exporter_that_is_stuck_delays_the_end_by_2_s_at_most(plain: Build, socket: Path) -> None:
    """All sends at exit have one deadline together, however many messages wait; CUPTI is not to blame."""
    with listening(socket, paused=True):
        process = app.start(plain, socket, "kernels:600000@200000", "status:7")
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        _, said = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert (process.returncode, said) == (7, "")
    assert took < 2.5


@pytest.mark.parametrize(("version", "kernels"), [(26, 8_000), (28, 60_000), (130001, 60_000)])
def test_overload_is_counted_to_the_record(
    injector: Build, socket: Path, listener: Listener, version: int, kernels: int
) -> None:
    """Two small buffers: CUPTI drops where it can be refused (12.9), we drop from a reserve where not."""
    done = run(
        injector, socket, f"threads:2:{kernels}", "settle",
        FAKE_CUPTI_VERSION=version, ARGUS_CUPTI_BUFFERS=2, ARGUS_CUPTI_BUFFER_KIBIBYTES=16,
    )  # fmt: skip
    (connection,) = listener.wait_ended()
    assert done["emitted"] == done["kept"] == done["sent"] + done.dropped
    assert told(connection) == done["kept"]
    if version >= 27:
        assert done["dropped_cupti"] == done["refused"] > 0
    else:
        assert (done["dropped_cupti"], done["refused"]) == (0, 0)
        assert done["dropped_buffers"] > 0


def test_an_overrun_of_the_reserve_pauses_collection(injector: Build, listener: Listener) -> None:
    """A CUPTI that cannot be refused gets memory whatever happens; we are down until we have caught up."""
    few = {"ARGUS_CUPTI_BUFFERS": 2, "ARGUS_CUPTI_BUFFER_KIBIBYTES": 16}
    actions = ("sleep:100", "threads:2:40000", "sleep:1500", "kernels:16", "sleep:600")
    # The worker waits in a slow flush when the burst comes.
    done, connection = heard(
        injector, listener, *actions, FAKE_CUPTI_FLUSH_MS=400, FAKE_CUPTI_VERSION=26, **few
    )
    assert "overrun" in connection.told
    assert (done["up"], connection.told[-1]) == (1, "")
    # What went into the void is counted by its size, as if it were kernels alone: never too high.
    assert 0.5 * done["kept"] < done["sent"] + done.dropped <= done["kept"]


def test_fifty_thousand_kernels_a_second_lose_none(plain: Build, listener: Listener) -> None:
    """The rate of a heavy training step, for a while."""
    done, connection = heard(plain, listener, "kernels:50000@50000", "settle")
    assert len(connection.kernels) == done["kept"]
    assert done.dropped == 0


def test_an_exporter_that_restarts_learns_everything_again(injector: Build, socket: Path) -> None:
    """Names are resent; the loss in between is counted; the rank is the same."""
    with listening(socket) as first:
        process = app.start(
            injector, socket, "kernels:100000@20000", "settle", "sleep:100", "kernels:160", "settle"
        )
        first.wait_for_kernels()
    with listening(socket) as second:
        done = app.finish(process)
        (connection,) = second.wait_ended()
    (before,) = first.connections
    assert done["connects"] == 2
    assert connection.hello.pid == before.hello.pid
    assert set(before.names.values()) <= set(connection.names.values())
    # What the kernel still held of the first connection when it was closed was sent, and never read.
    lost = done["kept"] - len(before.kernels) - told(connection)
    assert 0 <= lost == done["sent"] - len(before.kernels) - len(connection.kernels)
    assert connection.states, "a new exporter learns the channel's state at once"


def test_another_profilers_window_is_survived_by_rearming(injector: Build, listener: Listener) -> None:
    """Callbacks stolen in mid-run: silence, then the watchdog's rearm brings everything back."""
    actions = ("sleep:100", "kernels:1600", "steal", "kernels:1600", "silent", "kernels:3200")
    done, connection = heard(
        injector, listener, *actions, ARGUS_FLUSH_MILLISECONDS=60_000
    )  # no flush brings the first home
    assert done["silent_rearms"] == 1
    # The first 1600 lay in a buffer that the other profiler got: they are gone, and so is the buffer.
    assert len(connection.kernels) == 3450
    assert done["window_foreign"] == done["replaced_buffers"] == 1


def test_standing_aside_for_a_window_loses_nothing_of_ours(injector: Build, listener: Listener) -> None:
    """pause brings every buffer home first; rearm takes the callbacks back; launches are recorded again."""
    actions = ("kernels:1600", "window", "kernels:1600", "settle")
    done, connection = heard(injector, listener, *actions, ARGUS_ISSUE_LATENCY=1)
    assert (done["pauses"], done["rearms"], done["window_kernels"]) == (1, 1, 5000)
    assert (done["window_foreign"], done["replaced_buffers"]) == (0, 0)
    kernels = connection.kernels
    assert len(kernels) == 3450
    assert set(kernels["issue_ns"][kernels["operation"] == 0].tolist()) == {8_000}
    assert done["up"] == 1


def test_a_paused_channel_says_so(plain: Build, listener: Listener) -> None:
    """Down with a reason, then up again."""
    _, connection = heard(
        plain, listener, "kernels:1600", "settle", "pause", "sleep:200", "rearm", "kernels:16", "settle"
    )
    reasons = connection.told
    assert "paused" in reasons
    assert (reasons[0], reasons[-1]) == ("", "")


def test_nothing_is_touched_while_we_stand_aside(plain: Build, socket: Path, tmp_path: Path) -> None:
    """CUPTI belongs to the other: no flush, no registration; no forced flush before exit, no finalize."""
    log = tmp_path / "calls"
    done = run(
        plain,
        socket,
        "kernels:160",
        "pause",
        "sleep:300",
        "rearm",
        "kernels:16",
        "settle",
        FAKE_CUPTI_LOG=log,
    )
    calls = log.read_text().split("\n")
    assert [c for c in calls if c.startswith(("register", "forced", "finalize"))] == [
        "register 0", "register 0", "forced_flush 1",
    ]  # fmt: skip
    assert done["forced_flushes"] == 0, "before exit"


def test_the_watchdog_gives_up_loudly(plain: Build, listener: Listener) -> None:
    """Three rearms without a record: down for no_records; the next record ends that."""
    actions = ("kernels:160", "settle", "silent", "silent", "silent", "sleep:200", "kernels:16", "settle")
    _, connection = heard(plain, listener, *actions)
    assert "no_records" in connection.told
    assert connection.told[-1] == ""


def test_a_kernel_that_runs_through_a_flush_is_kept(plain: Build, socket: Path) -> None:
    """CUPTI keeps its buffer until it has ended: a flush in mid-run is never forced."""
    with listening(socket) as listener:
        done, connection = heard(plain, listener, "unfinished:1", "kernels:160", "flush", "sleep:300")
    assert done["records"] == 0
    assert len(connection.kernels) == 173, "forced at exit, when nothing will ever end"
    assert connection.states[-1].dropped == 1, "the one without an end"


@pytest.mark.parametrize("slow", ["FAKE_CUPTI_FORCED_MS", "FAKE_CUPTI_FLUSH_MS"])
def test_the_exit_waits_for_a_worker_within_cupti(injector: Build, socket: Path, slow: str) -> None:
    """CUDA's teardown must not meet it: the fake one aborts the process then, whose status would be lost."""
    process = app.start(injector, socket, "kernels:160", "sleep:100", "status:7", **{slow: 3000})
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (7, "")


@pytest.mark.slow
def test_a_cupti_that_never_returns_costs_the_last_handlers_and_not_the_status(
    plain: Build, socket: Path
) -> None:
    """After 12 s the process ends as it was ending, without the teardown that the call would meet."""
    process = app.start(plain, socket, "kernels:160", "status:7", FAKE_CUPTI_FORCED_MS=600_000)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 7, said
    assert "CUPTI does not return: the process ends with status 7" in said


def test_invalid_times_are_dropped_and_counted(injector: Build, listener: Listener) -> None:
    """A few among many do no harm."""
    done, connection = heard(injector, listener, "kernels:1600", "invalid:40", "kernels:1600", "settle")
    assert (len(connection.kernels), done["dropped_invalid"], done["up"]) == (3450, 40, 1)
    assert told(connection) == done["kept"]


def test_invalid_times_switch_the_channel_off(plain: Build, listener: Listener) -> None:
    """Mostly nonsense: collection stops for good, says so once, and no rearm brings it back."""
    actions = ("kernels:16", "settle", "invalid:500", "settle", "sleep:200", "rearm", "kernels:1600")
    done, connection = heard(plain, listener, *actions)
    assert (done["collecting"], done["reason"]) == (0, "invalid_timestamps")
    assert done.said.count("CUPTI's timestamps are invalid") == 1
    assert (len(connection.kernels), connection.told[-1]) == (18, "invalid_timestamps")
    assert told(connection) == done["kept"] == 518


def test_a_step_of_the_hosts_clock_does_not_switch_the_channel_off(
    plain: Build, listener: Listener, tmp_path: Path
) -> None:
    """15 s back: what lies in the buffers is of the future then, and dropped, and no more than that."""
    clock, step = tmp_path / "clock.so", tmp_path / "step.so"
    source = """
    #define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    volatile int stepped;
    int clock_gettime(clockid_t clock, struct timespec* time) {
      long answer = syscall(SYS_clock_gettime, clock, time);
      if (clock == CLOCK_REALTIME && stepped) time->tv_sec -= 15;
      return (int)answer;
    }
    """
    compiled(clock, source)
    compiled(step, "extern int stepped; __attribute__((constructor)) static void set(void) { stepped = 1; }")
    actions = ("kernels:160", "settle", "kernels:1600", f"map:{step}", "settle", "kernels:1600", "settle")
    done, connection = heard(
        plain, listener, *actions, LD_PRELOAD=str(clock), ARGUS_FLUSH_MILLISECONDS=60_000
    )
    assert done["dropped_invalid"] > 1_000
    assert (done["collecting"], done["up"], connection.told[-1]) == (1, 1, "")
    assert len(connection.kernels) == done["kept"] - done["dropped_invalid"]


@pytest.mark.parametrize(
    ("percent", "minutes", "rate", "duration_ns", "verdict"),
    [
        (1, 7, 15_000, 10_000, "exceeded"),  # 0.71 us of the host each
        (1, 7, 13_000, 10_000, "within"),
        (1, 4, 15_000, 10_000, "within"),  # compilers that try kernels out
        (1, 7, 15_000, 65_000, "within"),  # the GPU is always busy: 0.2 us there
        (1, 7, 60_000, 16_000, "exceeded"),  # or busy with small ones
        (1, 7, 15_000, 1_000, "within graph"),  # one launch for all of them
        (1, 7, 60_000, 1_000, "exceeded graph"),
        (2, 7, 15_000, 10_000, "within"),
        (0, 7, 60_000, 10_000, "within"),
    ],
)
def test_what_kernels_cost_the_training_is_reckoned(
    plain: Build, percent: int, minutes: int, rate: int, duration_ns: int, verdict: str
) -> None:
    """By what a GPU showed (docs/overhead.md), over five whole minutes."""
    verdict, *graph = verdict.split()
    told = [str(number) for number in (percent, minutes, rate, duration_ns)]
    command = [str(plain.unit), "budget", *told, *graph]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{verdict}\n"


def test_a_training_that_would_pay_too_much_is_left_alone(
    plain: Build, socket: Path, listener: Listener
) -> None:
    """Its channel says why and stays down; with ARGUS_KERNELS_COST=0 it goes on."""
    done = run(plain, socket, "minutes:7:15000", "stopped", "rearm", ARGUS_DEBUG=0)
    assert (done["collecting"], done["reason"]) == (0, "launch_rate")
    assert done.said.count("slows the training by more than 1 %") == 1
    (connection,) = listener.wait_ended()
    assert connection.told[-1] == "launch_rate"


@pytest.mark.parametrize(
    ("cudart", "cupti"),
    [
        ("nvidia/cuda_runtime/lib/libcudart.so.13", "nvidia/cuda_cupti/lib/libcupti.so.13"),
        ("nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"),
        ("torch/lib/libtorch_cuda.so", "nvidia/cuda_cupti/lib/libcupti.so.13"),
        ("cuda/lib64/libcudart.so.13", "cuda/extras/CUPTI/lib64/libcupti.so.13"),
        ("cuda/targets/x86_64-linux/lib/libcudart.so.13", "cuda/extras/CUPTI/lib64/libcupti.so.13"),
        ("torch/lib/libcupti-53e4e2b7.so.12", "torch/lib/libcupti-53e4e2b7.so.12"),
        (None, "cuda/extras/CUPTI/lib64/libcupti.so.13"),
    ],
)
def test_a_libcupti_that_is_not_mapped_yet_is_found_where_cudas_libraries_lie(
    plain: Build, socket: Path, listener: Listener, tmp_path: Path, cudart: str | None, cupti: str
) -> None:
    """Wheels of CUDA 12 and 13, wheels of torch, toolkits, CUDA_HOME: nothing of it is on a search path."""
    cuda = tmp_path / "driver"
    cuda.mkdir()
    (tmp_path / "cuda" / "lib64").mkdir(parents=True)
    shutil.copy(plain.stand_ins / "libcuda.so.1", cuda)
    for name, source in ((cupti, "libcupti.so.13"), (cudart, "libcuda.so.1")):
        if name is not None and not (tmp_path / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(plain.stand_ins / source, tmp_path / name)
    mapped = {"LD_PRELOAD": str(tmp_path / cudart)} if cudart else {"CUDA_HOME": str(tmp_path / "cuda")}
    done = run(plain, socket, "kernels:160", "settle", LD_LIBRARY_PATH=cuda, ARGUS_DEBUG=1, **mapped)
    assert f"CUPTI {tmp_path}" in done.said
    assert Path(done.said.split("CUPTI ")[1].split(", API")[0]).samefile(tmp_path / cupti)
    (connection,) = listener.wait_ended()
    assert len(connection.kernels) == 173


def test_a_libcupti_of_another_major_version_than_the_runtime_is_not_taken(
    plain: Build, socket: Path, tmp_path: Path
) -> None:
    """Reason `cupti_missing`, not a crash in mid-run."""
    shutil.copy(plain.stand_ins / "libcuda.so.1", tmp_path)
    shutil.copy(plain.stand_ins / "libcuda.so.1", tmp_path / "libcudart.so.12")
    shutil.copy(plain.stand_ins / "libcupti.so.13", tmp_path)
    variables = {"LD_LIBRARY_PATH": tmp_path, "LD_PRELOAD": tmp_path / "libcudart.so.12"}
    done = run(plain, socket, "sleep:200", **variables)
    assert done["reason"] == "cupti_missing"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"FAKE_CUPTI_ENABLE": "39"}, "other_subscriber"),
        ({"FAKE_CUPTI_ENABLE": "26"}, "hardware_busy"),
        ({"FAKE_CUPTI_ENABLE": "15"}, "driver_unfit"),
        ({"FAKE_CUPTI_ENABLE": "35"}, "privileges"),
        ({"FAKE_CUPTI_ENABLE": "999"}, "cupti_error_999"),
        ({"FAKE_CUPTI_VERSION": "130000"}, "cupti_known_bad"),
        ({"NSYS_PROFILING_SESSION_ID": "4711"}, "nsight_systems"),
        ({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": "/opt/nvidia/nsight-compute"}, "nsight_compute"),
        ({"NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN": "49152"}, "compute_sanitizer"),
        ({"ARGUS_CUPTI_LIBRARY": "/nowhere/libcupti.so"}, "cupti_missing"),
        ({"ARGUS_CUPTI_LIBRARY": "libc.so.6"}, "cupti_incomplete"),
        ({"FAKE_CUPTI_VERSION": "17"}, "cupti_version"),
        ({"FAKE_CUPTI_VERSION": "140000"}, "cupti_version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_observed_is_a_visible_state(
    plain: Build, listener: Listener, variables: dict[str, str], reason: str
) -> None:
    """Down with the reason; the training goes on."""
    done, connection = heard(plain, listener, "kernels:100", "sleep:200", **variables)
    assert (done["up"], done["reason"]) == (0, reason)
    assert set(connection.told) == {reason}


def test_a_bad_version_that_is_asked_for_by_path_is_taken(
    plain: Build, socket: Path, listener: Listener
) -> None:
    """Who names a library means it."""
    named = {"ARGUS_CUPTI_LIBRARY": "libcupti.so.13", "FAKE_CUPTI_VERSION": "130000"}
    run(plain, socket, "kernels:160", "settle", **named)
    assert len(listener.wait_ended()[0].kernels) == 173


def test_a_bad_version_is_said_by_name(plain: Build, socket: Path) -> None:
    """What is wrong with it, and which version is not."""
    done = run(plain, socket, "sleep:50", FAKE_CUPTI_VERSION=130000)
    assert "CUPTI 13.0 before Update 1: it may deadlock in cuptiActivityDisable" in done.said
    assert "nvidia-cuda-cupti 13.0.85" in done.said


def test_a_version_that_may_record_nothing_is_named_when_it_does(plain: Build, listener: Listener) -> None:
    """12.4 and its first update say one number, and most programs get their kernels: they are tried."""
    silent = ("silent", "silent", "silent", "sleep:200")
    done, connection = heard(plain, listener, *silent, FAKE_CUPTI_VERSION=22)
    assert connection.told[0] == "no_records", "also where no record ever came"
    assert done.said.count("no kernel records from CUPTI: 12.4 Update 1 and 12.5") == 1


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("nvrx_cupti_module.cpython-311-x86_64-linux-gnu.so", "nvrx"),
        ("libparcagpucupti.so", "parcagpu"),
        ("site-packages/cupti/cupti.cpython-311-x86_64-linux-gnu.so", "cupti_python"),
        ("libToolsInjection64.so", "nsight_systems"),
    ],
)
def test_who_has_cupti_for_good_keeps_it(
    plain: Build, listener: Listener, tmp_path: Path, library: str, reason: str
) -> None:
    """It came later, and took the callbacks: the watchdog finds it, and does not take them back."""
    path = tmp_path / library
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(plain.stand_ins / "libcuda.so.1", path)
    log = tmp_path / "calls"
    actions = ("kernels:160", "settle", f"map:{path}", "steal", "silent", "silent", "rearm", "sleep:100")
    done, connection = heard(plain, listener, *actions, FAKE_CUPTI_LOG=log)
    assert (done["reason"], done["collecting"], connection.told[-1]) == (reason, 0, reason)
    assert log.read_text().count("register") == 2, "ours and theirs"
    assert done["forced_flushes"] == 1, "theirs, after their window"


def test_a_forked_child_is_silent(injector: Build, listener: Listener) -> None:
    """It ends normally, speaks on no connection, and the parent's observation goes on."""
    done, connection = heard(injector, listener, "kernels:1600", "settle", "fork", "kernels:1600", "settle")
    assert done["child_status"] == 0
    assert len(connection.kernels) == 3450
    assert connection.sequence == list(range(1, len(connection.sequence) + 1))


def test_a_child_that_outlives_the_rank_does_not_hide_its_end(
    injector: Build, socket: Path, listener: Listener
) -> None:
    """The child's copy of the socket and of the claim are closed at the fork."""
    run(injector, socket, "kernels:160", "settle", "linger:3000")
    listener.wait_ended()
    second = run(injector, socket, "kernels:160", "settle")
    assert second["active"], "the rank is free again"


def test_signals_belong_to_the_training(plain: Build, socket: Path) -> None:
    """The worker's thread blocks all of them but those that its own faults raise."""
    done = run(plain, socket, "signals")
    blocked = int(done["blocked_signals"], 16)
    is_blocked = {number: bool(blocked >> (number - 1) & 1) for number in range(1, 32)}
    faults = {4, 5, 7, 8, 11, 31}  # ILL, TRAP, BUS, FPE, SEGV, SYS
    assert {number for number, is_ in is_blocked.items() if not is_} == faults | {9, 19}  # KILL, STOP


def test_all_buffers_come_home(plain: Build, socket: Path) -> None:
    """However often they go round: the pool neither shrinks nor grows."""
    done = run(plain, socket, *(("kernels:20000", "settle") * 5))
    assert (done["free_buffers"], done["replaced_buffers"], done["foreign_buffers"]) == (32, 0, 0)
