// Ranks of an NCCL process group, a thread and a device for each.
#pragma once

#include "ringgrad/distributed/vendor_groups/nccl_process_group.h"
#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test {

inline Device device_of(const ProcessGroup& group) {
  return Device(DeviceType::CUDA, group.rank());
}

// Returns the error of each rank's body. On the CPU the ranks' all-reduce is the ring, too.
template <class Body>
std::vector<std::string> errors_of_nccl(int size, const NcclOptions& options, Body body) {
  HostOptions ring;
  ring.algorithm = AllReduceAlgorithm::Ring;
  ring.timeout = options.timeout;
  return errors_of_ranks(host_groups(size, "shm", ring), [&](HostProcessGroup& host) {
    const std::shared_ptr<ProcessGroup> borrowed(&host, [](ProcessGroup*) {});
    NcclProcessGroup group(borrowed, Device(DeviceType::CUDA, host.rank()), options);
    body(group);
  });
}

// Throws the error of the first failing rank.
template <class Body>
void run_nccl(int size, const NcclOptions& options, Body body) {
  const auto errors = errors_of_nccl(size, options, body);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error("on rank " + std::to_string(r) + ": " + errors[r]);
}

inline Tensor on(const ProcessGroup& group, const std::vector<double>& values, DType dtype) {
  const Tensor x = empty({static_cast<int64_t>(values.size())}, {dtype, device_of(group)});
  copy_(x, tensor(values, x.shape()));
  return x;
}
inline void must_be(const Tensor& x, const std::vector<double>& values, const std::string& what) {
  must(to_vector<double>(x) == values, str(what, " gives ", x));
}

}  // namespace ringgrad::test
