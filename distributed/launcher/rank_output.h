// What the ranks write, line by line, with each one's name in front, without ever waiting for who
// reads it.
#pragma once

#include <string>

#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// Where lines go. It holds on to what its reader has not taken yet, so that a pager that stands
// still, or a stopped terminal, holds up the ranks, and not their launcher.
class OutputSink {
 public:
  explicit OutputSink(int descriptor);

  int descriptor() const { return own_ ? own_.get() : descriptor_; }
  bool empty() const { return pending_.empty(); }
  void add(const std::string& text) { pending_ += text; }
  // Writes a piece, when poll() says that the descriptor takes something. What nobody reads any
  // more is dropped.
  void write_some();

 private:
  int descriptor_;
  // The same pipe or terminal, opened anew so that writing does not block; or empty.
  FileDescriptor own_;
  std::string pending_;
};

class RankOutput {
 public:
  // Lines read from `source` go to `sink` with `prefix`, and as they are to `log` where it is one.
  RankOutput(FileDescriptor source, OutputSink& sink, std::string prefix, int log);

  int descriptor() const { return source_.get(); }
  bool ended() const { return !source_; }
  // There is something to read for, and the sink has passed on what came before.
  bool wanted() const { return !ended() && sink_.empty(); }
  // Passes on one piece; false: nothing is there. REQUIRES: !ended().
  bool forward();
  // Passes on what the pipe still holds, and no more: children of the rank may go on writing into
  // it.
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
