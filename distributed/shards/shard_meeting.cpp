#include "ringgrad/distributed/shards/shard_meeting.h"

#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

Tensor rows_in(const Tensor& x, ShardRange range) {
  return x.as_strided({range.size(), x.size(1)}, {x.size(1), 1}, range.begin * x.size(1));
}

}  // namespace

Tensor ShardMeeting::exchange(ProcessGroup& group, const Tensor& own,
                              const CollectiveOptions& options) const {
  const Tensor all = empty({shards_, own.size(1)}, {.dtype = own.dtype()});
  std::vector<Tensor> parts;
  for (int r = 0; r < group.size(); ++r)
    parts.push_back(rows_in(all, shards_of_rank(r, group.size(), shards_)));
  group.all_gather(parts, own, options).wait();
  return all;
}

Tensor ShardMeeting::gather(ProcessGroup& group, const Tensor& row,
                            const CollectiveOptions& options) {
  const int64_t n = row.numel();
  if (!lockstep_)
    return exchange(group, row.as_strided({1, n}, {n, 1}, row.storage_offset()), options);
  own_rows_[lockstep_->member()] = row;
  lockstep_->meet([&] {
    const Tensor own = empty({own_.size(), n}, {.dtype = row.dtype()});
    for (int m = 0; m < own_.size(); ++m) copy_(own.as_strided({n}, {1}, m * n), own_rows_[m]);
    all_ = exchange(group, own, options);
  });
  return all_;
}

}  // namespace ringgrad
