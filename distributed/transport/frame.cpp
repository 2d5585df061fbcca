#include "ringgrad/distributed/transport/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/failure.h"

namespace ringgrad {

static_assert(std::endian::native == std::endian::little, "frames travel as they lie in memory");

const char* name(Operation operation) {
  constexpr const char* names[] = {"all_reduce", "broadcast",  "reduce",          "gather",
                                   "scatter",    "all_gather", "reduce_scatter",  "all_to_all",
                                   "send/recv",  "barrier",    "allocate_shared", "replay"};
  return names[static_cast<int>(operation)];
}

bool reduces(Operation operation) {
  return operation == Operation::AllReduce || operation == Operation::Reduce ||
         operation == Operation::ReduceScatter;
}

namespace {

// The leading bytes, which all ranks must have alike.
constexpr size_t kAgreed = offsetof(Frame, part);

}  // namespace

uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ bytes;
  const auto mix = [&hash](const std::byte* at, size_t n) {
    uint64_t word = 0;
    std::memcpy(&word, at, n);
    hash = (hash ^ word) * 0xd6e8feb86659fd93;
    hash ^= hash >> 32;
  };
  const auto* at = static_cast<const std::byte*>(data);
  for (; bytes >= 8; at += 8, bytes -= 8) mix(at, 8);
  if (bytes > 0) mix(at, bytes);
  return hash;
}

void set_shape(Frame& frame, std::span<const int64_t> sizes) {
  frame.dims = static_cast<uint8_t>(sizes.size());
  frame.shape = {};
  frame.count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    frame.shape[d] = sizes[d];
    frame.count *= static_cast<uint64_t>(sizes[d]);
  }
}

FrameBytes encode(const Frame& frame) {
  Frame complete = frame;
  complete.hash = hash_of(&complete, offsetof(Frame, hash));
  return std::bit_cast<FrameBytes>(complete);
}

Frame decode(std::span<const std::byte, kFrameBytes> bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), kFrameBytes);
  const char* wrong = nullptr;
  if (frame.magic != kFrameMagic)
    wrong = "it does not start with the magic number";
  else if (frame.version != kFrameVersion)
    wrong = "another version of ringgrad sent it";
  else if (frame.hash != hash_of(&frame, offsetof(Frame, hash)))
    wrong = "its hash is wrong";
  else if (frame.operation > Operation::Replay)
    wrong = "unknown operation";
  else if (frame.dtype > DType::Bool)
    wrong = "unknown dtype";
  else if (frame.reduce_op > ReduceOp::BitXor)
    wrong = "unknown reduction";
  else if (frame.payload_bytes > kMaxPayload)
    wrong = "payload above 1 GiB";
  else if (frame.dims > kFrameDims)
    wrong = "too many dimensions";
  else if (frame.reserved != 0)
    wrong = "stray bytes";
  CHECK_AS(DistributedError, wrong == nullptr, "damaged message header: ", wrong);
  return frame;
}

// A one-dimensional tensor needs 9 words, so this takes about 10 ns.
uint64_t fingerprint(const Frame& frame) {
  return hash_of(
      &frame, offsetof(Frame, shape) + std::min<size_t>(frame.dims, kFrameDims) * sizeof(int64_t));
}

namespace {

// "1000", "[2, 3]"
std::string extent(const Frame& frame) {
  std::string sizes;
  for (size_t d = 0; d < std::min<size_t>(frame.dims, kFrameDims); ++d)
    sizes += str(sizes.empty() ? "" : ", ", frame.shape[d]);
  return frame.dims > 1 ? "[" + sizes + "]" : str(frame.count);
}

}  // namespace

std::string describe(const Frame& frame) {
  std::string text = name(frame.operation);
  if (reduces(frame.operation)) text += str(" (", name(frame.reduce_op), ")");
  if (frame.operation == Operation::Replay)
    text += str(" of recorded step ", frame.count);
  else if (frame.operation != Operation::Barrier)
    text += str(" of ", extent(frame), " ", name(frame.dtype));
  if (frame.tag != 0) text += str(", tag ", frame.tag);
  if (frame.root >= 0) text += str(", root ", frame.root);
  if (frame.step >= 0) text += str(", step ", frame.step);
  if (frame.bucket >= 0) text += str(", bucket ", frame.bucket);
  return text;
}

void check_in_step(const Frame& mine, int my_rank, const Frame& theirs, int their_rank) {
  if (std::memcmp(&mine, &theirs, kAgreed) == 0) return;
  CHECK_AS(OutOfStepError, mine.job == theirs.job, "rank ", their_rank,
           " belongs to another job or group than rank ", my_rank);
  std::string my_words = describe(mine);
  std::string their_words = describe(theirs);
  std::string hint;
  const bool layouts_differ = mine.layout != theirs.layout;
  if (layouts_differ && (my_words == their_words || (mine.layout != 0 && theirs.layout != 0))) {
    hint =
        "; these are of other parameters or another layer, "
        "or they weight or compress gradients in another way (layout hashes differ)";
  } else if (my_words == their_words) {
    if (mine.sequence != theirs.sequence)
      hint = "; one of them has skipped a collective";
    else if (mine.dims != theirs.dims)
      hint = str("; the tensor has ", +mine.dims, " dimensions here and ", +theirs.dims, " there");
    else
      hint = "; they use different algorithms";
  }
  throw OutOfStepError(str("ranks are out of step: rank ", my_rank, " is in ", my_words,
                           " (collective ", mine.sequence, "), rank ", their_rank, " in ",
                           their_words, " (collective ", theirs.sequence, ")", hint));
}

}  // namespace ringgrad
