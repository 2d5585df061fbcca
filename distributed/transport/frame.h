// Frame: the header of every message between ranks.
//
// It says what the sender is doing: which collective of which step, and on what data. The receiver
// compares it with its own frame before it reads the payload. So ranks that disagree find out in
// the first collective in which they do, and the error names both sides. The price is 152 bytes and
// no extra round trip. (PyTorch detects this with TORCH_DISTRIBUTED_DEBUG=DETAIL, at the price of
// an extra collective each time. Otherwise it averages step i with step i+1.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/kernels/reduction.h"

namespace ringgrad {

enum class Operation : uint8_t {
  AllReduce,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  AllGather,
  ReduceScatter,
  AllToAll,
  SendRecv,
  Barrier,
  AllocateShared,
  // A replay of a recorded step with its collectives. `count` is the recording's number in its
  // group.
  Replay,
};

const char* name(Operation operation);  // "all_reduce"

bool reduces(Operation operation);  // all_reduce, reduce, reduce_scatter

inline constexpr int kAnyRank = -1;  // a receive takes a message of any rank

inline constexpr uint32_t kFrameMagic = 0x64724752;  // "RGrd" in memory
inline constexpr uint16_t kFrameVersion = 4;
inline constexpr uint64_t kMaxPayload = uint64_t{1} << 30;
inline constexpr size_t kFrameDims = 8;  // no tensor has more dimensions

// As it travels: little-endian, no gaps.
struct Frame {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  Operation operation = Operation::Barrier;
  DType dtype = DType::UInt8;
  uint64_t job = 0;       // the same on all ranks of a group, different for every group
  uint64_t sequence = 0;  // the number of the collective in its group, from 1
  int64_t step = -1;      // the training step, -1 outside of training
  uint64_t count = 0;     // the number of elements
  uint64_t layout = 0;    // a hash of the buffer's layout, 0 if unknown
  int32_t bucket = -1;    // -1: not a bucket
  int32_t root = -1;      // -1: no root
  ReduceOp reduce_op = ReduceOp::Sum;
  uint8_t algorithm = 0;  // `AllReduceAlgorithm` (process_group.h)
  uint8_t dims = 0;       // the number of `shape`'s entries in use
  uint8_t reserved = 0;
  int32_t tag = 0;                          // the tag of a send or receive
  std::array<int64_t, kFrameDims> shape{};  // the tensor's sizes, then zeros
  // All ranks must agree on the fields above. The fields below belong to this message.
  uint32_t part = 0;         // the message's number in the collective between these two ranks
  uint32_t payload_crc = 0;  // payload_checksum of the payload, or 0: not computed
  uint64_t payload_bytes = 0;
  uint64_t hash = 0;  // hash_of() everything above
};
inline constexpr size_t kFrameBytes = 152;
static_assert(sizeof(Frame) == kFrameBytes);
using FrameBytes = std::array<std::byte, kFrameBytes>;

// Sets the dimensions and the count. REQUIRES: at most kFrameDims sizes.
void set_shape(Frame& frame, std::span<const int64_t> sizes);

// Also fills in the hash.
FrameBytes encode(const Frame& frame);

// Throws DistributedError unless magic, version and hash are encode()'s, operation, dtype and
// reduction are known, and the payload and the number of dimensions are within their limits.
Frame decode(std::span<const std::byte, kFrameBytes> bytes);

// Returns 64 bits that are the same on every machine. Each 8-byte word is mixed in with a
// multiplication and a shift. Inputs that differ in one word only have different
// hashes. It does not resist an adversary.
uint64_t hash_of(const void* data, size_t bytes);

// A checksum of payloads, for links that may flip bits. checksums/crc32c.cpp sets it before main;
// it is nullptr in a program without that file.
using Checksum = uint32_t (*)(const void* data, size_t bytes);
inline constinit Checksum payload_checksum = nullptr;

// Returns a hash of all fields on which ranks must agree.
uint64_t fingerprint(const Frame& frame);

// "all_reduce (average) of 1000 float32, step 12, bucket 1"; "broadcast of [2, 3] float32, root 0"
std::string describe(const Frame& frame);

// Throws OutOfStepError, naming both sides, unless the two agree.
void check_in_step(const Frame& mine, int my_rank, const Frame& theirs, int their_rank);

}  // namespace ringgrad
