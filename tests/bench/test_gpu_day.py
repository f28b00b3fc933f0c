"""The day on a GPU: no outcome without a measurement, no step without an end, and a script that works."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest
from bench.gpu_day.__main__ import main
from bench.gpu_day.machine import REPOSITORY, commit
from bench.gpu_day.nccl import out_of_order
from bench.gpu_day.observe import compared
from bench.gpu_day.overhead import blocks_within
from bench.gpu_day.ras import judged
from bench.gpu_day.result import Limit, Machine, Result, decide, read
from bench.gpu_day.runner import Runner
from bench.gpu_day.step import LONGEST_S, Step
from bench.gpu_day.steps import STEPS

from argus_exporter.commands.ras import _plain
from argus_exporter.ras.json_answer import parse_json
from exporter.exporter_process import wait_for
from exporter.ras.answers import Absentee, Group, Job, Member, members
from long_forms import LONG
from recorded.files import nccl_events, recorded

GPU = Machine("a GPU", "580.1", "13.0", "2.13.0", "a processor")
NO_GPU = Machine(None, None, None, "2.13.0+cpu", "a processor")
COMMIT = "0123456789ab"
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "step",
        "commit",
        "machine",
        "started",
        "seconds",
        "prediction",
        "measured",
        "gates",
        "outcome",
        "why",
        "dry",
    ],
    "properties": {
        "step": {"enum": [step.name for step in STEPS] + ["of a test"]},
        "commit": {"type": "string", "minLength": 1},
        "machine": {
            "type": "object",
            "additionalProperties": False,
            "required": ["gpu", "driver", "cuda", "torch", "cpu"],
            "properties": {
                name: {"type": ["string", "null"]} for name in ("gpu", "driver", "cuda", "torch", "cpu")
            },
        },
        "started": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"},
        "seconds": {"type": "number", "minimum": 0},
        "prediction": {"type": "string", "minLength": 1},
        "measured": {"type": "object"},
        "gates": {
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "prefixItems": [{"type": ["number", "null"]}, {"type": "string"}, {"type": "boolean"}],
                "minItems": 3,
                "maxItems": 3,
            },
        },
        "outcome": {"enum": ["ok", "failed", "not run"]},
        "why": {"type": "string"},
        "dry": {"type": ["object", "null"]},
    },
    "if": {"properties": {"outcome": {"const": "ok"}}},
    "then": {"properties": {"gates": {"minProperties": 1}, "why": {"const": ""}}},
    "else": {"properties": {"why": {"minLength": 1}}},
}


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of tests are modules of the test's own folder, for the step's process too."""
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def a_step(tmp_path: Path, body: str, limit_s: float = 60.0, **gates: Limit) -> Step:
    # Another file each time: bytecode is taken for that of a source as long, of the same second.
    module = f"step_{len(list(tmp_path.glob('step_*.py')))}"
    (tmp_path / f"{module}.py").write_text(f"def run(day):\n    {body}\n")
    return Step("of a test", module, "nothing", "none", gates or {"value": Limit("<=", 2)}, limit_s)


def runner(tmp_path: Path, machine: Machine = GPU, **more: object) -> Runner:
    return Runner(tmp_path / "gpu-day", machine, COMMIT, say=lambda _: None, **more)  # type: ignore[arg-type]


def written(tmp_path: Path, name: str = "of a test") -> dict[str, object]:
    result: dict[str, object] = json.loads((tmp_path / "gpu-day" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(result)
    return result


def test_what_holds_its_gates_is_ok(tmp_path: Path) -> None:
    result = runner(tmp_path).run(a_step(tmp_path, "return {'value': 1.5}"))
    assert (result.outcome, result.gates) == ("ok", {"value": (1.5, "<= 2", True)})
    assert written(tmp_path)["measured"] == {"value": 1.5}
    assert read(tmp_path / "gpu-day" / "of a test.json") == result


def test_what_breaks_a_gate_has_failed(tmp_path: Path) -> None:
    result = runner(tmp_path).run(a_step(tmp_path, "return {'value': 3}"))
    assert (result.outcome, result.why) == ("failed", "value is 3, not <= 2")
    assert written(tmp_path)["gates"] == {"value": [3.0, "<= 2", False]}


@pytest.mark.parametrize("value", ["{}", "{'value': None}", "{'value': float('nan')}", "{'value': True}"])
def test_a_gate_that_was_not_measured_does_not_hold(tmp_path: Path, value: str) -> None:
    """Missing, empty, not a number, or a truth value where a number belongs."""
    result = runner(tmp_path).run(a_step(tmp_path, f"return {value}"))
    assert (result.outcome, result.why) == ("failed", "value was not measured")
    written(tmp_path)


def test_a_step_without_gates_is_never_ok() -> None:
    assert decide({"value": 1.0}, {})[:2] == ("failed", "the step has no gates")


def test_without_a_gpu_nothing_is_run(tmp_path: Path) -> None:
    step = a_step(tmp_path, "open('there', 'w'); return {'value': 1}")
    result = runner(tmp_path, NO_GPU).run(step)
    assert (result.outcome, result.measured) == ("not run", {})
    assert result.why.startswith("no NVIDIA GPU")
    assert not (REPOSITORY / "there").exists()
    written(tmp_path)


def test_a_torch_without_cuda_is_no_gpu_day(tmp_path: Path) -> None:
    machine = Machine("a GPU", "580.1", None, "2.13.0+cpu", "a processor")
    result = runner(tmp_path, machine).run(a_step(tmp_path, "return {'value': 1}"))
    assert (result.outcome, result.why) == ("not run", "no torch with CUDA: torch is 2.13.0+cpu")


def test_what_is_not_there_is_not_run(tmp_path: Path) -> None:
    body = "from bench.gpu_day.result import NotRun; raise NotRun('a package is missing')"
    result = runner(tmp_path).run(a_step(tmp_path, body))
    assert (result.outcome, result.why, result.gates) == ("not run", "a package is missing", {})
    written(tmp_path)


def test_a_step_that_breaks_has_failed_with_its_last_words(tmp_path: Path) -> None:
    result = runner(tmp_path).run(a_step(tmp_path, "raise ValueError('no such stream')"))
    assert (result.outcome, result.why) == ("failed", "ended with status 1: ValueError: no such stream")
    assert "Traceback" in (tmp_path / "gpu-day" / "of a test.log").read_text()
    written(tmp_path)


def test_a_step_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Its child ignores SIGTERM and would wait for ever, as the step itself."""
    started = tmp_path / "started"
    child = (
        "import os, pathlib, signal; signal.signal(15, signal.SIG_IGN)\n"
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid())); signal.pause()"
    )
    body = (
        f"import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); signal.pause()"
    )
    began = time.monotonic()
    result = runner(tmp_path).run(a_step(tmp_path, body, limit_s=4.0))
    assert (result.outcome, result.why) == ("failed", "not done after its limit of 4 s")
    assert time.monotonic() - began < 30
    wait_for(lambda: not is_running(int(started.read_text())), "the child's end", timeout_s=10)
    written(tmp_path)


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie, which may wait for its reaper."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_has_an_outcome_for_this_source_is_not_run_again(tmp_path: Path) -> None:
    """Neither ok nor failed; not run is tried again, and so is another source's outcome."""
    step = a_step(tmp_path, f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); return {{'value': 3}}")

    def runs() -> int:
        return len((tmp_path / "runs").read_text())

    runner(tmp_path, NO_GPU).run_all([step])
    first = runner(tmp_path).run_all([step])
    assert runs() == 1
    assert runner(tmp_path).run_all([step]) == first
    assert runs() == 1
    runner(tmp_path).run_all([step], again=True)
    assert runs() == 2
    Runner(tmp_path / "gpu-day", GPU, "another", say=lambda _: None).run_all([step])
    assert runs() == 3


def test_an_unknown_source_is_never_taken_for_the_same(tmp_path: Path) -> None:
    step = a_step(tmp_path, f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); return {{'value': 1}}")
    for _ in range(2):
        Runner(tmp_path / "gpu-day", GPU, "unknown", say=lambda _: None).run_all([step])
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_cut_off_result_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"step": "x"')
    assert read(tmp_path / "x.json") is None


@pytest.mark.parametrize(
    ("ours", "ratio"),
    [
        ({"a": [1.0] * 10, "b": [2.0] * 10}, 1.0),
        ({"a": [1.0] * 10, "b": [2.0] * 9}, 19 / 20),
        ({"a": [1.0] * 10, "c": [2.0] * 10}, 10 / 30),
        ({"a": [1.0] * 20, "b": [2.0] * 10}, 20 / 30),
        ({}, 0.0),
    ],
)
def test_counts_are_compared_by_name_and_both_ways(ours: dict[str, list[float]], ratio: float) -> None:
    """One lost, one with another name, one seen twice, all lost: each lowers the ratio."""
    assert compared(ours, {"a": [1.0] * 10, "b": [2.0] * 10})["count_ratio"] == pytest.approx(ratio)


def test_durations_off_by_two_per_cent_break_the_gate() -> None:
    measured = compared({"a": [1.02] * 10}, {"a": [1.0] * 10})
    assert decide(measured, {"p50_off": Limit("<=", 0.01)})[0] == "failed"
    assert decide(compared({}, {}), {"p50_off": Limit("<=", 0.01)})[0] == "failed"


def test_every_step_has_a_prediction_gates_and_an_end() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert step.prediction and step.proves and step.gates, step.name
        assert 0 < step.limit_s <= LONGEST_S <= 480


def test_the_list_has_every_step_with_its_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(step.name in said and step.prediction in said and step.proves in said for step in STEPS)


@pytest.mark.parametrize("words", [[], ["no-such-step"], ["--all", "load"]])
def test_a_wrong_command_line_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_the_shell_script_hands_its_words_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(REPOSITORY / "tools" / "gpu_day.sh"), "--folder", str(tmp_path), "nccl"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    result = read(tmp_path / "nccl.json")
    assert result is not None
    assert (done.returncode, result.outcome) == (3, "not run")


def needs_stand_ins() -> None:
    pytest.importorskip("torch")
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: the stand-ins for CUDA are not built here")


def dry(tmp_path: Path, *steps: Step) -> dict[str, Result]:
    needs_stand_ins()
    made = runner(tmp_path, NO_GPU, dry=True).run_all(steps)
    for step in steps:
        validated = written(tmp_path, f"dry/{step.name}")
        assert (validated["measured"], validated["gates"]) == ({}, {}), "a dry run measures nothing"
    return {result.step: result for result in made}


def went_through(result: Result, *, stopped: bool = False) -> None:
    """As far as the stand-ins carry, with every gate that they can hold."""
    assert (result.outcome, result.why) == ("not run", "dry run"), asdict(result)
    assert result.dry is not None
    assert result.dry["reached"], "it got nowhere"
    if stopped:
        assert result.dry["stopped"]
        return
    assert result.dry["stopped"] is None
    gates = result.dry["gates"]
    wanted = {name for step in STEPS if step.name == result.step for name in step.gates}
    assert set(gates) == {
        name for step in STEPS if step.name == result.step for name in wanted if step.gates[name].on_stand_ins
    }
    assert all(ok for _, _, ok in gates.values())


@pytest.mark.slow  # the first to build the stand-ins
def test_a_dry_run_that_breaks_has_failed(tmp_path: Path) -> None:
    """Its steps are there to find that; a gate that stand-ins hold must hold."""
    needs_stand_ins()
    broken = runner(tmp_path, NO_GPU, dry=True).run(a_step(tmp_path, "return {'value': 3}"))
    assert (broken.outcome, broken.why) == ("failed", "dry run: value is 3, not <= 2")
    fine = runner(tmp_path, NO_GPU, dry=True).run(a_step(tmp_path, "return {'value': 1}"))
    assert (fine.outcome, fine.why) == ("not run", "dry run")


@pytest.mark.slow
def test_a_dry_run_calls_nccls_plugin_as_nccl_would(tmp_path: Path) -> None:
    """A fake host of interface version 5, and a recorder of events chained behind."""
    (step,) = (step for step in STEPS if step.name == "nccl")
    result = dry(tmp_path, step)["nccl"]
    went_through(result)
    assert result.dry is not None
    assert result.dry["measured"]["interface"] == 5


def launch(thread: int, communicator: int) -> dict[str, int | str]:
    return {"call": "s", "type": 0x800, "thread": thread, "communicator": communicator}


def group(thread: int, communicator: int) -> dict[str, int | str]:
    return launch(thread, communicator) | {"type": 0x1}


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([launch(1, 5), group(1, 5), launch(1, 6), group(1, 6)], 0),
        ([launch(1, 5), launch(2, 6), group(1, 5), group(2, 6)], 0),
        ([group(1, 5)], 1),
        ([launch(1, 5), group(1, 5), group(1, 5)], 1),
        ([launch(1, 5), group(1, 6)], 1),
        ([launch(2, 5), group(1, 5)], 1),
    ],
)
def test_a_group_without_its_own_launch_is_out_of_order(
    events: list[dict[str, int | str]], wrong: int
) -> None:
    assert out_of_order(events) == wrong


def test_a_real_nccl_tells_of_its_launches_in_order() -> None:
    """9,440 calls of two ranks."""
    both = [nccl_events(rank) for rank in range(2)]
    assert [len(events) for events in both] == [4720, 4720]
    assert [out_of_order(events) for events in both] == [0, 0]


PIDS = (4000, 4001)


def ras_said(*groups: Group) -> dict[str, object]:
    """As `argus-exporter ras --again --json` prints two answers that are alike."""
    report = parse_json(Job(groups).json())
    told: dict[str, object] = json.loads(json.dumps(_plain(report, report)))
    return told


def test_ras_names_the_rank_that_stays_away() -> None:
    (step,) = (step for step in STEPS if step.name == "ras")
    measured = judged(ras_said(Group(members({0: 43, 1: 42}))), PIDS) | {"ras_status": 0, "ended": 0}
    assert decide(measured, step.gates)[:2] == ("ok", "")


RECORDED_RAS = json.loads(recorded("ras.json"))
"""Of NCCL 2.28.9; the processes were 849 and 850."""


def test_ras_of_a_real_nccl_names_the_rank_that_stayed_away() -> None:
    (step,) = (step for step in STEPS if step.name == "ras")
    measured = judged(RECORDED_RAS, (849, 850))
    assert measured == {
        "nccl": "2.28.9",
        "communicators_with_both": 1,
        "lacks": 1,
        "stuck": 1,
        "waited_for_second": 1,
    }
    assert decide(measured | {"ras_status": 0, "ended": 0}, step.gates)[:2] == ("ok", "")
    other_way = judged(RECORDED_RAS, (850, 849))
    assert (other_way["lacks"], other_way["waited_for_second"]) == (-1, 0)


def test_an_answer_that_is_made_up_reads_as_the_recorded_one() -> None:
    """But for hashes, and for functions that nobody called after the first second."""
    ranks = [Member(rank, 849 + rank, count, gpu=0) for rank, count in enumerate((41, 40))]
    made_up = parse_json(Job([Group(ranks)], version="2.28.9").json())
    told = json.loads(json.dumps(_plain(made_up, made_up)))
    for report in (told, real := json.loads(json.dumps(RECORDED_RAS))):
        (group,) = report["communicators"]
        assert report.pop("stuck") == [group.pop("hash")]
        assert group.pop("secondary").count(":0x") == 1
        assert len(group["launches"].pop("Broadcast")) == len(group["launches"].pop("AllGather")) == 1
        assert report.pop("collected_s") < 1.0
    assert told == real


@pytest.mark.parametrize(
    ("groups", "wrong"),
    [
        ([Group(members({0: 43, 1: 43}))], {"lacks", "stuck", "waited_for_second"}),
        ([Group(members({0: 42, 1: 43}))], {"lacks", "waited_for_second"}),
        ([Group(members({0: 44, 1: 42}))], {"lacks"}),
        (
            [Group(members({0: 43}), [Absentee(1, 4001, unresponsive=True)])],
            {"communicators_with_both", "lacks", "stuck", "waited_for_second"},
        ),
        (
            [Group(members({0: 43, 1: 42}, first_pid=7000))],
            {"communicators_with_both", "lacks", "stuck", "waited_for_second"},
        ),
    ],
    ids=["nobody is behind", "the other is behind", "two are lacking", "no answer", "another job"],
)
def test_ras_that_says_anything_else_breaks_a_gate(groups: list[Group], wrong: set[str]) -> None:
    (step,) = (step for step in STEPS if step.name == "ras")
    _, _, gates = decide(judged(ras_said(*groups), PIDS) | {"ras_status": 0, "ended": 0}, step.gates)
    assert {name for name, (_, _, ok) in gates.items() if not ok} == wrong


def test_turns_fit_into_the_time_of_a_step() -> None:
    """As many blocks as wanted, or as there is time for; too few for an interval is said."""
    assert blocks_within(270.0, wanted=80, seconds_a_block=2.5) == 80
    assert blocks_within(270.0, wanted=80, seconds_a_block=10.0) == 27
    with pytest.raises(RuntimeError, match="a block of all channels takes 40 s: too long for an interval"):
        blocks_within(270.0, wanted=80, seconds_a_block=40.0)


@pytest.mark.slow
@pytest.mark.torch
def test_a_dry_run_sees_the_kernels_of_the_stand_in(tmp_path: Path) -> None:
    """Real hooks and the real injector on a fake CUDA: counts and durations as torch.profiler's."""
    (step,) = (step for step in STEPS if step.name == "kernels")
    result = dry(tmp_path, step)["kernels"]
    went_through(result)
    assert result.dry is not None
    assert result.dry["measured"]["kernels"] == result.dry["measured"]["kernels_profiler"] > 1000


STOPPED = ("fallback", "nsight", "anatomy", "ras")
"""Steps of what no stand-in has."""


def stops(step: Step) -> bool:
    """Also where the framework is not installed that it is about."""
    package = step.options.get("package")
    return step.name in STOPPED or (package is not None and importlib.util.find_spec(package) is None)


def one_of_a_kind(steps: Iterable[Step]) -> list[Step]:
    """Of steps of one module, which differ in options, one. The long form has all.

    The one of most ranks, which does all that one of fewer does.
    """
    if LONG:
        return list(steps)
    kinds: dict[str, Step] = {}
    for step in sorted(steps, key=lambda step: -step.options.get("ranks", 1)):
        kinds.setdefault(step.module, step)
    return list(kinds.values())


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    "step",
    one_of_a_kind(step for step in STEPS if step.name not in {"kernels", "nccl"}),
    ids=lambda step: step.name,
)
def test_every_step_goes_through_on_stand_ins(step: Step, tmp_path: Path) -> None:
    """The script itself cannot be what fails on the day: each step runs to where it needs the GPU."""
    went_through(dry(tmp_path, step)[step.name], stopped=stops(step))


def test_a_copy_of_a_checkout_is_told_which_source_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own history, where it has one, says nothing to anybody else."""
    monkeypatch.setenv("GPU_DAY_COMMIT", "0123456789ab")
    assert commit() == "0123456789ab"
    monkeypatch.delenv("GPU_DAY_COMMIT")
    assert commit() != "0123456789ab"
