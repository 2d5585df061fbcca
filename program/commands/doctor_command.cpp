// `ringgrad doctor`: the features of this machine and this build, and the reason why some are off.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/data/datasets/data_place.h"
#include "ringgrad/data/datasets/download.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/distributed/vendor_groups/backend.h"
#include "ringgrad/program/bench/ddp_advice.h"
#include "ringgrad/program/bench/ddp_explanation.h"
#include "ringgrad/program/bench/ddp_row.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/environment_table.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/build.h"

namespace ringgrad::program {
namespace {

// The value behind `key` in a file of "key : value" or "key: value" lines, as in /proc.
std::string value_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const auto colon = line.find(':');
      const auto begin = line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  return "unknown";
}

int kernels_with(DeviceType device, Provider provider) {
  int count = 0;
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next())
    count += kernel->has(device, provider);
  return count;
}

// One library that can stand in for native kernels: its version, or why it is not there.
void report_vendor(nlohmann::json& report, DeviceType device, const std::string& library,
                   const char* why_not) {
  std::string found;
  for (const std::string& name : vendor_libraries(device))
    if (name.starts_with(library)) found = name;
  report["vendors"][library] = found;
  std::string label = library;
  for (char& c : label) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  result("{:<11}{}", label, found.empty() ? fmt::format("off: {}", why_not) : "on: " + found);
}

// Says which kernels were chosen by measurement on a device, and which file has the choices.
void report_autotune(nlohmann::json& report, Device device) {
  const std::vector<TunedCall> tuned = tuned_calls(device);
  const auto native_wins = std::count_if(tuned.begin(), tuned.end(), [](const TunedCall& call) {
    return call.native_us <= call.vendor_us;
  });
  const std::string file = autotune_file(device);
  report["autotune"][str(device)] = {
      {"file", file}, {"calls", tuned.size()}, {"native_faster", native_wins}};
  result("autotune   {}: {} calls measured, the native kernel faster in {} ({})", str(device),
         tuned.size(), native_wins, file);
}

// Lists the environment variables, and the values of those that are set.
void report_environment(nlohmann::json& report) {
  constexpr int kName = 29;
  result(
      "\nEnvironment variables; one that is empty counts as not set. --json has also those for "
      "tests and of other programs.");
  for (const EnvironmentVariable& v : environment_table()) {
    const bool is_set = !variable(v.name.c_str()).empty();
    report["environment"].push_back({{"name", v.name},
                                     {"set_by", v.set_by},
                                     {"values", v.values},
                                     {"default", v.otherwise},
                                     {"meaning", v.meaning},
                                     {"read_by", v.read_by},
                                     {"is_set", is_set}});
    if (v.set_by != "user") continue;
    const std::string text =
        fmt::format("{}{}: {} (else: {})", is_set ? "SET; " : "", v.values, v.meaning, v.otherwise);
    std::string label = v.name;
    for (const std::string& line : wrapped(text, line_width() - kName)) {
      result("{:<{}}{}", label, kName, line);
      label.clear();
    }
  }
}

// Says how to train wanted.model here: it measures like `bench ddp`, with 2, 4, … ranks, and judges
// all rounds.
int advise_how_to_train(const BenchDdpOptions& wanted) {
  const Device first(wanted.device);
  const int most = first.is_cpu() ? cpu_cores() : device_count(first.type) - first.index;
  std::vector<nlohmann::json> documents;
  for (BenchDdpOptions o = wanted; o.ranks <= most && o.batch % o.ranks == 0; o.ranks *= 2)
    documents.push_back(explain_rounds(measure_rows(o)));
  if (documents.empty())
    throw UsageError("doctor --advise: a batch of {} on {} cannot be divided by two", wanted.batch,
                     counted(most, first.is_cpu() ? "core" : "device"));
  const nlohmann::json advice = advise(documents);
  for (const std::string& line : wrapped(advice.at("sentence"), line_width())) result(line);
  print_json(advice);
  return kOk;
}

struct DoctorOptions : BenchDdpOptions {
  bool advise = false;
};

int doctor(const DoctorOptions& options) {
  if (options.advise) return advise_how_to_train(options);
  const int native = kernels_with(DeviceType::CPU, Provider::Native);
  const int vendor = kernels_with(DeviceType::CPU, Provider::Vendor);
  const int reference = kernels_with(DeviceType::CPU, Provider::Reference);
  const int cuda = kernels_with(DeviceType::CUDA, Provider::Native);
  const int cuda_vendor = kernels_with(DeviceType::CUDA, Provider::Vendor);
  const int gpus = device_count(DeviceType::CUDA);
  std::error_code ignored;
  const auto space = std::filesystem::space(".", ignored);

  nlohmann::json report = {
      {"version", RINGGRAD_VERSION},
      {"cpu", value_in("/proc/cpuinfo", "model name")},
      {"cores", cpu_cores()},
      {"isa", isa()},
      {"memory_available", value_in("/proc/meminfo", "MemAvailable")},
      {"disk_available_bytes", static_cast<int64_t>(space.available)},
      {"cpu_devices", device_count(DeviceType::CPU)},
      {"cuda_devices", gpus},
      {"cuda", cuda_build()},
      {"bfloat16_products", bfloat16_products()},
      {"backends", available_backends()},
      {"kernels",
       {{"cpu_native", native},
        {"cpu_vendor", vendor},
        {"cpu_reference", reference},
        {"cuda_native", cuda},
        {"cuda_vendor", cuda_vendor}}},
      {"download", can_download()},
  };
  const auto on = [](bool yes, const char* why_not) {
    return yes ? std::string("on") : fmt::format("off: {}", why_not);
  };
  result("cpu        {}, {}", report["cpu"].get<std::string>(), counted(cpu_cores(), "core"));
  for (const auto& [name, value] : build_facts()) {
    report["build"][name] = value;
    result("{:<11}{}", name, value);
  }
  result("           on the CPU {} native, {} from a vendor's library, {} for reference", native,
         vendor, reference);
  result("           on CUDA {} native, {} from a vendor's library", cuda, cuda_vendor);
  result("bits       the same wherever the kernels are for {} and bfloat16 is multiplied as here",
         isa());
  result("memory     {} available", report["memory_available"].get<std::string>());
  result("disk       {} available here", human_bytes(static_cast<int64_t>(space.available)));
  result("devices    {} logical CPU device(s) (RINGGRAD_CPU_DEVICES), {} CUDA device(s)",
         device_count(DeviceType::CPU), gpus);
  result("bfloat16   convolutions multiply it {}", bfloat16_products());
  result("backends   {} (--backend)",
         fmt::join(report["backends"].get<std::vector<std::string>>(), ", "));
  std::string why;
  const bool mpi = find_group_backend("mpi", &why) != nullptr;
  result("mpi        " + on(mpi, why.c_str()));
  report_vendor(report, DeviceType::CPU, "oneDNN", "libdnnl-dev was not found when this was built");
  if (cuda > 0) {
    report_vendor(report, DeviceType::CUDA, "cuBLAS",
                  "needs a build for GPUs (cmake --preset cuda)");
    report_vendor(report, DeviceType::CUDA, "cuDNN",
                  "needs a build for GPUs and its header (libcudnn9-dev)");
  }
  report_autotune(report, {});
  for (int i = 0; i < gpus; ++i) report_autotune(report, Device(DeviceType::CUDA, i));
  const DataPlace place = data_place();
  report["data_dir"] = place.directory;
  result("data       {} ({})", place.directory, place.why);
  result("data get   " + on(report["download"], "built without libcurl (libcurl4-openssl-dev)"));
  result("pictures   {} are read", names_of_read_formats());
  for (const auto& [format, package, read] : picture_support()) {
    report["pictures"][format] = read;
    if (!read) result("           {} is off: built without {}", format, package);
  }
  report_environment(report);
  print_json(report);
  return kOk;
}

void add_options(CLI::App* app, DoctorOptions& o) {
  o.buckets = {"0", "auto"};
  auto* advise = app->add_flag("--advise", o.advise,
                               "measure instead: one process, DataParallel or DDP, and how");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app->add_option(name, value, help)->needs(advise)->capture_default_str();
  };
  add("--model", o.model, "as for train");
  add("--device", o.device, "as for train");
  add("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  add("--seconds", o.seconds, "seconds to measure each configuration per round")
      ->check(CLI::Range(0.01, 1000.0));
  add("--rounds", o.rounds, "how often all configurations are measured in turn")->check(kPositive);
}

const Command kDoctor(200, "doctor", "What this machine and build have, what is off and why",
                      doctor, add_options);

}  // namespace
}  // namespace ringgrad::program
