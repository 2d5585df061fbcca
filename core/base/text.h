// Text that is the same in every locale. The process's locale belongs to the program. After
// std::locale::global("de_DE") a stream writes 1.000 for a thousand, and after setlocale() strtod()
// stops at a decimal point. The library therefore writes and reads numbers only with these
// functions, with std::to_string() of integers, or with std::to_chars().
#pragma once

#include <charconv>
#include <fstream>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace ringgrad {

// A stream of the standard library, such as std::ifstream, in the classic locale.
template <class Stream>
class Classic : public Stream {
 public:
  template <class... Arguments>
  explicit Classic(Arguments&&... arguments) : Stream(std::forward<Arguments>(arguments)...) {
    this->imbue(std::locale::classic());
  }
};
// It is instantiated once. Compilers emit different tables for such a class in each file, and
// tables from two compilers cannot be linked together.
extern template class Classic<std::ostringstream>;
extern template class Classic<std::istringstream>;
extern template class Classic<std::ifstream>;
extern template class Classic<std::ofstream>;
using TextOutput = Classic<std::ostringstream>;
using TextInput = Classic<std::istringstream>;

// Returns the number that the whole text represents. Returns nothing if the text is not a number,
// if more text follows the number, or if T cannot hold it.
template <class T>
std::optional<T> parse_number(std::string_view text, auto... base) {
  T number{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, base...);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional<T>(number) : std::nullopt;
}

}  // namespace ringgrad
