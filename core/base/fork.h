// After fork() the child has the forking thread alone, and copies of everything else as it was: of threads that are no
// more, of locks that they held, and of connections that are its parent's.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace ringgrad {

// How many forks lie between the process in which the program began and this one. Who notes it in what he makes can see
// later that a copy belongs to the parent.
inline constinit int forks = 0;

// From now on fork() waits for whoever holds the mutex, so that the child finds it free; of several, in the order of
// these calls. REQUIRES: it is never destroyed; who holds it takes none that was named before.
void hold_over_fork(std::mutex& mutex);

// A handle like the one that is given. What it names is not destroyed in a forked child, where the threads that its
// destructor would wait for do not exist, and the rest is the parent's.
template <class T>
std::shared_ptr<T> of_this_process(std::shared_ptr<T> owner) {
  T* const object = owner.get();
  return {object, [owner = std::move(owner), born_after = forks](T*) mutable {
            if (born_after != forks) new std::shared_ptr<T>(std::move(owner));  // never given up
          }};
}

}  // namespace ringgrad
