#include "ringgrad/distributed/agreement/transport_names.h"

#include "ringgrad/distributed/transport/channel.h"

namespace ringgrad {

const ChannelKind* find_channel_kind(const std::string& name) {
  for (const ChannelKind* kind : channel_kinds())
    if (kind->name == name) return kind;
  return nullptr;
}

std::vector<std::string> transport_names() {
  std::vector<std::string> names{"auto"};
  for (const ChannelKind* kind : channel_kinds()) names.emplace_back(kind->name);
  return names;
}

std::string transport_choices(const std::string& automatic) {
  std::string words = automatic;
  for (const ChannelKind* kind : channel_kinds())
    words += (kind == channel_kinds().back() ? " or " : ", ") + std::string(kind->name);
  return words;
}

bool is_transport(const std::string& name) {
  return name == "auto" || find_channel_kind(name) != nullptr;
}

}  // namespace ringgrad
