// The two texts of an exercise: the engine's file, and the same without the bodies that the learner
// writes.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/program/learn/learn.h"

namespace ringgrad::program {

// Returns the text of a file such as "distributed/…/ring_reduce_scatter.cpp" when this program was
// built (sources.cmake), so an installed program has it, too.
const char* engine_source(const std::string& path);

// Returns a name such as "learn/01_ring_reduce_scatter.cpp".
std::string file_of(const Exercise& exercise, int number);

// Wraps the paragraphs of a text into lines of at most `width` columns.
std::vector<std::string> paragraphs(const std::string& text, size_t width);

// Returns the text that `start` writes.
std::string stub_of(const Exercise& exercise, int number);

}  // namespace ringgrad::program
