// Makes the library safe after fork(). The child has only the forking thread and copies of
// everything else: the other threads are gone, their locks may be held, and connections belong to
// the parent.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace ringgrad {

// The number of forks between the process in which the program began and this process. An object
// that keeps this number from its construction can tell later that it is a copy and belongs to the
// parent.
inline constinit int forks = 0;

// From now on fork() holds the mutex while it runs, so that the child finds it free. Several
// mutexes are locked in the order of these calls. REQUIRES: the mutex is never destroyed; a thread
// that holds it does not lock a mutex of an earlier call.
void hold_over_fork(std::mutex& mutex);

// Returns a handle to the same object. A forked child never destroys the object: the threads that
// its destructor would wait for do not exist there, and the rest belongs to the parent.
template <class T>
std::shared_ptr<T> of_this_process(std::shared_ptr<T> owner) {
  T* const object = owner.get();
  return {object, [owner = std::move(owner), born_after = forks](T*) mutable {
            if (born_after != forks) new std::shared_ptr<T>(std::move(owner));  // never destroyed
          }};
}

}  // namespace ringgrad
