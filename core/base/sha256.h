// SHA-256 (FIPS 180-4) of bytes that arrive in pieces. OpenSSL's libcrypto computes it at 1.5 GB/s
// on one core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace ringgrad {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);
  // Returns the digest as 64 lower-case hexadecimal digits. REQUIRES: called once, at the end.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Returns two lower-case hexadecimal digits for each byte.
std::string hex_of(std::span<const std::byte> bytes);
std::string sha256_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view text);
// Returns the digest of the file's bytes on disk. Throws what InputFile throws.
std::string sha256_file(const std::filesystem::path& file);

}  // namespace ringgrad
