// Whether operations join the graph. Per thread; engine workers copy it from the thread that called backward().
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
