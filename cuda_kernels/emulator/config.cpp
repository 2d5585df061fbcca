#include "ringgrad/cuda_kernels/emulator/config.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "ringgrad/core/base/check.h"

namespace ringgrad::emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kStackKb = 256;  // red zones and shadow calls enlarge frames several times
#else
constexpr long kStackKb = 64;
#endif

bool parse(std::string_view text, long low, long high, long& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
}

long number(const char* variable, long fallback, long low, long high) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return fallback;
  long value = 0;
  CHECK_AS(DeviceError, parse(text, low, high, value), variable, " is '", text,
           "', expected a number from ", low, " to ", high);
  return value;
}

// Reads one of three words, the last of which may carry a seed: "random:7".
template <class Choice>
void choice(const char* variable, const char* const (&words)[3], Choice& chosen, uint32_t& seed) {
  chosen = Choice{};
  seed = 1;
  const char* text = std::getenv(variable);
  if (!text || !*text) return;
  std::string_view word(text);
  long parsed = 1;
  const size_t colon = word.find(':');
  bool valid = colon == word.npos || parse(word.substr(colon + 1), 0, 0x7fffffff, parsed);
  word = word.substr(0, colon);
  int found = 0;
  while (found < 3 && word != words[found]) ++found;
  valid = valid && found < 3 && (colon == word.npos || found == 2);
  CHECK_AS(DeviceError, valid, variable, " is '", text, "', expected ", words[0], ", ", words[1],
           ", ", words[2], " or ", words[2], ":SEED");
  chosen = static_cast<Choice>(found);
  seed = static_cast<uint32_t>(parsed);
}

Config from_environment() {
  Config config{};
  config.devices = static_cast<int>(number("RINGGRAD_CUDA_DEVICES", 0, 0, 64));
  config.memory_bytes = static_cast<size_t>(number("RINGGRAD_EMU_MEMORY_MB", 1024, 1, 1 << 20))
                        << 20;
  choice("RINGGRAD_EMU_SCHEDULE", {"forward", "reversed", "random"}, config.schedule,
         config.schedule_seed);
  choice("RINGGRAD_EMU_STREAMS", {"eager", "lazy", "random"}, config.streams, config.streams_seed);
  config.stack_bytes = static_cast<size_t>(number("RINGGRAD_EMU_STACK_KB", kStackKb, 16, 8192))
                       << 10;
  return config;
}

}  // namespace

Config& config() {
  static Config config = from_environment();
  return config;
}

}  // namespace ringgrad::emulator
