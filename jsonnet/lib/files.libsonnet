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
    local isIn(name, file) = std.length([prefix for prefix in concerns[file] if std.startsWith(name, prefix)]) > 0;
    // In arrays: C++ jsonnet evaluates an element once, but a field, such as a group's name, anew at each use.
    local names = [group.name for group in groups];
    local homes = [[file for file in std.objectFields(concerns) if isIn(name, file)] for name in names];
    local numbers = std.range(0, std.length(groups) - 1);
    local homeless = [names[number] for number in numbers if std.length(homes[number]) != 1];
    assert homeless == [] : 'lib/files.libsonnet puts these groups in no file, or in several: %s' % homeless;
    {
      [file]: [groups[number] for number in numbers if homes[number] == [file]]
      for file in std.set(std.flattenArrays(homes))
    },
}
