#include "ringgrad/distributed/failure.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {
namespace {

// Returns the number of bytes of the UTF-8 character at the beginning; 0 if there is none, or if it
// controls terminals.
size_t printable_character(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  if (byte(0) < 0x80)
    return byte(0) == '\n' || byte(0) == '\t' || (byte(0) >= 0x20 && byte(0) != 0x7f) ? 1 : 0;
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // C1 controls are U+0080 to U+009F.
  const bool steers = byte(0) < 0xc2 || byte(0) > 0xf4 || (byte(0) == 0xc2 && byte(1) < 0xa0);
  return steers ? 0 : size;
}

// An argument of a megabyte would hide the message about it.
std::string with_short_words(const std::string& text) {
  constexpr size_t kLongest = 300;
  constexpr size_t kKept = 100;
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size() - 1) + 1;
    const size_t size = end - at;
    if (size <= kLongest)
      result.append(text, at, size);
    else
      result += str(std::string_view(text).substr(at, kKept), "… (", size, " characters) ");
    at = end;
  }
  return result;
}

Failure failure_in(FailureKind kind, const std::string& text) {
  return {kind, with_short_words(printable(text))};
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t size = std::max<size_t>(printable_character(text), 1);
    char spelt[8];
    std::snprintf(spelt, sizeof spelt, "\\x%02x", static_cast<unsigned char>(text[0]));
    result += printable_character(text) > 0 ? text.substr(0, size) : std::string_view(spelt);
    text.remove_prefix(size);
  }
  return result;
}

void throw_failure(const Failure& failure, const std::string& context) {
  switch (failure.kind) {
    case FailureKind::TimedOut: throw TimeoutError(context + failure.text);
    case FailureKind::OutOfStep: throw OutOfStepError(context + failure.text);
    case FailureKind::Failed: throw GivenUpError(context + failure.text);
    default: throw DistributedError(context + failure.text);
  }
}

Failure failure_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& e) {
    return failure_in(FailureKind::TimedOut, e.what());
  } catch (const OutOfStepError& e) {
    return failure_in(FailureKind::OutOfStep, e.what());
  } catch (const GivenUpError& e) {
    return failure_in(FailureKind::Failed, e.what());
  } catch (const std::exception& e) {
    if (cannot_start_thread(e))
      return {FailureKind::Died,
              str("a thread cannot be started: ", e.what(),
                  "; there may be too little memory (ulimit -v) or too many threads (ulimit -u)")};
    return failure_in(FailureKind::Died, e.what());
  } catch (...) {
    return {FailureKind::Died, "an exception that is no std::exception"};
  }
}

bool cannot_start_thread(const std::exception& error) {
  const auto* of_system = dynamic_cast<const std::system_error*>(&error);
  return of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again;
}

namespace {

template <class... Types>
bool is(const std::exception& error) {
  return (... || (dynamic_cast<const Types*>(&error) != nullptr));
}

int code_of(const std::exception& error) {
  if (is<EnvironmentError>(error)) return kUsage;
  if (is<NotImplementedError, AddressInUseError, ExecuteError, LimitError, NetworkError>(error))
    return kEnvironment;  // the first: in this build
  if (is<TimeoutError, OutOfStepError>(error)) return kOutOfStep;
  if (is<DistributedError>(error)) return kRankDied;  // any other kind of it
  if (is<OutOfMemoryError, std::bad_alloc>(error)) return kOutOfMemory;
  if (is<DeviceError, CudaError>(error)) return kEnvironment;
  if (is<DataError>(error)) return kBadData;
  if (is<IoError, std::filesystem::filesystem_error>(error)) return kDiskFull;
  if (cannot_start_thread(error)) return kEnvironment;
  return kTrainingFailed;
}

}  // namespace

bool is_noticed(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    // The first is this rank's own trouble.
    return !is<AddressInUseError>(e) && is<DistributedError, GivenUpError>(e);
  } catch (...) {
    return false;
  }
}

int exit_code_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return code_of(e);
  } catch (...) {
    return kTrainingFailed;
  }
}

}  // namespace ringgrad
