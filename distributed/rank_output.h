// What a rank writes, line by line, with its name in front.
#pragma once

#include <string>

#include "distributed/file_descriptor.h"

namespace ringgrad {

class RankOutput {
 public:
  // Lines read from `source` go to the descriptor `sink` with `prefix`, and as they are to `log` where it is one.
  RankOutput(FileDescriptor source, int sink, std::string prefix, int log);

  int descriptor() const { return source_.get(); }
  bool ended() const { return !source_; }
  // Passes on what is there. REQUIRES: !ended().
  void forward();
  // Passes on the beginning of a line that was never ended.
  void flush();

 private:
  void write_line(const std::string& line);

  FileDescriptor source_;
  int sink_, log_;
  std::string prefix_, line_;
};

}  // namespace ringgrad
