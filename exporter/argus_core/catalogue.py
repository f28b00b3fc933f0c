"""Every metric family ARGUS publishes: the only place where one is named, typed, labelled and explained.

Collectors, `docs/metrics.md`, and the test that reads every name used in rules, dashboards and the worker
all come from here. Label values must be bounded; topology stays on `argus_rank_info`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricType = Literal["gauge", "counter", "summary"]
Component = Literal["exporter", "worker", "exporter-self", "worker-self"]

RANK: tuple[str, ...] = ("training_job", "rank")
"""Base labels of every series that describes one rank."""


@dataclass(frozen=True)
class Family:
    """One metric family.

    `name` is the exposed name of a gauge or counter (counters end in `_total`), or the base of a summary,
    which is exposed as `<name>_sum` and `<name>_count` (with `quantiles` also as `<name>{quantile}`).
    `optional_labels` appear only where they exist.
    """

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    component: Component = "exporter"
    optional_labels: tuple[str, ...] = ()
    quantiles: bool = False

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The series names under which the family's samples appear."""
        if self.type != "summary":
            return (self.name,)
        return (f"{self.name}_sum", f"{self.name}_count", *((self.name,) if self.quantiles else ()))


def _gauge(name: str, labels: tuple[str, ...], help_: str, optional: tuple[str, ...] = ()) -> Family:
    return Family(name, "gauge", RANK + labels, help_, optional_labels=optional)


def _counter(name: str, labels: tuple[str, ...], help_: str) -> Family:
    return Family(name, "counter", RANK + labels, help_)


def _summary(name: str, labels: tuple[str, ...], help_: str, *, quantiles: bool = False) -> Family:
    return Family(name, "summary", RANK + labels, help_, quantiles=quantiles)


_PHASE = ("phase", "kind", "group")
_KERNEL = ("kernel", "stream")

RANK_INFO = _gauge(
    "argus_rank_info",
    (),
    "Who this rank is: host, GPU and parallel coordinates. role: ranks that should run the same kernels.",
    optional=("node", "gpu_uuid", "dp", "tp", "pp", "cp", "ep", "role"),
)
RANK_UP = _gauge(
    "argus_rank_up",
    (),
    "1 while the rank's producer is connected, 0 once it was lost: gone without goodbye, or in failure.",
)
RANK_STOPPED = _gauge(
    "argus_rank_stopped",
    (),
    "1 for each rank whose process is stopped, by a signal or a debugger, as /proc has it; else no series.",
)
RANK_NUMBER = _gauge("argus_rank_number", (), "The rank as a number: who reads it finds the lowest of some.")
RANK_LEAD = _gauge(
    "argus_rank_lead_number",
    (),
    "The rank as a number, of the lowest live rank of the job on this host: the lowest of these speaks for "
    "the job's pace.",
)
RANK_OVERDUE = _gauge(
    "argus_rank_overdue_number",
    (),
    "The rank as a number, with its place. Only while the rank's iteration is overdue, or before one has "
    "ended: so rules of hangs read nothing of ranks that go on. lost: true of one that is not connected.",
    optional=("node", "gpu_uuid", "lost"),
)
JOB_INFO = Family(
    "argus_job_info",
    "gauge",
    ("training_job", "model", "backend", "world_size"),
    "What the job trains, with what software and on how many ranks: runs that agree are compared. Only where "
    "ARGUS_MODEL or the topology file names the model.",
)
GROUP_EXPECTED_RANKS = _gauge(
    "argus_group_expected_ranks",
    ("group",),
    "Size of the comparison group by topology; the base of coverage.",
)
ACTIVITY = _gauge(
    "argus_activity", ("activity",), "1 for what the rank does now; rules abstain outside activity train."
)
ITERATION_DURATION = _summary(
    "argus_iteration_duration_seconds",
    (),
    "Duration of training iterations, as running totals kept by the training process.",
)
ITERATION_SECONDS = _gauge(
    "argus_iteration_seconds",
    (),
    "Duration of each iteration, one sample a step stamped with its end; opt-in, by remote write only.",
)
ITERATION_DURATION_SQUARED = _counter(
    "argus_iteration_duration_seconds_squared_total",
    (),
    "Sum of squared iteration durations (s^2): with _sum and _count it makes the change-point scan exact. "
    "Only of the rank of argus_rank_lead_number.",
)
ITERATION_WINDOW_MIN = _gauge(
    "argus_iteration_window_min_seconds",
    (),
    "Shortest iteration that ended within the trailing window. Only of the rank of argus_rank_lead_number.",
)
ITERATION_WINDOW_MAX = _gauge(
    "argus_iteration_window_max_seconds",
    (),
    "Longest iteration that ended within the trailing window. Only of the rank of argus_rank_lead_number.",
)
ITERATION_LAST_STEP = _gauge("argus_iteration_last_step", (), "Index of the last finished iteration.")
ITERATION_LAST_TIMESTAMP = _gauge(
    "argus_iteration_last_timestamp_seconds", (), "Unix time at which the last iteration finished."
)
JOB_WORLD_SIZE = Family(
    "argus_job_world_size",
    "gauge",
    ("training_job",),
    "Ranks that the job should have, as those of them on this host say that are connected.",
)
JOB_LAST_ITERATION = Family(
    "argus_job_last_iteration_timestamp_seconds",
    "gauge",
    ("training_job",),
    "Unix time at which an iteration last ended on any rank of the job on this host.",
)
JOB_USUAL_ITERATION = Family(
    "argus_job_usual_iteration_seconds",
    "gauge",
    ("training_job",),
    "Mean duration of an iteration, of the rank of the job on this host where it is longest. Of ranks with "
    "three iterations and more.",
)
PHASE_DURATION = _summary(
    "argus_phase_duration_seconds",
    (*_PHASE, "source"),
    "Duration of phase spans without what lies in other spans within them, so that phases add up. "
    "source: event (CUDA events), host (host clock) or kernel (from NCCL kernels).",
)
PHASE_INFO = _gauge(
    "argus_phase_info",
    ("phase", "kind", "waits"),
    "1; waits: dimensions whose ranks the phase may wait for in its own time (dp,tp), none, or unknown; set: "
    "the ranks that differ along these alone, of which each may be the one that is waited for.",
    optional=("set",),
)
PHASE_GPU = _counter(
    "argus_phase_gpu_seconds_total",
    (*_PHASE, "part"),
    "GPU time of the phase's spans by what ran, each instant in one part. part: compute (a kernel of the "
    "job's own work runs), exposed (else a communication kernel), copy (else a copy or memory set), idle "
    "(nothing runs). Only phases of kind compute, where kernels are observed; without the spans inside them.",
)
PHASE_GPU_SPANS = _counter(
    "argus_phase_gpu_spans_total",
    _PHASE,
    "Spans of which argus_phase_gpu_seconds_total consists; spans of which a record was lost are left out.",
)
PHASE_EXPOSED = _counter(
    "argus_phase_exposed_seconds_total",
    ("phase", "group"),
    "The part exposed by group of the communicator whose kernel ran (of several the one that started first); "
    "group unknown where nobody knows it. From the first complete kernel window on.",
)
ITERATION_GPU = _counter(
    "argus_iteration_gpu_seconds_total",
    ("part",),
    "GPU time from the end of one step to the end of the next by what ran, parts as in "
    "argus_phase_gpu_seconds_total: also what no phase covers.",
)
PHASE_WINDOW_MAX = _gauge(
    "argus_phase_window_max_seconds",
    _PHASE,
    "Longest span of the phase in the trailing window, less others within it: rare spikes survive averaging.",
)
PHASE_RECENT = _gauge(
    "argus_phase_recent_seconds",
    (*_PHASE, "source"),
    "Mean of the phase's spans over the steps of the last ten minutes, without the longest step. Only of "
    "ranks of whose last three steps two took 25 s and more. source: as in argus_phase_duration_seconds, or "
    "gpu (kernels of the job's own work, as in argus_phase_gpu_seconds_total).",
)
PHASE_RECENT_SPANS = _gauge(
    "argus_phase_recent_spans_per_second",
    (*_PHASE, "source"),
    "Spans of the phase a second, over the same steps as argus_phase_recent_seconds, the longest among them.",
)
LAYER_DURATION = _summary(
    "argus_layer_duration_seconds",
    ("layer", "microbatch"),
    "Samples of a layer's own work: some layers of each kind, in one micro-batch of a step. No total, and in "
    "no phase's time: compare its means across ranks of one role. layer: what kind; microbatch: from 0 on.",
)
PHASE_OPEN = _gauge(
    "argus_phase_open_timestamp_seconds",
    ("phase", "kind", "waits"),
    "Unix time at which the span that is open now began; no series where none is. Tells who hangs where. "
    "waits: as in argus_phase_info; overdue: true where the iteration is, or before one has ended.",
    optional=("overdue",),
)
PHASE_ON_GPU = _gauge(
    "argus_phase_gpu_timestamp_seconds",
    ("phase", "kind"),
    "The innermost span that the GPU has begun and not ended, by events of the hooks, with the Unix time "
    "at which the host began it. Only while the iteration is overdue; no series where it is not known.",
)
COLLECTIVE_SEQUENCE = _gauge(
    "argus_collective_sequence",
    ("group",),
    "Number of the last collective entered in the process group. Only while the iteration is overdue, or "
    "before one has ended.",
)
RAS_ANSWER = _gauge(
    "argus_nccl_ras_answer_timestamp_seconds",
    ("result",),
    "Unix time at which NCCL's RAS was last asked, in the process of this rank, about a job that stands "
    "still. result: answered; failed (no answer, or another job's); refused (a version that is not safe to "
    "ask, or out of reach). No series while the job goes on.",
)
RAS_ABSENT = _gauge(
    "argus_nccl_ras_absent_processes",
    ("absence",),
    "Processes of the job without data, by NCCL's RAS in the process of this rank. absence: dead, "
    "unresponsive, or missing (it answers, but not of a communicator that it was in).",
)
RAS_RANK_ABSENT = _gauge(
    "argus_nccl_ras_rank_absent",
    ("absence",),
    "1 for each rank that NCCL's RAS has no data of; the first 16 of a job.",
)
RAS_RANK_LACKS = _gauge(
    "argus_nccl_ras_rank_lacking_launches",
    ("function",),
    "Launches of this collective that the rank lacks in a communicator where nothing was launched between "
    "two answers of NCCL's RAS, while it waits for nobody in another one; the first 16 ranks of a job. Of "
    "less than half of a communicator: which of two that called different things is wrong, launches do not "
    "tell. Sends and receives are not counted: a rank that waits in one looks the same.",
)
RAS_RANK_ERROR = _gauge(
    "argus_nccl_ras_rank_error",
    ("error",),
    "1 for each rank of which a communicator has met an error, by NCCL's RAS: NCCL's asynchronous error. "
    "error: unhandled CUDA error, system error, remote process error, ...; the first 16 ranks of a job.",
)
COLLECTIVE_OPERATION = _gauge(
    "argus_collective_operation_sequence",
    ("group", "operation"),
    "Number of the first collective that the rank has entered and that is not complete (where all are, the "
    "last), with what it is, as torch's flight recorder has it. Only while the iteration is overdue and the "
    "rank enters nothing. Ranks of a group with one number and several operations have diverged. operation: "
    "all_reduce, barrier, ...; other: one that ARGUS does not know.",
)
COLLECTIVE_STARTED = _gauge(
    "argus_collective_started_sequence",
    ("group",),
    "Number of the last collective that has started, as torch's flight recorder has it. When it is there: as "
    "argus_collective_operation_sequence; never with gloo, with NCCL where TORCH_NCCL_ENABLE_TIMING is on.",
)
COLLECTIVE_COMPLETED = _gauge(
    "argus_collective_completed_sequence",
    ("group",),
    "Number of the last collective that is complete, as torch's flight recorder has it. When it is there: as "
    "argus_collective_operation_sequence. With NCCL a rank that has nothing under way has none of the three.",
)
_NCCL = "As NCCL's profiler plugin tells it: only where ARGUS_NCCL is on. "
NCCL_INFO = _gauge(
    "argus_nccl_info",
    ("state", "reason", "nccl", "interface", "former"),
    "1 where NCCL was given libargus_nccl. state: not_loaded (no communicator yet, or NCCL does not), "
    "watching, declined; reason: why it declines, or what it leaves out; nccl: its version, interface: the "
    "plugin's; former: what became of the plugin that was configured before.",
)
NCCL_DROPPED = _counter(
    "argus_nccl_dropped_total",
    ("reason",),
    "Events of NCCL that were not counted. reason: dropped_events (no slot), foreign_events (of another "
    "process), unknown_events, stale_events (later than what they belong to), dropped_communicators, "
    "former_dropped_events.",
)
NCCL_COLLECTIVES = _counter(
    "argus_nccl_collectives_total",
    ("group", "operation"),
    _NCCL
    + "Operations that were called or handed to the GPU, whichever is more: collectives, sends, receives. "
    "group: as of phases; unknown where the members leave several. operation: NCCL's name.",
)
NCCL_BYTES = _counter(
    "argus_nccl_bytes_total",
    ("group", "operation"),
    _NCCL
    + "Bytes of their messages, elements times size as NCCL has them: what one rank gives to an AllReduce, "
    "or adds to an AllGather.",
)
NCCL_SIZES = _counter(
    "argus_nccl_sized_collectives_total",
    ("group", "size"),
    _NCCL + "Operations by class of size: 64KiB, 1MiB, 16MiB, 256MiB are the most of each, +Inf the rest.",
)
NCCL_LAUNCHES = _summary(
    "argus_nccl_launch_seconds",
    ("group",),
    _NCCL
    + "From the first call of a group of operations to the launch of its kernel, on the host; NCCL 2.28 and "
    "later.",
)
NCCL_KERNELS = _summary(
    "argus_nccl_kernel_seconds",
    ("group", "operation"),
    _NCCL
    + "Kernels that do operations of this kind and no other, one or several at once, and their time on the "
    "GPU, the wait for the other members included. What sends and receives is of Send, of several kinds of "
    "other. Where kernels are recorded.",
)
NCCL_BUS_BYTES = _counter(
    "argus_nccl_bus_bytes_total",
    ("group", "size"),
    _NCCL
    + "Bytes that the rank had to pass on for kernels of one kind of operation: 2 (n-1)/n of an AllReduce's "
    "message among n, n-1 times what it adds to an AllGather or keeps of a ReduceScatter, what it sends to "
    "others. By argus_nccl_bus_seconds_total it is nccl-tests' bus bandwidth. size: class of what a kernel "
    "takes, as of argus_nccl_sized_collectives_total.",
)
NCCL_BUS_SECONDS = _counter(
    "argus_nccl_bus_seconds_total",
    ("group", "size"),
    _NCCL
    + "Time on the GPU of the kernels whose bytes argus_nccl_bus_bytes_total has. The member that comes last "
    "waits least: of a group the shortest is nearest to what the links take.",
)
NCCL_NETWORK = _summary(
    "argus_nccl_network_seconds",
    ("group", "operation"),
    _NCCL
    + "From the launch of an operation to the end of its last step over the network, work before it on the "
    "GPU included; none within a node.",
)
NCCL_ENTERED = _gauge(
    "argus_nccl_entered_sequence",
    ("group", "communicator", "operation"),
    _NCCL
    + "How many of this operation the rank has entered on this communicator, by NCCL's own number or by its "
    "calls where those are more, so that ranks compare; it stands still while a CUDA graph replays them. "
    "communicator: NCCL's hash, the same on all members; the 8 with the most operations.",
)
NCCL_FINISHED = _gauge(
    "argus_nccl_finished_sequence",
    ("group", "communicator", "operation"),
    _NCCL
    + "The last of these that has ended: by its kernel, seconds later, where kernels are recorded, and by "
    "its steps over the network, where it has some. Sends and receives by the latter alone.",
)
NCCL_WAIT = _counter(
    "argus_nccl_network_wait_seconds_total",
    ("group", "communicator", "member", "peer", "wait"),
    _NCCL
    + "Time that steps over the network waited, of each channel the oldest step alone; the two peers that "
    "were waited for most. member, peer: ranks in the communicator, or other. wait: send_own_gpu, send_peer "
    "(it gives no room), send_wire, receive_peer (its data or the wire), receive_own_gpu.",
)
NCCL_SENT = _counter(
    "argus_nccl_network_sent_bytes_total",
    ("group", "communicator", "member", "peer"),
    _NCCL + "What network steps carried to a peer; peers and labels as of the time.",
)
NCCL_WAITING = _gauge(
    "argus_nccl_network_steps_waiting",
    ("group", "communicator", "member", "peer", "wait"),
    _NCCL + "Steps that wait now, those that are posted ahead too; labels as of the time.",
)
NCCL_OLDEST = _gauge(
    "argus_nccl_network_oldest_timestamp_seconds",
    ("group", "communicator", "member", "operation", "peer", "wait"),
    _NCCL
    + "Since when the rank's oldest operation over the network has not moved, Unix time, by what the oldest "
    "step of a channel waits for: steps are posted ahead, and what is behind the oldest tells nothing. Only "
    "once it has stood for 5 s; 4 peers a wait; NCCL 2.27 and later. member: the rank in the communicator; "
    "operation: NCCL's name; peer, wait: as of the time.",
)
WORK_UNITS = _counter(
    "argus_work_units_total", ("unit",), "Work done, as reported by the user: tokens, samples or pixels."
)
WORK_RECENT = _gauge(
    "argus_work_recent_units_per_step",
    ("unit",),
    "Units of work a step, over the steps of argus_phase_recent_seconds; where that is there.",
)
KERNEL_MODE_EVENTS = _gauge(
    "argus_kernel_mode_events",
    (*_KERNEL, "mode"),
    "Events in one mode of the kernel's duration distribution, last complete window.",
)
KERNEL_MODE_P50 = _gauge(
    "argus_kernel_mode_p50_seconds", (*_KERNEL, "mode"), "Median duration in the mode, last complete window."
)
KERNEL_MODE_P99 = _gauge(
    "argus_kernel_mode_p99_seconds",
    (*_KERNEL, "mode"),
    "99th percentile of the duration in the mode, last complete window.",
)
KERNEL_TAIL_EVENTS = _gauge(
    "argus_kernel_tail_events", _KERNEL, "Events of the last complete window that lie outside every mode."
)
KERNEL_WINDOW_LAST_STEP = _gauge(
    "argus_kernel_window_last_step", (), "Step that closed the window which the kernel modes describe."
)
KERNEL_WINDOW_STEPS = _gauge(
    "argus_kernel_window_steps", (), "Steps in the window which the kernel modes describe; 0 without marks."
)
KERNEL_LAUNCHES = _counter(
    "argus_kernel_launches_total", _KERNEL, "Kernels, copies and memory sets that ran."
)
KERNEL_DURATION_TOTAL = _counter(
    "argus_kernel_duration_seconds_total", _KERNEL, "Time spent in the kernel on the stream."
)
KERNEL_CUTOFF = _gauge(
    "argus_kernel_cutoff_ratio",
    (),
    "Bound on the time share of every pair that is not published, in the last complete window.",
)
KERNEL_COVERAGE = _gauge(
    "argus_kernel_coverage_ratio",
    (),
    "Share of kernel time that the published (kernel, stream) pairs cover.",
)
KERNEL_INFO = _gauge("argus_kernel_info", ("kernel", "name"), "Short kernel id to its full name, cut at 256.")
GC_PAUSE = _summary("argus_gc_pause_seconds", ("generation",), "Python garbage collection pauses.")
COMPILE = _summary(
    "argus_compile_seconds", ("compiler",), "JIT compilation on the host: dynamo, triton, cute."
)
STACK_SAMPLES = _counter(
    "argus_stack_samples_total",
    ("thread", "frame"),
    "Stack samples by innermost frame, or by a compiler's entry; frames beyond the top ones count as other.",
)
STACK_SAMPLING = _gauge(
    "argus_stack_sampling_hertz",
    (),
    "Samples a second asked of py-spy, pauses counted in: lowers itself while it costs more than its budget.",
)
STACK_SAMPLER_CPU = _counter(
    "argus_stack_sampler_cpu_seconds_total",
    (),
    "CPU time that py-spy and reading its output took for the rank, outside the training process.",
)
ISSUE_LATENCY = _summary(
    "argus_issue_latency_seconds",
    ("kernel_class",),
    "Start of a kernel minus its launch, where that is recorded; quantiles are of the last complete window.",
    quantiles=True,
)
VOID = _counter(
    "argus_void_seconds_total",
    ("void",),
    "Time without a running kernel: inter_step, between the kernels of two steps; minority, within a step.",
)
CHANNEL_UP = _gauge(
    "argus_channel_up",
    ("channel",),
    "1 while the channel observes; 0 when it could not start or was lost. channel: phases, kernels, stacks.",
)
CHANNEL_INFO = _gauge(
    "argus_channel_info", ("channel", "reason"), "Why a channel is down, or what limits one that is up."
)
RECORDS = _counter("argus_records_total", ("channel",), "Records received from the rank's producer.")
RECORDS_DROPPED = _counter(
    "argus_records_dropped_total", ("channel", "reason"), "Records lost on the way, by reason."
)
PRODUCER_CPU = _counter(
    "argus_producer_cpu_seconds_total",
    ("channel",),
    "CPU time that ARGUS itself took inside the training process.",
)

EXPORTER_COLLECTOR_STATE = Family(
    "argus_exporter_collector_state",
    "gauge",
    ("collector", "state"),
    "1 for the state of each collector at this scrape: ok, no_data or error.",
    "exporter-self",
)
EXPORTER_COLLECTOR_SECONDS = Family(
    "argus_exporter_collector_duration_seconds",
    "gauge",
    ("collector",),
    "Time the collector took at this scrape.",
    "exporter-self",
)
EXPORTER_CONNECTIONS = Family(
    "argus_exporter_connections", "gauge", (), "Producers connected now.", "exporter-self"
)
EXPORTER_REJECTED = Family(
    "argus_exporter_rejected_connections_total",
    "counter",
    ("reason",),
    "Connections ended because of what they sent, by reason.",
    "exporter-self",
)
EXPORTER_FAILURES = Family(
    "argus_exporter_failures_total",
    "counter",
    ("loop",),
    "Errors of the exporter's own, by the loop that went on after them: connections, dumps, processes, ras, "
    "remote_write or windows. Its log says which. Above 0: a defect.",
    "exporter-self",
)
EXPORTER_UNATTACHED = Family(
    "argus_exporter_unattached_processes",
    "gauge",
    (),
    "Processes with a rank and torch that ARGUS is not attached to, of those that the exporter may look at; "
    "its log names them. Absent where it may not look at all of the host's, and sees none with a rank.",
    "exporter-self",
)
EXPORTER_REMOTE_WRITE_LOST = Family(
    "argus_exporter_remote_write_lost_samples_total",
    "counter",
    ("reason",),
    "Steps lost by remote write whose rank is not known, by reason: refused, of a request that the receiver "
    "stored in part, or unwritten, where it answered success and counted fewer than were sent.",
    "exporter-self",
)
EXPORTER_RELOAD = Family(
    "argus_exporter_config_last_reload_successful",
    "gauge",
    (),
    "1 unless the last SIGHUP brought a configuration that was refused.",
    "exporter-self",
)
EXPORTER_BUILD_INFO = Family(
    "argus_exporter_build_info", "gauge", ("version",), "Version of the running exporter.", "exporter-self"
)


def _trace(name: str, type_: MetricType, labels: tuple[str, ...], help_: str) -> Family:
    return Family(f"argus_exporter_trace_{name}", type_, labels, help_, "exporter-self")


TRACE_RING_BYTES = _trace("ring_bytes", "gauge", (), "Bytes of raw records on local disk.")
TRACE_RING_OLDEST = _trace(
    "ring_oldest_timestamp_seconds", "gauge", (), "Unix time of the oldest records: how far back traces go."
)
TRACE_RING_DROPPED = _trace(
    "ring_dropped_bytes_total",
    "counter",
    ("reason",),
    "Bytes of records that are gone: age and budget are the ring's limits; backlog and disk mean a disk that "
    "is too slow or full, torn what a crash left half written.",
)
TRACE_REQUESTS = _trace(
    "requests_total",
    "counter",
    ("result",),
    "Requests for traces: accepted, refused (not understood), limited (too many) or failed (nothing there).",
)
TRACE_WINDOWS = _trace(
    "windows_total",
    "counter",
    ("why",),
    "Files of single ranks made for the store: windows made into traces by request or sampling, and what "
    "torch's flight recorder said in a hang.",
)
TRACE_OUTBOX_FILES = _trace("outbox_files", "gauge", (), "Traces that wait for the store.")
TRACE_OUTBOX_BYTES = _trace("outbox_bytes", "gauge", (), "Bytes of traces that wait for the store.")
TRACE_UPLOADS = _trace(
    "uploads_total",
    "counter",
    ("result",),
    "Uploads tried: success, unavailable (tried again) or denied (tried again; credentials or bucket).",
)
TRACE_UPLOAD_BYTES = _trace("upload_bytes_total", "counter", (), "Bytes of traces that the store took.")
TRACE_DROPPED = _trace(
    "dropped_files_total",
    "counter",
    ("reason",),
    "Traces lost before they reached the store: budget of the outbox, disk full, or refused for themselves.",
)


def _worker(
    name: str, labels: tuple[str, ...], help_: str, *, rank: bool = True, optional: tuple[str, ...] = ()
) -> Family:
    base = RANK if rank else ("training_job",)
    return Family(name, "gauge", base + labels, help_, "worker", optional_labels=(*optional, "worker"))


L3_KERNEL_W1 = _worker(
    "argus_l3_kernel_w1_seconds",
    _KERNEL,
    "Mean Wasserstein-1 distance of the rank's duration distribution to those of its role. Of kernels with "
    "an anomaly: the ranks that have it, and those furthest away.",
)
L3_KERNEL_W1_FENCE = _worker(
    "argus_l3_kernel_w1_fence_seconds",
    ("role", *_KERNEL),
    "Upper Tukey fence of the W1 scores of all ranks of the role: Q3 + alpha (Q3 - Q1).",
    rank=False,
)
L3_KERNEL_W1_IQR = _worker(
    "argus_l3_kernel_w1_iqr_seconds",
    ("role", *_KERNEL),
    "Interquartile range of the W1 scores of all ranks of the role: Q3 - Q1.",
    rank=False,
)
L3_KERNEL_SHIFT = _worker(
    "argus_l3_kernel_shift_ratio",
    _KERNEL,
    "Signed shift of the kernel's modes against the role's median; 0.1 is 10 % slower. Of the same ranks.",
)
L3_ANOMALY = _worker(
    "argus_l3_anomaly",
    (*_KERNEL, "cause", "verdict", "team"),
    "A kernel whose distribution has left its role's; the value is the signed shift.",
)
L3_GROUP_SHIFT = _worker(
    "argus_l3_group_shift",
    ("role", *_KERNEL, "coordinate", "value", "cause", "team"),
    "Shift of a group of ranks against the others, with the topology coordinate that names the group.",
    rank=False,
)
L3_RANK_SHIFT = _worker(
    "argus_l3_rank_shift_ratio",
    ("role",),
    "Time-weighted signed shift of all the rank's compute kernels against its role. What it was over the "
    "last hours is what the GPU is compared with, beside its peers.",
    optional=("gpu_uuid",),
)
L3_RHYTHM = _worker(
    "argus_l3_rhythm_divergence",
    (),
    "Mean Kolmogorov-Smirnov distance of the rank's completions over time to its role's (KAIR).",
)
L3_PATTERN = _worker(
    "argus_l3_pattern_distance",
    ("part",),
    "Share of the rank's peers that its GPU time is unlike in this part (EROICA's differential distance over "
    "share, mean and deviation of utilisation), where it is abnormal.",
)
L3_ABSTAIN = _worker(
    "argus_l3_abstain",
    ("role", "reason"),
    "1 where the worker did not judge a role in its last cycle, and why.",
    rank=False,
)
L3_TRACE_INFO = _worker(
    "argus_l3_trace_info",
    ("trace_key", "suspect"),
    "1 for the newest trace that the worker asked for; suspect: true, or false for a healthy peer "
    "and for a rank of a job that is slow as a whole.",
)
L3_CYCLE_SECONDS = Family(
    "argus_l3_cycle_seconds",
    "gauge",
    (),
    "Duration of the last cycle.",
    "worker",
    optional_labels=("worker",),
)
L3_LAST_SUCCESS = Family(
    "argus_l3_last_success_timestamp_seconds",
    "gauge",
    (),
    "Unix time of the last cycle whose results Prometheus took.",
    "worker",
    optional_labels=("worker",),
)


def _worker_self(name: str, type_: MetricType, labels: tuple[str, ...], help_: str) -> Family:
    return Family(name, type_, labels, help_, "worker-self")


WORKER_CYCLES = _worker_self(
    "argus_l3_worker_cycles_total", "counter", ("result",), "Cycles run, by result: success or failure."
)
WORKER_CYCLE_SECONDS = _worker_self(
    "argus_l3_worker_cycle_duration_seconds", "gauge", (), "Duration of the last cycle, delivery included."
)
WORKER_LAST_SUCCESS = _worker_self(
    "argus_l3_worker_last_success_timestamp_seconds",
    "gauge",
    (),
    "Unix time of the last cycle that judged and whose results the receiver took.",
)
WORKER_QUERIES = _worker_self(
    "argus_l3_worker_queries_total", "counter", ("result",), "PromQL queries, by result: success or failure."
)
WORKER_SAMPLES = _worker_self(
    "argus_l3_worker_samples_total",
    "counter",
    ("result",),
    "Samples sent, by result: written, refused by the receiver for themselves and dropped, unwritten where "
    "it answered success and counted fewer than were sent, or postponed behind others because it refuses "
    "their request and then fails.",
)
WORKER_SPOOL_DROPPED = _worker_self(
    "argus_l3_worker_spool_dropped_requests_total",
    "counter",
    (),
    "Undelivered requests dropped because the spool was full, they were too old, or their file was torn.",
)
WORKER_SPOOLED_REQUESTS = _worker_self(
    "argus_l3_worker_spooled_requests", "gauge", (), "Requests that wait for the receiver."
)
WORKER_SPOOLED_BYTES = _worker_self(
    "argus_l3_worker_spooled_bytes", "gauge", (), "Bytes of requests that wait for the receiver."
)
WORKER_TRACE_REQUESTS = _worker_self(
    "argus_l3_worker_trace_requests_total",
    "counter",
    ("result",),
    "Requests for traces sent to exporters, by result: success or failure.",
)
WORKER_RELOAD = _worker_self(
    "argus_l3_worker_config_last_reload_successful",
    "gauge",
    (),
    "1 unless the last SIGHUP brought a configuration that was refused.",
)
WORKER_KERNELS_LEFT_OUT = _worker_self(
    "argus_l3_worker_kernels_left_out",
    "gauge",
    ("training_job",),
    "Kernels of the newest window that were not judged, as the cycle had too little time: the smallest.",
)
WORKER_ANOMALIES = _worker_self(
    "argus_l3_worker_anomalies", "gauge", ("verdict",), "Verdicts of the last cycle, by verdict."
)

CATALOGUE: tuple[Family, ...] = tuple(
    value for key, value in list(globals().items()) if isinstance(value, Family) and not key.startswith("_")
)
"""All families, in the order of this file."""

BY_NAME: dict[str, Family] = {family.name: family for family in CATALOGUE}

SAMPLE_NAMES: frozenset[str] = frozenset(name for family in CATALOGUE for name in family.sample_names)
"""Every series name that a query may use without a recording rule behind it."""
