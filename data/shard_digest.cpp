#include "ringgrad/data/shard_digest.h"

#include "ringgrad/core/random.h"

namespace ringgrad {

void ShardDigest::add(int64_t index) {
  const PhiloxBlock hash = philox(0x7368617264u, static_cast<uint64_t>(index));
  low += hash.word[0] | static_cast<uint64_t>(hash.word[1]) << 32;
  high += hash.word[2] | static_cast<uint64_t>(hash.word[3]) << 32;
}

void ShardDigest::add(std::span<const int64_t> indices) {
  for (int64_t index : indices) add(index);
}

ShardDigest& ShardDigest::operator+=(const ShardDigest& other) {
  low += other.low;
  high += other.high;
  return *this;
}

ShardDigest complete_digest(int64_t n) {
  ShardDigest digest;
  for (int64_t i = 0; i < n; ++i) digest.add(i);
  return digest;
}

}  // namespace ringgrad
