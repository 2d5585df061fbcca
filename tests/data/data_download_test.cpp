// The downloader against servers on this machine that misbehave in every way a server can.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/download.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/data/loopback_server.h"

namespace ringgrad::test::data_download_test {

namespace {

const std::string kBody = std::string(100000, 'r') + "inggrad";

DownloadOptions expecting(const std::string& body) {
  return {.bytes = body.size(),
          .sha256 = sha256_hex({reinterpret_cast<const uint8_t*>(body.data()), body.size()}),
          .allow_http_to_loopback = true,
          .stall_seconds = 1};
}

struct Target {
  TempFolder folder;
  std::filesystem::path file = folder / "x";
  Target() { write_bytes(file, Bytes{'o', 'l', 'd'}); }

  // Downloads and returns the error; when there is one, the old file must be there untouched, and
  // nothing else.
  std::string error(const std::string& url, const DownloadOptions& options) {
    std::string text = error_of<IoError>([&] { download(url, file, options); });
    REQUIRE(folder.names() == std::vector<std::string>{"x"});
    if (!text.empty()) REQUIRE(read_bytes(file) == Bytes{'o', 'l', 'd'});
    return text;
  }
};

}  // namespace

TEST_CASE("download: a right file arrives, and progress is told", "[quick]") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  LoopbackServer server(
      [](int connection, const std::string&) { send_all(connection, ok(kBody.size()) + kBody); });
  Target target;
  DownloadOptions options = expecting(kBody);
  uint64_t last = 0;
  options.progress = [&](uint64_t received) {
    REQUIRE(received >= last);
    last = received;
  };
  REQUIRE(target.error(server.url("x"), options).empty());
  REQUIRE(read_bytes(target.file) == Bytes(kBody.begin(), kBody.end()));
  REQUIRE(last == kBody.size());

  // Progress may stop it.
  write_bytes(target.file, Bytes{'o', 'l', 'd'});
  options.progress = [](uint64_t) { throw IoError("stopped by the user"); };
  REQUIRE(target.error(server.url("x"), options) == "stopped by the user");
}

TEST_CASE("download: whatever a server does wrong, the old file stays", "[quick]") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  std::string other_host;
  std::atomic<bool> over{false};
  LoopbackServer server([&](int connection, const std::string& path) {
    if (path == "truncated") send_all(connection, ok(kBody.size()) + kBody.substr(0, 5000));
    if (path == "short") send_all(connection, ok(5000) + kBody.substr(0, 5000));
    if (path == "wrong") send_all(connection, ok(kBody.size()) + std::string(kBody.size(), 'w'));
    if (path == "redirect") send_all(connection, redirect(other_host));
    if (path == "file") send_all(connection, redirect("file:///etc/passwd"));
    if (path == "missing")
      send_all(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    if (path == "nonsense") send_all(connection, std::string(1000, '\xff'));
    if (path == "endless") {
      send_all(connection, "HTTP/1.1 200 OK\r\n\r\n");
      while (!over && send_all(connection, std::string(65536, 'e'))) {
      }
    }
  });
  other_host = server.url("elsewhere");
  Target target;
  const DownloadOptions options = expecting(kBody);
  auto error = [&](const std::string& path) {
    const std::string text = target.error(server.url(path), options);
    INFO(path << ": " << text);
    REQUIRE(contains(text, server.url(path)));
    return text;
  };
  REQUIRE(contains(error("truncated"), "after 5000 of 100007 bytes"));
  REQUIRE(contains(error("short"), "sent 5000 bytes, expected 100007"));
  REQUIRE(contains(error("wrong"), "SHA-256"));
  REQUIRE(contains(error("endless"), "more than the expected 100007 bytes"));
  REQUIRE(contains(error("missing"), "404"));
  REQUIRE_THROWS_AS(download(server.url("missing"), target.file, options), NetworkError);
  error("nonsense");
  const int requests = server.requests();
  REQUIRE(contains(error("redirect"), "http"));
  REQUIRE(server.requests() == requests + 1);  // the place it was sent to was not asked
  error("file");
  over = true;
}

TEST_CASE("download: a server that falls silent or crawls is given up") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  std::atomic<bool> over{false};
  LoopbackServer server([&](int connection, const std::string& path) {
    if (path == "silent")
      for (int i = 0; i < 1000 && !over; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (path == "slow") {
      send_all(connection, ok(kBody.size()));
      for (int i = 0; i < 1000 && !over && send_all(connection, "s"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  Target target;
  const auto start = std::chrono::steady_clock::now();
  for (const char* path : {"slow", "silent"}) {
    const std::string error = target.error(server.url(path), expecting(kBody));
    INFO(error);
    REQUIRE(contains(error, server.url(path)));
    REQUIRE(contains(error, "of 100007 bytes"));
  }
  DownloadOptions impatient = expecting(kBody);
  impatient.stall_seconds = 30;
  impatient.progress = [&](uint64_t received) {
    if (received == 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(3))
      throw IoError("enough");
  };
  REQUIRE(target.error(server.url("silent"), impatient) == "enough");
  over = true;
  // The server would not have given up.
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("download: goes on behind what has come, and begins anew where that is wrong",
          "[quick]") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  const auto rest = [](size_t from) {
    return "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" +
           std::to_string(kBody.size() - 1) + "/" + std::to_string(kBody.size()) +
           "\r\nContent-Length: " + std::to_string(kBody.size() - from) + "\r\n\r\n";
  };
  LoopbackServer server([&](int connection, const std::string& path) {
    const size_t at = path.find('@');
    const size_t from = at == std::string::npos ? 0 : std::stoul(path.substr(at + 1));
    if (path.starts_with("cut")) {  // 5000 bytes each time
      if (from == 0) send_all(connection, ok(kBody.size()));
      if (from > 0) send_all(connection, rest(from));
      send_all(connection, kBody.substr(from, 5000));
    }
    if (path.starts_with("whole@")) send_all(connection, rest(from) + kBody.substr(from));
    if (path.starts_with("always")) send_all(connection, ok(kBody.size()) + kBody);  // no ranges
  });
  TempFolder folder;
  DownloadOptions options = expecting(kBody);
  options.part = folder / "x.part";
  const auto error = [&](const char* path) {
    return error_of<IoError>([&] { download(server.url(path), folder / "x", options); });
  };
  for (const char* end : {"whole", "always"}) {
    INFO(end);
    for (size_t times = 1; times <= 3; ++times) {
      REQUIRE(contains(error("cut"), "after " + std::to_string(times * 5000) + " of 100007 bytes"));
      REQUIRE(folder.names() == std::vector<std::string>{"x.part"});
      REQUIRE(read_bytes(options.part).size() == times * 5000);
    }
    REQUIRE(error(end) == "");
    REQUIRE(folder.names() == std::vector<std::string>{"x"});
    REQUIRE(read_bytes(folder / "x") == Bytes(kBody.begin(), kBody.end()));
    std::filesystem::remove(folder / "x");
  }
  // A part of another file is found wrong by the hash, and thrown away; one that is too long, too.
  write_bytes(options.part, Bytes(5000, 'w'));
  REQUIRE(contains(error("whole"), "SHA-256"));
  REQUIRE(folder.names().empty());
  write_bytes(options.part, Bytes(kBody.size() + 1, 'w'));
  REQUIRE(error("always") == "");
  REQUIRE(folder.names() == std::vector<std::string>{"x"});
}

TEST_CASE("download: http is refused, except to this machine for tests", "[quick]") {
  if (!can_download()) {
    WARN("built without libcurl: skipped");
    return;
  }
  LoopbackServer server(
      [](int connection, const std::string&) { send_all(connection, ok(kBody.size()) + kBody); });
  Target target;
  DownloadOptions options = expecting(kBody);
  options.allow_http_to_loopback = false;
  const auto refused = [&](const std::string& url) {
    return contains(target.error(url, options), "rotocol");
  };
  REQUIRE(refused(server.url("x")));
  options.allow_http_to_loopback = true;
  REQUIRE(refused("http://127.0.0.1.example.invalid/x"));  // not because there is no such host
  REQUIRE(refused("http://example.invalid/x"));
  REQUIRE(refused("ftp://127.0.0.1:1/x"));
  REQUIRE(refused("file:///etc/hostname"));
  REQUIRE(server.requests() == 0);
}

TEST_CASE("download: https, with a certificate that is trusted and one that is not") {
  if (!can_download() || std::system("command -v openssl timeout > /dev/null") != 0) {
    WARN("needs libcurl and the openssl command: skipped");
    return;
  }
  Target target;
  TempFolder site;
  const std::string cd = "cd '" + site.path().string() + "' && ";
  write_bytes(site / "body", Bytes(kBody.begin(), kBody.end()));
  REQUIRE(
      std::system(
          (cd +
           "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
           "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem "
           "2> /dev/null")
              .c_str()) == 0);
  std::FILE* server =
      ::popen((cd + "exec timeout 60 openssl s_server -accept 127.0.0.1:0 -WWW -naccept 2 "
                    "-cert cert.pem -key key.pem 2> /dev/null")
                  .c_str(),
              "r");
  REQUIRE(server != nullptr);
  std::string port;
  char line[256];
  while (port.empty() && std::fgets(line, sizeof line, server))
    if (contains(line, "ACCEPT 127.0.0.1:"))
      port = std::string(line).substr(std::string(line).rfind(':') + 1, 5);
  const std::string url = "https://127.0.0.1:" + std::to_string(std::atoi(port.c_str())) + "/body";

  DownloadOptions options = expecting(kBody);
  options.stall_seconds = 20;
  const std::string untrusted = target.error(url, options);
  options.ca_file = (site / "cert.pem").string();
  const std::string trusted = target.error(url, options);
  ::pclose(server);
  INFO(untrusted);
  REQUIRE(contains(untrusted, "certificate"));
  REQUIRE(trusted == "");
  REQUIRE(read_bytes(target.file).size() == kBody.size());
}

}  // namespace ringgrad::test::data_download_test
