// SHA-256 of bytes and files, by OpenSSL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace ringgrad {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);
  // The digest of everything so far as 64 lower-case hexadecimal digits. Ends the computation: call it once.
  std::string hex();

 private:
  std::shared_ptr<void> context_;  // EVP_MD_CTX
};

std::string sha256_hex(std::span<const uint8_t> bytes);
// Of the file's bytes as they lie on the disk. Throws IoError.
std::string sha256_file(const std::filesystem::path& file);

}  // namespace ringgrad
