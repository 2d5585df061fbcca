#include "ringgrad/program/weights/torch_file.h"

#include <algorithm>
#include <map>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/weights/pickle.h"
#include "ringgrad/program/weights/zip_file.h"

namespace ringgrad::program {
namespace {

constexpr uint64_t kMaxPickleBytes = 16 << 20;
// A view may have more elements than its storage, and storages have several views: as many bytes
// for each of the file's bytes.
constexpr uint64_t kMaxAmplification = 16;

enum class Form { Zip, Legacy, Other };

Form form_of(const std::string& path) {
  const InputFile file(path);
  uint8_t magic[4] = {};
  if (file.size() >= sizeof magic) file.read_at(0, magic);
  if (magic[0] == 'P' && magic[1] == 'K' && magic[2] == 3 && magic[3] == 4) return Form::Zip;
  return magic[0] == 0x80 && magic[1] == 2 && magic[2] == 0x8a ? Form::Legacy : Form::Other;
}

// "archive/", which all entries begin with.
std::string folder_of(const ZipFile& zip) {
  for (const auto& [name, entry] : zip.entries())
    if (name.ends_with("/data.pkl")) return name.substr(0, name.size() - 8);
  throw DataError(
      str("convert: ", zip.path(), " is an archive without data.pkl: not torch.save()'s"));
}

std::string text_in(const ZipFile& zip, const std::string& name, uint64_t most) {
  const uint64_t size = zip.entries().at(name).size;
  CHECK_AS(DataError, size <= most, "convert: ", zip.path(), ": ", name, " has ", size,
           " bytes, expected at most ", most);
  std::string text(size, '\0');
  zip.read(name, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

void check_archive(const ZipFile& zip, const std::string& folder) {
  CHECK_AS(DataError, !zip.entries().contains(folder + "constants.pkl"), "convert: ", zip.path(),
           " holds a TorchScript program, not weights alone; in Python: "
           "torch.save(torch.jit.load(FILE).state_dict(), …)");
  const std::string order = folder + "byteorder";
  CHECK_AS(DataError, !zip.entries().contains(order) || text_in(zip, order, 16) == "little",
           "convert: ", zip.path(), " is of a machine whose bytes have another order");
}

Tensor read_storage(const ZipFile& zip, const std::string& name, const PickledTensor& tensor) {
  const auto entry = zip.entries().find(name);
  CHECK_AS(DataError, entry != zip.entries().end(), "convert: ", zip.path(), ": ", tensor.name,
           " lies in ", name, ", which is not there");
  uint64_t bytes = 0;
  CHECK_AS(DataError,
           !__builtin_mul_overflow(static_cast<uint64_t>(tensor.storage_elements),
                                   itemsize(tensor.dtype), &bytes) &&
               entry->second.size == bytes && bytes <= zip.size(),
           "convert: ", zip.path(), ": ", name, " has ", entry->second.size, " bytes, expected ",
           tensor.storage_elements, " elements of ", tensor.dtype);
  const Tensor storage = empty({tensor.storage_elements}, {.dtype = tensor.dtype});
  const std::span all(static_cast<uint8_t*>(storage.raw_data()), bytes);
  zip.read(name, all);
  CHECK_AS(DataError,
           tensor.dtype != DType::Bool ||
               std::all_of(all.begin(), all.end(), [](uint8_t value) { return value <= 1; }),
           "convert: ", zip.path(), ": ", tensor.name, " has a bool that is neither 0 nor 1");
  return storage;
}

}  // namespace

bool is_torch_file(const std::string& path) {
  try {
    return form_of(path) != Form::Other;
  } catch (const Error&) {
    return false;
  }
}

void refuse_torch_file(const std::string& path) {
  CHECK_AS(DataError, !is_torch_file(path), "load: ", path, " is PyTorch's; ",
           program_command("weights convert " + shell_word(path)),
           " makes a .safetensors file of it");
}

nn::NamedTensors read_torch_file(const std::string& path, const std::string& key) {
  const Form form = form_of(path);
  CHECK_AS(DataError, form != Form::Legacy, "convert: ", path,
           " has the form that torch.save() wrote before PyTorch 1.6. In Python: "
           "torch.save(torch.load(FILE, weights_only=True), FILE) writes it in today's");
  CHECK_AS(DataError, form == Form::Zip, "convert: ", path, " is no file of torch.save()");
  const ZipFile zip(path);
  const std::string folder = folder_of(zip);
  check_archive(zip, folder);
  const std::string pickle = text_in(zip, folder + "data.pkl", kMaxPickleBytes);
  const std::vector<PickledTensor> described =
      read_state_dict({reinterpret_cast<const uint8_t*>(pickle.data()), pickle.size()}, path, key);

  uint64_t bytes = 0;
  std::map<std::string, Tensor> storages;
  nn::NamedTensors tensors;
  for (const PickledTensor& tensor : described) {
    uint64_t own = 0;
    CHECK_AS(DataError,
             !__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape.numel()),
                                     itemsize(tensor.dtype), &own) &&
                 !__builtin_add_overflow(bytes, own, &bytes) &&
                 bytes / kMaxAmplification <= zip.size(),
             "convert: ", path, ": ", tensor.name, " and those before it have more than ",
             kMaxAmplification, " times the file's bytes, as views of what little it holds");
    const std::string name = folder + "data/" + tensor.storage;
    if (!storages.contains(name)) storages[name] = read_storage(zip, name, tensor);
    const Tensor& storage = storages[name];
    CHECK_AS(DataError,
             storage.dtype() == tensor.dtype && storage.numel() == tensor.storage_elements,
             "convert: ", path, ": ", tensor.name, " takes ", name, " for another dtype or size");
    tensors.emplace_back(tensor.name,
                         storage.as_strided(tensor.shape, tensor.strides, tensor.offset));
  }
  return tensors;
}

}  // namespace ringgrad::program
