"""`argus-l3-worker trace` from files and from the store."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from argus_core.store.folder import FolderStore
from argus_l3_worker.cli import main
from argus_l3_worker.commands import trace
from argus_simulator.traces.cases import Case, make
from argus_traces.reader import read
from argus_traces.tables import RankTrace

KEY = "simulated/2026-11-21/{}/000000000000-000000000007-20261121T030000.000Z.perfetto-trace"


@pytest.fixture
def store(masked_stage: Case, tmp_path: Path) -> Path:
    """A store of type folder with a window of each rank, and the configuration that names it."""
    folder = tmp_path / "store"
    for rank, data in enumerate(masked_stage.files):
        FolderStore(folder).put(KEY.format(rank), io.BytesIO(data))
    config = tmp_path / "l3.yaml"
    config.write_text(f"traces: {{store: {{folder: {folder}}}}}\n")
    return config


def test_the_answer_comes_first_in_plain_words(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Cause, rank, team, cost, proof and chain, then a line a rank."""
    assert main(["trace", *map(str, files)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ROOT CAUSE: gpu-compute, rank 7; team operations\n  costs ")
    assert "proof: its work takes +" in text and "from symptom to cause:" in text
    assert "Clocks of 2 hosts aligned" in text
    assert text.count("\nrank 0 (dp0 tp0 pp0)") == 1


def test_teams_are_those_that_the_configuration_names(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a site's rules send a cause to another team, so does the analysis of its traces."""
    config = tmp_path / "l3.yaml"
    config.write_text("teams: {gpu-compute: hardware}\n")
    assert main(["trace", "--config", str(config), *map(str, files)]) == 0
    assert capsys.readouterr().out.startswith("ROOT CAUSE: gpu-compute, rank 7; team hardware\n")


def test_details_add_phases_streams_and_functions(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for one rank alone, which nobody can be compared with."""
    assert main(["trace", "--details", str(files[0])]) == 0
    text = capsys.readouterr().out
    assert "One rank: give the traces of several" in text
    for part in ("recv_backward", "compute0", "flash_bwd_dq_dk_dv_loop_kernel", "beta"):
        assert part in text


def test_a_function_that_is_critical_for_longer_stands_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """EROICA's patterns over the ranks of a role: the data loader of rank 1, which the verdict names too."""
    case = make("data", 11)
    files = [tmp_path / f"{rank}.perfetto-trace" for rank in range(len(case.files))]
    for path, data in zip(files, case.files, strict=True):
        path.write_bytes(data)
    assert main(["trace", *map(str, files)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ROOT CAUSE: data-input, rank 1")
    assert "a cross-check, no verdict):\n  rank 1: data (host) " in text
    assert main(["trace", "--json", *map(str, files)]) == 0
    first = json.loads(capsys.readouterr().out)["unlike"][0]
    assert (first["rank"], first["function"], first["category"]) == (1, "data", "host")
    assert first["beta"] > 10 * first["usual"]


def test_ranks_of_other_roles_are_no_peers(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Roles of two: the last stage's kernels are its own, and nobody is unlike anybody."""
    assert main(["trace", "--json", *map(str, files)]) == 0
    assert json.loads(capsys.readouterr().out)["unlike"] == []


def test_json_says_the_same_to_programs(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Findings with chains, and each rank's summary."""
    assert main(["trace", "--json", *map(str, files)]) == 0
    found = json.loads(capsys.readouterr().out)
    first = found["findings"][0]
    assert (first["cause"], first["ranks"], first["team"]) == ("gpu-compute", [7], "operations")
    assert first["chain"][-1]["root"] and first["chain"][-1]["rank"] == 7
    assert [rank["rank"] for rank in found["ranks"]] == list(range(8))
    assert found["clocks"]["hosts"] == 2


def test_keys_and_prefixes_of_the_store_are_read(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As alerts name them: a whole key, or the beginning of a rank's keys of a day."""
    keys = [KEY.format(0), *(f"simulated/2026-11-21/{rank}/" for rank in range(1, 8))]
    assert main(["trace", "--config", str(store), *keys]) == 0
    assert "ROOT CAUSE: gpu-compute, rank 7" in capsys.readouterr().out


def test_of_beginnings_of_keys_windows_of_one_time_are_compared(
    store: Path, masked_stage: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 was asked for once more, later; nobody asked for rank 8 at the time of the others."""
    folder = FolderStore(store.parent / "store")
    for rank, steps in ((0, "000000000108-000000000115"), (8, "000000000100-000000000107")):
        later = KEY.format(rank).replace("000000000000-000000000007", steps).replace("T03", "T04")
        folder.put(later, io.BytesIO(masked_stage.files[0]))
    folder.put("simulated/2026-11-21/torch.perfetto-trace", io.BytesIO(b"of somebody else"))
    assert main(["trace", "--config", str(store), "simulated/"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("ROOT CAUSE: gpu-compute, rank 7")
    assert printed.err == "left out, as no window of theirs has the step of the others: ranks 8\n"


def test_one_rank_and_step_can_be_asked_about(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Why was rank 0 late in step 3? The chain ends with that step."""
    assert main(["trace", "--json", "--rank", "0", "--step", "3", *map(str, files)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["findings"][0]["ranks"] == [7]
    assert {finding["step"] <= 3 for finding in found["findings"]} == {True}


def test_a_marked_file_is_written(files: list[Path], tmp_path: Path) -> None:
    """And can be read by whoever reads traces."""
    out = tmp_path / "marked.perfetto-trace"
    assert main(["trace", "--out", str(out), *map(str, files)]) == 0
    assert out.stat().st_size > 1_000_000


def test_no_trace_that_is_read_is_written_over(
    files: list[Path], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By whatever name: a file, a link to it, or a key of a store that is a folder."""
    link = tmp_path / "link"
    link.symlink_to(files[0])
    of_store = [tmp_path / "store" / KEY.format(rank) for rank in (0, 1)]
    before = files[0].read_bytes(), of_store[0].read_bytes()
    for out, keys in (
        (files[0], files[:2]),
        (link, files[:2]),
        (of_store[0], [KEY.format(0), KEY.format(1)]),
    ):
        assert main(["trace", "--config", str(store), "--out", str(out), *map(str, keys)]) == 2
        assert "is one of the traces that are read: name another file" in capsys.readouterr().err
    assert (files[0].read_bytes(), of_store[0].read_bytes()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing/2026-11-21/0/"], "no trace in .* begins with nothing/2026-11-21/0/"),
        ([KEY.format(9)], "is neither a file nor in"),
        (["../../nowhere/x"], "is no file, and cannot be in"),
        (["{0}", "{0}"], "are both of rank 0"),
        (["{0}", "{1}", "--rank", "5"], "--rank is 5; allowed: 0, 1"),
        (["{0}", "{1}", "--step", "99"], "nothing ran in step 99: the traces hold steps 0 to 7"),
        (["{0}", "--out", "marked"], "give the traces of at least two"),
        (["{0}", "{1}", "--out", "/nowhere/marked"], "/nowhere/marked cannot be written: No such file"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_reason(
    files: list[Path], store: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Exit 2 and one line."""
    given = [argument.format(*files) for argument in arguments]
    assert main(["trace", "--config", str(store), *given]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert re.search(said, message), message


def test_windows_of_different_steps_are_not_compared(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As keys of two alerts may be: else whoever did something else at another time would be to blame."""

    def later(chunks: Iterable[bytes], source: str) -> RankTrace:
        found = read(chunks, source)
        steps = {"first_step": 8, "last_step": 15} if source == str(files[1]) else {}
        return replace(found, window=replace(found.window, **steps))

    monkeypatch.setattr(trace, "read", later)
    assert main(["trace", str(files[0]), str(files[1])]) == 2
    assert (
        "without a step in common cannot be compared: rank 0 0 to 7, rank 1 8 to 15"
        in capsys.readouterr().err
    )


def test_a_cut_file_is_refused_with_its_name(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is concluded from half a trace."""
    files[2].write_bytes(files[2].read_bytes()[:-100])
    assert main(["trace", *map(str, files)]) == 1
    assert f"{files[2]} is cut off" in capsys.readouterr().err
