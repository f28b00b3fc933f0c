"""EROICA's patterns of functions over the ranks of a role, by what their traces say."""

from __future__ import annotations

from argus_l3_worker.reports.patterns import unlike_functions
from argus_traces.summary import FunctionBeta, Summary, UnlikeFunction


def rank(number: int, *functions: tuple[str, str, float]) -> Summary:
    """Functions with their category and beta."""
    betas = tuple(FunctionBeta(name, category, beta, beta) for name, category, beta in functions)
    return Summary(f"rank {number}", number, 1.0, 0.9, 0.1, 0.05, (), (), betas, None)


def test_whoever_is_critical_for_longer_is_unlike_the_others() -> None:
    """Rank 3's gemm and nothing else; of roles of three nothing is said."""
    ranks = [rank(one, ("gemm", "compute", 0.5 if one == 3 else 0.3)) for one in range(8)]
    assert unlike_functions(ranks, ["pp0"] * 8) == (UnlikeFunction(3, "gemm", "compute", 0.5, 0.3),)
    assert unlike_functions(ranks[1:4], ["pp0"] * 3) == ()
    assert unlike_functions(ranks, ["pp0", "pp1"] * 4) == (UnlikeFunction(3, "gemm", "compute", 0.5, 0.3),)


def test_who_runs_less_of_a_function_is_told_of_nothing() -> None:
    """It waits, or works elsewhere: that is where it stands out."""
    ranks = [rank(one, ("gemm", "compute", 0.1 if one == 3 else 0.3)) for one in range(8)]
    assert unlike_functions(ranks, ["pp0"] * 8) == ()


def test_a_function_on_several_stacks_is_one() -> None:
    """A function of Python is sampled on each way to it."""
    ranks = [rank(one, ("recv", "python", 0.05)) for one in range(7)]
    ranks.append(rank(7, ("recv", "python", 0.4), ("recv", "python", 0.1)))
    (found,) = unlike_functions(ranks, [""] * 8)
    assert (found.rank, found.beta, found.usual) == (7, 0.5, 0.05)


def test_a_function_of_one_rank_alone_is_unlike_nothing_that_the_others_do() -> None:
    """Below one percent it is no news."""
    ranks = [rank(one, ("gemm", "compute", 0.3)) for one in range(7)]
    ranks.append(rank(7, ("gemm", "compute", 0.3), ("gc", "host", 0.2), ("other", "host", 0.005)))
    assert unlike_functions(ranks, [""] * 8) == (UnlikeFunction(7, "gc", "host", 0.2, 0.0),)
