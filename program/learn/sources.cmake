# The engine's files of which `ringgrad learn` takes a function's body out, as the table engine_source(): each one that
# is an exercise's .source. A build stops where there is no such file.
#   cmake -DROOT=… -DOUTPUT=… -P sources.cmake
file(GLOB exercises ${ROOT}/program/learn/*_exercise.cpp)
set(rows)
foreach(exercise ${exercises})
  file(STRINGS ${exercise} lines REGEX "^ *\\.source = ")
  foreach(line ${lines})
    string(REGEX MATCH "\"([^\"]+)\"" path "${line}")
    set(path ${CMAKE_MATCH_1})
    file(READ ${ROOT}/${path} source)
    string(APPEND rows "\n      {\"${path}\", R\"source(${source})source\"},")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include <map>

#include "ringgrad/program/learn/exercise_text.h"

namespace ringgrad::program {

const char* engine_source(const std::string& path) {
  static const std::map<std::string, const char*> all = {@rows@
  };
  return all.at(path);
}

}  // namespace ringgrad::program
]] @ONLY)
