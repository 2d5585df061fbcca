// Code that residual networks share. Private to models.
#pragma once

#include <span>

#include "ringgrad/models/cifar_resnet.h"

namespace ringgrad::models {

// Like all convolutions of these networks it has no bias, because the batch norm after it would
// cancel it.
nn::Conv2d conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride = 1);

void add_projection(nn::Sequential& downsample, int64_t in_channels, int64_t out_channels,
                    int64_t stride);

// Initialises every convolution's weights as He et al. and torchvision do: normal, by the fan out,
// for ReLU.
void init_convolutions(nn::Module& network);

// Fills each layer with its number of blocks. Each layer has twice the channels of the one before
// and, from the second on, half the side.
template <class Block, class... Options>
void add_blocks(std::span<nn::Sequential> layers, std::span<const int> blocks, int64_t channels,
                Options... options) {
  int64_t in_channels = channels;
  for (size_t i = 0; i < layers.size(); ++i, channels *= 2)
    for (int b = 0; b < blocks[i]; ++b) {
      layers[i].push_back(
          std::make_shared<Block>(in_channels, channels, b == 0 && i > 0 ? 2 : 1, options...));
      in_channels = channels * Block::kExpansion;
    }
}

}  // namespace ringgrad::models
