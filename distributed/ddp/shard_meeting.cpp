#include "ringgrad/distributed/ddp/shard_meeting.h"

#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

Tensor rows_in(const Tensor& x, ShardRange range) {
  return x.as_strided({range.size(), x.size(1)}, {x.size(1), 1}, range.begin * x.size(1));
}

}  // namespace

Tensor ShardMeeting::exchange(ProcessGroup& group, const Tensor& own, const CollectiveOptions& options) const {
  const Tensor all = empty({shards_, own.size(1)}, {.dtype = own.dtype()});
  std::vector<Tensor> parts;
  for (int r = 0; r < group.size(); ++r) parts.push_back(rows_in(all, shards_of_rank(r, group.size(), shards_)));
  group.all_gather(parts, own, options).wait();
  return all;
}

Tensor ShardMeeting::gather(ProcessGroup& group, const Tensor& row, const CollectiveOptions& options) {
  const int64_t n = row.numel();
  if (!lockstep_) return exchange(group, row.as_strided({1, n}, {n, 1}, row.storage_offset()), options);
  const int member = lockstep_->member();
  if (member == 0) own_rows_ = empty({own_.size(), n}, {.dtype = row.dtype()});
  copy_(own_rows_.as_strided({n}, {1}, member * n), row);
  lockstep_->meet([&] { all_ = exchange(group, own_rows_, options); });
  return all_;
}

}  // namespace ringgrad
