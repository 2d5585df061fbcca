// Bytes from another rank: the header of a message, and the contents of a control connection.
#include <sys/socket.h>

#include <cstring>

#include "ringgrad/distributed/transport/control_link.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto data = std::as_bytes(std::span(bytes, size));
  if (size >= kFrameBytes) {
    reads_or_refuses([&] { (void)describe(decode(data.first<kFrameBytes>())); });
    Frame frame;
    std::memcpy(&frame, bytes, kFrameBytes);
    // With a checksum that is right.
    reads_or_refuses([&] { (void)describe(decode(encode(frame))); });
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  const FileDescriptor sender(ends[0]);
  ControlLink link{FileDescriptor(ends[1])};
  (void)!write(sender.get(), bytes, size);
  while (link.receive()) continue;
  return 0;
}
