// CRC-32C (Castagnoli) guards messages against bits that the network flips. Of all 32-bit checksums
// it is the one for which processors have an instruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringgrad {

// Returns the CRC-32C of the bytes, as in iSCSI (RFC 3720, B.4): that of "123456789" is 0xe3069283.
uint32_t crc32c(const void* data, size_t bytes);

// The same from a table, which every machine can do.
uint32_t crc32c_portable(const void* data, size_t bytes);

}  // namespace ringgrad
