// LearnersCode: the learner's file, as code of this process.
#pragma once

#include <memory>
#include <string>

#include "ringgrad/core/error.h"

namespace ringgrad::program {

// It is no C++, or lacks the function: graded as a failure, with the compiler's words.
struct DoesNotCompile : Error {
  using Error::Error;
};

// Compiles the file alone into the shared library `library`, against the headers of the engine from
// which this program was built, or those that are installed beside it. The compiler is $CXX, else
// the one that built this program, else c++. Its warnings go to stderr. Throws DoesNotCompile, and
// ExecuteError if no compiler is found.
void compile(const std::string& file, const std::string& library);

class LearnersCode {
 public:
  // Loads a library into this process for good, because objects from its functions may outlive this
  // one. Names that it uses but does not define come from the engine in this program. Throws
  // DoesNotCompile.
  explicit LearnersCode(const std::string& library);

  // Returns the learner's function with the engine's name and signature. Throws DoesNotCompile if
  // there is none.
  template <class Function>
  Function* instead_of(Function* engines) const {
    return reinterpret_cast<Function*>(find(reinterpret_cast<void*>(engines)));
  }

 private:
  void* find(void* engines) const;
  void* handle_;
};

}  // namespace ringgrad::program
