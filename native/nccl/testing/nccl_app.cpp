// A training process as libargus_nccl meets it: nccl_app VERSION LIBRARY ACTION[:NUMBER[:NUMBER]]...
//
// It makes the memory that the producer would make (FAKE_PAGE=none, unsealed or foreign: not so), does the actions
// in order, writes the memory to FAKE_PAGE_DUMP and prints one line of JSON. Exit status 2: no such action.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "actions.hpp"

int main(int count, char** words) {
  if (count < 3) return 2;
  // Never destroyed: a thread may still call while the process ends.
  auto& program = *new Program(std::atoi(words[1]), words[2]);
  bool exits_alive = false;
  for (int at = 3; at < count; ++at) {
    const std::string word = words[at];
    const auto colon = word.find(':');
    const auto second = colon == std::string::npos ? colon : word.find(':', colon + 1);
    const long first = colon == std::string::npos ? 0 : std::atol(word.c_str() + colon + 1);
    const std::string action = word.substr(0, colon);
    if (action == "exit_alive")
      exits_alive = true;
    else if (!program.act(action, first, second == std::string::npos ? 0 : std::atol(word.c_str() + second + 1)))
      return 2;
  }
  if (exits_alive)
    for (int thread = 0; thread < 2; ++thread) std::thread([&program] { program.act("threads", 10'000, 0); }).detach();
  program.report();
  std::fflush(stdout);
  return 0;
}
