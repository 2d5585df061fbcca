// Checks for the exercises on rings: the messages of each rank, their sizes, and the way a failure
// spreads.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/distributed/collectives/messenger.h"

namespace ringgrad::program {

// Records the messages that a rank sends, as "sent" of its answer.
struct Watched {
  nlohmann::json messages = nlohmann::json::array();  // {to, bytes, number: the first 32 bits}
  SendObserver observer = [this](int peer, std::span<const std::byte> payload) {
    int32_t number = 0;
    if (payload.size() >= sizeof number) std::memcpy(&number, payload.data(), sizeof number);
    messages.push_back({{"to", peer}, {"bytes", payload.size()}, {"number", number}});
  };
};

// Returns a Messenger for the next collective of a transport.
Messenger messenger(Transport& t, Operation operation, uint64_t count,
                    const SendObserver& observer);

// Rank r's number c: (c + 1) · 10^r. In a sum each rank has a digit of its own, which tells whether
// it is in.
int32_t digit(int rank, int c);

// Draws one line per rank: the numbers that it sent, and its result.
std::string drawing(const char* title, const std::vector<std::vector<int>>& sent,
                    const std::vector<nlohmann::json>& has);
std::vector<std::vector<int>> numbers_sent(const std::vector<nlohmann::json>& answers);

// Throws Wrong unless each rank's bytes are that many, in messages to its right neighbour of at
// most `segment` bytes.
void check_traffic(const std::vector<nlohmann::json>& answers, size_t bytes, size_t segment);

// collective(messages, rank) on three ranks, of which rank 1 is killed when it sends its third
// message. Throws Wrong unless the others end with an error that names it.
void check_killed_rank(Operation operation, uint64_t count,
                       const std::function<void(Messenger&, int rank)>& collective);

}  // namespace ringgrad::program
