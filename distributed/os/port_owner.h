// Who listens on a port of this machine, for the error that says it is taken.
#pragma once

#include <string>

namespace ringgrad {

// "python3 (process 4711)"; "another program" where the system does not tell, as for other users' processes.
std::string port_owner(int port);

}  // namespace ringgrad
