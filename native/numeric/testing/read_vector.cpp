// Reads answers from standard input, each behind its size (8 bytes), from memory that ends where they end: for
// sanitizers. Prints how many were of the form that is read.
#include <cstdio>
#include <vector>

#include "../vector.hpp"

int main() {
  const char* const labels[] = {"rank", "kernel", "stream", "mode"};
  constexpr std::int64_t kLabels = 4;
  std::int64_t size = 0;
  int read = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    std::vector<char> text(static_cast<std::size_t>(size));
    if (std::fread(text.data(), 1, text.size(), stdin) != text.size()) return 1;
    const std::int64_t most = size / 16 % 64;  // too small for some
    const auto places = static_cast<std::size_t>(kLabels * most);
    std::vector<std::int32_t> codes(places);
    std::vector<ArgusPlace> found(places);
    std::vector<double> values(static_cast<std::size_t>(most));
    std::vector<std::int32_t> workspace(
        static_cast<std::size_t>(argus_vector_workspace_bytes(kLabels, most)) / sizeof(std::int32_t));
    std::int64_t distinct[kLabels] = {};
    std::int64_t end = 0;
    read += argus_vector_read(text.data(), size, labels, kLabels, most, workspace.data(),
                              argus_vector_workspace_bytes(kLabels, most), codes.data(), found.data(),
                              distinct, values.data(), &end) >= 0;
  }
  std::printf("%d\n", read);
}
