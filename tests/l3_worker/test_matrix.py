"""The matrix of one kernel: its numbers, its order, and the pictures of it."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.l3_tables import pair_triples
from bench.servers import PrometheusServer

from argus_l3_worker.cli import main
from argus_l3_worker.judge.wasserstein import Mixtures, mean_distances
from argus_l3_worker.reports.heatmap import as_html, write_png
from argus_l3_worker.reports.matrix import binned, distance_matrix
from l3_worker.fleets import GEMM, fleet
from l3_worker.published_fleet import Fleet


def pair(medians: list[float]) -> Any:
    return pair_triples(
        "gemm", "compute0", [(row, [(median, 1.05 * median, 300.0)]) for row, median in enumerate(medians)]
    )


def names(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def test_two_equal_shapes_lie_their_shift_apart() -> None:
    """A median 100 us higher with the same spread in log: W1 is the difference of the means."""
    found = distance_matrix(pair([1e-3, 1e-3, 1.1e-3]), names(3), {})
    assert found.seconds[0, 1] == 0.0
    assert found.seconds[0, 2] == pytest.approx(1e-4, rel=2e-3)
    assert np.array_equal(found.seconds, found.seconds.T)


def test_its_rows_average_to_the_published_scores() -> None:
    """The matrix and the ranking without one are the same statistic."""
    of = pair(list(1e-3 * np.exp(0.05 * np.random.default_rng(0).standard_normal(40))))
    scores = mean_distances(Mixtures(*of.components()))
    found = distance_matrix(of, names(40), {})
    assert np.allclose(found.seconds.sum(axis=1) / 39, scores, rtol=1e-3)


def test_ranks_stand_in_the_order_of_the_topology() -> None:
    """Pipeline stage, tensor index, data index, host; numbers by value: dp 10 after dp 9."""
    labels = {
        "0": {"pp": "1", "tp": "0", "dp": "0"},
        "1": {"pp": "0", "tp": "1", "dp": "0"},
        "2": {"pp": "0", "tp": "0", "dp": "10", "node": "host1"},
        "3": {"pp": "0", "tp": "0", "dp": "9", "node": "host1"},
    }
    found = distance_matrix(pair([1e-3] * 4), names(4), labels)
    assert found.ranks == ("3", "2", "1", "0")
    assert found.places[0] == "pp0 tp0 dp9 host1"


def test_of_too_many_ranks_the_farthest_are_always_shown() -> None:
    """A sample of 50 of 500 ranks has the one that is slow, and says that it is a sample."""
    medians = list(1e-3 * np.exp(0.003 * np.random.default_rng(0).standard_normal(500)))
    medians[333] = 1.5e-3
    found = distance_matrix(pair(medians), names(500), {}, most_ranks=50)
    assert "333" in found.ranks
    assert len(found.ranks) <= 50
    assert "of 500 ranks" in found.note


def test_cells_of_several_ranks_show_the_largest_distance() -> None:
    """One far rank among 100 stays visible in 10 x 10 cells."""
    values = np.zeros((100, 100))
    values[57, :] = values[:, 57] = 3.0
    cells, size = binned(values, 10)
    assert (cells.shape, size) == ((10, 10), 10)
    assert cells[5].tolist() == [3.0] * 10
    assert cells[4, 4] == 0.0


def test_the_page_holds_all_it_needs_and_no_label_breaks_it() -> None:
    """No link, no request; a hostile label stays text; the cells decode to the matrix."""
    hostile = "</script><script>alert(1)</script>"
    found = distance_matrix(pair([1e-3, 1.2e-3]), ("0", hostile), {})
    page = as_html(found, f"job {hostile}")
    assert "<script>alert" not in page
    assert not re.search(r"(src|href)=|https?://", page)
    data = json.loads(re.search(r"const data = (.*);\n", page)[1])  # type: ignore[index]
    cells = np.frombuffer(base64.b64decode(data["cells"]), "<u2").reshape(2, 2) / 65535 * data["largest"]
    assert np.allclose(cells, found.seconds, rtol=1e-4)
    assert data["names"][1] == f"rank {hostile}"


def test_two_thousand_ranks_fit_a_page(tmp_path: Path) -> None:
    """The page says that its cells are of several ranks; the PNG can be read."""
    medians = list(1e-3 * np.exp(0.003 * np.random.default_rng(0).standard_normal(2000)))
    found = distance_matrix(pair(medians), names(2000), {})
    page = as_html(found, "large")
    assert "one cell is 3 x 3 ranks" in page
    assert len(page) < 4 << 20
    pytest.importorskip("matplotlib")
    write_png(found, "large", tmp_path / "large.png")
    assert (tmp_path / "large.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.servers
def test_the_command_draws_what_prometheus_holds(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page of eight ranks; a kernel, role or ending that is none is answered with what there is."""
    now = time.time()
    Fleet(prometheus).publish(now, 64, fleet(8, slow={"3": 1.5}))
    command = ["matrix", "--prometheus.url", prometheus.url, "--time", str(now)]
    job, out = ["--training-job", "llm"], ["--out", str(tmp_path / "map.html")]
    assert main([*command, *job, *out, "--kernel", GEMM[0]]) == 0
    assert "8 ranks" in capsys.readouterr().out
    assert GEMM[0] in (tmp_path / "map.html").read_text()
    for arguments, status, said in (
        ([*job, *out, "--kernel", "gemm"], 1, f"did you mean {GEMM[0]}"),
        ([*job, *out, "--kernel", GEMM[0], "--role", "pp9"], 1, "there are: pp0.tp0"),
        ([*job, *out, "--kernel", GEMM[0], "--stream", "x"], 1, "these streams: compute0"),
        (["--training-job", "other", *out, "--kernel", GEMM[0]], 1, "no argus_rank_info of job other"),
        ([*out, "--kernel", GEMM[0]], 2, "--training-job is missing"),
        ([*job, "--out", "map.gif", "--kernel", GEMM[0]], 2, ".html or .png"),
    ):
        assert main([*command, *arguments]) == status
        assert said in capsys.readouterr().err


@pytest.mark.servers
def test_jobs_of_one_name_are_not_one_picture(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank 3 of each, of which one would stand for both."""
    now = time.time()
    for cluster, slow in (("x", {}), ("y", {"3": 1.5})):
        Fleet(prometheus, cluster=cluster).publish(now, 64, fleet(8, slow=slow))
    command = ["matrix", "--prometheus.url", prometheus.url, "--time", str(now), "--training-job", "llm"]
    page = tmp_path / "map.html"
    assert main([*command, "--out", str(page), "--kernel", GEMM[0]]) == 1
    assert "jobs of several clusters are called llm (x, y)" in capsys.readouterr().err
    assert not page.exists()
