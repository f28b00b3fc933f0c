// Which rule file a group belongs to, by the beginning of its name.
local concerns = {
  job: ['argus-job'],
  regression: ['argus-l1-regression'],
  jitter: ['argus-l1-jitter', 'argus-l1-class'],
  work: ['argus-work'],
  stall: ['argus-l1-stall'],
  phases: ['argus-l2-'],
  host: ['argus-host', 'argus-stacks'],
  masked: ['argus-masked-'],
  history: ['argus-history'],
  hardware: ['argus-hardware'],
  verdicts: ['argus-l3-cost', 'argus-verdicts', 'argus-cost'],
};

{
  split(groups)::
    local prefixesOf(file) = concerns[file];
    local isIn(group, file) = std.length([p for p in prefixesOf(file) if std.startsWith(group.name, p)]) > 0;
    local homeless = [
      group.name
      for group in groups
      if std.length([file for file in std.objectFields(concerns) if isIn(group, file)]) != 1
    ];
    assert homeless == [] : 'lib/files.libsonnet puts these groups in no file, or in several: %s' % homeless;
    {
      [file]: [group for group in groups if isIn(group, file)]
      for file in std.objectFields(concerns)
      if std.length([group for group in groups if isIn(group, file)]) > 0
    },
}
