# Makes the table anchors() for the topics of `ringgrad explain`. Each page.read("FILE", "TEXT", …)
# becomes a row, with the number of the first line of FILE that has TEXT. If there is none, the
# build stops. Usage: cmake -DROOT=… -DOUTPUT=… -P anchors.cmake
file(GLOB topics ${ROOT}/program/explain/*.cpp)
set(rows)
foreach(topic ${topics})
  file(READ ${topic} text)
  string(REGEX MATCHALL "read\\([\n ]*\"[^\"]+\",[\n ]*\"[^\"]+\"" calls "${text}")
  foreach(call ${calls})
    string(REGEX MATCH "\"([^\"]+)\",[\n ]*\"([^\"]+)\"" pair "${call}")
    set(path ${CMAKE_MATCH_1})
    set(wanted "${CMAKE_MATCH_2}")
    file(READ ${ROOT}/${path} source)
    string(FIND "${source}" "${wanted}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${topic} sends its readers to \"${wanted}\" in ${path}, which has no such line")
    endif()
    string(SUBSTRING "${source}" 0 ${at} before)
    string(REGEX REPLACE "[^\n]" "" before "${before}")
    string(LENGTH "x${before}" line)
    string(APPEND rows "\n      {\"${path}\", \"${wanted}\", ${line}},")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "ringgrad/program/explain/anchor.h"

namespace ringgrad::program {

const std::vector<Anchor>& anchors() {
  static const std::vector<Anchor> all = {@rows@
  };
  return all;
}

}  // namespace ringgrad::program
]] @ONLY)
