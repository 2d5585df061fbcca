#include "ringgrad/tests/random/ddp_plan.h"

namespace ringgrad::test {

Plan::Plan(uint64_t seed) : seed(seed) {
  Choices choices(seed);
  ranks = static_cast<int>(choices.between(2, 4));
  channel = choices.chance(70) ? "shm" : "tcp";
  network.dtype = choices.of<DType>({DType::Float64, DType::Float64, DType::Float64, DType::Float32,
                                     DType::BFloat16, DType::Float16});
  network.batch_norm = choices.chance(60);
  sync_batch_norm = network.dtype == DType::Float64 && choices.chance(60);
  weighting = choices.of<Weighting>(
      {Weighting::Samples, Weighting::Samples, Weighting::Ranks, Weighting::Given});
  hook = choices.of<Hook>({Hook::None, Hook::None, Hook::None, Hook::BFloat16, Hook::Float16});
  if (sync_batch_norm) hook = Hook::None;  // what each rank sends is no part of Expected then
  network.counts = !sync_batch_norm;
  passes = static_cast<int>(choices.of<int64_t>({1, 1, 2, 3}));
  steps = static_cast<int>(choices.between(2, 4));
  optimizer = static_cast<int>(choices.below(7));
  two_wrappers = choices.chance(30);
  scaled = choices.chance(25);
  planned = choices.chance(20);
  clip = choices.chance(25) ? 0.5 : 0;
  const auto bytes = [&] { return choices.of<int64_t>({32, 64, 100, 256, 1000, 1 << 20}); };
  options.caps = {bytes(), bytes()};
  options.weighting = weighting;
  options.overlap = choices.chance(80);
  options.check_finite = !scaled;
  options.usual_weight = choices.of<double>({0, 0, 1, 3});
  if (hook == Hook::BFloat16) options.comm_hook = bf16_compress_hook();
  if (hook == Hook::Float16) options.comm_hook = fp16_compress_hook();
  if (planned)
    options.planner = [](const std::vector<ReadyGradient>& gradients) {
      return BucketCaps{gradients.front().bytes + 8, 200};
    };
}

int64_t Plan::samples(int step, int pass, int rank) const {
  if (sync_batch_norm) pass = 0;  // passes are weighed exactly where ranks divide all of them alike
  Choices choices(seed, 1000 + static_cast<uint64_t>((step * 8 + pass) * 8 + rank));
  // At least one rank has some.
  if (rank == step % ranks || sync_batch_norm) return choices.between(1, 5);
  return choices.chance(20) ? 0 : choices.between(1, 5);
}

double Plan::labels(int step, int rank) const {
  double sum = 0;
  for (int pass = 0; pass < passes; ++pass)
    sum += loss_divisor(batch(step, pass, rank, DType::Float32).target);
  return sum;
}

// Returns the rank's weight by the contract. It is 0 if none of the rank's passes has samples.
// Otherwise it is the mean batch of those passes, the labelled rows (the given weight), or 1.
double Plan::weight(int step, int rank) const {
  double samples_seen = 0;
  int made = 0;
  for (int pass = 0; pass < passes; ++pass) {
    samples_seen += static_cast<double>(samples(step, pass, rank));
    made += samples(step, pass, rank) > 0 ? 1 : 0;
  }
  if (made == 0) return 0;
  if (weighting == Weighting::Given) return labels(step, rank);
  return weighting == Weighting::Ranks ? 1 : samples_seen / made;
}

Tensor Plan::loss(const Tensor& y, const Batch3& batch, int step, int rank) const {
  if (weighting != Weighting::Given) return cross_entropy(y, batch.target);
  const double divisor = std::max(1.0, labels(step, rank));
  return cross_entropy(y, batch.target, {.reduction = Reduction::Sum}) * (1 / divisor);
}

std::string Plan::text() const {
  return str(
      ranks, " ranks ", channel, " ", network.dtype, sync_batch_norm ? " sync" : "", " weighting ",
      static_cast<int>(weighting), " hook ", static_cast<int>(hook), " passes ", passes, " steps ",
      steps, " optimizer ", optimizer, two_wrappers ? " two wrappers" : "", scaled ? " scaled" : "",
      planned ? " planned" : "", clip > 0 ? " clipped" : "", " caps ", options.caps.first_bytes,
      " ", options.caps.bytes, " usual ", options.usual_weight, ":", make_network()->description());
}

}  // namespace ringgrad::test
