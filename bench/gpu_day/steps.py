"""The day, in order: what is likeliest to fail comes first, so that there is time left to mend it.

Predictions were written before any of it had run on a GPU. They stand beside what was measured in
docs/gpu-day.md and are not changed afterwards; a gate that proves wrong is changed with the reason in the
commit.
"""

from __future__ import annotations

from typing import Final

from bench.gpu_day.result import Limit
from bench.gpu_day.step import Step

_COUNTS: Final = {"count_ratio": Limit(">=", 0.999), "p50_off": Limit("<=", 0.01)}
_NONE: Final = Limit("==", 0)


def _overhead(step_ms: int, mode: str, *, rounds: int, blocks: int, steps: int) -> Step:
    name = f"overhead-{step_ms}" if mode == "eager" else f"overhead-{mode}-{step_ms}"
    what = {
        "eager": "eager",
        "compile": "with torch.compile",
        "graphs": "replayed as one CUDA graph, so without phases",
    }
    return Step(
        name,
        "bench.gpu_day.overhead",
        f"what phases, kernels and stacks add to a step of {step_ms} ms of a transformer in bfloat16, "
        f"{what[mode]}, in fresh processes",
        "phases nothing that can be measured, as the host is ahead of the GPU (15 us a micro-batch there); "
        "kernels 0.1 to 0.3 %; stacks nothing more",
        {
            f"{channels}_percent_high": Limit("<=", 1.0, on_stand_ins=False)
            for channels in ("phases", "kernels", "stacks")
        }
        | {
            "kernel_records": Limit(">=", 1),
            "kernel_records_without": _NONE,
            "hooks_missing": _NONE,
            "stack_series": Limit(">=", 1, on_stand_ins=False),  # a dry run ends before the first window
        },
        options={
            "step_ms": step_ms,
            "mode": mode,
            "rounds": rounds,
            "blocks": blocks,
            "steps": steps,
            "ranks": 1,
        },
    )


def _toggle(ranks: int) -> Step:
    channels = ["phases", "kernels", "stacks"]
    counted = {"records": Limit(">=", 1), "sampled_ratio": Limit(">=", 0.3)}
    words = ["hooks", "kernels", "stacks"]
    name, of, expected = "overhead-toggle", "", "0.05 to 0.3 %"
    if ranks > 1:
        channels.append("nccl")
        words.append("NCCL's profiler plugin")
        counted |= {"collectives": Limit(">=", 1), "collectives_without": _NONE}
        name = "overhead-toggle-nccl"
        of = f" of {ranks} ranks of DDP on one GPU"
        expected = (
            "the plugin nothing that can be measured, all together 0.1 to 0.5 %; the ranks take turns on the "
            "GPU, so the interval may be wider than the gate: failed then says that it was not shown"
        )
    return Step(
        name,
        "bench.gpu_day.toggle",
        f"what {', '.join(words)} add one after another to a step of {50 * ranks} ms{of}, in turns inside "
        "one process group",
        expected,
        {f"{one}_percent_high": Limit("<=", 1.0, on_stand_ins=False) for one in channels} | counted,
        options={"step_ms": 50 * ranks, "mode": "eager", "ranks": ranks, "blocks": 110 if ranks == 1 else 50},
    )


def _framework(package: str, what: str) -> Step:
    return Step(
        f"load-{package}",
        "bench.gpu_day.load",
        f"kernels of {what} come, with RANK=0, and it ends as it should",
        "kernels from the start on",
        {f"{package}_status": _NONE, f"{package}_kernels": Limit(">=", 1)},
        options={"package": package},
    )


STEPS: Final = (
    Step(
        "load",
        "bench.gpu_day.load",
        "CUDA loads the library and kernels come, with RANK and without; below mp.spawn nothing is harmed",
        "kernels with RANK=0, and of a plain script from its first step on; none of mp.spawn's children "
        "without a process group, which are no ranks",
        {
            "rank_status": _NONE,
            "rank_kernels": Limit(">=", 1),
            "plain_status": _NONE,
            "plain_kernels": Limit(">=", 1),
            "spawn_status": _NONE,
        },
    ),
    _framework("transformers", "Hugging Face's Trainer"),
    _framework("lightning", "Lightning's Trainer"),
    Step(
        "exits",
        "bench.gpu_day.exits",
        "exit statuses of 100 short jobs are those of the script, in six ways to end, and none hangs",
        "all statuses are right: the end of a process waits for the flush, which raced CUDA's end before",
        {"wrong_statuses": _NONE, "settled_jobs_seen_ratio": Limit(">=", 0.95)},
    ),
    Step(
        "kernels",
        "bench.gpu_day.kernels",
        "counts and median durations of kernels, copies and sets are torch.profiler's of the same steps",
        "counts equal; median durations within 0.2 %, as both read CUPTI's records",
        _COUNTS | {"dropped": _NONE},
    ),
    Step(
        "graphs",
        "bench.gpu_day.graphs",
        "each replay of a CUDA graph has its kernels, and one latency at most",
        "counts equal; one latency a replay",
        {"count_ratio": Limit(">=", 0.999), "latencies_a_replay": Limit("<=", 1.0), "dropped": _NONE},
    ),
    Step(
        "streams",
        "bench.gpu_day.streams",
        "kernels of several streams carry the numbers of their streams, and none is lost",
        "three streams with equal counts",
        {"streams": Limit(">=", 3), "least_over_most": Limit("==", 1.0), "least": Limit(">=", 1.0)},
    ),
    Step(
        "events",
        "bench.gpu_day.events",
        "64 micro-batches a step: no span is dropped for want of a CUDA event, and all are timed with events",
        "none dropped: the pool is 4,096 and a step needs some 500",
        {
            "steps": Limit(">=", 10),
            "forwards_missing": _NONE,
            "backwards_missing": _NONE,
            "dropped": _NONE,
            "on_events_ratio": Limit(">=", 0.5, on_stand_ins=False),
        },
    ),
    Step(
        "windows",
        "bench.gpu_day.windows",
        "windows of torch.profiler get their kernels, we get none of them, and afterwards ours are as before",
        "counts after equal counts before; Kineto's clock callback makes one change of the clock",
        {
            "count_ratio_after": Limit(">=", 0.999),
            "p50_off_after": Limit("<=", 0.02),
            "kernels_of_the_window": _NONE,
            "kernels_of_the_profiler": Limit(">=", 100),
            "pauses_less_rearms": _NONE,
            "dropped": _NONE,
        },
    ),
    Step(
        "anatomy",
        "bench.gpu_day.anatomy",
        "computing, exposed communication, copies and idling of a phase on the GPU add up to its span, and "
        "computing is what torch.profiler's timeline of the same training has",
        "the four parts add up to the span within 1 %; computing within 2 % of the timeline; boundaries lie "
        "at most 30 us inside a kernel",
        {
            "marks_missing": _NONE,
            "spans_divided": Limit(">=", 1),
            "parts_over_span_off": Limit("<=", 0.01),
            "compute_off": Limit("<=", 0.05),
            "boundaries_inside_us_p99": Limit("<=", 30.0, on_stand_ins=False),
        },
    ),
    Step(
        "clock",
        "bench.gpu_day.clock",
        "how far CUDA events and CUPTI's record of a marker behind each are apart, and how they drift",
        "8 to 16 us apart with a base for each iteration; drift 3.4 us a second (a study on an H200)",
        {
            "markers_missing": _NONE,
            "off_us_own_base_p99": Limit("<=", 25.0, on_stand_ins=False),
            "drift_us_per_s": Limit("<=", 20.0, on_stand_ins=False),
        },
    ),
    Step(
        "fallback",
        "bench.gpu_day.fallback",
        "the real cupti-python sees what torch.profiler sees of the same steps",
        "counts equal",
        _COUNTS,
    ),
    Step(
        "records",
        "bench.gpu_day.records",
        "copies and memory sets with their bytes, voids of a known length, latency behind a kernel of one",
        "all there; voids within 1 ms of 50 ms, latencies within 1 ms of 20 ms",
        {
            "copies_missing": _NONE,
            "sets_missing": _NONE,
            "voids_missing": _NONE,
            "void_ms_p50": Limit("<=", 55.0, on_stand_ins=False),
            "latency_known_ratio": Limit(">=", 0.99),
            "launches_behind_a_kernel_missing": _NONE,
            "latency_behind_ms_p50": Limit("<=", 22.0, on_stand_ins=False),
            "dropped": _NONE,
        },
    ),
    Step(
        "nccl",
        "bench.gpu_day.nccl",
        "NCCL's profiler plugin reports each operation of two processes on one GPU, with another plugin "
        "behind it; each kernel is launched just before its group of events, on the same thread, and carries "
        "its communicator (the first may not)",
        "NCCL asks for version 5 (2.27: 4, 2.29 and 2.30: 6); counts equal; all over the network; 20 to "
        "50 ns a callback",
        {
            "collectives_missing": _NONE,
            "steps_of_the_network": Limit(">=", 1),
            "former_missing": _NONE,
            "dropped": _NONE,
            "launches_out_of_order": _NONE,
            "events": Limit(">=", 100),
            "kernels": Limit(">=", 50),
            "kernels_with_communicator_ratio": Limit(">=", 0.9),
            "kernels_counted_ratio": Limit(">=", 0.9),
            "step_ns_p99": Limit("<=", 50.0, on_stand_ins=False),
            "allocations": _NONE,
            "locks": _NONE,
        },
    ),
    Step(
        "hang",
        "bench.gpu_day.hang",
        "of two ranks on one GPU, the one that stays away from DDP's all-reduce is behind by one, and "
        "counts are those of torch's flight recorder",
        "two processes with different NCCL_HOSTID pass NCCL's check for duplicate GPUs; counts are equal",
        {
            "behind": Limit("==", 1),
            "behind_recorded": Limit("==", 1),
            "entries": Limit(">=", 40),
            "counted_off": _NONE,
            "ended": _NONE,
        },
    ),
    Step(
        "hang-diverging",
        "bench.gpu_day.hang_kinds",
        "of two ranks on one GPU that call a broadcast and a reduce under one number, both pages have "
        "that number, each with its own operation, and neither has ended",
        "NCCL does not see that the calls differ; both wait to receive, so its kernels wait for ever",
        {
            "operations": Limit("==", 2),
            "numbers_apart": _NONE,
            "ended_it": _NONE,
            "ended": _NONE,
        },
        options={"how": "diverging"},
    ),
    Step(
        "hang-inside",
        "bench.gpu_day.hang_kinds",
        "of two ranks on one GPU, one is stopped in an all-reduce: both have its number, it has not ended, "
        "and the kernel says who is stopped",
        "over sockets NCCL's own threads move the data, so that who is stopped holds the other up",
        {
            "operations": Limit("==", 1),
            "numbers_apart": _NONE,
            "ended_it": _NONE,
            "stopped": Limit("==", 1),
            "ended": _NONE,
        },
        options={"how": "inside"},
    ),
    Step(
        "ras",
        "bench.gpu_day.ras",
        "NCCL's RAS answers while one of two ranks on one GPU waits for the other: both are in one "
        "communicator, and the one that stayed away lacks one all-reduce in two answers 15 s apart",
        "NCCL 2.28.7 or newer answers in JSON within a second; older is not asked, so the step is not run",
        {
            "ras_status": _NONE,
            "communicators_with_both": Limit("==", 1),
            "lacks": Limit("==", 1),
            "stuck": Limit("==", 1),
            "waited_for_second": Limit("==", 1),
            "ended": _NONE,
        },
    ),
    Step(
        "nsight",
        "bench.gpu_day.nsight",
        "beside Nsight Systems no job is harmed, kernels are there or the channel says why not, and our "
        "importer reads its export",
        "Nsight has CUPTI's callbacks first: the channel stands aside and names it",
        {"status": _NONE, "kernels_of_nsight": Limit(">=", 160), "silent": _NONE},
    ),
    Step(
        "throttle",
        "bench.gpu_day.throttle",
        "L3 names a GPU that is really slower among peers resampled from a free one, and no healthy one",
        "a competing stream makes kernels 1.5 to 2 times as long; found, nobody else accused",
        {"slow_gpu_found": Limit("==", 1), "healthy_accused": _NONE},
    ),
    Step(
        "launches",
        "bench.gpu_day.launches",
        "what the kernels channel adds to each launch on the host, to each kernel on the GPU and to each "
        "of a CUDA graph, without issue latencies and with them",
        "on the host 1 us a launch, 2 with its latency; on the GPU 0.2 us a kernel; in a graph 0.5 us",
        {
            "host_us_added_high": Limit("<=", 2.0, on_stand_ins=False),
            "gpu_us_added_high": Limit("<=", 1.0, on_stand_ins=False),
            "graph_us_added_high": Limit("<=", 1.0, on_stand_ins=False),
            "kernels": Limit(">=", 1000),
            "kernels_with_latency": Limit(">=", 1000),
        },
    ),
    _toggle(1),
    _overhead(50, "eager", rounds=2, blocks=50, steps=5),
    _overhead(200, "eager", rounds=1, blocks=60, steps=5),
    _overhead(1000, "eager", rounds=1, blocks=60, steps=1),
    _overhead(50, "compile", rounds=1, blocks=60, steps=5),
    _overhead(50, "graphs", rounds=1, blocks=80, steps=5),
    _toggle(2),
    Step(
        "overhead-nccl",
        "bench.gpu_day.overhead",
        "what phases, kernels, stacks and NCCL's profiler plugin add together to a step of 100 ms of two "
        "ranks of DDP on one GPU, in bfloat16, eager, in fresh processes; the plugin sees its all-reduces",
        "the plugin nothing that can be measured: some hundred callbacks of 50 ns a step; all together 0.1 "
        "to 0.5 %. Two ranks on one GPU take turns, so the interval may well be wider than the gate: failed "
        "then says that it was not shown here, not that it costs more",
        {
            "nccl_percent_high": Limit("<=", 1.0, on_stand_ins=False),
            "collectives": Limit(">=", 1),
            "collectives_without": _NONE,
            "kernel_records": Limit(">=", 1),
            "kernel_records_without": _NONE,
            "hooks_missing": _NONE,
            "stack_series": Limit(">=", 1, on_stand_ins=False),
            "nccl_series": Limit(">=", 1, on_stand_ins=False),
        },
        options={"step_ms": 100, "mode": "eager", "rounds": 1, "blocks": 80, "steps": 5, "ranks": 2},
    ),
    # What longer steps add to the matrix: less, as the cost is one a kernel and a phase.
    _overhead(200, "compile", rounds=1, blocks=60, steps=5),
    _overhead(200, "graphs", rounds=1, blocks=60, steps=5),
    _overhead(1000, "compile", rounds=1, blocks=60, steps=1),
    _overhead(1000, "graphs", rounds=1, blocks=60, steps=1),
)
