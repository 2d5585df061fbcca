// Unpacks chosen files from a .tar or .tar.gz.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace ringgrad {

// Which members are wanted, and their exact sizes. The caller's list decides all names and sizes on the disk, so an
// archive can neither write elsewhere nor fill the disk.
using WantedMembers = std::map<std::string, uint64_t>;  // "cifar-10-batches-bin/test_batch.bin" -> 30730000

// Writes each wanted member to folder / its file name; they appear at the end, once all are there whole. Throws
// IoError, and DataError when the archive is damaged, lacks a wanted member or holds it with another size.
void extract_tar(const std::filesystem::path& archive, const std::filesystem::path& folder,
                 const WantedMembers& wanted);

}  // namespace ringgrad
