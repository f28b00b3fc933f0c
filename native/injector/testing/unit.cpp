// Parts of the injector by themselves, so that tests can hold them against their Python twins.
//
//   unit name TEXT           NAMES record's text, in hexadecimal
//   unit demangle NAME
//   unit script WORD...      job name of a command line
//   unit job                 rank and job that the environment says, the exporter's socket, and why we would skip

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../identity.hpp"
#include "../names.hpp"
#include "../selection.hpp"

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
  } else if (action == "script") {
    std::printf("%s\n", argus::script_name(rest).c_str());
  } else if (action == "job") {
    const argus::Settings settings = argus::read_settings();
    const argus::Identity identity = argus::identify(settings, rest);
    std::printf("%d\n%d\n%d\n%s\n%s\n%s\n", identity.rank, identity.local_rank, identity.world_size,
                identity.job.c_str(), argus::socket_path(settings).c_str(),
                argus::reason_to_skip(settings, identity, rest).c_str());
  } else {
    std::fprintf(stderr, "unknown action '%s'\n", action.c_str());
    return 2;
  }
  return 0;
}
