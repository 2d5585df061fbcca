// The end of a process that runs one rank: launch()'s message, and its exit code.
#include "ringgrad/distributed/failure.h"

#include <iostream>
#include <new>
#include <sstream>

#include "ringgrad/distributed/launch.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::exit_code_test {

TEST_CASE("launch of one process starts none", "[launch][quick][threads]") {
  bool called = false;
  REQUIRE(launch([&] { called = process_group().size() == 1; }) == 0);
  REQUIRE(called);
  REQUIRE(!is_process_group_initialized());
}

TEST_CASE("launch says once what a rank throws, and returns its code", "[launch][quick][threads]") {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  const int data = launch([] { throw DataError("bad batch"); });
  const int other = launch([] { throw 7; });
  std::cerr.rdbuf(before);
  REQUIRE((data == kBadData && other == kTrainingFailed));
  REQUIRE(said.str() == "bad batch\nan exception that is no std::exception\n");
  REQUIRE(!is_process_group_initialized());
  REQUIRE_THROWS_AS(launch_or_throw([] { throw DataError("bad batch"); }), DataError);
}

TEST_CASE("every exception has its exit code", "[launch][quick]") {
  const auto code = [](const auto& error) { return exit_code_of(std::make_exception_ptr(error)); };
  REQUIRE(code(Error("")) == kTrainingFailed);
  REQUIRE(code(NotImplementedError("")) == kEnvironment);
  REQUIRE(code(IoError("")) == kDiskFull);
  REQUIRE(code(TimeoutError("")) == kOutOfStep);
  REQUIRE(code(DistributedError("")) == kRankDied);
  REQUIRE(code(std::bad_alloc()) == kOutOfMemory);
}

}  // namespace ringgrad::test::exit_code_test
