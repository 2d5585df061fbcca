// Grading: a process of its own runs the learner's code, so that what crashes, loops or never
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

  // One thing that is asked for: look() throws Wrong, or what the learner's code throws. The first
  // that fails is the last that is looked at.
  void check(const std::string& what, const std::function<void()>& look);

 private:
  void say(const char* kind, const std::string& text) const;
  int pipe_;
};

struct Grade {
  std::vector<std::string> passed;  // what was asked for, and is done
  std::string failed;               // the first that is not; "" : all are
  std::string why;
};

// Calls grade() in a child process, which has `seconds` to end.
Grade grade_in_child(const std::function<void(Grading&)>& grade, int seconds);

// "was killed by signal 11 (Segmentation fault)", "ended with exit code 1"; "" after a good end.
std::string describe_end(int wait_status);

}  // namespace ringgrad::program
