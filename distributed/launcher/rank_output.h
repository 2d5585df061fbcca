// RankOutput: passes on what the ranks write, line by line, with each rank's name in front. It
// never waits for the reader.
#pragma once

#include <string>

#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// OutputSink: the destination of lines. It keeps what its reader has not taken yet. So a pager that
// stands still, or a stopped terminal, blocks the ranks but not their launcher.
class OutputSink {
 public:
  explicit OutputSink(int descriptor);

  int descriptor() const { return own_ ? own_.get() : descriptor_; }
  bool empty() const { return pending_.empty(); }
  void add(const std::string& text) { pending_ += text; }
  // Writes a piece; called when poll() says that the descriptor takes bytes. Drops the output if
  // that fails, and returns why, once. Returns "" otherwise, and if the reader has only gone.
  std::string write_some();

 private:
  int descriptor_;
  bool failed_ = false;
  // The same pipe or terminal, opened anew so that writing does not block; or empty.
  FileDescriptor own_;
  std::string pending_;
};

class RankOutput {
 public:
  // Lines read from `source` go to `sink` with `prefix`, and unchanged to `log` if it is a
  // descriptor. Where the log ends because its disk is full, the sink says so.
  RankOutput(FileDescriptor source, OutputSink& sink, std::string prefix, int log);

  int descriptor() const { return source_.get(); }
  bool ended() const { return !source_; }
  // Returns true if more should be read: the output has not ended, and the sink has passed on what
  // came before.
  bool wanted() const { return !ended() && sink_.empty(); }
  // Passes on one piece; false: nothing is there. REQUIRES: !ended().
  bool forward();
  // Passes on what the pipe still holds, and no more, because children of the rank may go on
  // writing into it.
  void finish();

 private:
  void end_line();

  FileDescriptor source_;
  OutputSink& sink_;
  int log_;
  std::string prefix_;
  std::string line_;
};

}  // namespace ringgrad
