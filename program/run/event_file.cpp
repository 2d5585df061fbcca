#include "ringgrad/program/run/event_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/checksums/crc32c.h"

namespace ringgrad::program {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Little-endian, as every machine is on which this is built.
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A CRC of data that has CRCs in it would be weak: it is turned, and moved by a constant.
std::string masked_crc(const std::string& data) {
  const uint32_t crc = crc32c(data.data(), data.size());
  return bytes_of<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

// In protocol buffers a field is its number and its kind, then its value.
enum Kind { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string tag(int field, Kind kind) { return varint(static_cast<uint64_t>(field << 3 | kind)); }
std::string field(int number, const std::string& bytes) {
  return tag(number, Bytes) + varint(bytes.size()) + bytes;
}

// Event.wall_time = 1, and what follows it.
std::string event(const std::string& rest) { return tag(1, Fixed64) + bytes_of(now()) + rest; }

std::string host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory)
    : file_(directory / fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<int64_t>(now()),
                                    host(), getpid())),
      out_(file_, std::ios::binary | std::ios::app) {
  check_written();
  write(event(field(3, "brain.Event:2")));  // Event.file_version, with which every such file begins
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  // Summary.value = 1: Value.tag = 1, Value.simple_value = 2.
  for (const auto& [name, value] : scalars)
    summary += field(1, field(1, name) + tag(2, Fixed32) + bytes_of(static_cast<float>(value)));
  // Event.step = 2, Event.summary = 5
  write(event(tag(2, Varint) + varint(static_cast<uint64_t>(step)) + field(5, summary)));
}

void EventFile::check_written() const {
  CHECK_AS(IoError, out_.good(), "train: cannot write ", file_.string(), ": ",
           std::strerror(errno));
}

void EventFile::write(const std::string& event) {
  const std::string length = bytes_of<uint64_t>(event.size());
  out_ << length << masked_crc(length) << event << masked_crc(event) << std::flush;
  check_written();
}

}  // namespace ringgrad::program
