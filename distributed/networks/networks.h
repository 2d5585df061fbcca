// Name resolution and connections for ranks on several machines; see Networks (os/socket.h).
#pragma once

#include <string>

namespace ringgrad {

// Throws EnvironmentError if `host`, where ranks of several machines are to meet, is a name for
// this machine alone. (Debian maps a machine's own name to 127.0.1.1.) It accepts "localhost" and
// numeric addresses.
void check_reachable(const std::string& host);

}  // namespace ringgrad
