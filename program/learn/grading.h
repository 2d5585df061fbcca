// Grading: a process of its own runs the learner's code, so that code that crashes, loops or never
// answers is graded, too.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ringgrad::program {

// The learner's code is wrong. The message says what it did and what was expected, in words or as a
// drawing.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Grading {
 public:
  explicit Grading(int pipe) : pipe_(pipe) {}

  // Checks one requirement: look() throws Wrong, or the exception of the learner's code. The first
  // failure ends the grading.
  void check(const std::string& what, const std::function<void()>& look);

 private:
  void say(const char* kind, const std::string& text) const;
  int pipe_;
};

struct Grade {
  std::vector<std::string> passed;  // the requirements that are met
  std::string failed;               // the first that is not; "" : all are
  std::string why;
};

// Calls grade() in a child process, which has `seconds` to end.
Grade grade_in_child(const std::function<void(Grading&)>& grade, int seconds);

// "was killed by signal 11 (Segmentation fault)", "ended with exit code 1"; "" after a good end.
std::string describe_end(int wait_status);

}  // namespace ringgrad::program
