#include "ringgrad/distributed/failure.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

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
    return {FailureKind::TimedOut, e.what()};
  } catch (const OutOfStepError& e) {
    return {FailureKind::OutOfStep, e.what()};
  } catch (const GivenUpError& e) {
    return {FailureKind::Failed, e.what()};
  } catch (const std::exception& e) {
    if (cannot_start_thread(e))
      return {FailureKind::Died, str("a thread cannot be started: ", e.what(),
                                     "; there may be too little memory (ulimit -v) or too many threads (ulimit -u)")};
    return {FailureKind::Died, e.what()};
  } catch (...) {
    return {FailureKind::Died, "an exception that is no std::exception"};
  }
}

bool cannot_start_thread(const std::exception& error) {
  const auto* of_system = dynamic_cast<const std::system_error*>(&error);
  return of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again;
}

bool is_noticed(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const AddressInUseError&) {
    return false;  // this rank's own trouble
  } catch (const DistributedError&) {
    return true;
  } catch (const GivenUpError&) {
    return true;
  } catch (...) {
    return false;
  }
}

namespace {

template <class... Types>
bool is(const std::exception& error) {
  return (... || (dynamic_cast<const Types*>(&error) != nullptr));
}

int code_of(const std::exception& error) {
  if (is<EnvironmentError>(error)) return kUsage;
  if (is<NotImplementedError, AddressInUseError, ExecuteError>(error)) return kEnvironment;  // the first: in this build
  if (is<TimeoutError, OutOfStepError>(error)) return kOutOfStep;
  if (is<DistributedError>(error)) return kRankDied;  // what is left of it
  if (is<OutOfMemoryError, std::bad_alloc>(error)) return kOutOfMemory;
  if (is<DeviceError, CudaError>(error)) return kEnvironment;
  if (is<DataError>(error)) return kBadData;
  if (is<IoError, std::filesystem::filesystem_error>(error)) return kDiskFull;
  if (cannot_start_thread(error)) return kEnvironment;
  return kTrainingFailed;
}

}  // namespace

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
