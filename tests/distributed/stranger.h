// A stranger at a rank's socket. It does not follow the protocol: it writes any bytes, and sees
// what happens.
#pragma once

#include <functional>
#include <string>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad::test {

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

// Sends bytes; that the other side may have gone is its good right.
inline void pour(const FileDescriptor& socket, const std::string& bytes) {
  error_of([&] { write_all(socket, std::as_bytes(std::span(bytes)), soon(), "the other side"); });
}

}  // namespace ringgrad::test
