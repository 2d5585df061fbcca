// What this program is built from and for.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringgrad::program {

// The commit, with a + where files differed from it; "" where it was built outside a checkout.
std::string build_commit();

// What became of the CUDA kernels in this build, and whether there is a GPU for them.
std::string cuda_build();

// Names and values, for people: version, commit, compiler, kernels, cuda.
std::vector<std::pair<std::string, std::string>> build_facts();

}  // namespace ringgrad::program
