#include "ringgrad/distributed/failure.h"

#include <system_error>

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

bool is_noticed(const std::exception& error) {
  if (dynamic_cast<const AddressInUseError*>(&error) != nullptr) return false;  // this rank's own trouble
  return dynamic_cast<const DistributedError*>(&error) != nullptr ||
         dynamic_cast<const GivenUpError*>(&error) != nullptr;
}

}  // namespace ringgrad
