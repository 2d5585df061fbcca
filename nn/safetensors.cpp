#include "ringgrad/nn/safetensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/safetensors_header.h"

namespace ringgrad::nn {
namespace {

// The caching allocator is not used, because its blocks are up to a quarter larger than requested.
std::shared_ptr<Storage> exact_storage(size_t bytes) {
  void* data = std::malloc(std::max<size_t>(1, bytes));
  CHECK_AS(OutOfMemoryError, data != nullptr, "load: out of memory: asked for ", bytes, " bytes");
  return std::make_shared<Storage>(data, bytes, Device(), [data] { std::free(data); });
}

// Returns the entry's bytes as a tensor: in the data's memory if its position is aligned, as it
// always is in files written here. It has a version of its own, because it is no view of others.
Tensor tensor_of(const SafetensorsEntry& entry, const std::shared_ptr<Storage>& data) {
  const size_t item = itemsize(*entry.dtype);
  const size_t bytes = entry.end - entry.begin;
  const Strides strides = contiguous_strides(entry.shape);
  auto* const from = static_cast<char*>(data->data()) + entry.begin;
  if (entry.begin % item == 0)
    return Tensor(std::make_shared<Storage>(from, bytes, Device(), [data] {}), entry.shape, strides,
                  0, *entry.dtype);
  const Tensor copy(exact_storage(bytes), entry.shape, strides, 0, *entry.dtype);
  std::memcpy(copy.raw_data(), from, bytes);
  return copy;
}

void check_data(const std::string& file, const SafetensorsEntry& entry,
                const SafetensorsHeader& header, const unsigned char* bytes) {
  const size_t length = entry.end - entry.begin;
  const auto where = [&] {
    return str("load: ", file, ": tensor '", entry.name, "', bytes ",
               header.data_begin + entry.begin, " to ", header.data_begin + entry.end, ", ");
  };
  if (const auto hash = header.hashes.find(entry.name); hash != header.hashes.end()) {
    const std::string found = sha256_hex({bytes, length});
    CHECK_AS(DataError, found == hash->second, where(), "has SHA-256 ", found, ", expected ",
             hash->second.substr(0, 64), ". Nothing was loaded");
  }
  // A bool that is neither 0 nor 1 would be undefined behaviour wherever it is used.
  const bool fits = entry.dtype != DType::Bool ||
                    std::all_of(bytes, bytes + length, [](auto b) { return b <= 1; });
  CHECK_AS(DataError, fits, where(), "has a bool that is neither 0 nor 1. Nothing was loaded");
}

// Returns the layout of a file: larger items first, so that every tensor is aligned, and then by
// name.
std::vector<std::pair<SafetensorsEntry, Tensor>> laid_out(const NamedTensors& tensors) {
  std::vector<std::pair<SafetensorsEntry, Tensor>> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({{.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()}, tensor});
  std::ranges::sort(entries, {}, [](const auto& entry) {
    return std::pair(16 - itemsize(*entry.first.dtype), entry.first.name);
  });
  uint64_t offset = 0;
  for (auto& [entry, tensor] : entries) {
    entry.begin = offset;
    entry.end = offset += tensor.nbytes();
  }
  return entries;
}

// Reads back what was written, before it replaces a file that may be the only good one.
void check_written(const AtomicFile& file, uint64_t offset, std::span<const uint8_t> bytes) {
  const InputFile written(file);
  std::vector<uint8_t> found(std::min<size_t>(bytes.size(), 1 << 20));
  for (size_t done = 0; done < bytes.size(); done += found.size()) {
    const std::span<const uint8_t> expected =
        bytes.subspan(done, std::min(found.size(), bytes.size() - done));
    const std::span<uint8_t> back = std::span(found).first(expected.size());
    written.read_at(offset + done, back);
    CHECK_AS(IoError, std::ranges::equal(expected, back), "save: ", written.path().string(),
             ": bytes ", offset + done, " to ", offset + done + expected.size(),
             " read back otherwise than they were written; what was there before is intact. "
             "Is the disk damaged?");
  }
}

// Checks the header by reading it from the file, which is all that a later reader has.
void check_written_header(const AtomicFile& file, const SafetensorsHeader& header) {
  const InputFile written(file);
  SafetensorsHeader found;
  try {
    found = read_safetensors_header(written);
  } catch (const DataError& error) {
    throw IoError(
        str("save: ", written.path().string(),
            " could not be read again, so what was there before is intact: ", error.what()));
  }
  CHECK_AS(
      IoError, found == header, "save: ", written.path().string(),
      ": the header reads back otherwise than it was written; what was there before is intact");
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  const InputFile file(path);
  SafetensorsHeader header = read_safetensors_header(file);
  const uint64_t bytes = file.size() - header.data_begin;
  const std::shared_ptr<Storage> data = exact_storage(bytes);
  file.read_at(header.data_begin, {static_cast<uint8_t*>(data->data()), bytes});

  SafetensorsFile loaded;
  for (const SafetensorsEntry& entry : header.entries) {
    check_data(path, entry, header, static_cast<const unsigned char*>(data->data()) + entry.begin);
    if (entry.dtype)
      loaded.tensors.emplace_back(entry.name, tensor_of(entry, data));
    else
      loaded.skipped.push_back(entry.name);
  }
  loaded.metadata = std::move(header.metadata);
  return loaded;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::set<std::string> names{"__metadata__"};
  for (const auto& [name, tensor] : tensors) {
    CHECK(tensor.defined(), "save: '", name, "' is an undefined tensor");
    CHECK(names.insert(name).second, "save: the name '", name,
          "' comes twice, or is the format's own");
  }
  for (const auto& [key, value] : metadata)
    CHECK(!key.starts_with("sha256"), "save: the metadata's key '", key,
          "' begins with sha256, which is ours");

  const auto entries = laid_out(tensors);
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [entry, tensor] : entries) {
    header.entries.push_back(entry);
    header.hashes[entry.name] = std::string(64, '0');
  }
  // The header's length does not depend on the hashes: each tensor is hashed as it is written, and
  // the header last.
  AtomicFile file(path);
  header.data_begin = make_safetensors_header(header).size();
  for (const auto& [entry, tensor] : entries) {
    const Tensor host =
        tensor.device().is_cpu() ? as_contiguous(tensor) : on_device(tensor, Device());
    const std::span bytes(static_cast<const uint8_t*>(host.raw_data()), entry.end - entry.begin);
    header.hashes[entry.name] = sha256_hex(bytes);
    file.write_at(header.data_begin + entry.begin, bytes);
    check_written(file, header.data_begin + entry.begin, bytes);
  }
  const std::string text = make_safetensors_header(header);
  file.write_at(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  check_written_header(file, header);
  file.commit();
}

}  // namespace ringgrad::nn
