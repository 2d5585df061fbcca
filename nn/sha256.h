// SHA-256 (FIPS 180-4) of bytes that arrive in pieces, by OpenSSL's libcrypto: 1.5 GB/s on one core.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace ringgrad::nn {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(const void* data, size_t bytes);
  std::string hex();  // 64 hexadecimal digits; to be called once, at the end

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(const void* data, size_t bytes);
inline std::string sha256_hex(std::string_view text) { return sha256_hex(text.data(), text.size()); }

}  // namespace ringgrad::nn
