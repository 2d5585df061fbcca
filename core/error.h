// Errors are values with names: one exception type per kind of mistake, and a message that says
// `operation: what is wrong, the values, what was expected`. Nothing in the library exits; it
// prints warnings only.
//
// The macros CHECK and ASSERT live in core/base/check.h, which no header includes, so that a
// program using the library keeps its own macros of that name.
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
struct DataError : IoError {  // a file was read, and what it holds is damaged or hostile
  using IoError::IoError;
};
// A host is not known, does not answer, or has not what was asked for.
struct NetworkError : IoError {
  using IoError::IoError;
};
// The system gives this process no more of something; names the limit to raise.
struct LimitError : Error {
  using Error::Error;
};
struct CudaError : Error {  // a call of the CUDA runtime or of a library on top of it failed
  using Error::Error;
};
struct OutOfMemoryError : Error {  // names the operation, the bytes asked for and what holds memory
  using Error::Error;
};
// A peer died, disagreed or sent nonsense; names rank and operation.
struct DistributedError : Error {
  using Error::Error;
};
struct TimeoutError : DistributedError {  // a wait outlasted its deadline; names who is missing
  using DistributedError::DistributedError;
};

// Names the operation its thread is in, for messages raised far below it (out of memory, a stale
// saved tensor). Costs two stores to thread-local memory.
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
