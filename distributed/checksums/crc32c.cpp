#include "ringgrad/distributed/checksums/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/distributed/transport/frame.h"

namespace ringgrad {
namespace {

// Registers below hold remainders without the inversions at the begin and the end, so that zero
// bytes before a message change nothing.
constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

using Table = std::array<uint32_t, 256>;

constexpr Table table_of_bytes() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr Table kByte = table_of_bytes();

uint32_t update_by_table(uint32_t crc, const unsigned char* at, size_t bytes) {
  for (; bytes > 0; --bytes) crc = crc >> 8 ^ kByte[(crc ^ *at++) & 255];
  return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

// The instruction takes 3 cycles, and one can begin in each: three lanes of a block are worked on
// in turn, and their remainders put together.
constexpr size_t kLane = 1360;

// Returns the remainder after kLane more zero bytes. The map is linear, so its four bytes are
// looked up one by one.
struct SkipLane {
  std::array<Table, 4> of_byte{};
  SkipLane() {
    for (uint32_t i = 0; i < 4; ++i)
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte << 8 * i;
        for (size_t n = 0; n < kLane; ++n) crc = crc >> 8 ^ kByte[crc & 255];
        of_byte[i][byte] = crc;
      }
  }
  uint32_t operator()(uint32_t crc) const {
    return of_byte[0][crc & 255] ^ of_byte[1][crc >> 8 & 255] ^ of_byte[2][crc >> 16 & 255] ^
           of_byte[3][crc >> 24];
  }
};

#if defined(__x86_64__)
#define RINGGRAD_CRC_TARGET __attribute__((target("sse4.2")))
RINGGRAD_CRC_TARGET inline uint32_t step(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
#define RINGGRAD_CRC_TARGET __attribute__((target("+crc")))
RINGGRAD_CRC_TARGET inline uint32_t step(uint32_t crc, uint64_t word) {
  return __crc32cd(crc, word);
}
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

inline uint64_t word_at(const unsigned char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

RINGGRAD_CRC_TARGET uint32_t update_by_instruction(uint32_t crc, const unsigned char* at,
                                                   size_t bytes) {
  static const SkipLane skip_lane;
  for (; bytes >= 3 * kLane; at += 3 * kLane, bytes -= 3 * kLane) {
    uint32_t second = 0;
    uint32_t third = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      crc = step(crc, word_at(at + i));
      second = step(second, word_at(at + kLane + i));
      third = step(third, word_at(at + 2 * kLane + i));
    }
    crc = skip_lane(skip_lane(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; at += 8, bytes -= 8) crc = step(crc, word_at(at));
  return update_by_table(crc, at, bytes);
}

#else

bool has_instruction() { return false; }
uint32_t update_by_instruction(uint32_t crc, const unsigned char* at, size_t bytes) {
  return update_by_table(crc, at, bytes);
}

#endif

#if defined(__x86_64__)

// Returns x^n modulo the polynomial in the form that the multiplication below needs: with bits
// reversed, and shifted left by one.
constexpr uint64_t power(int n) {
  uint32_t crc = 0x80000000;
  for (; n > 0; --n) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
  return uint64_t{crc} << 1;
}

constexpr size_t kFold = 256;  // bytes in four registers
constexpr int kFoldBits = 8 * kFold;

bool can_fold() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

// Folding (Gopal et al. 2009): 16 bytes, multiplied with a power of x, have the same remainder as
// these bytes and the 2048 zeros after them. So four registers take in the message, and their
// contents at the end have its remainder.
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t update_by_folding(
    uint32_t crc, const unsigned char* at, size_t bytes) {
  constexpr long long far = power(kFoldBits + 32);
  constexpr long long near = power(kFoldBits - 32);
  const __m512i factors = _mm512_set_epi64(near, far, near, far, near, far, near, far);
  alignas(64) unsigned char folded[kFold];
  __m512i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm512_loadu_si512(at + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (at += kFold, bytes -= kFold; bytes >= kFold; at += kFold, bytes -= kFold)
    for (int i = 0; i < 4; ++i)
      // 0x96 is the exclusive or of the three.
      x[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x[i], factors, 0x00),
                                       _mm512_clmulepi64_epi128(x[i], factors, 0x11),
                                       _mm512_loadu_si512(at + 64 * i), 0x96);
  for (int i = 0; i < 4; ++i) _mm512_store_si512(folded + 64 * i, x[i]);
  return update_by_instruction(update_by_instruction(0, folded, kFold), at, bytes);
}

#else

constexpr size_t kFold = 0;
bool can_fold() { return false; }
uint32_t update_by_folding(uint32_t crc, const unsigned char* at, size_t bytes) {
  return update_by_instruction(crc, at, bytes);
}

#endif

}  // namespace

uint32_t crc32c_portable(const void* data, size_t bytes) {
  return ~update_by_table(~0u, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c(const void* data, size_t bytes) {
  static const bool fast = has_instruction();
  static const bool fastest = fast && can_fold();
  if (!fast) return crc32c_portable(data, bytes);
  if (fastest && bytes >= 4 * kFold)
    return ~update_by_folding(~0u, static_cast<const unsigned char*>(data), bytes);
  return ~update_by_instruction(~0u, static_cast<const unsigned char*>(data), bytes);
}

BEFORE_MAIN(crc32c, payload_checksum = crc32c);

}  // namespace ringgrad
