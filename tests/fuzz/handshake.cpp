// Bytes from a stranger at the port where ranks meet. The second half is sent after the answer.
#include <sys/socket.h>

#include "ringgrad/distributed/rendezvous/handshake.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  const FileDescriptor stranger(ends[0]);
  ServerHandshake handshake{FileDescriptor(ends[1])};
  for (const size_t end : {size / 2, size}) {
    const size_t begin = end == size ? size / 2 : 0;
    (void)!write(stranger.get(), bytes + begin, end - begin);
    if (handshake.advance("a secret of sixteen bytes") == ServerHandshake::State::Admitted)
      std::abort();
  }
  return 0;
}
