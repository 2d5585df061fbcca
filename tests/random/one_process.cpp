#include "ringgrad/tests/random/one_process.h"

namespace ringgrad::test {

Values gradients_of(const nn::Module& module) {
  Values all;
  for (const Tensor& p : module.parameters())
    all.push_back(p.grad() ? to_vector<double>(p.grad())
                           : std::vector<double>(static_cast<size_t>(p.numel())));
  return all;
}

namespace {

// Computes a step in one process. `net` has the weights from before the step. Each rank's part of
// the loss is differentiated alone. The graph covers the whole batch if all samples see each other
// (batch norm over all ranks) or none do. If a rank's samples see only those of that rank, the rank
// has its own graph.
class OneProcess {
 public:
  OneProcess(const Plan& plan, RandomNetwork& net) : plan_(plan), net_(net) {
    whole_ =
        plan.network.dtype == DType::Float64 && (plan.sync_batch_norm || !net.has_batch_norm());
  }

  Expected step(int step) {
    Expected expected;
    for (int r = 0; r < plan_.ranks; ++r) expected.weight += plan_.weight(step, r);
    const auto before = copies(net_.buffers());
    std::vector<Values> of_rank;
    std::vector<std::vector<Tensor>> buffers;
    if (whole_) of_rank = whole_batch(step, buffers);
    for (int r = 0; r < plan_.ranks && !whole_; ++r) {
      restore(before);
      of_rank.push_back(of_one_rank(step, r));
      buffers.push_back(copies(net_.buffers()));
    }
    combine(step, of_rank, expected);
    restore(before);
    expected.buffers = mean_buffers(step, buffers, before);
    return expected;
  }

 private:
  static std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> all;
    for (const Tensor& x : tensors) all.push_back(clone(x));
    return all;
  }
  void restore(const std::vector<Tensor>& before) {
    const auto buffers = net_.buffers();
    for (size_t i = 0; i < buffers.size(); ++i) copy_(buffers[i], before[i]);
  }

  Values of_one_rank(int step, int rank) {
    net_.zero_grad();
    for (int pass = 0; pass < plan_.passes; ++pass) {
      const Batch3 batch = plan_.batch(step, pass, rank, plan_.network.dtype);
      if (batch.target.numel() > 0)
        (plan_.loss(net_(batch.x), batch, step, rank) * scale()).backward();
    }
    Values all = gradients_of(net_);
    for (auto& values : all)
      for (double& value : values) value /= scale();
    return all;
  }

  // Returns the gradients of each rank's loss. The samples of all ranks pass through the network at
  // once.
  std::vector<Values> whole_batch(int step, std::vector<std::vector<Tensor>>& buffers) {
    std::vector<Values> sums;
    const auto before = copies(net_.buffers());
    std::vector<std::vector<Tensor>> alone(static_cast<size_t>(plan_.ranks));
    for (int pass = 0; pass < plan_.passes; ++pass) {
      std::vector<Batch3> batches;
      std::vector<Tensor> xs;
      for (int r = 0; r < plan_.ranks; ++r) {
        batches.push_back(plan_.batch(step, pass, r, plan_.network.dtype));
        xs.push_back(batches.back().x);
      }
      const Tensor y = net_(cat(xs));
      int64_t begin = 0;
      for (int r = 0; r < plan_.ranks; ++r) {
        const int64_t n = batches[r].target.numel();
        net_.zero_grad();
        if (n > 0) plan_.loss(narrow(y, 0, begin, n), batches[r], step, r).backward({}, true);
        begin += n;
        add(sums, r, gradients_of(net_));
      }
    }
    // Buffers that depend on a rank's samples alone come from its own passes.
    const auto together = copies(net_.buffers());
    for (int r = 0; r < plan_.ranks; ++r) {
      restore(before);
      if (!net_.has_batch_norm()) of_one_rank(step, r);
      buffers.push_back(net_.has_batch_norm() ? together : copies(net_.buffers()));
    }
    return sums;
  }

  double scale() const { return plan_.scaled ? kScale : 1; }

  static void add(std::vector<Values>& sums, int rank, const Values& gradients) {
    if (sums.size() <= static_cast<size_t>(rank)) {
      sums.push_back(gradients);
      return;
    }
    for (size_t p = 0; p < gradients.size(); ++p)
      for (size_t i = 0; i < gradients[p].size(); ++i) sums[rank][p][i] += gradients[p][i];
  }

  // Computes Σ w_r g_r / Σ w_r. An element may differ by a few roundings of its largest part, in
  // the dtype in which gradients travel. If one process adds in another order, it may also differ
  // by roundings of the largest part of its tensor. Two norms behind each other, of a variance of
  // nearly 0, amplify them by 1 / eps.
  void combine(int step, const std::vector<Values>& of_rank, Expected& expected) {
    const double eps = std::max(epsilon_of(plan_.network.dtype), plan_.hook == Hook::None ? 0
                                                                 : plan_.hook == Hook::BFloat16
                                                                     ? epsilon_of(DType::BFloat16)
                                                                     : epsilon_of(DType::Float16));
    const bool narrow_range = plan_.network.dtype == DType::Float16 || plan_.hook == Hook::Float16;
    for (size_t p = 0; p < of_rank[0].size(); ++p) {
      std::vector<double> sum(of_rank[0][p].size());
      std::vector<double> parts(sum.size());
      for (int r = 0; r < plan_.ranks && expected.weight > 0; ++r) {
        const double share = plan_.weight(step, r) / expected.weight;
        for (size_t i = 0; i < sum.size() && share > 0; ++i) {
          sum[i] += share * of_rank[r][p][i];
          parts[i] += std::abs(share * of_rank[r][p][i]);
        }
      }
      double largest = 0;
      for (const double part : parts) largest = std::max(largest, part);
      for (double& part : parts)
        part = (whole_ ? 16 * 0x1p-52 / 1e-5 * (1 + largest) : 0) + 6 * eps * part +
               (narrow_range ? 8 * 0x1p-24 : 1e-37);
      expected.gradients.push_back(sum);
      expected.bounds.push_back(parts);
    }
  }

  // Returns the mean of floating buffers, weighted by samples, and rank 0's other buffers. If no
  // rank counts, all buffers are rank 0's.
  std::vector<Tensor> mean_buffers(int step, const std::vector<std::vector<Tensor>>& of_rank,
                                   const std::vector<Tensor>& before) {
    std::vector<Tensor> result;
    for (size_t b = 0; b < before.size(); ++b) {
      result.push_back(clone(of_rank[0][b]));
      if (!is_floating(before[b].dtype())) continue;
      std::vector<double> sum(static_cast<size_t>(before[b].numel()));
      double weights = 0;
      for (int r = 0; r < plan_.ranks; ++r) {
        const double weight = plan_.weight(step, r) > 0 ? seen(step, r) : 0;
        const auto values = to_vector<double>(of_rank[r][b]);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * values[i];
        weights += weight;
      }
      for (double& value : sum) value /= weights;
      if (weights > 0) copy_(result.back(), tensor(sum, before[b].shape()));
    }
    return result;
  }
  double seen(int step, int rank) const {
    double sum = 0;
    int made = 0;
    for (int pass = 0; pass < plan_.passes; ++pass) {
      sum += static_cast<double>(plan_.samples(step, pass, rank));
      made += plan_.samples(step, pass, rank) > 0 ? 1 : 0;
    }
    return made > 0 ? sum / made : 0;
  }

  const Plan& plan_;
  RandomNetwork& net_;
  bool whole_;
};

}  // namespace

Expected expected_of(const Plan& plan, RandomNetwork& net, int step) {
  return OneProcess(plan, net).step(step);
}

}  // namespace ringgrad::test
