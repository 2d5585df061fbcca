// Whether operations join the graph. Per thread; off in backward passes.
#pragma once

namespace ringgrad {

bool grad_enabled();

// While it lives, nothing this thread computes joins the graph: evaluation, optimizer steps, backward itself.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace ringgrad
