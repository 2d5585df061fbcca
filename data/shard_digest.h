// ShardDigest: verifies that all ranks together use each sample of an epoch once.
#pragma once

#include <cstdint>
#include <span>

namespace ringgrad {

// A proof that the shards of an epoch are disjoint and complete, without sending the indices.
//
// Every index is hashed to 128 bits, and the hashes are added. A sum does not depend on the order.
// So the sums of all ranks (one all-reduce of two numbers) equal that of 0 … n-1 exactly if every
// sample was used once. A missing, repeated or exchanged index changes the sum, except with
// probability 2^-128.
struct ShardDigest {
  // Two separate sums modulo 2^64, without a carry between them, so that each can be reduced alone.
  uint64_t low = 0;
  uint64_t high = 0;

  void add(int64_t index);
  void add(std::span<const int64_t> indices);
  ShardDigest& operator+=(const ShardDigest& other);
  bool operator==(const ShardDigest&) const = default;
};

// Returns the digest of 0, 1, …, n-1.
ShardDigest complete_digest(int64_t n);

}  // namespace ringgrad
