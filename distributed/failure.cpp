#include "distributed/failure.h"

#include "distributed/socket.h"

namespace ringgrad {

void throw_failure(const Failure& failure, const std::string& context) {
  switch (failure.kind) {
    case FailureKind::TimedOut:
      throw TimeoutError(context + failure.text);
    case FailureKind::OutOfStep:
      throw OutOfStepError(context + failure.text);
    case FailureKind::Failed:
      throw GivenUpError(context + failure.text);
    default:
      throw DistributedError(context + failure.text);
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
    return {FailureKind::Died, e.what()};
  } catch (...) {
    return {FailureKind::Died, "an exception that is no std::exception"};
  }
}

bool is_noticed(const std::exception& error) {
  if (dynamic_cast<const AddressInUseError*>(&error) != nullptr) return false;  // this rank's own trouble
  return dynamic_cast<const DistributedError*>(&error) != nullptr ||
         dynamic_cast<const GivenUpError*>(&error) != nullptr;
}

}  // namespace ringgrad
