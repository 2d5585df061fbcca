// `ringgrad bench kernel`: one CUDA kernel alone, step by step from the obvious to the fast. On a
// GPU it prints each step's time beside the least that the card allows. Without one it prints the
// emulator's counts, which explain why a step is faster.
#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/bench/kernel_step.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

struct BenchKernelOptions {
  std::string kernel;         // "": says which there are, and their steps
  std::string step;           // its number or its name; "": all
  std::vector<int64_t> size;  // as the kernel's ladder names them; empty: its own
  std::string dtype;  // fp32, bf16, fp16; "": bf16, and fp32 for steps that take nothing else
};

constexpr std::pair<const char*, DType> kDTypes[] = {
    {"bf16", DType::BFloat16}, {"fp16", DType::Float16}, {"fp32", DType::Float32}};

const char* short_name(DType dtype) {
  for (const auto& [name, value] : kDTypes)
    if (value == dtype) return name;
  return name(dtype);
}

// ---- what was asked for -------------------------------------------------------------------------

const Ladder& ladder_named(const std::string& kernel) {
  if (const Ladder* ladder = find_ladder(kernel)) return *ladder;
  std::vector<std::string> names;
  for (const Ladder& ladder : ladders()) names.push_back(ladder.kernel);
  throw UsageError("bench kernel: no kernel '{}', expected one of {}{}", kernel,
                   fmt::join(names, ", "), did_you_mean(kernel, names));
}

// Returns a step, counted from 0, or nothing for all of them.
std::optional<int> step_named(const Ladder& ladder, const std::string& step) {
  if (step.empty()) return {};
  std::vector<std::string> names;
  std::vector<std::string> numbered;
  for (const LadderStep& each : ladder.steps) {
    names.push_back(each.name);
    numbered.push_back(fmt::format("{} {}", names.size(), each.name));
    if (step == each.name || step == std::to_string(names.size()))
      return static_cast<int>(names.size()) - 1;
  }
  throw UsageError("bench kernel: {} has no step '{}', expected one of {}{}", ladder.kernel, step,
                   fmt::join(numbered, ", "), did_you_mean(step, names));
}

std::vector<int64_t> size_of(const Ladder& ladder, const std::vector<int64_t>& asked,
                             bool emulated) {
  if (asked.empty()) return emulated ? ladder.small : ladder.large;
  const bool positive =
      std::all_of(asked.begin(), asked.end(), [](int64_t number) { return number > 0; });
  if (asked.size() != ladder.sizes.size() || !positive)
    throw UsageError("bench kernel: --size {} of {}, expected {} positive numbers: {}, such as {}",
                     fmt::join(asked, ","), ladder.kernel, ladder.sizes.size(),
                     fmt::join(ladder.sizes, ","), fmt::join(ladder.small, ","));
  return asked;
}

std::vector<DType> dtypes_of(const std::string& asked) {
  if (asked.empty()) return {DType::BFloat16, DType::Float32};
  std::vector<std::string> names;
  for (const auto& [name, dtype] : kDTypes) {
    if (asked == name) return {dtype};
    names.push_back(name);
  }
  throw UsageError("bench kernel: --dtype is '{}', expected one of {}", asked,
                   fmt::join(names, ", "));
}

// ---- what is said of it -------------------------------------------------------------------------

int list_ladders() {
  nlohmann::json list = nlohmann::json::array();
  for (const Ladder& ladder : ladders()) {
    nlohmann::json steps = nlohmann::json::array();
    result("{}: {}", ladder.kernel, ladder.computes);
    for (const LadderStep& step : ladder.steps) {
      steps.push_back({{"step", steps.size() + 1}, {"name", step.name}, {"idea", step.idea}});
      result("  {:>2}  {:<20}{}", steps.size(), step.name, step.idea);
    }
    result("      --size {}: {} on a GPU, else {}\n", fmt::join(ladder.sizes, ","),
           fmt::join(ladder.large, ","), fmt::join(ladder.small, ","));
    list.push_back({{"kernel", ladder.kernel},
                    {"computes", ladder.computes},
                    {"sizes", ladder.sizes},
                    {"large", ladder.large},
                    {"small", ladder.small},
                    {"steps", std::move(steps)}});
  }
  result("one of them: {}", program_command("bench kernel matmul --step 3"));
  print_json({{"kernels", std::move(list)}});
  return kOk;
}

std::string floor_text(const StepResult& row, const Card* card) {
  std::string text = human_bytes(static_cast<int64_t>(row.bytes));
  if (row.operations > 0) text += fmt::format(" and {:.4g} MFLOP", row.operations * 1e-6);
  text += " at least";
  if (card)
    text += fmt::format(": {:.4g} µs on an {}, by its {}", row.floor_us, card->name,
                        row.by_operations ? "operations" : "bytes");
  return text;
}

std::string each(int64_t count, int64_t requests) {
  return requests == 0
             ? "–"
             : fmt::format("{:.2f}", static_cast<double>(count) / static_cast<double>(requests));
}

// A row of the table of all steps.
std::string row_text(const Ladder& ladder, const StepResult& row) {
  std::string text =
      fmt::format("{:>2} {:<19}{:<5}", row.step + 1,
                  ladder.steps[static_cast<size_t>(row.step)].name, short_name(row.dtype));
  if (row.microseconds > 0) {
    const std::string part =
        row.floor_us > 0 ? fmt::format("{:.1f} %", 100 * row.floor_us / row.microseconds) : "–";
    return text + fmt::format("{:>12.4g}{:>12.4g}{:>9}", row.floor_us, row.microseconds, part);
  }
  AccessCount global = row.counts.total(false, false);
  AccessCount shared = row.counts.total(true, false);
  const auto products = row.counts.instructions.find("mma.sync");
  const std::string of_load = each(global.sectors, global.requests);
  const AccessCount stores = row.counts.total(false, true);
  global.add(stores);
  shared.add(row.counts.total(true, true));
  return text + fmt::format("{:>9}{:>7}{:>7}{:>8.2f}{:>10}{:>8}{:>8}", with_commas(global.requests),
                            of_load, each(stores.sectors, stores.requests), row.moved(),
                            with_commas(shared.requests), each(shared.passes, shared.least_passes),
                            products == row.counts.instructions.end()
                                ? "–"
                                : with_commas(products->second));
}

void print_table(const Ladder& ladder, const std::vector<StepResult>& rows, bool emulated) {
  if (emulated)
    result("{:<27}{:>9}{:>14}{:>8}{:>10}{:>8}{:>8}\n{:<27}{:>9}{:>7}{:>7}{:>8}{:>10}{:>8}{:>8}", "",
           "global", "sectors of a", "moved", "shared", "passes", "mma", "", "requests", "load",
           "store", "× least", "requests", "× least", "");
  else
    result("{:<27}{:>12}{:>12}{:>9}", "", "floor, µs", "took, µs", "of it");
  for (const StepResult& row : rows) result(row_text(ladder, row));
  if (!emulated) return;
  message(
      "requests are a warp's; global memory answers in sectors of 32 bytes, "
      "shared memory in passes of its 32");
  message(
      "banks: more than the least are bank conflicts. Emulated on the CPU, "
      "hence counts and no times");
}

// Prints the memory accesses of an emulated step, line by line.
void print_lines(const StepResult& row) {
  result("\n{:<30}{:<14}{:>10}  a request", "line", "access", "requests");
  for (const AccessCount& count : row.counts.accesses) {
    const std::string access =
        fmt::format("{} {}", count.shared ? "shared" : "global", count.write ? "store" : "load");
    const std::string answer =
        count.shared
            ? fmt::format("{} passes, {} at least", each(count.passes, count.requests),
                          each(count.least_passes, count.requests))
            : fmt::format("{} sectors, {:.0f} B", each(count.sectors, count.requests),
                          static_cast<double>(count.bytes) / static_cast<double>(count.requests));
    result("{:<30}{:<14}{:>10}  {}", count.line, access, with_commas(count.requests), answer);
  }
  std::vector<std::string> instructions;
  for (const auto& [name, times] : row.counts.instructions)
    instructions.push_back(fmt::format("{} {}", name, with_commas(times)));
  result("\n{}, {}, {} threads{}{}", counted(row.counts.launches, "launch"),
         counted(row.counts.blocks, "block"), with_commas(row.counts.threads),
         instructions.empty() ? "" : "; ", fmt::join(instructions, ", "));
}

int bench_kernel(const BenchKernelOptions& options) {
  if (ladders().empty())
    throw DeviceError(
        "bench kernel: this program has no CUDA kernels; `./go bench kernel` builds and runs one "
        "whose kernels are emulated, and `cmake --preset cuda` builds one for GPUs");
  if (options.kernel.empty()) return list_ladders();
  const Ladder& ladder = ladder_named(options.kernel);
  const std::optional<int> only = step_named(ladder, options.step);
  const std::vector<DType> dtypes = dtypes_of(options.dtype);
  const Device device(DeviceType::CUDA);
  check_device("bench kernel", device);
  const std::string described = device_backend(device.type).describe(device.index);
  const bool emulated = described.starts_with("emulated");
  if (emulated && !count_accesses)
    throw DeviceError(
        "bench kernel: cuda:0 is emulated, and these kernels do not report what they do; "
        "`./go bench kernel` builds and runs a program whose kernels do");
  const std::vector<int64_t> size = size_of(ladder, options.size, emulated);
  const Card* const card = emulated ? &usual_card() : card_of(described);

  std::vector<std::optional<StepResult>> found(ladder.steps.size());
  for (const DType dtype : dtypes) {
    std::optional<LadderProblem> problem;  // made when a step first needs it
    for (int step = 0; step < static_cast<int>(ladder.steps.size()); ++step) {
      if (found[static_cast<size_t>(step)] || (only && step != *only)) continue;
      if (!problem) {
        manual_seed(0);
        try {
          problem = ladder.problem(device, dtype, size);
        } catch (const ShapeError& error) {
          throw UsageError("bench kernel: --size {}: {}", fmt::join(size, ","), error.what());
        }
      }
      if (problem->supports(step))
        found[static_cast<size_t>(step)] = run_step(*problem, step, device, dtype, card, emulated);
    }
  }

  nlohmann::json report = {{"kernel", ladder.kernel},
                           {"computes", ladder.computes},
                           {"device", described},
                           {"emulated", emulated},
                           {"size", size},
                           {"rows", nlohmann::json::array()}};
  report["card"] = card ? nlohmann::json(card->name) : nlohmann::json();
  std::vector<StepResult> rows;
  for (const auto& row : found)
    if (row) {
      rows.push_back(*row);
      report["rows"].push_back(as_json(ladder, *row));
    }
  if (rows.empty()) {
    std::vector<const char*> tried;
    for (const DType dtype : dtypes) tried.push_back(short_name(dtype));
    const std::string who =
        only ? fmt::format("step '{}'", ladder.steps[static_cast<size_t>(*only)].name)
             : "every step";
    throw UsageError(
        "bench kernel: {} of {} refuses --size {} in {}, "
        "expected a size such as {}, or another --dtype",
        who, ladder.kernel, fmt::join(size, ","), fmt::join(tried, " and "),
        fmt::join(ladder.small, ","));
  }
  result("{}: {} · {} {} · {}", ladder.kernel, ladder.computes, fmt::join(ladder.sizes, ","),
         fmt::join(size, ","), described);
  for (const DType dtype : dtypes) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [=](const auto& each) { return each.dtype == dtype; });
    if (row != rows.end())
      result("{:<5}{}: {}", short_name(dtype), row->shapes, floor_text(*row, card));
  }
  if (!emulated && !card) message("no data sheet of '{}' is known here, hence no floor", described);
  if (only) result("step {}: {}", *only + 1, ladder.steps[static_cast<size_t>(*only)].idea);
  result("");
  print_table(ladder, rows, emulated);
  if (only && emulated) print_lines(rows.front());
  print_json(report);
  return kOk;
}

void add_options(CLI::App* app, BenchKernelOptions& o) {
  app->add_option("KERNEL", o.kernel, "its name (default: says which there are, and their steps)");
  app->add_option("--step", o.step,
                  "only this one, by number or name; without a GPU also line by line");
  app->add_option("--size", o.size, "such as 4096, or several numbers: as the list says")
      ->delimiter(',');
  app->add_option("--dtype", o.dtype,
                  "fp32, bf16 or fp16 (default: bf16, or fp32 for steps that take only that)");
  app->footer(
      "Without a GPU kernels are emulated, and what they ask of the memory is counted,\n"
      "not timed.\nExample\n  " +
      program_command("bench kernel matmul --step 3"));
}

const Command kBenchKernel(195, "bench kernel",
                           "One CUDA kernel alone, step by step from the obvious to the fast",
                           bench_kernel, add_options);

}  // namespace
}  // namespace ringgrad::program
