#include "vector.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

using Index = std::int64_t;

constexpr Index kMostLabels = 8;

/// Slots of a table that so many values leave half empty: a power of two.
Index slots_for(Index values) {
  Index slots = 2;
  while (slots < 2 * values) slots *= 2;
  return slots;
}

/// The rest of a text, taken from its front.
class Text {
 public:
  Text(const char* begin, Index size) : at_(begin), end_(begin + size) {}

  const char* at() const { return at_; }

  bool take(std::string_view expected) {
    const bool here = static_cast<std::size_t>(end_ - at_) >= expected.size() &&
                      std::memcmp(at_, expected.data(), expected.size()) == 0;
    if (here) at_ += expected.size();
    return here;
  }

  /// What stands up to `mark`, which is taken too. False where there is none.
  bool take_until(char mark, std::string_view* before) {
    const char* const found = find(at_, mark);
    if (found == nullptr) return false;
    *before = std::string_view(at_, static_cast<std::size_t>(found - at_));
    at_ = found + 1;
    return true;
  }

  /// A string, with its escapes.
  bool take_string(std::string_view* content) {
    if (!take("\"")) return false;
    const char* quote = find(at_, '"');
    while (quote != nullptr && escaped(quote)) quote = find(quote + 1, '"');
    if (quote == nullptr) return false;
    *content = std::string_view(at_, static_cast<std::size_t>(quote - at_));
    at_ = quote + 1;
    return true;
  }

 private:
  const char* find(const char* from, char mark) const {
    return static_cast<const char*>(std::memchr(from, mark, static_cast<std::size_t>(end_ - from)));
  }

  /// Behind an odd number of backslashes.
  bool escaped(const char* quote) const {
    const char* first = quote;
    while (first > at_ && first[-1] == '\\') --first;
    return (quote - first) % 2 == 1;
  }

  const char* at_;
  const char* end_;
};

/// The values of one label, numbered as they come. A table without containers: what they throw brings half of
/// libstdc++ along, and with it the newest glibc.
struct Values {
  const char* text = nullptr;
  std::int32_t* codes = nullptr;
  ArgusPlace* places = nullptr;
  std::int32_t* slots = nullptr;  ///< number of a value, or 0, which no value has here: they count from 1
  std::uint64_t mask = 0;
  std::int32_t known = 0;
  std::int32_t last = 0;

  void add(Index row, std::string_view value) {
    // Series of one kernel mostly come one after the other, and the ranks of each kernel in the same order.
    if (!is(last, value)) last = is(last + 1, value) ? last + 1 : is(1, value) ? 1 : number(value);
    codes[row] = last - 1;
  }

 private:
  bool is(std::int32_t one, std::string_view value) const {
    if (one < 1 || one > known) return false;
    const ArgusPlace& place = places[one - 1];
    return std::string_view(text + place.begin, static_cast<std::size_t>(place.size)) == value;
  }

  std::int32_t number(std::string_view value) {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char one : value) hash = (hash ^ static_cast<unsigned char>(one)) * 1099511628211U;
    std::int32_t* slot = &slots[hash & mask];
    for (; *slot != 0; slot = &slots[++hash & mask]) {
      if (is(*slot, value)) return *slot;
    }
    // A label that an element lacks stands nowhere.
    places[known] = {value.data() == nullptr ? 0 : value.data() - text, static_cast<Index>(value.size())};
    return *slot = ++known;
  }
};

/// "0.25", "NaN", "+Inf" and "-Inf"; `text` ends at a quote. Not from_chars: it would ask for the newest glibc. In a
/// locale with other decimal points nothing is read.
bool number_of(std::string_view text, double* value) {
  char* stopped = nullptr;
  *value = std::strtod(text.data(), &stopped);
  return !text.empty() && stopped == text.data() + text.size();
}

class Reader {
 public:
  Reader(const char* text, Index size) : text_(text, size) {}

  void expect(const char* label, const Values& values) {
    labels_[count_] = label;
    values_[count_++] = values;
  }

  Index read(Index capacity, double* values) {
    Index rows = 0;
    while (!text_.take("]")) {
      if (rows == capacity) return kArgusShortBuffer;
      if (rows > 0 && !text_.take(",")) return kArgusOtherForm;
      if (!element(rows, values)) return kArgusOtherForm;
      ++rows;
    }
    return rows;
  }

  const char* at() const { return text_.at(); }
  Index distinct(std::size_t label) const { return values_[label].known; }

 private:
  bool element(Index row, double* values) {
    std::array<std::string_view, kMostLabels> found;
    if (!text_.take("{\"metric\":{")) return false;
    if (!text_.take("}")) {
      do {
        if (!label(&found)) return false;
      } while (text_.take(","));
      if (!text_.take("}")) return false;
    }
    std::string_view time;
    std::string_view value;
    if (!text_.take(",\"value\":[") || !text_.take_until(',', &time) || !text_.take_string(&value) ||
        !text_.take("]}") || !number_of(value, &values[row])) {
      return false;
    }
    for (std::size_t i = 0; i < count_; ++i) values_[i].add(row, found[i]);
    return true;
  }

  bool label(std::array<std::string_view, kMostLabels>* found) {
    std::string_view name;
    std::string_view value;
    if (!text_.take_string(&name) || !text_.take(":") || !text_.take_string(&value)) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (labels_[i] == name && (*found)[i].data() == nullptr) {
        (*found)[i] = value;
        return true;
      }
    }
    return false;
  }

  Text text_;
  std::array<std::string_view, kMostLabels> labels_;
  std::array<Values, kMostLabels> values_;
  std::size_t count_ = 0;
};

}  // namespace

std::int64_t argus_vector_workspace_bytes(std::int64_t label_count, std::int64_t capacity) noexcept {
  return label_count * slots_for(capacity) * static_cast<Index>(sizeof(std::int32_t));
}

std::int64_t argus_vector_read(const char* text, std::int64_t size, const char* const* labels,
                               std::int64_t label_count, std::int64_t capacity, void* workspace,
                               std::int64_t workspace_bytes, std::int32_t* codes,
                               ArgusPlace* places, std::int64_t* distinct, double* values,
                               std::int64_t* read) noexcept {
  if (text == nullptr || labels == nullptr || workspace == nullptr || codes == nullptr || places == nullptr ||
      distinct == nullptr || values == nullptr || read == nullptr || size < 0 || label_count < 1 ||
      label_count > kMostLabels || capacity < 0 || capacity > INT32_MAX / 4) {
    return kArgusBadArgument;
  }
  const Index needed = argus_vector_workspace_bytes(label_count, capacity);
  if (workspace_bytes < needed) return kArgusShortBuffer;
  std::memset(workspace, 0, static_cast<std::size_t>(needed));
  const Index slots = slots_for(capacity);
  Reader reader(text, size);
  for (Index i = 0; i < label_count; ++i) {
    Values of;
    of.text = text;
    of.codes = codes + i * capacity;
    of.places = places + i * capacity;
    of.slots = static_cast<std::int32_t*>(workspace) + i * slots;
    of.mask = static_cast<std::uint64_t>(slots - 1);
    reader.expect(labels[i], of);
  }
  const Index rows = reader.read(capacity, values);
  *read = reader.at() - text;
  for (Index i = 0; i < label_count; ++i) distinct[i] = reader.distinct(static_cast<std::size_t>(i));
  return rows;
}
