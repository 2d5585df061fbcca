#include "ringgrad/data/datasets/download.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/formats/byte_reader.h"

#ifdef RINGGRAD_CURL
#include <curl/curl.h>

#include <exception>
#include <string_view>
#endif

namespace ringgrad {

#ifdef RINGGRAD_CURL
namespace {

// Writes arriving bytes to disk and into the hash. libcurl is C, so exceptions are kept here until
// it has returned.
struct Receiver {
  AtomicFile file;
  const DownloadOptions& options;
  Sha256 sha256;
  uint64_t received = 0;
  std::exception_ptr error;

  // Runs the body. Returns false and keeps the exception if it throws.
  template <class Body>
  bool attempt(Body body) {
    try {
      body();
      return true;
    } catch (...) {
      error = std::current_exception();
      return false;
    }
  }

  bool take(std::span<const uint8_t> bytes) {
    received += bytes.size();
    return received <= options.bytes && attempt([&] {
             sha256.update(bytes);
             file.write(bytes);
           });
  }
};

size_t on_bytes(char* data, size_t, size_t size, void* receiver) {
  const bool taken =
      static_cast<Receiver*>(receiver)->take({reinterpret_cast<const uint8_t*>(data), size});
  return taken ? size : 0;  // a result other than size ends the transfer
}

int on_progress(void* receiver, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& own = *static_cast<Receiver*>(receiver);
  return own.attempt([&] { own.options.progress(own.received); }) ? 0 : 1;  // 1 ends the transfer
}

template <class Take>
void for_each_piece(const InputFile& file, Take take) {
  std::vector<uint8_t> buffer(1 << 20);
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const std::span piece(buffer.data(), std::min<uint64_t>(buffer.size(), file.size() - at));
    file.read_at(at, piece);
    take(piece);
  }
}

// Takes what an earlier call has kept, if it can be the beginning.
void take_part(Receiver& receiver, const std::filesystem::path& part) {
  std::error_code none;
  const uint64_t bytes = std::filesystem::file_size(part, none);
  if (part.empty() || none || bytes >= receiver.options.bytes) return;
  for_each_piece(InputFile(part), [&](std::span<const uint8_t> piece) { receiver.take(piece); });
}

// Throws nothing: the error that ended the download is more important.
void keep_part(const Receiver& receiver, const std::filesystem::path& part) {
  if (part.empty() || receiver.received == 0) return;
  try {
    AtomicFile kept(part);
    for_each_piece(InputFile(receiver.file),
                   [&](std::span<const uint8_t> piece) { kept.write(piece); });
    kept.commit();
  } catch (const Error&) {
  }
}

bool is_loopback_http(std::string_view url) { return url.starts_with("http://127.0.0.1:"); }

}  // namespace

bool can_download() { return true; }

void download(const std::string& url, const std::filesystem::path& file,
              const DownloadOptions& options) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  CHECK_AS(IoError, initialised == CURLE_OK && curl, "download: libcurl does not start");
  Receiver receiver{AtomicFile(file), options, {}, 0, nullptr};
  take_part(receiver, options.part);
  char message[CURL_ERROR_SIZE] = "";

  CURLcode code = CURLE_OK;
  auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl_easy_setopt(curl.get(), option, value);
  };
  const bool http = options.allow_http_to_loopback && is_loopback_http(url);
  set(CURLOPT_ERRORBUFFER, message);
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, http ? "http" : "https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 5L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);  // other threads may be running
  set(CURLOPT_CONNECTTIMEOUT, 20L);
  set(CURLOPT_LOW_SPEED_LIMIT, 1000L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  set(CURLOPT_USERAGENT, "ringgrad");
  set(CURLOPT_WRITEFUNCTION, on_bytes);
  set(CURLOPT_WRITEDATA, &receiver);
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(receiver.received));
  if (options.progress) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_XFERINFODATA, &receiver);
  }
  // A proxy from the environment does not apply to this machine.
  if (options.allow_http_to_loopback) set(CURLOPT_PROXY, "");
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (code == CURLE_OK) code = curl_easy_perform(curl.get());

  const bool too_many = receiver.received > options.bytes;
  const bool range_refused = code == CURLE_RANGE_ERROR && receiver.received > 0;
  std::error_code none;
  if (code != CURLE_OK && !too_many && !range_refused)
    keep_part(receiver, options.part);
  else if (!options.part.empty())
    std::filesystem::remove(options.part, none);
  if (range_refused) return download(url, file, options);  // from its beginning
  if (receiver.error) std::rethrow_exception(receiver.error);
  CHECK_AS(DataError, !too_many, "download: ", url, ": sends more than the expected ",
           options.bytes, " bytes. Nothing was kept");
  CHECK_AS(NetworkError, code == CURLE_OK, "download: ", url, ": ",
           *message ? message : curl_easy_strerror(code), ", after ", receiver.received, " of ",
           options.bytes, " bytes");
  CHECK_AS(DataError, receiver.received == options.bytes, "download: ", url, ": sent ",
           receiver.received, " bytes, expected ", options.bytes, ". Nothing was kept");
  const std::string found = receiver.sha256.hex();
  CHECK_AS(DataError, found == options.sha256, "download: ", url, ": the file has SHA-256 ", found,
           ", expected ", options.sha256, ". Nothing was kept");
  receiver.file.commit();
}

#else

bool can_download() { return false; }

void download(const std::string& url, const std::filesystem::path&, const DownloadOptions&) {
  throw NotImplementedError(
      str("download: ", url, ": this program was built without libcurl. Install ",
          "libcurl4-openssl-dev and build again, or fetch the file by other means"));
}

#endif

namespace {

// A header is one block, and contents are padded to whole blocks (POSIX.1-1988, ustar).
constexpr size_t kBlock = 512;

struct Header {
  std::string name;
  uint64_t size;
  bool regular_file;
};

std::string text(std::span<const uint8_t> field) {  // NUL-terminated unless it fills the field
  return std::string(field.begin(), std::find(field.begin(), field.end(), 0));
}

uint64_t octal(const ByteReader& reader, std::span<const uint8_t> field, const char* what) {
  uint64_t value = 0;
  for (uint8_t c : field) {
    if (c == ' ' || c == 0) continue;
    CHECK_AS(DataError, c >= '0' && c <= '7', "tar: ", reader.at(reader.position() - kBlock),
             ": the ", what, " is not an octal number");
    value = value * 8 + (c - '0');
  }
  return value;
}

Header parse(const ByteReader& reader, std::span<const uint8_t, kBlock> block) {
  uint64_t sum = 0;  // the sum of all bytes; the checksum's own count as spaces
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
  CHECK_AS(DataError, octal(reader, block.subspan(148, 8), "checksum") == sum,
           "tar: ", reader.at(reader.position() - kBlock), ": the header's checksum is wrong");
  const std::string prefix = text(block.subspan(345, 155));
  const std::string name = text(block.subspan(0, 100));
  return {prefix.empty() || text(block.subspan(257, 5)) != "ustar" ? name : prefix + "/" + name,
          octal(reader, block.subspan(124, 12), "size"), block[156] == '0' || block[156] == 0};
}

}  // namespace

void extract_tar(const std::filesystem::path& archive, const std::filesystem::path& folder,
                 const WantedMembers& wanted) {
  ByteReader reader(archive);
  std::map<std::string, std::unique_ptr<AtomicFile>> found;
  std::vector<uint8_t> buffer(512 * kBlock);
  std::array<uint8_t, kBlock> block;
  while (found.size() < wanted.size() && reader.read(block) == kBlock) {
    // A block of zeros ends the archive.
    if (std::all_of(block.begin(), block.end(), [](uint8_t b) { return b == 0; })) break;
    const Header header = parse(reader, block);
    const auto member = wanted.find(header.name);
    AtomicFile* out = nullptr;
    if (member != wanted.end() && header.regular_file && !found.contains(header.name)) {
      CHECK_AS(DataError, header.size == member->second, "tar: ", archive.string(), ": ",
               header.name, " has ", header.size, " bytes, expected ", member->second);
      auto file =
          std::make_unique<AtomicFile>(folder / std::filesystem::path(header.name).filename());
      out = found.emplace(header.name, std::move(file)).first->second.get();
    }
    const uint64_t padded = (header.size + kBlock - 1) / kBlock * kBlock;
    for (uint64_t at = 0; at < padded; at += buffer.size()) {
      const std::span chunk(buffer.data(), std::min<uint64_t>(buffer.size(), padded - at));
      reader.read_exactly(chunk, header.name);
      if (out && at < header.size)
        out->write(chunk.first(std::min<uint64_t>(chunk.size(), header.size - at)));
    }
  }
  for (const auto& [name, size] : wanted)
    CHECK_AS(DataError, found.contains(name), "tar: ", archive.string(), ": has no file ", name);
  for (auto& [name, file] : found) file->commit();
}

}  // namespace ringgrad
