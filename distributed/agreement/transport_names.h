// The transports that a program has, as options name them.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// How a user may want ranks to be connected: "auto", by the fastest way that each pair of ranks
// has; or by the name of a registered transport (transport/channel.h), such as "shm" and "tcp".
std::vector<std::string> transport_names();
bool is_transport(const std::string& name);
// The same in words: "auto, shm or tcp"; `automatic` is written for the first.
std::string transport_choices(const std::string& automatic = "auto");

}  // namespace ringgrad
