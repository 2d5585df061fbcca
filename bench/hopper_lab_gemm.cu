// Variants of cuda_kernels/hopper/gemm.cuh: tiles, stages, clusters, schedules, epilogues, orders
// of tiles, layouts and shapes; and ablations, which leave out one part each. What a part costs is
// the difference from the whole. Predictions stand in gemm.cuh; none has been run on a GPU yet.
#include "ringgrad/bench/hopper_lab.h"

#include <memory>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/cuda_kernels/hopper/launch_gemm.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::lab {
namespace {

using cuda::hopper::GemmClocks;
using cuda::hopper::GemmConfig;
using cuda::hopper::GemmProblem;
using cuda::hopper::launch_gemm;

// ---- operands -----------------------------------------------------------------------------------

struct Sizes {
  int64_t batches;
  int64_t M;
  int64_t N;
  int64_t K;
  bool operator==(const Sizes&) const = default;
};
// Tiles and slices with remainders, in two batches.
constexpr Sizes kSmall{2, 392, 264, 136};

// Operands in several places, and the result that they should give.
struct Operands {
  Sizes sizes;
  DType dtype;
  bool a_along_k;
  bool b_along_k;
  int sets;
  std::vector<Tensor> a;
  std::vector<Tensor> b;
  std::vector<Tensor> c;
  Tensor reference;
};

double bytes_of(const Sizes& s) {
  return 2.0 * static_cast<double>(s.batches * (s.M * s.K + s.K * s.N + s.M * s.N));
}

// A matrix of which rows, or columns, are contiguous.
Tensor matrix(int64_t batches, int64_t rows, int64_t columns, DType dtype, bool by_rows) {
  if (by_rows) return noise({batches, rows, columns}, dtype);
  return noise({batches, columns, rows}, dtype)
      .as_strided({batches, rows, columns}, {rows * columns, 1, rows}, 0);
}

// Makes operands, or returns those of the variant before if they are the same.
std::shared_ptr<Operands> operands(const Sizes& s, DType dtype, bool a_along_k, bool b_along_k,
                                   int sets) {
  static std::shared_ptr<Operands> last;
  if (last && last->sizes == s && last->dtype == dtype && last->a_along_k == a_along_k &&
      last->b_along_k == b_along_k && last->sets == sets)
    return last;
  last = nullptr;  // before other memory is taken
  auto made =
      std::make_shared<Operands>(Operands{s, dtype, a_along_k, b_along_k, sets, {}, {}, {}, {}});
  for (int i = 0; i < sets; ++i) {
    made->a.push_back(matrix(s.batches, s.M, s.K, dtype, a_along_k));
    made->b.push_back(matrix(s.batches, s.K, s.N, dtype, !b_along_k));
    made->c.push_back(noise({s.batches, s.M, s.N}, dtype));
  }
  // By the obvious kernel, except where it would take seconds.
  const bool large = s.M * s.N * s.K > int64_t{1} << 36;
  made->reference = noise({s.batches, s.M, s.N}, dtype);
  cuda::matmul(large ? cuda::MatmulStep::TensorCores : cuda::MatmulStep::Coalesced,
               current_stream(made->reference.device()), made->reference, made->a[0], made->b[0],
               {});
  return last = made;
}

// Some rows of a large result are enough: 5, 13, 21, … are in all tiles.
Tensor sample(const Tensor& c) {
  constexpr int64_t kMost = 1 << 24;
  const int64_t rows = c.size(0) * c.size(1);
  if (c.numel() <= kMost || rows % 8 != 0) return c;
  return c.as_strided({rows / 8, c.size(2)}, {8 * c.size(2), 1}, 5 * c.size(2));
}

// ---- kernels ------------------------------------------------------------------------------------

struct Kernel {
  std::string name;
  GemmConfig config;
  bool a_along_k;
  bool b_along_k;
  void (*launch)(Stream, const GemmProblem<__nv_bfloat16>&);
};

template <GemmConfig kConfig, bool kAAlongK = true, bool kBAlongK = false>
Kernel kernel(std::string name) {
  return {std::move(name), kConfig, kAAlongK, kBAlongK,
          launch_gemm<__nv_bfloat16, kConfig, kAAlongK, kBAlongK>};
}

constexpr GemmConfig kBest{};  // what matmul uses for large products
constexpr GemmConfig with(GemmConfig config, unsigned without) {
  config.without = without;
  return config;
}
constexpr GemmConfig timed(GemmConfig config) {
  config.timed = true;
  return config;
}
constexpr GemmConfig kAlone{.cluster = 1};
constexpr GemmConfig kInTurn{.columns = 128, .stages = 6, .in_turn = true};

nlohmann::json mean_clocks(const Tensor& clocks) {
  const std::vector<int64_t> numbers = to_vector<int64_t>(clocks);
  constexpr const char* kNames[] = {"producer_waits", "consumer_waits", "epilogue", "all"};
  static_assert(sizeof(GemmClocks) == std::size(kNames) * sizeof(int64_t));
  nlohmann::json means;
  const double blocks = static_cast<double>(numbers.size()) / std::size(kNames);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    double sum = 0;
    for (size_t j = i; j < numbers.size(); j += std::size(kNames))
      sum += static_cast<double>(numbers[j]);
    means[kNames[i]] = sum / blocks;
  }
  return {{"clocks_of_a_block", means}};
}

Prepared prepare(const Kernel& kernel, const Sizes& sizes, int band, bool small) {
  const Sizes s = small ? kSmall : sizes;
  const auto data = operands(s, DType::BFloat16, kernel.a_along_k, kernel.b_along_k,
                             small ? 1 : sets_for(bytes_of(s)));
  const Device device = data->reference.device();
  const Tensor clocks = zeros({kernel.config.timed ? cuda::multiprocessors(device) : 0, 4},
                              {.dtype = DType::Int64, .device = device});
  Prepared prepared;
  prepared.sets = data->sets;
  prepared.run = [=](Stream stream, int set) {
    const auto i = static_cast<size_t>(set);
    GemmProblem<__nv_bfloat16> problem{DType::BFloat16,
                                       {s.batches, s.M, s.N, s.K},
                                       cuda::left_operand<bfloat16>(data->a[i]),
                                       cuda::right_operand<bfloat16>(data->b[i]),
                                       cuda::device_data<bfloat16>(data->c[i]),
                                       nullptr};
    problem.band = band;
    if (kernel.config.timed) problem.clocks = reinterpret_cast<GemmClocks*>(clocks.data<int64_t>());
    kernel.launch(stream, problem);
  };
  if (kernel.config.without == cuda::hopper::kNothing)
    prepared.error = [=] { return relative_error(sample(data->c[0]), sample(data->reference)); };
  if (kernel.config.timed) prepared.more = [=] { return mean_clocks(clocks); };
  return prepared;
}

// An H200's. Its clock falls to this under tensor cores' load.
constexpr int kMultiprocessors = 132;
constexpr double kClocksPerMicrosecond = 1450;

Variant variant(const Kernel& kernel, const Sizes& s, int band = 8) {
  const std::string batches = s.batches > 1 ? std::to_string(s.batches) + " of " : "";
  return {"gemm",
          kernel.name + (band == 8 ? "" : ", bands of " + std::to_string(band)),
          batches + std::to_string(s.M) + "x" + std::to_string(s.N) + "x" + std::to_string(s.K),
          2.0 * static_cast<double>(s.batches * s.M * s.N * s.K),
          bytes_of(s),
          1.0 / 128,  // four roundings to bfloat16
          cuda::hopper::predicted_clocks({s.batches, s.M, s.N, s.K}, kernel.config, 1,
                                         kMultiprocessors) /
              kClocksPerMicrosecond,
          [=](bool small) { return prepare(kernel, s, band, small); }};
}

// The whole of kernels::matmul, by our kernel of choice or by cuBLAS.
Variant whole(Provider provider, const Sizes& s) {
  Variant v = variant(kernel<kBest>(provider == Provider::Vendor ? "cuBLAS" : "matmul"), s);
  v.predicted_us = 0;
  v.prepare = [=](bool small) {
    const Sizes now = small ? kSmall : s;
    const auto data =
        operands(now, DType::BFloat16, true, false, small ? 1 : sets_for(bytes_of(now)));
    Prepared prepared;
    prepared.sets = data->sets;
    prepared.run = [=](Stream, int set) {
      const ProviderGuard guard(provider);
      const auto i = static_cast<size_t>(set);
      kernels::matmul(data->c[i], data->a[i], data->b[i], {});
    };
    prepared.error = [=] { return relative_error(sample(data->c[0]), sample(data->reference)); };
    return prepared;
  };
  return v;
}

Variant copy() {
  constexpr int64_t kElements = 1 << 28;
  return {"copy",
          "half a gigabyte",
          std::to_string(kElements),
          1,
          4.0 * kElements,
          0,
          0,
          [](bool small) {
            const Tensor x = noise({small ? 1000 : kElements}, DType::BFloat16);
            const Tensor y = empty_like(x);
            Prepared prepared;
            prepared.run = [=](Stream, int) { copy_(y, x); };
            return prepared;
          }};
}

std::vector<Variant> variants() {
  using cuda::hopper::kEpilogue;
  using cuda::hopper::kLoads;
  using cuda::hopper::kProducts;
  constexpr Sizes k1024{1, 1024, 1024, 1024};
  constexpr Sizes k2048{1, 2048, 2048, 2048};
  constexpr Sizes k4096{1, 4096, 4096, 4096};
  constexpr Sizes k8192{1, 8192, 8192, 8192};
  const Kernel best = kernel<kBest>("128x256, 4 stages, cluster 2");
  std::vector<Variant> all = {copy()};
  // The goal, and our distance from it.
  for (const Sizes& s : {k4096, k8192, k2048, k1024}) {
    all.push_back(whole(Provider::Vendor, s));
    all.push_back(whole(Provider::Native, s));
  }
  // Each part left out: it shows what the part costs, without counters.
  all.push_back(variant(best, k4096));
  all.push_back(variant(kernel<timed(kBest)>("128x256, clocks"), k4096));
  all.push_back(variant(kernel<with(kBest, kProducts)>("128x256, no products"), k4096));
  all.push_back(variant(kernel<with(kBest, kLoads)>("128x256, no loads"), k4096));
  all.push_back(variant(kernel<with(kBest, kEpilogue)>("128x256, no epilogue"), k4096));
  all.push_back(variant(kernel<with(kBest, kLoads | kEpilogue)>("128x256, products alone"), k4096));
  all.push_back(variant(kernel<with(kBest, kProducts | kEpilogue)>("128x256, loads alone"), k4096));
  all.push_back(
      variant(kernel<GemmConfig{.multicast = false}>("128x256, cluster 2, no multicast"), k4096));
  all.push_back(variant(best, {1, 4096, 4096, 2048}));  // half of K: the rest is fixed
  // Tiles, stages, clusters.
  all.push_back(variant(kernel<GemmConfig{.stages = 3}>("128x256, 3 stages"), k4096));
  all.push_back(variant(kernel<GemmConfig{.stages = 2}>("128x256, 2 stages"), k4096));
  all.push_back(variant(kernel<kAlone>("128x256, cluster 1"), k4096));
  all.push_back(variant(kernel<timed(kAlone)>("128x256, cluster 1, clocks"), k4096));
  all.push_back(variant(kernel<GemmConfig{.cluster = 4}>("128x256, cluster 4"), k4096));
  const Kernel middle =
      kernel<GemmConfig{.columns = 128, .stages = 6}>("128x128, 6 stages, cluster 2");
  const Kernel middle_alone =
      kernel<GemmConfig{.columns = 128, .stages = 6, .cluster = 1}>("128x128, 6 stages, cluster 1");
  const Kernel middle_short =
      kernel<GemmConfig{.columns = 128, .stages = 4}>("128x128, 4 stages, cluster 2");
  const Kernel narrow =
      kernel<GemmConfig{.columns = 64, .stages = 8, .cluster = 1}>("128x64, 8 stages, cluster 1");
  const Kernel three =
      kernel<GemmConfig{.columns = 192, .stages = 4, .cluster = 1}>("128x192, 4 stages, cluster 1");
  for (const Kernel& k : {middle, middle_alone, middle_short, narrow, three})
    all.push_back(variant(k, k4096));
  // Schedules: a consumer stores while the other one multiplies.
  const Kernel in_turn = kernel<kInTurn>("128x128, in turn, cluster 2");
  const Kernel in_turn_alone =
      kernel<GemmConfig{.columns = 128, .stages = 6, .cluster = 1, .in_turn = true}>(
          "128x128, in turn, cluster 1");
  all.push_back(variant(in_turn, k4096));
  all.push_back(variant(in_turn_alone, k4096));
  all.push_back(variant(kernel<timed(kInTurn)>("128x128, in turn, clocks"), k4096));
  all.push_back(variant(kernel<with(kInTurn, kLoads)>("128x128, in turn, no loads"), k4096));
  all.push_back(variant(kernel<with(kInTurn, kEpilogue)>("128x128, in turn, no epilogue"), k4096));
  // Epilogues.
  all.push_back(
      variant(kernel<GemmConfig{.through_tma = false}>("128x256, from registers"), k4096));
  // Orders of tiles.
  for (const int band : {1, 2, 4, 16, 32}) all.push_back(variant(best, k4096, band));
  for (const int band : {1, 4, 16}) all.push_back(variant(best, k8192, band));
  // Layouts.
  const Kernel tn = kernel<kBest, true, true>("128x256, b along K");
  const Kernel nn = kernel<kBest, false, false>("128x256, a along M");
  const Kernel nt = kernel<kBest, false, true>("128x256, a along M, b along K");
  for (const Kernel& k : {tn, nn, nt}) all.push_back(variant(k, k4096));
  all.push_back(variant(tn, k8192));
  // Shapes: small, tall, batches, remainders.
  for (const Sizes& s :
       {k8192, k2048, k1024, Sizes{1, 4096, 4096, 16384}, Sizes{1, 16384, 4096, 1024},
        Sizes{16, 1024, 1024, 1024}, Sizes{1, 4100, 4104, 4104}})
    all.push_back(variant(best, s));
  for (const Kernel& k : {middle, middle_alone, narrow, in_turn, in_turn_alone})
    for (const Sizes& s : {k1024, k2048}) all.push_back(variant(k, s));
  for (const Sizes& s : {Sizes{1, 65536, 64, 1024}, Sizes{1, 65536, 128, 1024},
                         Sizes{64, 512, 512, 64}, Sizes{64, 512, 64, 512}})
    for (const Kernel& k : {middle_alone, narrow}) all.push_back(variant(k, s));
  for (const Sizes& s : {Sizes{1, 512, 512, 65536}, Sizes{1, 256, 1024, 32768},
                         Sizes{1, 65536, 64, 1024}, Sizes{1, 512, 1000, 512}}) {
    all.push_back(whole(Provider::Vendor, s));
    all.push_back(whole(Provider::Native, s));  // the first two split K
  }
  return all;
}

const bool registered = register_variants(variants());

}  // namespace
}  // namespace ringgrad::lab
