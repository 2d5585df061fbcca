// A program that has chosen a locale, as those with a window do: loaded before it (LD_PRELOAD), where SPEAKS_LOCALE
// names one that is installed.
#include <cstdlib>
#include <locale>
#include <stdexcept>

namespace {

[[gnu::constructor]] void speak() {
  const char* name = std::getenv("SPEAKS_LOCALE");
  if (name == nullptr) return;
  try {
    std::locale::global(std::locale(name));
  } catch (const std::runtime_error&) {
    _Exit(77);  // it is not installed
  }
}

}  // namespace
