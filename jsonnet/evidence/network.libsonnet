// Between whom is the network slow? And of a job in which nothing moves over it: on which host does a GPU stand, or between whom
// does nothing arrive?
//
// What a rank sends is on the wire until its NIC has word of it, and the other end waits for it: no lateness of a rank or GPU
// makes that longer. All hops of a ring carry the same; sends of a program's own, and all-to-all, need not.
//
// Once nothing moves any more, NCCL's plugin tells what the oldest step of a rank's oldest operation waits for. A rank that waits
// for a peer is not where it began. Where data has arrived that the GPU does not take, and nobody of the host waits for a peer, or
// where it does not fill what it is to send to one peer, a GPU of the host stands; a send of a collective that waits for its own GPU
// alone proves nothing, as its data may come over NVLink from another GPU of the host. So of a host with several ranks the host is
// known, and no rank. What one end has sent, and the other waits for, is lost between the two.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local suspect = 'rank:argus_stall_suspect:bool';
  local entered = 'rank:argus_stall_entered:collectives';
  local oldest(matchers) = suspect + '{stage="network", ' + matchers + '}';
  local ends = l.list(['communicator', 'from', 'to']);
  local directed(expr, from, to) = text.fill('label_replace(label_replace(%(expr)s, "from", "$1", "%(from)s", "(.*)"), "to", "$1", "%(to)s", "(.*)")', {
    expr: expr,
    from: from,
    to: to,
  });
  // A wait by where what it waits for comes from, and where it should arrive; `far`: with its rank and host as those of the other end.
  local between(wait, from, to) = directed(oldest('wait="%s"' % wait), from, to);
  local far(expr) = text.fill('max by (%(ends)s, to_rank, to_node) (label_replace(label_replace(%(expr)s, "to_rank", "$1", "rank", "(.*)"), "to_node", "$1", "node", "(.*)"))', {
    ends: ends,
    expr: expr,
  });
  local at = {
    job: l.job,
    rank: l.rank,
    node: l.list(['node']),
    rankNode: l.list(['rank', 'node']),
    step: l.list(['rank', 'group', 'communicator', 'member', 'operation', 'peer', 'wait']),
    link: l.list(['rank', 'node', 'group', 'communicator', 'to_rank', 'to_node']),
    ends: ends,
    suspect: suspect,
    entered: entered,
    ofCommunicator: l.list(['communicator']),
    ofOperation: l.list(['communicator', 'operation']),
    ofMember: l.list(['rank', 'communicator']),
    group: l.list(['group']),
    rankGroup: l.list(['rank', 'group']),
    differs: suspect + '{stage="differs"}',
    recorded: l.raw('argus_collective_operation_sequence'),
    waits: oldest('wait=~"send_peer|send_wire|receive_peer"'),
    full: oldest('wait="receive_own_gpu"'),
    unfilled: oldest('wait="send_own_gpu", operation="Send"'),
    half: c.stallMinSeconds / 2,
    raw: l.raw('argus_nccl_network_oldest_timestamp_seconds'),
    info: l.raw('argus_rank_info'),
  };
  local rated(counter) = text.fill('max by (%(hop)s) (rate(%(counter)s[%(window)s]))', {
    hop: l.list(['rank', 'group', 'communicator', 'member', 'peer']),
    counter: counter,
    window: duration.range(c, c.window),
  });
  local waited(wait) = rated(l.raw('argus_nccl_network_wait_seconds_total', ['wait="%s"' % wait]));
  local wire = 'rank:argus_network_wire:seconds_per_byte';
  local placed(expr) = text.fill('((%(expr)s) * on (%(rank)s) group_left (node) topk by (%(rank)s) (1, max by (%(rankNode)s) (%(info)s)))', at { expr: expr });
  local stands = text.fill('(%(full)s unless on (%(node)s) %(waits)s or %(unfilled)s)', at);
  [
    {
      // A tree has hops that carry more than others, and what hardly takes time tells nothing.
      about:: 'How long what a rank sends to a peer on another host is on the wire, by what it carries. Of communicators that do collectives alone.',
      record: wire,
      expr: text.fill('(%(sent)s >= %(least)s unless on (%(communicator)s) %(sends)s) / %(bytes)s', {
        sent: waited('send_wire'),
        least: c.contextRatio,
        communicator: l.list(['communicator']),
        sends: l.raw('argus_nccl_entered_sequence', ['operation="Send"']),
        bytes: rated(l.raw('argus_nccl_network_sent_bytes_total')),
      }),
    },
    {
      // Of two the quicker: a link may be slow, none is too fast.
      about:: 'Ratio to what is usual in the communicator, of slow hops: what rank sends is on the wire so much longer, and to_rank waits for it.',
      record: 'rank:argus_network_wire:ratio',
      expr: text.fill('max by (%(link)s, peer) (%(near)s * on (%(ends)s) group_left (to_rank, to_node) %(far)s)', at {
        near: directed(placed(text.fill(|||
          %(wire)s / on (%(communicator)s) group_left () (
            quantile by (%(communicator)s) (0.5, %(wire)s) and count by (%(communicator)s) (%(wire)s) > 2
            or min by (%(communicator)s) (%(wire)s)
          ) >= %(ratio)s
        |||, { wire: wire, communicator: l.list(['communicator']), ratio: c.linkRatio })), 'member', 'peer'),
        far: far(placed('(%s > 0) ^ 0' % directed(waited('receive_peer'), 'peer', 'member'))),
      }),
    },
    {
      // What computation hides is no loss: no more than the group is seen to communicate, whoever comes last.
      about:: 'A group in which data is longer on the wire between two members than between others.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'link-slow', detector: 'wire' },
      expr: text.fill(|||
        label_join(max by (%(finding)s) (
          %(seen)s <= on (%(group)s) group_left () %(more)s
          or (%(seen)s) ^ 0 * on (%(group)s) group_left () %(more)s
        ), "view", "/", "view", "group") >= %(least)s
      |||, {
        finding: l.group,
        group: l.list(['group']),
        seen: 'group:argus_collective_transfer:seconds * on (%s) group_left () group:argus_phase_spans:rate' % l.phaseGroup,
        more: text.fill('max by (%(group)s) ((1 - 1 / rank:argus_network_wire:ratio) * on (%(hop)s) group_left () %(sent)s)', {
          group: l.list(['group']),
          hop: l.list(['rank', 'communicator', 'peer']),
          sent: waited('send_wire'),
        }),
        least: c.evidenceRatio,
      }),
    },
    {
      about:: "What the oldest steps of a rank's oldest operation over the network wait for, where none has moved for half of stallMinSeconds.",
      record: suspect,
      labels: { stage: 'network' },
      // 0 +: where the store keeps the metric's type as a label, a time has none, so what is subtracted may have none.
      expr: text.fill(|||
        (max by (%(step)s) (timestamp(%(raw)s) - (0 + %(raw)s)) > %(half)s) ^ 0
        * on (%(rank)s) group_left (node) topk by (%(rank)s) (1, max by (%(rankNode)s) (%(info)s))
      |||, at),
    },
    {
      about:: 'Between whom data is lost: it is on the wire at one rank, and the other waits for it.',
      record: suspect,
      labels: { stage: 'link', lacks: 'data' },
      expr: text.fill('max by (%(link)s) (label_replace(%(near)s * on (%(ends)s) group_left (to_rank, to_node) %(far)s, "group", "", "group", "unknown")) ^ 0', at {
        near: between('send_wire', 'member', 'peer'),
        far: far(between('receive_peer', 'peer', 'member')),
      }),
    },
    {
      about:: 'Between whom word of room is lost: one rank has posted its receive, and the other waits for that.',
      record: suspect,
      labels: { stage: 'link', lacks: 'room' },
      expr: text.fill(|||
        max by (%(link)s) (label_replace(
          (%(near)s unless on (%(ends)s) %(full)s)
          * on (%(ends)s) group_left (to_rank, to_node)
          %(far)s,
          "group", "", "group", "unknown"
        )) ^ 0
      |||, at {
        near: between('receive_peer', 'member', 'peer'),
        full: between('receive_own_gpu', 'member', 'peer'),
        far: far(between('send_peer', 'peer', 'member')),
      }),
    },
    {
      about:: 'How many of each collective a rank whose iteration is overdue has entered on a communicator, by NCCL.',
      record: entered,
      expr: text.fill('max by (%(call)s) (%(raw)s and on (%(rank)s) %(overdue)s)', {
        overdue: l.raw('argus_rank_overdue_number'),
        call: l.list(['rank', 'group', 'communicator', 'operation']),
        rank: l.rank,
        raw: l.raw('argus_nccl_entered_sequence', ['operation!~"Send|Recv|other"', 'group!="unknown"']),
      }),
    },
    {
      // In one order, as many calls in all are as many of each.
      about:: 'Members of a communicator who have called as much as each other, but not the same: all whose numbers differ from the median.',
      record: suspect,
      labels: { stage: 'differs' },
      expr: text.fill(|||
        max by (%(rankGroup)s) (
          %(entered)s != on (%(ofOperation)s) group_left () quantile by (%(ofOperation)s) (0.5, %(entered)s)
          and on (%(ofCommunicator)s) stddev by (%(ofCommunicator)s) (sum by (%(ofMember)s) (%(entered)s)) == 0
        ) ^ 0
      |||, at),
    },
    {
      about:: 'Their group, in which nothing ends, where no recorder tells of it.',
      record: 'group:argus_stall_broken:bool',
      labels: { by: 'calls' },
      expr: text.fill('max by (%(group)s) (%(differs)s and on (%(job)s) job:argus_stalled:seconds unless on (%(group)s) %(recorded)s)', at),
    },
    {
      about:: 'Ranks of the one host on which a GPU stands: it does not take what has arrived while nobody of the host waits for a peer, or does not fill a send to one peer.',
      record: suspect,
      labels: { stage: 'still' },
      expr: text.fill(|||
        max by (%(rankNode)s) (%(info)s and on (%(node)s) (%(stands)s)) ^ 0
        and on (%(job)s) (count by (%(job)s) (count by (%(node)s) (%(stands)s)) == 1)
        and on (%(job)s) %(waits)s
        unless on (%(job)s) (%(suspect)s{stage="link"} or group:argus_stall_broken:bool{by="calls"})
      |||, at { stands: stands }),
    },
    {
      about:: 'The fewer of such a group; else the rank of the host on which a GPU stands, where it is the only one there.',
      record: suspect,
      labels: { stage: 'alone' },
      expr: text.fill(|||
        max by (%(rank)s) (%(differs)s and on (%(group)s) (count by (%(group)s) (%(differs)s) < on (%(group)s) 0.5 * count by (%(group)s) (max by (%(rankGroup)s) (%(entered)s))))
        or on (%(job)s) %(still)s and on (%(job)s) (count by (%(job)s) (%(still)s) == 1)
      |||, at { still: suspect + '{stage="still"}' }),
    },
  ]
