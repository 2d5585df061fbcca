// ShardDigest: do all ranks together use each sample of an epoch once?
#pragma once

#include <cstdint>
#include <span>

namespace ringgrad {

// A proof that the shards of an epoch are disjoint and complete, without sending the indices
// around.
//
// Every index is hashed to 128 bits and the hashes are added up. A sum does not depend on order, so
// the sums of all ranks add up (one all-reduce of two numbers) to that of 0 … n-1 exactly when
// every sample was used once: a missing, repeated or exchanged index changes it, except with
// probability 2^-128.
struct ShardDigest {
  // Two sums modulo 2^64, without carry between them: each is reduced by itself.
  uint64_t low = 0;
  uint64_t high = 0;

  void add(int64_t index);
  void add(std::span<const int64_t> indices);
  ShardDigest& operator+=(const ShardDigest& other);
  bool operator==(const ShardDigest&) const = default;
};

// The digest of 0, 1, …, n-1.
ShardDigest complete_digest(int64_t n);

}  // namespace ringgrad
