// Ranks as threads of the test: runs a body once per rank, each with its own transport.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/in_process_transport.h"

namespace ringgrad {

// What each rank's body threw ("" if nothing). A rank's transport is gone as soon as its body has returned or thrown.
template <class Rank, class Body>
std::vector<std::string> errors_of_ranks(std::vector<std::unique_ptr<Rank>> ranks, Body body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto own = std::move(ranks[r]);
        body(*own);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// Throws what the first failing rank threw.
template <class Body>
void run_ranks(int size, std::string_view channel, Body body) {
  const auto errors = errors_of_ranks(in_process_transports(size, channel), body);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error("on rank " + std::to_string(r) + ": " + errors[r]);
}

}  // namespace ringgrad
