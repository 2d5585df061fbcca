// Tensor copies (TMA) and bulk copies. A copy is cut into rows, which are contiguous in global
// memory, and lands in a few pieces of many rows.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"
#include "ringgrad/cuda_kernels/emulator/tensor_map.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {
namespace {

constexpr uint32_t kChunk = 16;
constexpr int kPieces = 4;
constexpr int kNoType = -1;  // of a bulk copy
constexpr uint32_t kSector = 32;

// Returns the place of the byte at `address` of a tile: chunks of 16 bytes change places by the
// number of their row of 128 bytes.
uint32_t swizzled(uint32_t address, uint32_t span) {
  return address ^ ((address >> 7 & (span / kChunk - 1)) << 4);
}

// Adds the row that begins at `first` of the innermost dimension, whose other coordinates lead to
// `row`, which is nullptr if they are outside of the tensor.
void add_row(Box& box, const TensorMapFields& map, int64_t first, char* row) {
  const int64_t elements = map.box[0];
  const int64_t size = int64_t{map.last_places[0]} + 1;
  const int64_t begin = std::clamp<int64_t>(first, 0, size);
  const int64_t end = std::clamp<int64_t>(first + elements, 0, size);
  const int64_t bytes = map.element_bytes;
  Row added{.offset = box.bytes,
            .bytes = static_cast<uint32_t>(elements * bytes),
            .global = nullptr,
            .skip = 0,
            .inside = 0};
  if (row && end > begin) {
    added.global = row + begin * bytes;
    added.skip = static_cast<uint32_t>((begin - first) * bytes);
    added.inside = static_cast<uint32_t>((end - begin) * bytes);
  }
  box.rows.push_back(added);
  box.bytes += added.bytes;
}

bool inside(const TensorMapFields& map, int dimension, int64_t place) {
  return place >= 0 && place <= int64_t{map.last_places[static_cast<size_t>(dimension)]};
}

void add_tiled_rows(Box& box, const TensorMapFields& map, const Coordinates& c) {
  std::array<int64_t, 5> step{};
  for (;;) {
    char* row = map.address;
    for (int d = 1; d < map.rank; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t place = c.at[i] + step[i];
      if (!inside(map, d, place)) row = nullptr;
      if (row) row += place * static_cast<int64_t>(map.strides[i - 1]);
    }
    add_row(box, map, c.at[0], row);
    int d = 1;
    for (; d < map.rank; ++d) {
      const auto i = static_cast<size_t>(d);
      step[i] += map.element_strides[i];
      if (step[i] < map.box[i]) break;
      step[i] = 0;
    }
    if (d >= map.rank) return;
  }
}

// Pixels follow each other in W, then H, D and N, in a box that the corners bound; each is shifted
// by the offsets.
void add_im2col_rows(Box& box, const TensorMapFields& map, const Coordinates& c) {
  const int spatial = map.rank - 2;
  std::array<int64_t, 5> at{};
  for (int d = 0; d < map.rank; ++d) at[static_cast<size_t>(d)] = c.at[static_cast<size_t>(d)];
  for (int pixel = 0; pixel < map.pixels; ++pixel) {
    char* row = map.address;
    for (int d = 1; d < map.rank; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t place = at[i] + (d <= spatial ? c.offsets[i - 1] : 0);
      if (!inside(map, d, place)) row = nullptr;
      if (row) row += place * static_cast<int64_t>(map.strides[i - 1]);
    }
    add_row(box, map, c.at[0], row);
    int d = 1;
    for (; d <= spatial; ++d) {
      const auto i = static_cast<size_t>(d);
      at[i] += map.element_strides[i];
      if (at[i] <= int64_t{map.last_places[i]} + map.upper[i - 1]) break;
      at[i] = map.lower[i - 1];
    }
    if (d > spatial) ++at[static_cast<size_t>(map.rank - 1)];
  }
}

template <class T>
void add_elements(char* to, const uint8_t* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(T)) {
    T sum;
    T term;
    std::memcpy(&sum, to + i, sizeof(T));
    std::memcpy(&term, from + i, sizeof(T));
    sum = static_cast<T>(sum + term);
    std::memcpy(to + i, &sum, sizeof(T));
  }
}

void add_row_of_type(int type, char* to, const uint8_t* from, size_t bytes) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return add_elements<float16>(to, from, bytes);
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return add_elements<bfloat16>(to, from, bytes);
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return add_elements<float>(to, from, bytes);
    default: return add_elements<uint32_t>(to, from, bytes);
  }
}

}  // namespace

Box AsyncUnits::tensor_box(const CUtensorMap_st* opaque, const Coordinates& c, Site site) {
  const Unobserved unobserved;
  if (reinterpret_cast<uintptr_t>(opaque) % 64 != 0)
    block_.fail(site,
                "a tensor map at an address that is no multiple of 64: is it a "
                "__grid_constant__ parameter?");
  TensorMapFields map;
  std::memcpy(&map, opaque, sizeof map);
  if (map.magic != TensorMapFields::kMagic)
    block_.fail(site, "a tensor copy by something that is no tensor map");
  if (map.rank != c.rank)
    block_.fail(site, str("a tensor copy with ", c.rank, " coordinates of a tensor map of rank ",
                          int{map.rank}));
  if (map.im2col != c.im2col)
    block_.fail(site, str("a tensor copy of mode ", c.im2col ? "im2col" : "tiled",
                          " by a tensor map of the other mode"));
  const int most_offset = map.rank == 3 ? 65535 : map.rank == 4 ? 255 : 31;
  for (const int offset : c.offsets)
    if (offset < 0 || offset > most_offset)
      block_.fail(site, str("an im2col offset of ", offset, ", expected 0 to ", most_offset));
  Box box;
  box.span = map.span;
  box.fill = map.fill;
  box.element_type = map.type;
  if (map.im2col)
    add_im2col_rows(box, map, c);
  else
    add_tiled_rows(box, map, c);
  return box;
}

Box AsyncUnits::bulk_box(const void* global, const void* shared, unsigned bytes, Site site) {
  const Unobserved unobserved;
  if (bytes == 0 || bytes % kChunk != 0 || reinterpret_cast<uintptr_t>(global) % kChunk != 0 ||
      reinterpret_cast<uintptr_t>(shared) % kChunk != 0)
    block_.fail(site, str("a bulk copy of ", bytes, " bytes between ", global, " and ", shared,
                          ", expected multiples of 16"));
  constexpr uint32_t kRow = 128;
  auto* from = static_cast<char*>(const_cast<void*>(global));
  Box box;
  box.bytes = bytes;
  box.element_type = kNoType;
  for (uint32_t at = 0; at < bytes; at += kRow) {
    const uint32_t part = std::min(kRow, bytes - at);
    box.rows.push_back(
        {.offset = at, .bytes = part, .global = from + at, .skip = 0, .inside = part});
  }
  return box;
}

// The driver cannot know whether a tensor lies in one allocation; here a copy is checked.
void AsyncUnits::check_reaches(const Copy& copy) const {
  uintptr_t begin = ~uintptr_t{0};
  uintptr_t end = 0;
  int64_t sectors = 0;
  for (const Row& row : copy.box.rows) {
    if (!row.inside) continue;
    const auto at = reinterpret_cast<uintptr_t>(row.global);
    begin = std::min(begin, at);
    end = std::max(end, at + row.inside);
    sectors += static_cast<int64_t>((at + row.inside + kSector - 1) / kSector - at / kSector);
  }
  if (observer) observer->count("L2 bytes", sectors * kSector);
  if (end == 0) return;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  uintptr_t first = 0;
  const Allocation* allocation = runtime.find(reinterpret_cast<const void*>(begin), &first);
  if (!allocation) block_.fail(copy.site, "a tensor copy of memory that no allocation contains");
  if (end > first + allocation->bytes)
    block_.fail(copy.site, str("a tensor copy reaches ", end - first - allocation->bytes,
                               " bytes beyond an allocation of ", allocation->bytes));
}

void AsyncUnits::load(void* to, const Box& box, const uint64_t* barrier, unsigned mask, Site site) {
  const Unobserved unobserved;
  used_ = true;
  const int me = block_.member();
  const bool multicast = mask != 0;
  if (!multicast) mask = 1u << me;
  const uint32_t alignment = box.element_type >= 0 ? 128 : kChunk;
  const uint32_t address = shared_address(me, to, box.bytes, "tma_load", site);
  if (address % alignment != 0)
    block_.fail(site, str("tma_load to shared memory at ", address, ", expected a multiple of ",
                          alignment));
  const bool whole_barrier = member_of(barrier) == me;
  if (multicast && !whole_barrier)
    block_.fail(site, "tma_load_multicast: the mbarrier must be in dynamic shared memory");
  bool counted = false;
  for (int member = 0; mask >> member; ++member) {
    if (!(mask >> member & 1)) continue;
    if (member >= block_.members())
      block_.fail(
          site, str("tma_load_multicast to block ", member, " of a cluster of ", block_.members()));
    if (block_.exited(member))
      block_.fail(site, str("tma_load_multicast: block ", member, " of the cluster has exited"));
    auto copy = std::make_shared<Copy>(Copy{.kind = Copy::Load,
                                            .thread = block_.thread_of_cluster(),
                                            .member = member,
                                            .site = site,
                                            .shared = address,
                                            .box = box,
                                            .source = {}});
    copy->barrier = member == me ? barrier
                                 : reinterpret_cast<const uint64_t*>(
                                       static_cast<const char*>(block_.dynamic_shared(member)) +
                                       (reinterpret_cast<const char*>(barrier) -
                                        static_cast<const char*>(block_.dynamic_shared(me))));
    const Mbarrier& state = find(copy->barrier, "tma_load", site);
    if (!state.fenced)
      block_.fail(site, "tma_load: fence_mbarrier_init is missing after mbarrier_init");
    if (!counted) check_reaches(*copy);
    counted = true;
    start(std::move(copy));
  }
}

void AsyncUnits::store(const Box& box, const void* from, bool add, Site site) {
  const Unobserved unobserved;
  used_ = true;
  const int me = block_.member();
  const uint32_t address = shared_address(me, from, box.bytes, "tma_store", site);
  const uint32_t alignment = box.element_type >= 0 ? 128 : kChunk;
  if (address % alignment != 0)
    block_.fail(site, str("tma_store from shared memory at ", address, ", expected a multiple of ",
                          alignment));
  Stores& stores = stores_[block_.thread_of_cluster()];
  stores.open = true;
  auto copy = std::make_shared<Copy>(Copy{.kind = add ? Copy::Add : Copy::Store,
                                          .thread = block_.thread_of_cluster(),
                                          .member = me,
                                          .site = site,
                                          .shared = address,
                                          .box = box,
                                          .group = stores.group,
                                          .source = {}});
  stores.copies.push_back(copy);
  check_reaches(*copy);
  start(std::move(copy));
}

// Reports the accesses of a copy to the observer, as the starting thread's.
void AsyncUnits::report(const Copy& copy) const {
  const bool is_load = copy.kind == Copy::Load;
  observer->count("shared bytes", copy.box.bytes);
  observer->access({.address = shared_at(copy.member, copy.shared),
                    .bytes = copy.box.bytes,
                    .write = is_load,
                    .atomic = false,
                    .pc = nullptr,
                    .site = copy.site,
                    .thread = copy.thread,
                    .barrier = is_load ? copy.barrier : nullptr});
  if (is_load && copy.member != copy.thread / (block_.threads_of_cluster() / block_.members()))
    return;  // a multicast reads global memory once
  for (const Row& row : copy.box.rows)
    if (row.inside)
      observer->access({.address = row.global,
                        .bytes = row.inside,
                        .write = !is_load,
                        .atomic = copy.kind == Copy::Add,
                        .pc = nullptr,
                        .site = copy.site,
                        .thread = copy.thread});
}

void AsyncUnits::start(std::shared_ptr<Copy> copy) {
  const bool is_load = copy->kind == Copy::Load;
  if (observer) report(*copy);
  for (uint32_t at = 0; at < copy->box.bytes; at += kChunk) {
    const uint32_t address = copy->shared + at;
    if (const std::string problem = unfenced(copy->member, address, copy->thread); !problem.empty())
      block_.fail(copy->site, problem);
    Granule& g = granule(copy->member, address);
    if (g.in_flight)
      block_.fail(copy->site, is_load
                                  ? "a copy to shared memory in which another has yet to land"
                                  : "a store from shared memory in which a copy has yet to land");
    if (is_load && g.readers > 0)
      block_.fail(copy->site, "a copy to shared memory that a store has yet to read");
    if (is_load) {
      g.in_flight = true;
      g.writer = -1;
      std::memset(shared_at(copy->member, address), 0xff, kChunk);
    } else {
      ++g.readers;
    }
  }
  if (!is_load) {
    const char* source = shared_at(copy->member, copy->shared);
    copy->source.assign(source, source + copy->box.bytes);
    store_pieces_.push_back({copy, 0});
    return;
  }
  copy->pieces = std::min<int>(kPieces, static_cast<int>(copy->box.rows.size()));
  for (int piece = 0; piece < copy->pieces; ++piece) pieces_.push_back({copy, piece});
}

void AsyncUnits::run(const Piece& piece) {
  Copy& copy = *piece.copy;
  if (copy.kind == Copy::Load) return land(copy, piece.number);
  if (copy.read) {
    write_target(copy, piece.number);
    --copy.pieces;
  } else {
    read_source(copy);
    copy.pieces = std::min<int>(kPieces, static_cast<int>(copy.box.rows.size()));
    for (int i = 0; i < copy.pieces; ++i) store_pieces_.push_back({piece.copy, i});
  }
  for (const int thread : std::exchange(waiting_for_stores_, {})) block_.wake(thread);
}

void AsyncUnits::land(Copy& copy, int piece) {
  uint32_t bytes = 0;
  const auto& rows = copy.box.rows;
  for (size_t i = static_cast<size_t>(piece); i < rows.size(); i += kPieces) {
    const Row& row = rows[i];
    for (uint32_t at = 0; at < row.bytes; at += kChunk) {
      std::array<char, kChunk> chunk;
      chunk.fill(static_cast<char>(copy.box.fill));
      const uint32_t begin = std::max(at, row.skip);
      const uint32_t end = std::min(at + kChunk, row.skip + row.inside);
      if (begin < end)
        std::memcpy(chunk.data() + (begin - at), row.global + (begin - row.skip), end - begin);
      const uint32_t address = swizzled(copy.shared + row.offset + at, copy.box.span);
      std::memcpy(shared_at(copy.member, address), chunk.data(), kChunk);
      granule(copy.member, address).in_flight = false;
    }
    bytes += row.bytes;
  }
  complete_bytes(copy, bytes);
}

void AsyncUnits::read_source(Copy& copy) {
  const char* source = shared_at(copy.member, copy.shared);
  if (std::memcmp(copy.source.data(), source, copy.box.bytes) != 0)
    block_.fail(copy.thread, copy.site,
                "shared memory has changed before the store has read it: a barrier before it, or "
                "bulk_wait_read after it, is missing");
  for (uint32_t at = 0; at < copy.box.bytes; at += kChunk)
    --granule(copy.member, copy.shared + at).readers;
  copy.read = true;
}

void AsyncUnits::write_target(const Copy& copy, int piece) {
  const auto& rows = copy.box.rows;
  for (size_t i = static_cast<size_t>(piece); i < rows.size(); i += kPieces) {
    const Row& row = rows[i];
    if (!row.inside) continue;
    std::vector<uint8_t> bytes(row.bytes);
    for (uint32_t at = 0; at < row.bytes; at += kChunk)
      std::memcpy(bytes.data() + at,
                  copy.source.data() +
                      (swizzled(copy.shared + row.offset + at, copy.box.span) - copy.shared),
                  kChunk);
    if (copy.kind == Copy::Store)
      std::memcpy(row.global, bytes.data() + row.skip, row.inside);
    else
      add_row_of_type(copy.box.element_type, row.global, bytes.data() + row.skip, row.inside);
  }
}

void AsyncUnits::commit() {
  const Unobserved unobserved;
  used_ = true;
  Stores& stores = stores_[block_.thread_of_cluster()];
  ++stores.group;
  stores.open = false;
}

void AsyncUnits::wait_prior(int groups, bool read_only, Site site) {
  const Unobserved unobserved;
  const auto found = stores_.find(block_.thread_of_cluster());
  if (found == stores_.end()) return;
  for (;;) {
    Stores& stores = stores_[block_.thread_of_cluster()];
    const auto waited_for = [&](const auto& copy) { return copy->group < stores.group - groups; };
    const bool done = std::none_of(stores.copies.begin(), stores.copies.end(), [&](const auto& c) {
      return waited_for(c) && !(read_only ? c->read : c->read && c->pieces == 0);
    });
    if (done) {
      // The thread knows from now on that they have read their sources. A later wait tells nothing
      // new: the memory may have been used again.
      if (observer)
        for (const auto& copy : stores.copies)
          if (waited_for(copy) && !std::exchange(copy->told, true))
            observer->access({.address = shared_at(copy->member, copy->shared),
                              .bytes = copy->box.bytes,
                              .write = false,
                              .atomic = false,
                              .pc = nullptr,
                              .site = copy->site,
                              .thread = copy->thread});
      std::erase_if(stores.copies,
                    [&](const auto& c) { return c->read && c->pieces == 0 && waited_for(c); });
      return;
    }
    waiting_for_stores_.push_back(block_.thread_of_cluster());
    block_.park(read_only ? "bulk_wait_read" : "bulk_wait", nullptr, site);
    unobserved.again();
  }
}

}  // namespace ringgrad::emulator
