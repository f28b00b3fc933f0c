#pragma once

#include <cstddef>
#include <string>

namespace argus {

/// Kinds of variables; names, defaults and limits are in each library's settings_table.hpp.
namespace table {
struct Switch {
  const char* name;
};
struct Text {
  const char* name;
};
/// The first that is allowed is the default.
struct Choice {
  const char* name;
  const char* allowed[3];
};
struct Number {
  const char* name;
  long initial;
  long minimum;
};
}  // namespace table

/// A value that cannot be used is said on stderr once, and the default stands: training never stops for it.
bool value_of(const table::Switch& variable);
long value_of(const table::Number& variable);
/// Index in `allowed`.
std::size_t value_of(const table::Choice& variable);
std::string value_of(const table::Text& variable);

/// Value of a variable; empty where it is not set.
std::string variable(const char* name);

/// A whole number of 0 or more; -1 where the text is anything else.
long whole_number(const std::string& text) noexcept;

/// One line on stderr, marked as ours. Any thread.
void say(const std::string& text) noexcept;

}  // namespace argus
