#include "ringgrad/data/datasets/download.h"

#include "ringgrad/core/base/atomic_file.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"

#ifdef RINGGRAD_CURL
#include <curl/curl.h>

#include <exception>
#include <memory>
#include <string_view>
#endif

namespace ringgrad {

#ifdef RINGGRAD_CURL
namespace {

// What arrives goes to the disk and into the hash. libcurl is C, so exceptions wait here until it has returned.
struct Receiver {
  AtomicFile file;
  const DownloadOptions& options;
  Sha256 sha256;
  uint64_t received = 0;
  std::exception_ptr error;

  bool take(std::span<const uint8_t> bytes) {
    try {
      received += bytes.size();
      if (received > options.bytes) return false;
      sha256.update(bytes);
      file.write(bytes);
      if (options.progress) options.progress(received);
      return true;
    } catch (...) {
      error = std::current_exception();
      return false;
    }
  }
};

size_t on_bytes(char* data, size_t, size_t size, void* receiver) {
  const bool taken = static_cast<Receiver*>(receiver)->take({reinterpret_cast<const uint8_t*>(data), size});
  return taken ? size : 0;  // anything else than size ends the transfer
}

bool is_loopback_http(std::string_view url) { return url.starts_with("http://127.0.0.1:"); }

}  // namespace

bool can_download() { return true; }

void download(const std::string& url, const std::filesystem::path& file, const DownloadOptions& options) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  CHECK_AS(IoError, initialised == CURLE_OK && curl, "download: libcurl does not start");
  Receiver receiver{AtomicFile(file), options, {}, 0, nullptr};
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
  if (options.allow_http_to_loopback) set(CURLOPT_PROXY, "");  // a proxy in the environment is not for this machine
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (code == CURLE_OK) code = curl_easy_perform(curl.get());

  if (receiver.error) std::rethrow_exception(receiver.error);
  CHECK_AS(DataError, receiver.received <= options.bytes, "download: ", url, ": sends more than the expected ",
           options.bytes, " bytes. Nothing was kept");
  CHECK_AS(IoError, code == CURLE_OK, "download: ", url, ": ", *message ? message : curl_easy_strerror(code),
           ", after ", receiver.received, " of ", options.bytes, " bytes");
  CHECK_AS(DataError, receiver.received == options.bytes, "download: ", url, ": sent ", receiver.received,
           " bytes, expected ", options.bytes, ". Nothing was kept");
  const std::string found = receiver.sha256.hex();
  CHECK_AS(DataError, found == options.sha256, "download: ", url, ": the file has SHA-256 ", found, ", expected ",
           options.sha256, ". Nothing was kept");
  receiver.file.commit();
}

#else

bool can_download() { return false; }

void download(const std::string& url, const std::filesystem::path&, const DownloadOptions&) {
  throw NotImplementedError(str("download: ", url, ": this program was built without libcurl. Install ",
                                "libcurl4-openssl-dev and build again, or fetch the file by other means"));
}

#endif

}  // namespace ringgrad
