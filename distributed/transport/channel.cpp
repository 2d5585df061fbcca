#include "ringgrad/distributed/transport/channel.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace ringgrad {
namespace {

std::vector<const ChannelKind*>& registered() {  // created at its first use, which is before main
  static auto& kinds = *new std::vector<const ChannelKind*>;
  return kinds;
}

}  // namespace

void register_channel(const ChannelKind& kind) {
  const auto place = [](const ChannelKind* of) {
    return std::tuple(-of->preference, std::string_view(of->name));
  };
  auto& kinds = registered();
  kinds.insert(std::ranges::upper_bound(kinds, place(&kind), {}, place), &kind);
}

const std::vector<const ChannelKind*>& channel_kinds() { return registered(); }

}  // namespace ringgrad
