#include "ringgrad/distributed/job/rank_environment.h"

#include <unistd.h>

#include <cstdlib>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad {
namespace {

// torchrun's, and `ringgrad launch`'s.
constexpr Starter kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

std::vector<Starter> starters() {
  std::vector<Starter> all{kTorchrun};
  if (other_starters) all.insert(all.end(), other_starters->all.begin(), other_starters->all.end());
  return all;
}

}  // namespace

std::optional<int> number_in(const Environment& environment, const char* name) {
  const std::string text = text_in(environment, name);
  if (text.empty()) return {};
  const auto value = parse_number<int>(text);
  CHECK_AS(EnvironmentError, value && *value >= 0, "rendezvous: ", name, "='", text,
           "', expected a number of at least 0");
  return value;
}

std::string text_in(const Environment& environment, const char* name) {
  const char* value = name == nullptr ? nullptr : environment(name);
  return value == nullptr ? "" : value;
}

namespace {

// A starter sets the rank together with the other variables. If the rank is missing, the
// environment is incomplete (a line of a script that exports WORLD_SIZE, say), and every process
// would train alone.
void check_no_rank_missing(const Environment& environment) {
  for (const Starter& starter : starters()) {
    if (starter.else_no_rank) continue;
    const auto refuse_from = [&](const char* name, int least) {
      const auto value = number_in(environment, name);
      CHECK_AS(EnvironmentError, !value || *value < least, "rendezvous: ", name, "=", *value,
               " is set, but ", starter.rank,
               " is not; start the ranks with torchrun, "
               "mpirun or `ringgrad launch`, which set both, or ",
               "unset ", name);
    };
    refuse_from(starter.size, 2);
    refuse_from(starter.local_size, 2);
    refuse_from(starter.local_rank, 1);
  }
}

Address address_from(const Environment& environment, const RankEnvironment& r) {
  Address address{text_in(environment, "MASTER_ADDR"), 29'500};  // torchrun's port
  if (address.host.empty()) address.host = r.size == r.local_size ? "127.0.0.1" : r.address.host;
  const auto port = number_in(environment, "MASTER_PORT");
  CHECK_AS(EnvironmentError, !port || (*port > 0 && *port < 65'535),
           "rendezvous: MASTER_PORT=", *port, ", expected 1 to 65534");
  if (port)
    address.port = static_cast<uint16_t>(*port);
  else if (other_starters)
    address.port = other_starters->port(environment).value_or(address.port);
  if (text_in(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True") ++address.port;
  return address;
}

}  // namespace

RankEnvironment rank_environment_from(const Environment& environment) {
  RankEnvironment r;
  for (const Starter& starter : starters()) {
    const auto rank = number_in(environment, starter.rank);
    const auto size = number_in(environment, starter.size);
    if (!rank || (!size && starter.else_no_rank)) continue;
    CHECK_AS(EnvironmentError, size, "rendezvous: ", starter.rank, " is set, but ", starter.size,
             " is not");
    // Each rank keeps a place, and has connections, for every other one.
    CHECK_AS(EnvironmentError, *size > 0 && *size <= 100000, "rendezvous: ", starter.size, "=",
             *size, ", expected 1 to 100000");
    CHECK_AS(EnvironmentError, *rank < *size, "rendezvous: ", starter.rank, "=", *rank,
             " does not exist with ", starter.size, "=", *size);
    r.source = starter.rank;
    r.rank = *rank;
    r.size = *size;
    const auto local_rank = number_in(environment, starter.local_rank);
    const auto local_size = number_in(environment, starter.local_size);
    r.local_rank = local_rank.value_or(*rank);
    r.local_size = local_size.value_or(*size);  // a starter that does not say has all ranks here
    if (!local_size && other_starters) other_starters->place(environment, !local_rank, r);
    CHECK_AS(
        EnvironmentError,
        1 <= r.local_size && r.local_size <= r.size && (!local_size || r.local_rank < r.local_size),
        "rendezvous: rank ", r.local_rank, " of ", r.local_size, " on this machine, of ", r.size,
        " in all, does not exist; see ", starter.local_rank, " and ", starter.local_size);
    break;
  }
  if (r.source.empty()) check_no_rank_missing(environment);
  if (r.size == 1) return r;
  r.reached_at = text_in(environment, "RINGGRAD_ADDRESS");
  r.secret = secret_from ? secret_from(environment) : text_in(environment, "RINGGRAD_SECRET");
  r.address = address_from(environment, r);
  return r;
}

namespace {

// Returns, as " -u RANK -u WORLD_SIZE", those variables that name a rank and are set.
std::string words_that_unset() {
  std::string words;
  for (const Starter& starter : starters())
    for (const char* name : {starter.rank, starter.size, starter.local_rank, starter.local_size})
      if (name != nullptr && std::getenv(name) != nullptr) words += str(" -u ", name);
  return words;
}

std::chrono::milliseconds seconds_in(const char* name, const std::string& text) {
  const auto seconds = parse_number<double>(text);
  CHECK_AS(EnvironmentError, seconds && *seconds > 0 && *seconds < 1e6, name, " is '", text,
           "', expected seconds: above 0 and below 1000000");
  return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000) + 1);
}

}  // namespace

std::chrono::milliseconds default_timeout() {
  return seconds_in("RINGGRAD_TIMEOUT", variable("RINGGRAD_TIMEOUT", "60"));
}
std::chrono::milliseconds default_rendezvous_timeout() {
  const std::string text = variable("RINGGRAD_RENDEZVOUS_TIMEOUT");
  return text.empty() ? default_timeout() : seconds_in("RINGGRAD_RENDEZVOUS_TIMEOUT", text);
}

RankEnvironment rank_environment() {
  RankEnvironment r = rank_environment_from([](const char* name) { return std::getenv(name); });
  const std::string taken_by = variable(kRankProcess);
  CHECK_AS(EnvironmentError,
           r.source.empty() || taken_by.empty() || taken_by == std::to_string(getpid()),
           "rendezvous: ", r.source, "=", variable(r.source.c_str()),
           " is the environment of process ", taken_by, ", rank ", r.rank, " of ", r.size,
           " in its own job, which has started this process; for a job of its own: env",
           words_that_unset(), " PROGRAM");
  if (networks && r.local_size != r.size && !r.address.host.empty())
    networks->check_reachable(r.address.host);
  return r;
}

std::string launchers_variable(const char* name) {
  const std::string taken_by = variable(kRankProcess);
  return taken_by.empty() || taken_by == std::to_string(getpid()) ? variable(name) : "";
}

void take_rank(const RankEnvironment& rank) {
  if (!rank.source.empty()) setenv(kRankProcess, std::to_string(getpid()).c_str(), 1);
}

}  // namespace ringgrad
