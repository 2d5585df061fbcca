// The transports that a program has, as options name them.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// Returns the values of --transport: "auto", which takes the fastest way that each pair of ranks
// has, and the names of the registered transports (transport/channel.h), such as "shm" and "tcp".
std::vector<std::string> transport_names();
bool is_transport(const std::string& name);
// The same in words: "auto, shm or tcp"; `automatic` is written for the first.
std::string transport_choices(const std::string& automatic = "auto");

}  // namespace ringgrad
