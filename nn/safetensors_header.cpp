#include "ringgrad/nn/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"

namespace ringgrad::nn {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kDTypeNames[] = {
    {"F32", DType::Float32}, {"F64", DType::Float64}, {"BF16", DType::BFloat16},
    {"F16", DType::Float16}, {"I64", DType::Int64},   {"I32", DType::Int32},
    {"U8", DType::UInt8},    {"BOOL", DType::Bool}};

constexpr const char* kMetadata = "__metadata__";
// The hash of the JSON text in which these 64 digits are zeros.
constexpr const char* kHash = "sha256";
constexpr const char* kHashPrefix = "sha256:";  // prefix of the hash of a tensor's bytes
const std::string kNoHash(64, '0');

// Receives the parser's events. Depth 0 is outside, 1 the object of tensors, 2 one tensor or the
// metadata, and 3 an array.
class HeaderReader {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const std::string where = name_.empty() ? "" : " tensor '" + name_.substr(0, 200) + "':";
    throw DataError(str("load: ", file_, ":", where, " ", parts..., ". Nothing was loaded"));
  }

  bool start_object(size_t) {
    if (depth_ == 2 || depth_ == 3) fail("a JSON object where ", expected(), " was expected");
    if (++depth_ == 2) {
      in_metadata_ = name_ == kMetadata;
      if (!in_metadata_) header_.entries.emplace_back().name = name_;
      if (header_.entries.size() > kMaxEntries) fail("more than ", kMaxEntries, " tensors");
      seen_.clear();
    }
    return true;
  }

  bool key(std::string& key) {
    if (key.size() > kMaxNameBytes)
      fail("a name of ", key.size(), " bytes, expected at most ", kMaxNameBytes);
    if (depth_ == 1) {
      name_ = key;
      if (!names_.insert(key).second) fail("the name comes twice");
    } else {
      field_ = key;
      if (in_metadata_ && names_in_metadata_++ > 2 * kMaxEntries) fail("too much metadata");
      if (!in_metadata_ && key != "dtype" && key != "shape" && key != "data_offsets")
        fail("unknown field '", key.substr(0, 100), "', expected dtype, shape and data_offsets");
      if (!in_metadata_ && !seen_.insert(key).second) fail("the field '", key, "' comes twice");
    }
    return true;
  }

  bool end_object() {
    if (depth_ == 2 && !in_metadata_ && seen_.size() != 3)
      fail("expected the fields dtype, shape and data_offsets");
    if (--depth_ == 1) name_.clear();
    return true;
  }

  bool string(std::string& text) {
    if (depth_ == 2 && in_metadata_) {
      const bool is_hash = field_.starts_with(kHashPrefix);
      const std::string& key = is_hash ? field_.substr(std::strlen(kHashPrefix)) : field_;
      if (!(is_hash ? header_.hashes : header_.metadata).emplace(key, text).second)
        fail("the metadata has '", field_.substr(0, 200), "' twice");
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") fail("a JSON string where ", expected(), " was expected");
    for (const auto& [known, dtype] : kDTypeNames)
      if (text == known) header_.entries.back().dtype = dtype;
    return true;
  }

  bool start_array(size_t) {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype")
      fail("a JSON array where ", expected(), " was expected");
    ++depth_;
    numbers_.clear();
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (depth_ != 3) fail("a number where ", expected(), " was expected");
    if (numbers_.size() >= kMaxDims) fail(field_, " has more than ", kMaxDims, " numbers");
    numbers_.push_back(value);
    return true;
  }

  bool end_array() {
    --depth_;
    SafetensorsEntry& entry = header_.entries.back();
    if (field_ == "shape") {
      // Sizes must multiply without overflow even if another one is 0.
      int64_t product = 1;
      for (uint64_t size : numbers_)
        if (size > INT64_MAX ||
            __builtin_mul_overflow(product, std::max<int64_t>(1, size), &product))
          fail("the shape has too many elements");
      entry.shape = Shape(std::vector<int64_t>(numbers_.begin(), numbers_.end()));
    } else {
      if (numbers_.size() != 2) fail("data_offsets has ", numbers_.size(), " numbers, expected 2");
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
    }
    return true;
  }

  bool number_integer(int64_t value) { fail(field_, ": ", value, " is negative"); }
  bool number_float(double, const std::string& text) {
    fail(field_, ": ", text.substr(0, 40), " is no valid size");
  }
  bool null() { fail("null where ", expected(), " was expected"); }
  bool boolean(bool) { fail("a boolean where ", expected(), " was expected"); }
  bool binary(json::binary_t&) { return false; }
  bool parse_error(size_t position, const std::string&, const json::exception& error) {
    fail("the header is no valid JSON at byte ", 8 + position, ": ",
         std::string(error.what()).substr(0, 200));
  }

 private:
  std::string expected() const {
    if (depth_ < 2) return "an object";
    if (depth_ == 3) return "an unsigned number";
    return in_metadata_ || field_ == "dtype" ? "a string" : "an array";
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;
  std::string field_;
  std::set<std::string> names_;
  std::set<std::string> seen_;
  size_t names_in_metadata_ = 0;
  std::vector<uint64_t> numbers_;
};

// Checks that every byte of the data belongs to exactly one tensor, and that its shape needs
// exactly its bytes.
void check_offsets(const std::string& file, uint64_t data_bytes,
                   std::vector<SafetensorsEntry>& entries) {
  // Empty tensors stay in the order of the file.
  std::ranges::stable_sort(
      entries, {}, [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    const auto where = [&] {
      return str("load: ", file, ": tensor '", entry.name, "', bytes ", entry.begin, " to ",
                 entry.end, ": ");
    };
    CHECK_AS(DataError, entry.begin <= entry.end && entry.end <= data_bytes, where(),
             "expected a range within the ", data_bytes, " bytes of data. Nothing was loaded");
    uint64_t bytes = 0;
    CHECK_AS(DataError,
             !entry.dtype || (!__builtin_mul_overflow(static_cast<uint64_t>(entry.shape.numel()),
                                                      itemsize(*entry.dtype), &bytes) &&
                              bytes == entry.end - entry.begin),
             where(), "shape ", entry.shape, " of ", *entry.dtype, " needs ", bytes,
             " bytes, found ", entry.end - entry.begin, ". Nothing was loaded");
    CHECK_AS(DataError, entry.begin == covered, where(),
             entry.begin < covered ? "overlaps" : "leaves a hole behind",
             " the tensor before it, which ends at byte ", covered, ". Nothing was loaded");
    covered = entry.end;
  }
  CHECK_AS(DataError, covered == data_bytes, "load: ", file, ": the tensors end at byte ", covered,
           " of the data, of ", data_bytes, ". Nothing was loaded");
}

void check_hashes(const std::string& file, std::string text, SafetensorsHeader& header) {
  const auto own = header.metadata.find(kHash);
  CHECK_AS(DataError,
           (own != header.metadata.end()) == !header.hashes.empty() || header.entries.empty(),
           "load: ", file, ": the header has SHA-256 for ", header.hashes.size(), " tensors, and ",
           own == header.metadata.end() ? "none" : "one", " for itself. Nothing was loaded");
  if (own == header.metadata.end()) return;
  const size_t at =
      own->second.size() == kNoHash.size() ? text.find(own->second) : std::string::npos;
  if (at != std::string::npos) text.replace(at, kNoHash.size(), kNoHash);
  const std::string found = sha256_hex(text);
  CHECK_AS(DataError, found == own->second, "load: ", file, ": the header, bytes 8 to ",
           8 + text.size(), ", has SHA-256 ", found, ", expected ", own->second.substr(0, 64),
           ". Nothing was loaded");
  for (const SafetensorsEntry& entry : header.entries)
    CHECK_AS(DataError, header.hashes.contains(entry.name), "load: ", file, ": tensor '",
             entry.name, "' has no SHA-256, unlike the others. Nothing was loaded");
  header.metadata.erase(own);
}

std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error(str("save: the name or value '", text, "' is no valid UTF-8"));
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string name = file.path().string();
  CHECK_AS(DataError, file.size() >= 8, "load: ", name, " has ", file.size(),
           " bytes, expected at least the 8 of a safetensors header's length");
  uint8_t prefix[8];
  file.read_at(0, prefix);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  CHECK_AS(DataError, length <= file.size() - 8 && length <= kMaxHeaderBytes, "load: ", name,
           ": byte 0 gives the header ", length, " bytes, expected at most ",
           std::min(file.size() - 8, kMaxHeaderBytes), "; is it a safetensors file?");
  std::string text(length, '\0');
  file.read_at(8, {reinterpret_cast<uint8_t*>(text.data()), length});
  CHECK_AS(DataError, text.starts_with('{'), "load: ", name,
           ": byte 8 is no '{'; is it a safetensors file?");

  SafetensorsHeader header;
  header.data_begin = 8 + length;
  HeaderReader reader(name, header);
  json::sax_parse(text, &reader);
  check_offsets(name, file.size() - header.data_begin, header.entries);
  check_hashes(name, std::move(text), header);
  return header;
}

std::string make_safetensors_header(const SafetensorsHeader& header) {
  const auto dtype_name = [](DType dtype) {
    return std::ranges::find(kDTypeNames, dtype, &std::pair<const char*, DType>::second)->first;
  };
  std::string text = str("{\"", kMetadata, "\":{\"", kHash, "\":\"", kNoHash, "\"");
  const size_t own = text.size() - 1 - kNoHash.size();
  // Throws for names and values that the reader would refuse.
  const auto check_length = [](const std::string& name, size_t limit) {
    CHECK(name.size() <= limit, "save: the name '", name.substr(0, 100), "…' has ", name.size(),
          " bytes, expected at most ", limit);
  };
  for (const auto& [key, value] : header.metadata) check_length(key, kMaxNameBytes);
  for (const SafetensorsEntry& entry : header.entries)  // a hash's key is longer
    check_length(entry.name, kMaxNameBytes - std::strlen(kHashPrefix));
  for (const auto& [key, value] : header.metadata) text += "," + quoted(key) + ":" + quoted(value);
  for (const auto& [name, hash] : header.hashes)
    text += "," + quoted(kHashPrefix + name) + ":" + quoted(hash);
  text += "}";
  for (const SafetensorsEntry& entry : header.entries) {
    text +=
        "," + quoted(entry.name) + ":{\"dtype\":\"" + dtype_name(*entry.dtype) + "\",\"shape\":[";
    for (int d = 0; d < entry.shape.dim(); ++d) text += str(d ? "," : "", entry.shape[d]);
    text += str("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  CHECK(header.entries.size() <= kMaxEntries && text.size() <= kMaxHeaderBytes,
        "save: ", header.entries.size(), " tensors and a header of ", text.size(),
        " bytes, expected at most ", kMaxEntries, " and ", kMaxHeaderBytes);
  text.replace(own, kNoHash.size(), sha256_hex(text));

  std::string prefix(8, '\0');
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i));
  return prefix + text;
}

}  // namespace ringgrad::nn
