// Measures the cost of libtorch's tape per operation: a chain of 1,000 adds of one float, as
// `ringgrad bench ops` measures ours. It runs on one thread and prints the median of many
// repetitions, in nanoseconds per operation, as JSON. tape_libtorch.sh builds it.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

constexpr int kChain = 1000;

template <class Function>
double nanoseconds_per_op(Function&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
             .count() /
         kChain;
}

// "NAME_ns": median, "NAME_quartiles_ns": [low, high]
void print_cost(const char* name, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  std::printf(", \"%s_ns\": %.0f, \"%s_quartiles_ns\": [%.0f, %.0f]", name, samples[n / 2], name,
              samples[n / 4], samples[3 * n / 4]);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const torch::Tensor b = torch::ones({1});
  const torch::Tensor leaf = torch::zeros({1}, torch::requires_grad());
  const auto chain = [&] {
    torch::Tensor x = leaf;
    for (int i = 0; i < kChain; ++i) x = x + b;
    return x;
  };
  std::vector<double> untracked;
  std::vector<double> forward;
  std::vector<double> both;
  for (int repetition = -20; repetition < 500; ++repetition) {
    const double plain = nanoseconds_per_op([&] {
      torch::NoGradGuard guard;
      chain();
    });
    torch::Tensor end;
    const double record = nanoseconds_per_op([&] { end = chain(); });
    const double replay = nanoseconds_per_op([&] {
      end.backward();
      end = torch::Tensor();
    });
    if (repetition < 0) continue;
    untracked.push_back(plain);
    forward.push_back(record);
    both.push_back(record + replay);
  }
  std::printf("{\"peer\": \"libtorch %s\", \"chain\": %d", TORCH_VERSION, kChain);
  print_cost("add_untracked", untracked);
  print_cost("add_forward", forward);
  print_cost("add_forward_backward", both);
  std::puts("}");
}
