// Error types. Each kind of mistake has its own exception type. A message has the form `operation:
// what is wrong, the values, what was expected`. Nothing in the library exits, and it prints only
// warnings.
//
// The macros CHECK and ASSERT are in core/base/check.h, which no header includes. A program that
// uses the library therefore keeps its own macros of those names.
#pragma once

#include <stdexcept>
#include <string>

#include "ringgrad/core/base/text.h"

namespace ringgrad {

// Joins any number of printable parts, in the same way in every locale: str("size ", 3, " > ", 2)
// == "size 3 > 2".
template <class... Parts>
std::string str(const Parts&... parts) {
  TextOutput out;
  (out << ... << parts);
  return out.str();
}

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ShapeError : Error {  // a shape or a number of dimensions does not fit
  using Error::Error;
};
struct DTypeError : Error {  // an element type is not supported, or two differ
  using Error::Error;
};
struct DeviceError : Error {  // a device does not exist, or two tensors live on different ones
  using Error::Error;
};
struct IndexError : Error {  // an index lies outside its range
  using Error::Error;
};
struct NotImplementedError : Error {  // the kernel has no implementation on this device
  using Error::Error;
};
struct IoError : Error {  // a file is missing, unreadable, or the disk is full
  using Error::Error;
};
struct DataError : IoError {  // a file was read, and its content is damaged or hostile
  using IoError::IoError;
};
// A host is unknown, does not answer, or does not have what was requested.
struct NetworkError : IoError {
  using IoError::IoError;
};
// The system refuses this process more of a resource. The message names the limit to raise.
struct LimitError : Error {
  using Error::Error;
};
struct CudaError : Error {  // a call of the CUDA runtime or of a library on top of it failed
  using Error::Error;
};
struct OutOfMemoryError : Error {  // names the operation, the bytes requested and what holds memory
  using Error::Error;
};
// A peer died, disagreed or sent invalid data. The message names the rank and the operation.
struct DistributedError : Error {
  using Error::Error;
};
struct TimeoutError : DistributedError {  // a wait outlasted its deadline; names who is missing
  using DistributedError::DistributedError;
};

// Names the operation that this thread runs. Errors raised far below it (out of memory, a stale
// saved tensor) use the name. Costs two stores to thread-local memory.
class OpScope {
 public:
  explicit OpScope(const char* name) : previous_(current) { current = name; }
  ~OpScope() { current = previous_; }
  OpScope(const OpScope&) = delete;

 private:
  friend const char* current_op();
  static inline constinit thread_local const char* current = "tensor";
  const char* previous_;
};

// The innermost OpScope's name; "tensor" outside every operation.
inline const char* current_op() { return OpScope::current; }

}  // namespace ringgrad
