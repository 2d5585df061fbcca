// Reads the variables that mpirun and srun set for the processes that they start.
#pragma once

#include <string>

namespace ringgrad {

// The first host of a Slurm node list: "node[03-05,9],gpu1" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace ringgrad
