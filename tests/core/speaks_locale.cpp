// Sets a locale as programs with windows do. It is loaded before another program (LD_PRELOAD), and
// SPEAKS_LOCALE names an installed locale.
#include <clocale>
#include <cstdlib>
#include <locale>
#include <stdexcept>

namespace {

[[gnu::constructor]] void speak() {
  const char* name = std::getenv("SPEAKS_LOCALE");
  if (name == nullptr) return;
  try {
    std::locale::global(std::locale(name));
    // Tests compare the system's messages, whose language is the user's.
    std::setlocale(LC_MESSAGES, "C");
  } catch (const std::runtime_error&) {
    _Exit(77);  // it is not installed
  }
}

}  // namespace
