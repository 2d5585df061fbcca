#include "ringgrad/autograd/grad_mode.h"

namespace ringgrad {
namespace {
constinit thread_local bool enabled = true;
}

bool grad_enabled() { return enabled; }
NoGradGuard::NoGradGuard() : previous_(enabled) { enabled = false; }
NoGradGuard::~NoGradGuard() { enabled = previous_; }

}  // namespace ringgrad
