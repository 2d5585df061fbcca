// Describes this build of the program: its version, compiler and devices.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringgrad::program {

// The commit, with a + where files differed from it; "" where it was built outside a checkout.
std::string build_commit();

// Says whether this build has CUDA kernels, and whether there is a GPU for them.
std::string cuda_build();

// Names and values, for people: version, commit, compiler, kernels, cuda.
std::vector<std::pair<std::string, std::string>> build_facts();

}  // namespace ringgrad::program
