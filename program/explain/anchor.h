// An anchor: a place in the sources when this program was built. anchors.cmake finds its line, so
// no line number has to be maintained, and an installed program knows it, too.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

struct Anchor {
  std::string file;  // "distributed/collectives/ring.cpp"
  std::string text;  // what stands there: "void ring_all_reduce("
  int line;
};

const std::vector<Anchor>& anchors();  // all that the topics name

}  // namespace ringgrad::program
