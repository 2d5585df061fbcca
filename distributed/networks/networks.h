// What ranks on several machines need of the network that joins them; see Networks (os/socket.h).
#pragma once

#include <string>

namespace ringgrad {

// Throws EnvironmentError when `host`, where ranks of several machines are to meet, is a name that
// leads back to this machine alone: Debian gives a machine's own name the address 127.0.1.1.
// "localhost" and numbers are taken as meant.
void check_reachable(const std::string& host);

}  // namespace ringgrad
