// Parts of the injector by themselves, so that tests can hold them against their Python twins.
//
//   unit name TEXT           NAMES record's text, in hexadecimal
//   unit demangle NAME
//   unit say TEXT            says it, then a word on stdout
//   unit script WORD...      job name of a command line
//   unit windows FROM TO     begins and ends of the windows in which launch calls are recorded, in Unix ns, one a line
//   unit budget PERCENT MINUTES RATE NS [graph]
//                            whether kernels of so many ns, so many a second, cost more than that within these minutes
//   unit lists LATER         of a kernel of NCCL with two operations, after so many later ones: how many its word says, how
//                            many are told, and how many kernels were overwritten
//   unit job                 rank and job that the environment says, the exporter's socket, why we would skip, and
//                            why we would wait to be told the rank

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../budget.hpp"
#include "../identity.hpp"
#include "../launch_windows.hpp"
#include "../names.hpp"
#include "../nccl_launches.hpp"
#include "../selection.hpp"

namespace {

/// A launch of two collectives, from one ns to the next.
void launch(argus::nccl::LaunchRing& ring, std::uint64_t at) {
  argus::nccl::Launch made;
  made.thread = 1;
  made.begin_ns = at;
  ring.add(made);
  argus::nccl::Launch& there = *ring.find(made.number);
  argus::nccl::LaunchRing::put(there.end_ns, at + 1);
  for (std::uint32_t sequence = 0; sequence < 2; ++sequence)
    ring.tell(there, {0, argus::nccl::LaunchedOperation::kNoPeer, sequence}, 0);
  argus::nccl::LaunchRing::put(there.told, 1U);
}

void lists(std::uint64_t later) {
  auto ring = std::make_unique<argus::nccl::LaunchRing>();
  argus::NcclLaunches joined(*ring);
  launch(*ring, 1'000'000'000);
  joined.called(7, 1, 1'000'000'000, 1'000'000'001);
  for (std::uint64_t one = 1; one <= later; ++one) launch(*ring, 1'000'000'000 + 10 * one);
  argus::NcclLaunches::Operations operations;
  const std::uint32_t told = joined.ended(7, 1, operations);
  std::printf("%u %u %llu\n", joined.of(7) & (argus::wire::kLaunchedOne - 1), told,
              static_cast<unsigned long long>(joined.unlisted()));
}

}  // namespace

int main(int count, char** words) {
  const std::string action = count > 1 ? words[1] : "";
  const std::vector<std::string> rest(words + std::min(2, count), words + count);
  if (action == "name" && rest.size() == 1) {
    char field[argus::wire::kNameBytes];
    argus::encode_name(rest[0], field);
    for (const char byte : field) std::printf("%02x", static_cast<unsigned char>(byte));
    std::printf("\n");
  } else if (action == "demangle" && rest.size() == 1) {
    std::printf("%s\n", argus::demangled(rest[0].c_str()).c_str());
  } else if (action == "say" && rest.size() == 1) {
    argus::say(rest[0]);
    std::printf("lives\n");
  } else if (action == "script") {
    std::printf("%s\n", argus::script_name(rest).c_str());
  } else if (action == "windows" && rest.size() == 2) {
    const std::uint64_t to = std::strtoull(rest[1].c_str(), nullptr, 10);
    bool open = false;
    for (std::uint64_t at = std::strtoull(rest[0].c_str(), nullptr, 10); at < to;
         at += argus::LaunchWindows::until_change(at)) {
      if (argus::LaunchWindows::open(at) == open) continue;
      open = !open;
      std::printf("%llu\n", static_cast<unsigned long long>(at));
    }
  } else if (action == "budget" && rest.size() >= 4) {
    argus::Budget budget(std::atol(rest[0].c_str()), argus::LaunchTimes::kNever);
    const std::uint64_t rate = std::strtoull(rest[2].c_str(), nullptr, 10);
    const std::uint64_t kernels = std::strtoull(rest[1].c_str(), nullptr, 10) * 60 * rate;
    for (std::uint64_t index = 0; index <= kernels; ++index)
      budget.kernel(index * 1'000'000'000 / rate, std::strtoull(rest[3].c_str(), nullptr, 10), rest.size() > 4);
    std::printf("%s\n", budget.exceeded() ? "exceeded" : "within");
  } else if (action == "lists" && rest.size() == 1) {
    lists(std::strtoull(rest[0].c_str(), nullptr, 10));
  } else if (action == "job") {
    const argus::Settings settings = argus::read_settings();
    const argus::Identity identity = argus::identify(settings, rest);
    std::printf("%d\n%d\n%d\n%s\n%s\n%s\n%s\n", identity.rank, identity.local_rank, identity.world_size,
                identity.job.c_str(), argus::socket_path(settings).c_str(),
                argus::reason_to_skip(settings, rest).c_str(), argus::reason_to_wait(identity, rest).c_str());
  } else {
    std::fprintf(stderr, "unknown action '%s'\n", action.c_str());
    return 2;
  }
  return 0;
}
