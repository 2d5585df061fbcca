#include "data/sha256.h"

#include <openssl/evp.h>

#include <vector>

#include "core/check.h"
#include "data/byte_reader.h"

namespace ringgrad {
namespace {

EVP_MD_CTX* evp(const std::shared_ptr<void>& context) { return static_cast<EVP_MD_CTX*>(context.get()); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* raw) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(raw)); }) {
  CHECK(context_ && EVP_DigestInit_ex(evp(context_), EVP_sha256(), nullptr) == 1, "sha256: OpenSSL has no SHA-256");
}

void Sha256::update(std::span<const uint8_t> bytes) {
  ASSERT(EVP_DigestUpdate(evp(context_), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  ASSERT(EVP_DigestFinal_ex(evp(context_), digest, &size) == 1);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.hex();
}

std::string sha256_file(const std::filesystem::path& file) {
  ByteReader reader(file, ByteReader::Raw);
  std::vector<uint8_t> buffer(1 << 18);
  Sha256 sha;
  while (const size_t count = reader.read(buffer)) sha.update({buffer.data(), count});
  return sha.hex();
}

}  // namespace ringgrad
