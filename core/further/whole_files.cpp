// Files that are read or written as one text.
#include "ringgrad/core/base/file.h"

namespace ringgrad {

std::string text_of(const std::filesystem::path& file) {
  const InputFile in(file);
  std::string text(in.size(), '\0');
  in.read_at(0, std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()));
  return text;
}

void write_text(const std::filesystem::path& file, std::string_view text) {
  AtomicFile out(file);
  out.write(text);
  out.commit();
}

}  // namespace ringgrad
