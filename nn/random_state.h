// The states of the default generators, as a checkpoint keeps them (checkpoint.h).
#pragma once

#include <optional>

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::nn {

// random_state() returns the states of the devices' default generators, by the devices' names;
// set_random_state() restores them. Devices that the state names and this machine lacks are
// ignored. With `onto`, the state of whichever device it names is restored on that device, so a run
// that continues elsewhere draws the same numbers. Throws DataError on an entry that is not a
// generator's state.
NamedTensors random_state(const std::vector<Device>& devices = {Device()});
void set_random_state(const NamedTensors& state, std::optional<Device> onto = {});
// Throws what set_random_state() would, and changes nothing.
void check_random_state(const NamedTensors& state);

}  // namespace ringgrad::nn
