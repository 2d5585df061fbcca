// The ProcessGroup of ranks that mpirun or srun has started, over the site's MPI library: non-blocking collectives of
// MPI-3, on CPU tensors. Built with -DRINGGRAD_MPI=ON.
//
// What MPI cannot do: name a rank that is missing (a TimeoutError says only for what this one waits), compare what the
// ranks are doing, or go on after an error. So abort() ends all processes of the job, as MPI's own errors do, and so
// does a rank that leaves after an error.
#pragma once

#include <chrono>
#include <memory>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Collective over all processes of the MPI job. Initialises MPI, which is finalised with this group and cannot come
// back; groups split off must have gone before. Throws DistributedError when MPI cannot be initialised for threads.
std::shared_ptr<ProcessGroup> mpi_process_group(std::chrono::milliseconds timeout);

}  // namespace ringgrad
