#include "models/program/kernel_table.h"

#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/cpu/machine_peak.h"
#include "models/program/console.h"
#include "models/program/quantile.h"

namespace ringgrad::program {
namespace {

// Thousands of millions per second.
double billions(double count, double ms) { return ms > 0 ? count / ms * 1e-6 : 0; }

}  // namespace

KernelTable::KernelTable() {
  const Stream stream = current_stream({});
  for (const DType dtype : {DType::Float32, DType::BFloat16}) peak_[dtype] = cpu::peak_operations(stream, dtype);
  bandwidth_ = cpu::peak_bandwidth(stream);
}

void KernelTable::add_step(const std::vector<KernelCall>& calls, double step_ms) {
  double inside = 0;
  std::map<std::string, Row> step;
  for (const KernelCall& call : calls) {
    Row& row = step[call.kernel];
    const double peak = peak_.at(call.dtype == DType::BFloat16 ? DType::BFloat16 : DType::Float32);
    ++row.calls;
    row.operations += call.operations;
    row.bytes += call.bytes;
    row.bound_ms += 1e3 * std::max(call.operations / peak, call.bytes / bandwidth_);
    row.ms.resize(1);
    row.ms[0] += call.milliseconds;
    inside += call.milliseconds;
  }
  for (auto& [kernel, row] : step) {
    std::vector<double> ms = std::move(rows_[kernel].ms);
    ms.push_back(row.ms[0]);
    rows_[kernel] = std::move(row);
    rows_[kernel].ms = std::move(ms);
  }
  steps_ms_.push_back(step_ms);
  outside_ms_.push_back(step_ms - inside);
}

double KernelTable::step_ms() const { return median(steps_ms_); }
double KernelTable::outside_ms() const { return median(outside_ms_); }

std::vector<KernelTable::Line> KernelTable::lines() const {
  std::vector<Line> lines;
  for (const auto& [kernel, row] : rows_) lines.push_back({kernel, row, median(row.ms)});
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.ms > b.ms; });
  return lines;
}

void KernelTable::print() const {
  result(fmt::format(
      "\nkernels, median of {} steps of {:.2f} ms. bound: the longer of operations at {:.0f} GFLOP/s ({:.0f} in bf16) "
      "and\nbytes at {:.1f} GB/s. Operations are those of the definition, which Winograd's algorithm undercuts; bytes "
      "are"
      "\nthe arguments', which caches may hold.",
      steps_ms_.size(), step_ms(), peak_.at(DType::Float32) * 1e-9, peak_.at(DType::BFloat16) * 1e-9,
      bandwidth_ * 1e-9));
  result(fmt::format("{:<28}{:>6}{:>10}{:>8}{:>10}{:>9}{:>8}", "kernel", "calls", "ms", "share", "bound ms", "GFLOP/s",
                     "GB/s"));
  for (const auto& [kernel, row, ms] : lines())
    result(fmt::format("{:<28}{:>6}{:>10.3f}{:>7.1f}%{:>10.3f}{:>9.0f}{:>8.1f}", kernel, row.calls, ms,
                       100 * ms / step_ms(), row.bound_ms, billions(row.operations, ms), billions(row.bytes, ms)));
  result(fmt::format("{:<34}{:>10.3f}{:>7.1f}%", "outside kernels", outside_ms(), 100 * outside_ms() / step_ms()));
}

nlohmann::json KernelTable::to_json() const {
  nlohmann::json kernels = nlohmann::json::array();
  for (const auto& [kernel, row, ms] : lines())
    kernels.push_back({{"kernel", kernel},
                       {"calls", row.calls},
                       {"ms", ms},
                       {"bound_ms", row.bound_ms},
                       {"operations", row.operations},
                       {"bytes", row.bytes}});
  return {{"peak_gflops", peak_.at(DType::Float32) * 1e-9},
          {"peak_gflops_bf16", peak_.at(DType::BFloat16) * 1e-9},
          {"bandwidth_gb_per_second", bandwidth_ * 1e-9},
          {"step_ms", step_ms()},
          {"outside_kernels_ms", outside_ms()},
          {"kernels", kernels}};
}

}  // namespace ringgrad::program
