// The table that ranks compare before they connect: versions, compilers and options. They also
// agree on the best processor instructions that all of them have. The width of vectors decides the
// order in which some sums are added, so ranks with different kernels would compute other bits than
// a job of either kind.
#include <algorithm>
#include <atomic>
#include <sstream>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/distributed/agreement/lines.h"
#include "ringgrad/distributed/agreement/transport_names.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/rendezvous/connect.h"

namespace ringgrad {
namespace {

#if defined(__OPTIMIZE__)
constexpr const char* kOptimized = "optimized";
#else
constexpr const char* kOptimized = "not optimized";
#endif

// Returns the sets of instructions to choose from, from the least to the best. RINGGRAD_ISA makes
// it one.
std::string usable_isas() {
  if (!variable("RINGGRAD_ISA").empty()) return isa();
  std::string names;
  for (const BuiltIsa& built : built_isas())
    if (built.on_this_machine) names += (names.empty() ? "" : " ") + built.name;
  return names;
}

// The first two lines are agreed on, the others compared.
std::string own_table(const ConnectOptions& options) {
  CHECK_AS(EnvironmentError, is_transport(options.transport), "transport: '", options.transport,
           "', expected ", transport_choices());
  return str(usable_isas(), '\n', uses_tiles() ? "tiles" : "no tiles",
             "\nversion " RINGGRAD_VERSION "\ncompiler " __VERSION__ ", ", kOptimized, "\nbackend ",
             options.backend, "\ntransport ", options.transport, '\n');
}

struct Machine {
  std::vector<std::string> isas;
  bool tiles = false;
  std::string rest;

  explicit Machine(const std::string& table) {
    TextInput in(table);
    std::string line;
    std::getline(in, line);
    TextInput names(line);
    for (std::string name; names >> name;) isas.push_back(name);
    std::getline(in, line);
    tiles = line == "tiles";
    std::getline(in, rest, '\0');
  }
  bool has(const std::string& isa) const {
    return std::find(isas.begin(), isas.end(), isa) != isas.end();
  }
};

// Returns the best set that every rank has; "" if there is none.
std::string best_of_all(const std::vector<Machine>& machines) {
  for (auto isa = machines[0].isas.rbegin(); isa != machines[0].isas.rend(); ++isa)
    if (std::all_of(machines.begin(), machines.end(), [&](const auto& m) { return m.has(*isa); }))
      return *isa;
  return "";
}

std::string words(const Machine& machine) {
  std::string text;
  for (const std::string& isa : machine.isas) text += (text.empty() ? "" : ", ") + isa;
  return text;
}

void agree(const std::vector<std::string>& tables, int rank) {
  std::vector<Machine> machines;
  std::vector<std::string> rests;
  for (const std::string& table : tables) rests.push_back(machines.emplace_back(table).rest);
  const std::string difference = first_difference(rests, "setting");
  CHECK_AS(OutOfStepError, difference.empty(), "connect: ", difference,
           "; they would compute other bits: give all machines the same build and options");
  const std::string best = best_of_all(machines);
  const auto other = std::find_if(machines.begin(), machines.end(),
                                  [&](const auto& m) { return m.isas != machines[0].isas; });
  CHECK_AS(OutOfStepError, !best.empty(), "connect: no instructions are common to all ranks: rank ",
           other - machines.begin(), " has kernels for ", words(*other), ", rank 0 for ",
           words(machines[0]),
           "; set RINGGRAD_ISA to the same on all machines, or build with "
           "-DRINGGRAD_ISAS=\"v2;v3;v4;v4_bf16\", which has them all");
  if (best != isa()) use_isa(best);
  const bool tiles = std::all_of(machines.begin(), machines.end(), [](auto& m) { return m.tiles; });
  if (!tiles) leave_tiles();
  static constinit std::atomic<bool> said = false;
  if (rank != 0 || said.exchange(true)) return;
  if (other != machines.end())
    report_waiting(str("all ranks compute with kernels for ", best, ", the best that rank ",
                       other - machines.begin(), " (", words(*other), ") and rank 0 (",
                       words(machines[0]), ") have in common"));
  else if (machines[0].tiles && !tiles)
    report_waiting("no rank uses its tiles (AMX), since not all ranks have some");
}

constinit const RankTable table{own_table, agree};
BEFORE_MAIN(rank_table, rank_table = &table);

}  // namespace
}  // namespace ringgrad
