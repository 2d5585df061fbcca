#include "ringgrad/program/bench/kernel_table.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/core/cpu/machine_peak.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace {

// Thousands of millions per second.
double billions(double count, double ms) { return ms > 0 ? count / ms * 1e-6 : 0; }

}  // namespace

KernelTable::KernelTable() {
  const Stream stream = current_stream({});
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    peak_[dtype] = cpu::peak_operations(stream, dtype);
  bandwidth_ = cpu::peak_bandwidth(stream);
}

void KernelTable::add(Row& row, const KernelCall& call) const {
  const double peak = peak_.at(call.dtype == DType::BFloat16 ? DType::BFloat16 : DType::Float32);
  const double operations_ms = 1e3 * call.operations / peak;
  const double bytes_ms = 1e3 * call.bytes / bandwidth_;
  ++row.calls;
  row.operations += call.operations;
  row.bytes += call.bytes;
  row.operations_ms += operations_ms;
  row.bytes_ms += bytes_ms;
  row.bound_ms += std::max(operations_ms, bytes_ms);
}

void KernelTable::add_step(Rows& rows, Rows step) {
  for (auto& [name, row] : step) {
    row.ms.insert(row.ms.begin(), rows[name].ms.begin(), rows[name].ms.end());
    rows[name] = std::move(row);
  }
}

void KernelTable::add_step(const std::vector<Phase>& phases) {
  double inside = 0;
  double step_ms = 0;
  Rows by_kernel;
  Rows by_phase;
  Rows by_plan;
  for (const Phase& phase : phases) {
    by_phase[phase.name].ms = {phase.ms};
    step_ms += phase.ms;
    for (const KernelCall& call : phase.calls) {
      Row& row = by_kernel[call.kernel];
      row.ms.resize(1);
      row.ms[0] += call.milliseconds;
      inside += call.milliseconds;
      add(row, call);
      add(by_phase[phase.name], call);
      if (call.plan.empty()) continue;
      Row& plan = by_plan[call.plan];
      plan.ms.resize(1);
      plan.ms[0] += call.milliseconds;
      add(plan, call);
    }
  }
  add_step(kernels_, std::move(by_kernel));
  add_step(phases_, std::move(by_phase));
  add_step(plans_, std::move(by_plan));
  steps_ms_.push_back(step_ms);
  outside_ms_.push_back(step_ms - inside);
}

double KernelTable::step_ms() const { return median(steps_ms_); }
double KernelTable::outside_ms() const { return median(outside_ms_); }

std::vector<KernelTable::Line> KernelTable::lines(const Rows& rows) {
  std::vector<Line> lines;
  for (const auto& [name, row] : rows) lines.push_back({name, row, median(row.ms)});
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.ms > b.ms; });
  return lines;
}

void KernelTable::print(const Line& line) const {
  const auto& [name, row, ms] = line;
  result("{:<28}{:>5}{:>8.3f}{:>6.1f}%{:>8.3f}{:>9.3f}{:>8.0f}{:>7.1f}", name, row.calls, ms,
         100 * ms / step_ms(), row.operations_ms, row.bytes_ms, billions(row.operations, ms),
         billions(row.bytes, ms));
}

void KernelTable::print() const {
  result(
      "\nphases and kernels, median of {} steps of {:.2f} ms; beside them what their\n"
      "operations take at {:.0f} GFLOP/s ({:.0f} in bf16) and their bytes at {:.1f} GB/s, which\n"
      "is the most here. Operations are those of the definition, which Winograd's\n"
      "algorithm undercuts; bytes are the arguments', which caches may hold.",
      steps_ms_.size(), step_ms(), peak_.at(DType::Float32) * 1e-9,
      peak_.at(DType::BFloat16) * 1e-9, bandwidth_ * 1e-9);
  result("{:<28}{:>5}{:>8}{:>7}{:>8}{:>9}{:>8}{:>7}", "", "calls", "ms", "share", "op. ms",
         "bytes ms", "GFLOP/s", "GB/s");
  for (const Line& line : lines(phases_)) print(line);
  result("");
  for (const Line& line : lines(kernels_)) print(line);
  result("{:<33}{:>8.3f}{:>6.1f}%", "outside kernels", outside_ms(),
         100 * outside_ms() / step_ms());
  if (plans_.empty()) return;
  result("\nconvolutions, forward and backward, by algorithm:");
  for (const Line& line : lines(plans_)) print(line);
}

nlohmann::json KernelTable::to_json(const char* key, const Rows& rows) {
  nlohmann::json array = nlohmann::json::array();
  for (const auto& [name, row, ms] : lines(rows))
    array.push_back({{key, name},
                     {"calls", row.calls},
                     {"ms", ms},
                     {"operations", row.operations},
                     {"bytes", row.bytes},
                     {"operations_ms", row.operations_ms},
                     {"bytes_ms", row.bytes_ms},
                     {"bound_ms", row.bound_ms}});
  return array;
}

nlohmann::json KernelTable::to_json() const {
  return {{"peak_gflops", peak_.at(DType::Float32) * 1e-9},
          {"peak_gflops_bf16", peak_.at(DType::BFloat16) * 1e-9},
          {"bandwidth_gb_per_second", bandwidth_ * 1e-9},
          {"step_ms", step_ms()},
          {"outside_kernels_ms", outside_ms()},
          {"phases", to_json("phase", phases_)},
          {"kernels", to_json("kernel", kernels_)},
          {"convolutions", to_json("algorithm", plans_)}};
}

}  // namespace ringgrad::program
