// The job's secret, which ranks on several machines must share to meet.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/distributed/job/rank_environment.h"

namespace ringgrad {
namespace {

constexpr size_t kMinSecret = 16;

std::string checked_secret(const char* variable, const std::string& secret) {
  CHECK_AS(
      EnvironmentError, secret.empty() || secret == "none" || secret.size() >= kMinSecret, variable,
      ": ", secret.size(), " characters can be guessed, expected at least ", kMinSecret,
      ", as `openssl rand -hex 32` makes them; none: no secret, for a network that only you reach");
  return secret;
}

std::string read_secret(const Environment& environment) {
  const std::string file = text_in(environment, "RINGGRAD_SECRET_FILE");
  if (file.empty())
    return checked_secret("RINGGRAD_SECRET", text_in(environment, "RINGGRAD_SECRET"));
  struct stat status {};
  CHECK_AS(EnvironmentError, stat(file.c_str(), &status) == 0, "RINGGRAD_SECRET_FILE: ", file, ": ",
           std::strerror(errno));
  CHECK_AS(EnvironmentError, (status.st_mode & 077) == 0,
           "RINGGRAD_SECRET_FILE: others than its owner can read ", file,
           "; chmod 600 it, and use a new secret");
  std::string secret;
  Classic<std::ifstream> lines(file);
  std::getline(lines, secret);
  CHECK_AS(EnvironmentError, !secret.empty(), "RINGGRAD_SECRET_FILE: ", file, " is empty");
  return checked_secret("RINGGRAD_SECRET_FILE", secret);
}

BEFORE_MAIN(secret, secret_from = read_secret);

}  // namespace
}  // namespace ringgrad
