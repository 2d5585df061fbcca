// `ringgrad inspect`: prints the contents of a file of weights or of images.
#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/formats/cifar.h"
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/weights/torch_file.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

struct InspectOptions {
  std::string path;
  std::string npy;     // write this tensor …
  std::string output;  // … to this .npy file
};

struct Summary {
  double mean = 0;
  double std = 0;
  double low = 0;
  double high = 0;
  int64_t not_finite = 0;
};

Summary summarize(const Tensor& tensor) {
  Summary s;
  const auto values = to_vector<double>(tensor);
  if (values.empty()) return s;
  s.low = s.high = values[0];
  for (double v : values) {
    s.not_finite += !std::isfinite(v);
    s.mean += v / static_cast<double>(values.size());
    s.low = std::min(s.low, v);
    s.high = std::max(s.high, v);
  }
  for (double v : values) s.std += (v - s.mean) * (v - s.mean) / static_cast<double>(values.size());
  s.std = std::sqrt(s.std);
  return s;
}

const char* numpy_name(DType dtype) {
  static const std::map<DType, const char*> names = {
      {DType::Float32, "<f4"}, {DType::Float64, "<f8"}, {DType::Float16, "<f2"},
      {DType::Int64, "<i8"},   {DType::Int32, "<i4"},   {DType::UInt8, "|u1"},
      {DType::Bool, "|b1"}};
  const auto found = names.find(dtype);
  if (found == names.end()) throw UsageError("--npy: NumPy has no dtype {}", ringgrad::name(dtype));
  return found->second;
}

// NumPy's format, version 1.0: for looking at a tensor with other tools. The header's length is
// padded to a multiple of 64 bytes.
void write_npy(const Tensor& tensor, const std::string& path) {
  static_assert(std::endian::native == std::endian::little);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (",
                                   numpy_name(tensor.dtype()));
  for (int64_t size : tensor.shape()) header += fmt::format("{}, ", size);
  header += "), }";
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  const Tensor dense = as_contiguous(tensor);
  const auto bytes = [](const void* data, size_t size) {
    return std::span(static_cast<const uint8_t*>(data), size);
  };
  AtomicFile out(path);
  out.write(bytes("\x93NUMPY\x01\x00", 8));
  out.write(bytes(&length, sizeof length));
  out.write(bytes(header.data(), header.size()));
  out.write(bytes(dense.raw_data(), dense.nbytes()));
  out.commit();
}

int inspect_idx(const fs::path& path) {
  const Tensor elements = read_idx(path);
  const Summary s = summarize(elements);
  result("{}: IDX, bytes {}, from {} to {}, mean {:.2f}", path.string(), str(elements.shape()),
         s.low, s.high, s.mean);
  print_json({{"path", path.string()},
              {"format", "idx"},
              {"shape", std::vector<int64_t>(elements.shape().begin(), elements.shape().end())},
              {"mean", s.mean}});
  return kOk;
}

// Reads one file of CIFAR-10, or of CIFAR-100 if the records have that size.
int inspect_cifar(const fs::path& path) {
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  const bool fine = bytes % kCifar10.record_bytes() != 0 && bytes % kCifar100.record_bytes() == 0;
  CifarFormat format = fine ? kCifar100 : kCifar10;
  format.train_files = {path.filename().string()};
  const std::vector<std::string> classes(fine ? 100 : 10);
  const ImageDataset set = read_cifar(format, "inspect", path.parent_path(), Split::Train, classes);
  std::vector<int64_t> counts(classes.size());
  for (int64_t label : to_vector<int64_t>(set.labels)) ++counts[label];
  result("{}: {}, {} of 32×32×3; per label {}", path.string(), fine ? "CIFAR-100" : "CIFAR-10",
         counted(set.size(), "image"), fmt::join(counts, " "));
  print_json({{"path", path.string()},
              {"format", fine ? "cifar100" : "cifar10"},
              {"images", set.size()},
              {"per_label", counts}});
  return kOk;
}

const Tensor& tensor_named(const std::string& wanted, const nn::NamedTensors& tensors,
                           const fs::path& path) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (name == wanted) return tensor;
    names.push_back(name);
  }
  throw UsageError("--npy: {} has no tensor '{}'{}", path.string(), wanted,
                   did_you_mean(wanted, names));
}

// Shortens a text to so many characters with an ellipsis. A byte counts as a character.
std::string shortened(const std::string& text, size_t length) {
  return text.size() <= length ? text : text.substr(0, length - 1) + "…";
}

// A tensor's line; on a terminal that is not wide, without its extremes and with the beginning of a
// long name left out.
std::string row_of(const std::string& name, const Tensor& tensor, const Summary& s) {
  const std::string wrong = s.not_finite ? fmt::format("  {} NOT FINITE", s.not_finite) : "";
  if (!on_terminal() || line_width() > 130)
    return fmt::format("{:<44} {:<9} {:<18} mean {:9.2e}  std {:9.2e}  [{:.3g}, {:.3g}]{}", name,
                       ringgrad::name(tensor.dtype()), str(tensor.shape()), s.mean, s.std, s.low,
                       s.high, wrong);
  constexpr size_t kName = 30;
  const std::string end = name.size() <= kName ? name : "…" + name.substr(name.size() - kName + 1);
  return fmt::format("{:<{}} {:<9}{:<17}{:>10.2e} ±{:>8.2e}{}", end, kName,
                     ringgrad::name(tensor.dtype()), str(tensor.shape()), s.mean, s.std, wrong);
}

int inspect_weights(const fs::path& path, const InspectOptions& options) {
  const nn::SafetensorsFile file = nn::load_safetensors(path);
  if (!options.npy.empty()) {
    check_output(options.output, path);
    write_npy(tensor_named(options.npy, file.tensors, path), options.output);
  }
  nlohmann::json tensors = nlohmann::json::array();
  int64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors) {
    elements += tensor.numel();
    const Summary s = summarize(tensor);
    result(row_of(name, tensor, s));
    tensors.push_back(
        {{"name", name},
         {"dtype", ringgrad::name(tensor.dtype())},
         {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
         {"mean", s.mean},
         {"std", s.std},
         {"not_finite", s.not_finite}});
  }
  for (const std::string& name : file.skipped)
    result("{}: skipped, its dtype is none of ringgrad's", name);
  nlohmann::json metadata;
  for (const auto& [key, value] : file.metadata) {
    metadata[key] = value;
    result(shortened(fmt::format("{} = {}", key, value),
                     on_terminal() ? line_width() : value.size() + key.size() + 3));
  }
  result("{}, {}, {}", counted(static_cast<int64_t>(file.tensors.size()), "tensor"),
         counted(elements, "element"), human_bytes(static_cast<int64_t>(fs::file_size(path))));
  print_json({{"path", path.string()},
              {"tensors", tensors},
              {"skipped", file.skipped},
              {"metadata", metadata}});
  return kOk;
}

// Returns a run's trained weights, or its last checkpoint if it has none. Any other path is
// returned as it is.
fs::path file_to_inspect(const std::string& called) {
  const std::string path = find_run(called, kAnyRun);
  if (!fs::is_directory(path)) return path;
  // A run of `bench ddp` has no weights.
  if (kind_of(path) == kBenchDdpRun) check_kind(path, kTrainingRun);
  const RunDirectory run = RunDirectory::open(path, kAnyRun);
  const fs::path file = fs::exists(run.model()) ? run.model() : run.checkpoint();
  CHECK_AS(DataError, fs::exists(file), "inspect: ", run.path().string(),
           " has neither model.safetensors nor ", "checkpoint.safetensors yet");
  return file;
}

// An IDX file begins with two zeros.
bool begins_as_idx(const fs::path& path) {
  const InputFile file(path);
  uint8_t magic[2] = {1, 1};
  if (file.size() >= sizeof magic) file.read_at(0, magic);
  return magic[0] == 0 && magic[1] == 0;
}

int inspect(const InspectOptions& options) {
  const fs::path path = file_to_inspect(options.path);
  CHECK_AS(DataError, fs::exists(path), "inspect: there is no ", path.string());
  if (path.extension() == ".safetensors") return inspect_weights(path, options);
  if (!options.npy.empty())
    throw UsageError("--npy takes a tensor out of a .safetensors file, and " + path.string() +
                     " is none");
  refuse_torch_file(path);
  if (path.extension() == ".bin") return inspect_cifar(path);
  CHECK_AS(DataError, begins_as_idx(path), "inspect: ", path.string(),
           " is no .safetensors file, and neither IDX nor one of CIFAR (.bin)");
  return inspect_idx(path);
}

void add_options(CLI::App* app, InspectOptions& o) {
  app->add_option("path", o.path, "the file, or a run: its directory, its number, or latest")
      ->required();
  auto* npy = app->add_option("--npy", o.npy, "write this tensor as .npy");
  auto* output = app->add_option("--output", o.output, "the .npy file to write");
  npy->needs(output);
  output->needs(npy);
}

const Command kInspect(60, "inspect", "What is in a run, or a safetensors, IDX or CIFAR file",
                       inspect, add_options);

}  // namespace
}  // namespace ringgrad::program
