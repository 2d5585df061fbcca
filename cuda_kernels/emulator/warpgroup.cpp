// The products of warpgroups (wgmma). A warp issues a product for its 16 rows of the 64, and
// completes it when it waits. Operands are read when the product is issued and again when it is
// complete: the hardware may read them at any time in between, so they may not change.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {
namespace {

constexpr uint32_t kChunkBytes = 16;
constexpr uint32_t kChunksOfK = 2;  // K is 32 bytes, whatever the type
constexpr uint32_t kRowsOfMatrix = 8;
constexpr int kRowsOfWarp = 16;
constexpr float kPoison = std::bit_cast<float>(0xffffffffu);

int elements_of_k(ProductCall::Type type) { return type == ProductCall::TFloat32 ? 8 : 16; }
uint32_t element_bytes(ProductCall::Type type) { return type == ProductCall::TFloat32 ? 4 : 2; }

float to_float(ProductCall::Type type, const uint8_t* bytes) {
  if (type == ProductCall::TFloat32) {
    constexpr uint32_t kKept = 0xffffe000;  // of float32's 23 bits tf32 has 10
    uint32_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    return std::bit_cast<float>(bits & kKept);
  }
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return type == ProductCall::Float16 ? static_cast<float>(std::bit_cast<float16>(bits))
                                      : static_cast<float>(std::bit_cast<bfloat16>(bits));
}

uint32_t bits(uint64_t word, int first, int count) {
  return static_cast<uint32_t>(word >> first & ((uint64_t{1} << count) - 1));
}

// Returns the address of a chunk of 16 bytes. K contiguous: chunk `chunk` of K of row `row` of M or
// N. Transposed: chunk `chunk` of M or N of row `row` of K. The layouts are the canonical ones of
// the PTX ISA ("Strides" of "Asynchronous warpgroup-level matrix instructions").
uint32_t chunk_address(const Operand& operand, uint32_t row, uint32_t chunk) {
  const uint64_t d = operand.descriptor;
  const uint32_t start = bits(d, 0, 14) << 4;
  const uint32_t leading = bits(d, 16, 14) << 4;
  const uint32_t stride = bits(d, 32, 14) << 4;
  const uint32_t base_offset = bits(d, 49, 3);
  const uint32_t mode = bits(d, 62, 2);
  const uint32_t span = mode == 0 ? kChunkBytes : 256u >> mode;  // 128, 64, 32
  const uint32_t chunks = span / kChunkBytes;
  const uint32_t matrix = row / kRowsOfMatrix;
  uint32_t offset = row % kRowsOfMatrix * span;
  if (!operand.transposed)
    offset += matrix * stride + (mode == 0 ? chunk * leading : chunk * kChunkBytes);
  else if (mode == 0)
    offset += matrix * leading + chunk * stride;
  else
    offset += matrix * stride + chunk / chunks * leading + chunk % chunks * kChunkBytes;
  const uint32_t address = start + offset;
  return address ^ ((((address >> 7) - base_offset) & (chunks - 1)) << 4);
}

// A product's part: `rows` of M or N from `first` on, and all of K, in the order [K, rows].
void widen(ProductCall::Type type, bool transposed, int rows, const std::vector<uint8_t>& bytes,
           float* to, bool k_first) {
  const int k_count = elements_of_k(type);
  const uint32_t size = element_bytes(type);
  for (int k = 0; k < k_count; ++k)
    for (int row = 0; row < rows; ++row) {
      const int at = transposed ? k * rows + row : row * k_count + k;
      to[k_first ? k * rows + row : row * k_count + k] =
          to_float(type, bytes.data() + static_cast<size_t>(at) * size);
    }
}

std::string describe_descriptor(const Operand& operand) {
  return str("start ", bits(operand.descriptor, 0, 14) << 4, ", leading ",
             bits(operand.descriptor, 16, 14) << 4, ", stride ",
             bits(operand.descriptor, 32, 14) << 4, ", swizzle ", bits(operand.descriptor, 62, 2));
}

}  // namespace

std::string AsyncUnits::fence_products(int warp) {
  const Unobserved unobserved;
  used_ = true;
  warps_.resize(static_cast<size_t>(block_.threads_of_cluster() / kWarpSize));
  warps_[static_cast<size_t>(warp)].fenced = true;
  return "";
}

void AsyncUnits::commit_products(int warp) {
  const Unobserved unobserved;
  warps_.resize(static_cast<size_t>(block_.threads_of_cluster() / kWarpSize));
  Warp& state = warps_[static_cast<size_t>(warp)];
  while (!state.groups.empty() && state.groups.front() <= state.completed) state.groups.pop_front();
  state.groups.push_back(state.issued);
  if (state.issued > state.committed && state.committed == state.completed)
    busy_warps_.push_back(warp);
  state.committed = state.issued;
  state.fenced = false;
}

std::string AsyncUnits::read_chunk(int warp, const Product& product, uint32_t address,
                                   Reading reading, uint8_t* to) {
  const int member = warp * kWarpSize / (block_.threads_of_cluster() / block_.members());
  const char* from = shared_at(member, address);
  if (reading != Reading::Completed) {
    if (granule(member, address).in_flight)
      return str("an operand at byte ", address - kFirstSharedAddress,
                 " of shared memory, in which a copy has yet to land");
    const int reader = warp * kWarpSize;
    if (std::string problem = unfenced(member, address, reader); !problem.empty()) return problem;
    if (observer)
      observer->access({.address = from,
                        .bytes = kChunkBytes,
                        .write = false,
                        .atomic = false,
                        .pc = nullptr,
                        .site = product.site,
                        .thread = reader,
                        .barrier = &warps_[static_cast<size_t>(warp)]});
  }
  if (reading == Reading::First)
    std::memcpy(to, from, kChunkBytes);
  else if (std::memcmp(to, from, kChunkBytes) != 0)
    return str("byte ", address - kFirstSharedAddress,
               " of shared memory has changed while a product that reads it was in flight");
  return "";
}

std::string AsyncUnits::read_operands(int warp, Product& product, bool completed) {
  const ProductCall& call = product.call;
  const size_t size = block_.grid().shared_bytes;
  const auto k_count = static_cast<uint32_t>(elements_of_k(call.type));
  const int per_chunk = static_cast<int>(kChunkBytes / element_bytes(call.type));
  const auto read = [&](const Operand& operand, int first, int rows, std::vector<uint8_t>& bytes,
                        Reading reading) -> std::string {
    bytes.resize(static_cast<size_t>(rows) * kChunksOfK * kChunkBytes);
    const uint32_t outer = operand.transposed ? k_count : static_cast<uint32_t>(rows);
    const int inner = operand.transposed ? rows / per_chunk : static_cast<int>(kChunksOfK);
    uint8_t* to = bytes.data();
    for (uint32_t i = 0; i < outer; ++i)
      for (int j = 0; j < inner; ++j, to += kChunkBytes) {
        const uint32_t row = operand.transposed ? i : i + static_cast<uint32_t>(first);
        const int chunk = operand.transposed ? j + first / per_chunk : j;
        const uint32_t address = chunk_address(operand, row, static_cast<uint32_t>(chunk));
        if (address < kFirstSharedAddress || address + kChunkBytes > kFirstSharedAddress + size)
          return str("an operand reaches byte ", int64_t{address} - kFirstSharedAddress,
                     " of the block's dynamic shared memory, which has ", size, " (",
                     describe_descriptor(operand), ")");
        if (std::string problem = read_chunk(warp, product, address, reading, to); !problem.empty())
          return problem;
      }
    return "";
  };
  const int of_group = warp % kWarpsOfGroup;
  Product::Rows& rows = product.rows[static_cast<size_t>(of_group)];
  if (!call.words) {
    const Reading reading = completed ? Reading::Completed : Reading::First;
    if (std::string problem =
            read(call.a, of_group * kRowsOfWarp, kRowsOfWarp, rows.bytes, reading);
        !problem.empty())
      return problem;
  }
  const bool first = product.b_bytes.empty();
  const Reading reading = completed ? Reading::Completed : first ? Reading::First : Reading::Issued;
  if (std::string problem = read(call.b, 0, call.columns, product.b_bytes, reading);
      !problem.empty() || completed)
    return problem;
  if (first) {
    product.b.resize(static_cast<size_t>(call.columns) * k_count);
    widen(call.type, call.b.transposed, call.columns, product.b_bytes, product.b.data(), true);
  }
  if (call.words) return "";
  rows.a.resize(static_cast<size_t>(kRowsOfWarp) * k_count);
  widen(call.type, call.a.transposed, kRowsOfWarp, rows.bytes, rows.a.data(), false);
  return "";
}

std::string AsyncUnits::issue(int warp, const std::array<ProductCall*, kWarpSize>& lanes) {
  const Unobserved unobserved;
  used_ = true;
  const int warps = block_.threads_of_cluster() / kWarpSize;
  warps_.resize(static_cast<size_t>(warps));
  warpgroups_.resize(static_cast<size_t>(warps));  // by the group's first warp
  const ProductCall& call = *lanes[0];
  const int of_member = block_.thread() / kWarpSize;
  if ((of_member / kWarpsOfGroup + 1) * kWarpsOfGroup * kWarpSize > block_.threads_per_member())
    return str(
        "a warpgroup is four warps, the first of which is a multiple of four; this block "
        "has ",
        block_.threads_per_member(), " threads");
  for (const ProductCall* lane : lanes)
    if (!lane->same_as(call)) return "the lanes of the warp pass different descriptors";
  Warp& state = warps_[static_cast<size_t>(warp)];
  if (!state.fenced) return "wgmma_fence is missing before the first product after a commit";

  const int leader = warp - of_member % kWarpsOfGroup;
  Warpgroup& group = warpgroups_[static_cast<size_t>(leader)];
  const auto at = static_cast<size_t>(state.issued - group.first);
  if (at == group.products.size()) {
    group.products.emplace_back();
    group.products.back().call = call;
    group.products.back().site = call.site;
    if (observer) {
      observer->count("tensor clocks", call.columns / 2);
      observer->count("shared bytes", (call.columns + (call.words ? 0 : 64)) * 32);
    }
  }
  Product& product = group.products[at];
  if (!product.call.same_as(call)) return "the warps of the warpgroup pass different descriptors";
  if (std::string problem = read_operands(warp, product, false); !problem.empty()) return problem;
  const int k_count = elements_of_k(call.type);
  if (call.words) {
    auto& a = product.rows[static_cast<size_t>(warp % kWarpsOfGroup)].a;
    a.resize(static_cast<size_t>(kRowsOfWarp * k_count));
    // As a of mma.sync: word i of lane 4 g + t has row g + 8 (i % 2), bytes 4 t of half i / 2 of K.
    for (int lane = 0; lane < kWarpSize; ++lane)
      for (int word = 0; word < 4; ++word) {
        std::array<uint8_t, sizeof(unsigned)> bytes;
        std::memcpy(bytes.data(), &lanes[static_cast<size_t>(lane)]->words[word], bytes.size());
        const auto size = static_cast<int>(element_bytes(call.type));
        const int row = lane / 4 + word % 2 * 8;
        for (int i = 0; i < 4 / size; ++i)
          a[static_cast<size_t>(row * k_count + lane % 4 * (4 / size) + i +
                                word / 2 * (k_count / 2))] =
              to_float(call.type, bytes.data() + i * size);
      }
  }
  product.rows[static_cast<size_t>(warp % kWarpsOfGroup)].sums = lanes[0]->sums;
  ++state.issued;

  const auto registers = static_cast<size_t>(call.columns / 2);
  Sums& sums = state.sums[lanes[0]->sums];
  if (sums.products++ == 0) {
    sums.columns = call.columns;
    sums.values.resize(kWarpSize * registers);
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      sums.at[lane] = lanes[lane]->sums;
      std::memcpy(&sums.values[lane * registers], sums.at[lane], registers * sizeof(float));
      std::fill_n(sums.at[lane], registers, kPoison);
    }
  } else if (sums.columns != call.columns) {
    return "products of different shapes are in flight on the same accumulators";
  }
  return "";
}

void AsyncUnits::compute(int warp, Product& product, Sums& sums) const {
  const ProductCall& call = product.call;
  const int columns = call.columns;
  const int k_count = elements_of_k(call.type);
  const float* a = product.rows[static_cast<size_t>(warp % kWarpsOfGroup)].a.data();
  std::vector<float> row_sums(static_cast<size_t>(columns));
  for (int row = 0; row < kRowsOfWarp; ++row) {
    const auto element = [&](int column) -> float& {
      const int lane = row % 8 * 4 + column % 8 / 2;
      const int index = column / 8 * 4 + row / 8 * 2 + column % 2;
      return sums.values[static_cast<size_t>(lane * (columns / 2) + index)];
    };
    for (int n = 0; n < columns; ++n)
      row_sums[static_cast<size_t>(n)] = call.accumulate ? element(n) : 0.0f;
    for (int k = 0; k < k_count; ++k) {
      const float factor = a[row * k_count + k];
      const float* b = product.b.data() + static_cast<ptrdiff_t>(k) * columns;
      float* to = row_sums.data();
      for (int n = 0; n < columns; ++n) to[n] += factor * b[n];
    }
    for (int n = 0; n < columns; ++n) element(n) = row_sums[static_cast<size_t>(n)];
  }
}

// Completes the oldest product of the warp that is not complete.
void AsyncUnits::complete_product(int warp) {
  Warp& state = warps_[static_cast<size_t>(warp)];
  const int of_member = warp % (block_.threads_of_cluster() / block_.members() / kWarpSize);
  Warpgroup& group = warpgroups_[static_cast<size_t>(warp - of_member % kWarpsOfGroup)];
  Product& product = group.products[static_cast<size_t>(state.completed - group.first)];
  if (const std::string problem = read_operands(warp, product, true); !problem.empty())
    block_.fail(warp * kWarpSize, product.site, "wgmma: " + problem);
  float* key = product.rows[static_cast<size_t>(warp % kWarpsOfGroup)].sums;
  Sums& sums = state.sums.at(key);
  compute(warp, product, sums);
  if (--sums.products == 0) {
    const auto registers = static_cast<size_t>(sums.columns / 2);
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      for (size_t i = 0; i < registers; ++i)
        if (std::bit_cast<uint32_t>(sums.at[lane][i]) != std::bit_cast<uint32_t>(kPoison))
          block_.fail(warp * kWarpSize + static_cast<int>(lane), product.site,
                      "wgmma: an accumulator has been written while the product was in flight");
      std::memcpy(sums.at[lane], &sums.values[lane * registers], registers * sizeof(float));
    }
    state.sums.erase(key);
  }
  --product.left;
  while (!group.products.empty() && group.products.front().left == 0) {
    group.products.pop_front();
    ++group.first;
  }
  if (++state.completed == state.committed) std::erase(busy_warps_, warp);
  for (const int thread : std::exchange(state.waiting, {})) block_.wake(thread);
}

void AsyncUnits::wait_products(int groups, Site site) {
  const Unobserved unobserved;
  const int warp = block_.warp();
  if (warp >= static_cast<int>(warps_.size())) return;
  const std::deque<uint64_t>& all = warps_[static_cast<size_t>(warp)].groups;
  const bool waits = static_cast<int>(all.size()) > groups;
  const uint64_t until = waits ? all[all.size() - 1 - static_cast<size_t>(groups)] : 0;
  while (warps_[static_cast<size_t>(warp)].completed < until) {
    warps_[static_cast<size_t>(warp)].waiting.push_back(block_.thread_of_cluster());
    block_.park("wgmma_wait", nullptr, site);
    unobserved.again();
  }
  if (!observer) return;
  // The products that read shared memory are ordered before all lanes' further accesses.
  observer->open(&warps_[static_cast<size_t>(warp)]);
  observer->pass(&warps_[static_cast<size_t>(warp)], block_.thread_of_cluster());
}

}  // namespace ringgrad::emulator
