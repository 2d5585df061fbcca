#include "nn/sha256.h"

#include <openssl/evp.h>

#include "core/check.h"

namespace ringgrad::nn {

void Sha256::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ASSERT(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;

void Sha256::update(const void* data, size_t bytes) { ASSERT(EVP_DigestUpdate(context_.get(), data, bytes) == 1); }

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ASSERT(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(const void* data, size_t bytes) {
  Sha256 hash;
  hash.update(data, bytes);
  return hash.hex();
}

}  // namespace ringgrad::nn
